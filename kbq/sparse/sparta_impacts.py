"""Sparta impacts: the impacts that a Sparta model gives the sentences of a knowledge base, the k strongest of each.

`sparta-NAME/` of a shard holds its impacts; `sparta-NAME/` of the knowledge base the tokenizer, so that a query needs
no network. NAME stands for the model and k, so that new impacts are written beside those that answer, until the
manifest names them.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kbq.array_types import Floats
from kbq.dump.manifest import Manifest
from kbq.dump.shards import Shard
from kbq.encoding.backbone import saved_tokenizer
from kbq.errors import KnowledgeBaseError, ModelError
from kbq.sparse.impacts import ImpactIndex, query_text
from kbq.sparse.postings import Postings, damaged
from kbq.sparse.sparta_blocks import PARAGRAPHS, write_sentence_impacts
from kbq.sparse.sparta_model import SpartaModel, word_pieces
from kbq.system.stages import Report, Stage, silent

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
