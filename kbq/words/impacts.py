"""Impacts: the terms of sentences as a SPARTA model weighs them, to score paragraphs by.

They are stored in `sparta-NAME/` of each shard, the tokenizer in `sparta-NAME/` of the knowledge
base, so a query needs no network. NAME is a digest of the model, k and the format: new impacts are
written with those in use still there, until the manifest names the new ones.
"""

import hashlib
import zipfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Floats
from kbq.dump.manifest import Manifest, changing, write_manifest
from kbq.dump.shards import Shard, ShardEntry
from kbq.errors import KnowledgeBaseError, ModelError
from kbq.model.backbone import saved_tokenizer
from kbq.model.tokenizer import tokenize
from kbq.storage.folders import discard_folder, files_for, folder_bytes, make_folder, remove_folder
from kbq.storage.paths import as_path
from kbq.storage.records import json_line
from kbq.storage.reports import Report, Stage, silent
from kbq.storage.seals import seal_folder
from kbq.storage.writing import replacing
from kbq.text.queries import Query
from kbq.words.postings import Entries, Postings, damaged, is_complete, write_postings
from kbq.words.sparta import SpartaModel, strongest_impacts, word_pieces

# Arrays of sentences, .npy, u32: the paragraph of each, its first character there, and the one
# behind its last.
PARAGRAPHS = "paragraphs"
STARTS = "starts"
ENDS = "ends"
OF_SENTENCES = (PARAGRAPHS, STARTS, ENDS)
FORMAT = 2  # changes with the arrays
IMPACT_STEPS = 100  # whole numbers that stand for an impact of 1 in exported files
BLOCK = 512  # paragraphs encoded together; a kill loses one block at most


def add_sparta(
    folder: Path,
    manifest: Manifest,
    model: SpartaModel,
    k: int,
    report: Report = silent,
) -> Manifest:
    """Index all shards, and write the tokenizer; return the new manifest, which the caller writes.

    A killed run resumes; shards that already have these impacts are skipped. `k` is the number of
    impacts kept for each sentence, the strongest.
    """
    if k < 1:
        raise KnowledgeBaseError(f"terms is {k}, must be at least 1: choose a larger --terms")
    made_of = f"{model.fingerprint()} {k} {FORMAT}"
    name = hashlib.blake2b(made_of.encode(), digest_size=4).hexdigest()
    manifest = replace(manifest, sparta=name)
    stage = Stage(report, "impacts learned, paragraphs", manifest.counts.paragraphs)
    built = [f"sparta-{name}"]

    for shard in manifest.open_shards(folder):
        if is_complete(sparta_folder(shard.folder, manifest), shard.seal):
            stage.add(len(shard.texts))
        else:
            write_sentence_impacts(sparta_folder(shard.folder, manifest), shard, model, k, stage)
            built.append(f"{shard.folder.name}/sparta-{name}")

    with files_for(sparta_folder(folder, manifest)) as partial:
        model.tokenizer.save_pretrained(partial)
    seal_folder(sparta_folder(folder, manifest))
    return manifest.without_seals(built)


def sparta_folder(folder: Path, manifest: Manifest) -> Path:
    """Return the folder of the impacts of a shard, or of the tokenizer of a knowledge base."""
    return folder / f"sparta-{manifest.sparta}"


def write_sentence_impacts(
    folder: Path, shard: Shard, model: SpartaModel, k: int, stage: Stage
) -> None:
    """Write the index of a shard, resuming at the first missing block; `stage` counts paragraphs."""
    blocks_folder = folder.with_name(folder.name + ".blocks")
    make_folder(blocks_folder)
    blocks = []
    for first in range(0, len(shard.texts), BLOCK):
        block = blocks_folder / f"{first}.npz"
        stop = min(first + BLOCK, len(shard.texts))
        if not _is_block(block):
            _write_block(block, shard, range(first, stop), model, k)
        blocks.append(block)
        stage.add(stop - first)

    entries, of_sentences = _joined(blocks)
    write_postings(folder, model.vocabulary, entries, "weights", shard.seal, of_sentences)
    remove_folder(blocks_folder)


def _write_block(path: Path, shard: Shard, paragraphs: range, model: SpartaModel, k: int) -> None:
    """Write the impacts of the sentences of some paragraphs, numbered from 0, atomically."""
    windows = []
    places: list[tuple[int, int, int]] = []
    titles = tokenize(model.tokenizer, [shard.title_of(paragraph) for paragraph in paragraphs])
    for title, paragraph in zip(titles, paragraphs, strict=True):
        paragraph_windows = model.windows(title.ids, shard.texts[paragraph])
        windows += paragraph_windows
        for window in paragraph_windows:
            places += [(paragraph, one.start, one.end) for one in window.sentences]

    sentences = array("i")
    terms = array("i")
    weights = array("f")
    for sentence, strongest, impacts in strongest_impacts(model, windows, k):
        sentences.extend([sentence] * len(strongest))
        terms.frombytes(strongest.numpy().astype(np.int32).tobytes())
        weights.frombytes(impacts.numpy().tobytes())

    owners, starts, ends = np.array(places, np.uint32).reshape(-1, len(OF_SENTENCES)).T
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(
            file,
            sentences=sentences,
            terms=terms,
            weights=weights,
            paragraphs=owners,
            starts=starts,
            ends=ends,
        )


def _is_block(path: Path) -> bool:
    try:
        with path.open("rb") as file, np.load(file) as block:
            return {"sentences", "terms", "weights", *OF_SENTENCES} <= set(block.files)
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _joined(blocks: Sequence[Path]) -> tuple[Entries, dict[str, NDArray[np.uint32]]]:
    """Return the impacts of all blocks, and the arrays of their sentences."""
    parts = [Entries(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))]
    of_sentences = {name: [np.empty(0, np.uint32)] for name in OF_SENTENCES}
    before = 0
    for path in blocks:
        with np.load(path) as block:
            sentences = block["sentences"] + np.int32(before)
            parts.append(Entries(sentences, block["terms"], block["weights"]))
            for name, columns in of_sentences.items():
                columns.append(block[name])
            before += len(block[PARAGRAPHS])

    entries = Entries(*map(np.concatenate, zip(*parts, strict=True)))
    return entries, {name: np.concatenate(columns) for name, columns in of_sentences.items()}


def compact_sparta(
    folder: Path, manifest: Manifest, new: Sequence[ShardEntry], old: Sequence[Shard]
) -> None:
    """Copy impacts from old shards to new ones, which hold the remaining pages in the same order."""
    terms: dict[str, int] = {}
    columns: list[Entries] = []
    # The paragraph of each remaining sentence, counted over all shards, and its characters.
    owners: list[NDArray[np.int64]] = []
    characters: list[NDArray[np.uint32]] = []
    sentences = paragraphs = 0

    for shard in old:
        postings = Postings(sparta_folder(shard.folder, manifest), "weights")
        of_sentences = postings.array(PARAGRAPHS)
        left = np.ones(len(shard.texts), bool) if shard.live is None else shard.live
        postings.live = left[of_sentences]
        vocabulary, entries = postings.entries()
        numbers = np.array([terms.setdefault(term, len(terms)) for term in vocabulary], np.int32)
        places = (np.cumsum(postings.live) - 1 + sentences).astype(np.int32)
        columns.append(Entries(places[entries.passages], numbers[entries.terms], entries.numbers))
        owners.append((np.cumsum(left) - 1 + paragraphs)[of_sentences[postings.live]])
        bounds = np.stack([postings.array(STARTS), postings.array(ENDS)])
        characters.append(bounds[:, postings.live])
        sentences += int(postings.live.sum())
        paragraphs += int(left.sum())

    passages, numbers, weights = (np.concatenate(column) for column in zip(*columns, strict=True))
    owner = np.concatenate(owners)
    starts, ends = np.concatenate(characters, axis=1)
    first = 0
    for entry in new:
        begin, stop = np.searchsorted(owner, [first, first + entry.size.paragraphs])
        inside = (passages >= begin) & (passages < stop)
        others = {
            PARAGRAPHS: (owner[begin:stop] - first).astype(np.uint32),
            STARTS: starts[begin:stop],
            ENDS: ends[begin:stop],
        }
        entries = Entries(passages[inside] - np.int32(begin), numbers[inside], weights[inside])
        write_postings(
            sparta_folder(folder / entry.name, manifest),
            list(terms),
            entries,
            "weights",
            entry.seal,
            others,
        )
        first += entry.size.paragraphs


def index_sparta(
    folder: Path,
    model: str | Path,
    terms: int,
    device: str = "auto",
    report: Report = silent,
) -> int:
    """Add or replace the impacts of a SPARTA model in a finished knowledge base; return their size
    in bytes.

    `terms` is the number of impacts kept for each sentence, the strongest.
    """
    with changing(folder) as before:
        opened = SpartaModel.open(as_path(model, "a SPARTA model"), device)
        manifest = add_sparta(folder, before, opened, terms, report)
        write_manifest(folder, manifest)
        for parent in (folder, *manifest.shard_folders(folder)):  # also of killed runs
            for other in set(parent.glob("sparta-*")) - {sparta_folder(parent, manifest)}:
                discard_folder(other)
    return sum(
        folder_bytes(sparta_folder(shard, manifest)) for shard in manifest.shard_folders(folder)
    )


class SentenceImpacts:
    """The SPARTA index of one shard; the score of a paragraph is that of its best sentence."""

    def __init__(self, shard: Shard, manifest: Manifest) -> None:
        """Raises KnowledgeBaseError if a file is missing or damaged."""
        postings = Postings(sparta_folder(shard.folder, manifest), "weights")
        self.paragraphs, self._starts, self._ends = map(postings.array, OF_SENTENCES)
        if not len(self.paragraphs) == len(self._starts) == len(self._ends):
            error = ValueError("the arrays of its sentences differ in length")
            raise damaged(postings.folder, shard.folder.parent, "weights", error)

        if len(self.paragraphs) and not self.paragraphs.max() < len(shard.texts):
            error = ValueError(
                f"a sentence belongs to paragraph {self.paragraphs.max()} of {len(shard.texts)}"
            )
            raise damaged(postings.folder, shard.folder.parent, "weights", error)

        postings.expect(len(self.paragraphs))
        if shard.live is None:
            postings.live = None
        else:
            postings.live = shard.live[self.paragraphs]
        self._sentences = postings
        self._count = len(shard.texts)
        self._texts = shard.texts

    def scores(self, terms: Sequence[str], shares: Sequence[float] = ()) -> Floats:
        """Return the score of each paragraph for these terms, or a share of each. Shape:
        (paragraphs,).
        """
        best = np.zeros(self._count, np.float32)
        np.maximum.at(best, self.paragraphs, self._sentences.scores(terms, shares))
        return best

    def sentence_scores(self, terms: Sequence[str]) -> Floats:
        """Return the score of each sentence for these terms. Shape: (sentences,)."""
        return self._sentences.scores(terms)

    def place(self, sentence: int) -> tuple[int, tuple[int, int]]:
        """Return the paragraph of a sentence, and its characters there."""
        characters = int(self._starts[sentence]), int(self._ends[sentence])
        return int(self.paragraphs[sentence]), characters

    def sentences(self, paragraph: int, k: int | None = None) -> list[tuple[str, dict[str, float]]]:
        """Return each sentence of a paragraph with its k strongest terms, or all, and their
        impacts.

        A sentence that is longer than a window is several.
        """
        text = self._texts[paragraph]
        found = []
        for number in np.flatnonzero(self.paragraphs == paragraph).tolist():
            _, (start, end) = self.place(number)
            found.append((text[start:end], self._sentences.strongest(number, k)))
        return found

    def statistics(self, terms: Iterable[str]) -> None:
        """Return None, because scores depend on nothing outside this shard."""

    def parts(self, terms: Sequence[str], paragraph: int) -> dict[str, float]:
        """Return how much each term adds to the score of a paragraph, which is that of its best
        sentence.
        """
        sentences = np.flatnonzero(self.paragraphs == paragraph)
        best = (
            sentences[np.argmax(self._sentences.scores(terms)[sentences])]
            if len(sentences)
            else None
        )
        return (
            dict.fromkeys(terms, 0.0) if best is None else self._sentences.parts(terms, int(best))
        )


def impact_lines(shards: Sequence[Shard], manifest: Manifest) -> Iterator[str]:
    """Yield each sentence as Anserini's JsonVectorCollection has documents: an id, a text, and
    integer impacts.

    An id is PAGE:PARAGRAPH:SENTENCE. Impacts are rounded to hundredths, as whole numbers.
    """
    for shard in shards:
        impacts = SentenceImpacts(shard, manifest)
        for paragraph in np.unique(impacts.paragraphs).tolist():
            if shard.live is not None and not shard.live[paragraph]:
                continue
            paragraph_id = f"{shard.ids[int(shard.paragraph_pages[paragraph])]}:{shard.paragraph_numbers[paragraph]}"
            sentences = impacts.sentences(paragraph)
            for number, (text, terms) in enumerate(sentences):
                vector = {term: round(IMPACT_STEPS * weight) for term, weight in terms.items()}
                yield json_line(
                    {"id": f"{paragraph_id}:{number}", "contents": text, "vector": vector}
                )


class PieceTokenizer:
    """Turns queries into the word pieces that are the terms of a SPARTA index."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Raises KnowledgeBaseError if the tokenizer is missing or damaged."""
        tokenizer_folder = sparta_folder(folder, manifest)
        try:
            self._tokenizer: Any = saved_tokenizer(tokenizer_folder)
        except ModelError as error:
            raise damaged(tokenizer_folder, folder, "weights", error) from None

    def terms(self, query: Query) -> list[str]:
        """Return the word pieces of a query, in order, with repetitions."""
        ids = word_pieces(self._tokenizer, query.words)
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(ids)
        return pieces
