"""Learned: the impacts that a Sparta model gives the sentences of a knowledge base, the k strongest of each.

`sparta/` of a shard holds its impacts; `sparta/` of the knowledge base the tokenizer, so that a query needs no network.
"""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbq.encoding.backbone import load_tokenizer
from kbq.encoding.windows import tokenize
from kbq.indexing.arrays import open_array
from kbq.indexing.dump import Shard
from kbq.indexing.manifest import Manifest
from kbq.sparse.impacts import Floats, ImpactIndex, Impacts, damaged, query_text, write_impacts
from kbq.sparse.sentences import SentenceWindow, sentence_windows
from kbq.sparse.sparta_model import SpartaModel, strongest_impacts, word_pieces

FOLDER, PARAGRAPHS = "sparta", "paragraphs.npy"
MADE_BY = "--sparta MODEL"
TERMS = 500  # kept of each sentence: in the paper 500 reach 0.77 of the full index's 0.79 MRR
CHUNK = 256  # paragraphs encoded together


def add_sparta(folder: Path, manifest: Manifest, model: SpartaModel, k: int = TERMS) -> Manifest:
    """Write the impacts of all shards, and the tokenizer; the manifest that knows them is the caller's to publish."""
    for shard in map(Shard, manifest.shard_folders(folder)):
        impacts, paragraphs = _impacts(shard, model, k)
        write_impacts(shard.folder / FOLDER, model.vocabulary, impacts)
        np.save(shard.folder / FOLDER / PARAGRAPHS, paragraphs)
    model.tokenizer.save_pretrained(folder / FOLDER)
    return replace(manifest, sparta=True)


def _impacts(shard: Shard, model: SpartaModel, k: int) -> tuple[Impacts, NDArray[np.uint32]]:
    """The impacts of a shard's sentences, and the paragraph of each sentence."""
    sentences, terms, weights, paragraphs = array("i"), array("i"), array("f"), array("I")
    for first in range(0, len(shard.texts), CHUNK):
        windows: list[SentenceWindow] = []
        begin = len(paragraphs)
        for paragraph in range(first, min(first + CHUNK, len(shard.texts))):
            (title,) = tokenize(model.tokenizer, [shard.titles[int(shard.paragraph_documents[paragraph])]])
            found = sentence_windows(model.tokenizer, title.ids, shard.texts[paragraph], model.config.window)
            windows += found
            paragraphs.extend([paragraph] * len(found))
        for index, strongest, impacts in strongest_impacts(model, windows, k):
            sentences.extend([begin + index] * len(strongest))
            terms.frombytes(strongest.numpy().astype(np.int32).tobytes())
            weights.frombytes(impacts.numpy().tobytes())
    columns = (np.frombuffer(sentences, np.int32), np.frombuffer(terms, np.int32), np.frombuffer(weights, np.float32))
    return Impacts(*columns), np.frombuffer(paragraphs, np.uint32)


class SentenceImpacts:
    """The learned impacts of one shard; a paragraph scores like its best sentence."""

    def __init__(self, shard: Shard) -> None:
        """Raises KnowledgeBaseError when files are missing or damaged."""
        folder = shard.folder / FOLDER
        try:
            self.paragraphs = open_array(folder / PARAGRAPHS)
        except (OSError, ValueError) as error:
            raise damaged(folder, error, MADE_BY) from None
        self._index = ImpactIndex(folder, len(self.paragraphs), MADE_BY)
        self._count = len(shard.texts)

    def scores(self, terms: Sequence[str]) -> Floats:
        """Shape: (paragraphs,)."""
        best = np.zeros(self._count, np.float32)
        np.maximum.at(best, self.paragraphs, self._index.scores(terms))
        return best

    def parts(self, terms: Sequence[str], paragraph: int) -> dict[str, float]:
        """What each term adds to a paragraph's score, in its best sentence."""
        sentences = np.flatnonzero(self.paragraphs == paragraph)
        best = sentences[np.argmax(self._index.scores(terms)[sentences])] if len(sentences) else None
        return dict.fromkeys(terms, 0.0) if best is None else self._index.parts(terms, int(best))


class PieceReader:
    """Queries as the word pieces that learned impacts are looked up by."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer: Any = load_tokenizer(folder / FOLDER)

    def terms(self, text: str) -> list[str]:
        """In order and with repetitions."""
        ids = word_pieces(self._tokenizer, query_text(text))
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(ids)
        return pieces
