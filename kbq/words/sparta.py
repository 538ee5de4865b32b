"""Sparta impacts: the impacts that a Sparta model gives the sentences of a knowledge base, the k strongest of each.

`sparta-NAME/` of a shard holds its impacts; `sparta-NAME/` of the knowledge base the tokenizer, so that a query needs
no network. NAME stands for the model and k, so that new impacts are written beside those that answer, until the
manifest names them.
"""

import hashlib
import shutil
import zipfile
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Floats
from kbq.dump.manifest import Manifest
from kbq.dump.shards import Shard
from kbq.encoding.backbone import saved_tokenizer
from kbq.encoding.windows import tokenize
from kbq.errors import KnowledgeBaseError, ModelError
from kbq.system.callbacks import Report, Stage, silent
from kbq.system.files import replacing
from kbq.words.postings import Entries, ImpactIndex, Postings, damaged, query_text, write_postings
from kbq.words.sparta_model import SpartaModel, strongest_impacts, word_pieces

PARAGRAPHS = "paragraphs"  # .npy, u32 [sentences]: the paragraph of each
BLOCK = 512  # paragraphs encoded together; a kill loses no more


def write_sentence_impacts(folder: Path, shard: Shard, model: SpartaModel, k: int, stage: Stage) -> None:
    """Write the index of a shard, from the first block that is not there.

    Args:
        k: impacts kept of each sentence, the strongest.
        stage: told after each block how many paragraphs it has.
    """
    workshop = folder.with_name(folder.name + ".blocks")
    workshop.mkdir(exist_ok=True)
    blocks = []
    for first in range(0, len(shard.texts), BLOCK):
        block = workshop / f"{first}.npz"
        stop = min(first + BLOCK, len(shard.texts))
        if not _has_all_blocks(block):
            _write_block(block, shard, range(first, stop), model, k)
        blocks.append(block)
        stage.add(stop - first)
    entries, paragraphs = _joined(blocks)
    write_postings(folder, model.vocabulary, entries, "weights", {PARAGRAPHS: paragraphs})
    shutil.rmtree(workshop)


def _write_block(path: Path, shard: Shard, paragraphs: range, model: SpartaModel, k: int) -> None:
    """Write the impacts of some paragraphs' sentences, which are numbered from 0, in one step."""
    windows, owners = [], array("I")
    titles = tokenize(model.tokenizer, [shard.title_of(paragraph) for paragraph in paragraphs])
    for title, paragraph in zip(titles, paragraphs, strict=True):
        paragraph_windows = model.windows(title.ids, shard.texts[paragraph])
        windows += paragraph_windows
        owners.extend([paragraph] * sum(len(window.sentences) for window in paragraph_windows))
    sentences, terms, weights = array("i"), array("i"), array("f")
    for sentence, strongest, impacts in strongest_impacts(model, windows, k):
        sentences.extend([sentence] * len(strongest))
        terms.frombytes(strongest.numpy().astype(np.int32).tobytes())
        weights.frombytes(impacts.numpy().tobytes())
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, sentences=sentences, terms=terms, weights=weights, paragraphs=owners)


def _has_all_blocks(path: Path) -> bool:
    try:
        with path.open("rb") as file, np.load(file) as block:
            return {"sentences", "terms", "weights", "paragraphs"} <= set(block.files)
    except (OSError, ValueError, zipfile.BadZipFile):  # it is not there, or damaged
        return False


def _joined(blocks: Sequence[Path]) -> tuple[Entries, NDArray[np.uint32]]:
    """All blocks' impacts, and the paragraph of each sentence."""
    empty = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint32))
    parts = [empty]
    before = 0
    for path in blocks:
        with np.load(path) as block:
            parts.append((block["sentences"] + np.int32(before), block["terms"], block["weights"], block["paragraphs"]))
            before += len(block["paragraphs"])
    sentences, terms, weights, paragraphs = map(np.concatenate, zip(*parts, strict=True))
    return Entries(sentences, terms, weights), paragraphs


MADE_BY = "--sparta MODEL"
TERMS = 500  # kept of each sentence: in the paper 500 reach 0.77 of the full index's 0.79 MRR


def add_sparta(
    folder: Path,
    manifest: Manifest,
    model: SpartaModel,
    k: int = TERMS,
    report: Report = silent,
) -> Manifest:
    """Write the impacts of all shards, and the tokenizer; the manifest with them is returned for the caller to write.

    A run that was killed goes on, and a shard that has these impacts keeps them.

    Args:
        k: impacts kept of each sentence, the strongest.

    Raises:
        KnowledgeBaseError: k is below 1.
    """
    if k < 1:
        raise KnowledgeBaseError(f"{k} impacts of a sentence are asked for: keep at least 1 with --terms")
    name = hashlib.blake2b(f"{model.fingerprint()} {k}".encode(), digest_size=4).hexdigest()
    manifest = replace(manifest, sparta=name)
    stage = Stage(report, "impacts learned, paragraphs", manifest.counts.paragraphs)
    for shard in manifest.open_shards(folder):
        if _is_whole(shard, manifest):
            stage.add(len(shard.texts))
        else:
            write_sentence_impacts(sparta_folder(shard.folder, manifest), shard, model, k, stage)
    model.tokenizer.save_pretrained(sparta_folder(folder, manifest))
    return manifest


def sparta_folder(folder: Path, manifest: Manifest) -> Path:
    """Where the impacts of a shard lie, or the tokenizer of a knowledge base."""
    return folder / f"sparta-{manifest.sparta}"


def remove_other_impacts(folder: Path, manifest: Manifest) -> None:
    """Remove the impacts that earlier manifests named, and what killed runs have left."""
    for place in (folder, *manifest.shard_folders(folder)):
        for other in set(place.glob("sparta-*")) - {sparta_folder(place, manifest)}:
            shutil.rmtree(other, ignore_errors=True)


def _is_whole(shard: Shard, manifest: Manifest) -> bool:
    try:
        SentenceImpacts(shard, manifest)
    except KnowledgeBaseError:
        return False
    return True


class SentenceImpacts:
    """The learned impacts of one shard; a paragraph scores like its best sentence."""

    def __init__(self, shard: Shard, manifest: Manifest) -> None:
        """Raises KnowledgeBaseError when files are missing or damaged."""
        postings = Postings(sparta_folder(shard.folder, manifest), "weights", MADE_BY)
        self.paragraphs = postings.array(PARAGRAPHS)
        self._index = ImpactIndex(postings, len(self.paragraphs))
        self._count = len(shard.texts)

    def scores(self, terms: Sequence[str]) -> Floats:
        """What these terms weigh in each paragraph. Shape: (paragraphs,)."""
        best = np.zeros(self._count, np.float32)
        np.maximum.at(best, self.paragraphs, self._index.scores(terms))
        return best

    def parts(self, terms: Sequence[str], paragraph: int) -> dict[str, float]:
        """What each term adds to a paragraph's score, in its best sentence."""
        sentences = np.flatnonzero(self.paragraphs == paragraph)
        best = sentences[np.argmax(self._index.scores(terms)[sentences])] if len(sentences) else None
        return dict.fromkeys(terms, 0.0) if best is None else self._index.parts(terms, int(best))


class PieceTokenizer:
    """Queries as the word pieces that learned impacts are looked up by."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Raises KnowledgeBaseError when the tokenizer is missing or damaged."""
        place = sparta_folder(folder, manifest)
        try:
            self._tokenizer: Any = saved_tokenizer(place)
        except ModelError as error:
            raise damaged(place, folder, error, MADE_BY) from None

    def terms(self, text: str) -> list[str]:
        """The word pieces of a query, in order and with repetitions."""
        ids = word_pieces(self._tokenizer, query_text(text))
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(ids)
        return pieces
