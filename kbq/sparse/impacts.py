"""Impacts: an inverted index of one shard; a passage's score is the sum of its impacts for the query's terms.

    passages.npy         i32 [entries]    term after term, the passages that have it
    weights.npy          f32 [entries]    their impacts
    begins.npy           i64 [terms + 1]  where the entries of each term begin, and where the last ones end
    terms.{bin,npy}      terms            sorted

All files are memory-mapped; bm25s adds the impacts up.
"""

import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Floats
from kbq.dump.arrays import GrowingArray, GrowingTexts, Texts, open_array
from kbq.errors import KnowledgeBaseError
from kbq.text.markers import MARKERS, MENTION

ARRAYS = ("passages", "weights", "begins")


@dataclass(frozen=True, slots=True)
class Impacts:
    """What a passage weighs for a term, each pair once, in any order. Shapes: (entries,)."""

    passages: NDArray[np.int32]
    terms: NDArray[np.int32]  # places in the vocabulary
    weights: Floats


def write_impacts(
    folder: Path, vocabulary: Sequence[str], impacts: Impacts, others: Mapping[str, NDArray[np.generic]] | None = None
) -> None:
    """Write an index in one step, with `others` as files of their own; one that lies there is replaced."""
    order = np.array(sorted(range(len(vocabulary)), key=vocabulary.__getitem__), np.int64)
    place = np.empty(len(order), np.uint16 if len(order) <= 2**16 else np.uint32)  # 16 bits are sorted in one pass
    place[order] = np.arange(len(order))
    terms = place[impacts.terms]
    by_term = np.argsort(terms, kind="stable")
    partial = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    columns: tuple[NDArray[np.generic], ...] = (
        impacts.passages[by_term],
        impacts.weights[by_term],
        np.append(0, np.bincount(terms, minlength=len(order)).cumsum()),
    )
    files = dict(zip((f"{name}.npy" for name in ARRAYS), columns, strict=True)) | dict(others or {})
    for name, values in files.items():
        array = GrowingArray(partial / name, values.dtype)
        array.append(values)
        array.close()
    texts = GrowingTexts(partial, "terms")
    texts.append([vocabulary[index] for index in order])
    texts.bytes.close()
    texts.ends.close()
    older = _older(folder)
    if folder.exists():
        shutil.rmtree(older, ignore_errors=True)
        folder.rename(older)
    partial.rename(folder)
    shutil.rmtree(older, ignore_errors=True)


def _older(folder: Path) -> Path:
    """What answers between the moments when an index leaves its place and when the new one takes it."""
    return folder.with_name(folder.name + ".old")


def query_text(text: str) -> str:
    """What is looked up. Of a marked mention nothing else: its context would lead to the page that it was taken from.

    >>> query_text("it joins the [START_ENT] Nile [END_ENT] there"), query_text("Nile [SEP] length")
    (' Nile ', 'Nile   length')
    """
    mention = MENTION.search(text)
    return mention[1] if mention else MARKERS.sub(" ", text)


class ImpactIndex:
    """An index as `write_impacts` left it, over `count` passages."""

    def __init__(self, folder: Path, count: int, made_by: str = "--bm25") -> None:
        """Raises KnowledgeBaseError when a file is missing, damaged, or of another length than the others.

        `made_by`: the option of `kbq index` that makes it again.
        """
        import bm25s  # only here: a dense search needs none of what it brings

        if not folder.exists() and _older(folder).exists():
            folder = _older(folder)
        try:
            passages, weights, begins = (open_array(folder / f"{name}.npy") for name in ARRAYS)
            self._terms = Texts.open(folder, "terms")
            if not len(passages) == len(weights) == begins[-1] or len(begins) != len(self._terms) + 1:
                raise ValueError("its files differ in length")
        except (OSError, ValueError, IndexError) as error:
            raise damaged(folder, error, made_by) from None
        self.count = count
        self._passages, self._begins = passages, begins
        self._engine = bm25s.BM25()
        self._engine.scores = {"data": weights, "indices": passages, "indptr": begins, "num_docs": count}
        self._engine.nonoccurrence_array = None

    def scores(self, terms: Sequence[str]) -> Floats:
        """The sum of each passage's impacts; a term that stands twice counts twice. Shape: (passages,)."""
        known = [place for place in map(self._place, terms) if place is not None]
        if not known:
            return np.zeros(self.count, np.float32)
        scores: Floats = self._engine.get_scores_from_ids(known)
        return scores

    def parts(self, terms: Sequence[str], passage: int) -> dict[str, float]:
        """What each term adds to a passage's score."""
        return {term: often * float(self.scores([term])[passage]) for term, often in Counter(terms).items()}

    def passages(self, term: str) -> NDArray[np.int32]:
        """The passages that have a term. Shape: (as many,)."""
        place = self._place(term)
        first, stop = (0, 0) if place is None else self._begins[place : place + 2]
        return self._passages[first:stop]

    def __contains__(self, term: str) -> bool:
        """Whether any passage has a term."""
        return self._place(term) is not None

    def _place(self, term: str) -> int | None:
        place = bisect_left(self._terms, term)
        return place if place < len(self._terms) and self._terms[place] == term else None


def damaged(folder: Path, error: Exception, made_by: str) -> KnowledgeBaseError:
    """What to say where a file of an index cannot be read."""
    return KnowledgeBaseError(
        f"sparse index {folder} is missing or damaged ({error}): make it again with `kbq index {made_by}`"
    )
