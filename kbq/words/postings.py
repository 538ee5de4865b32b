"""Postings: an inverted index on the disk: every term of one shard, the passages that have it, and a number for each.

    passages.npy         i32 [entries]    term after term, the passages that have it
    counts.npy           u8 … u32 [entries]  how often it stands there, for BM25; or, for learned impacts,
    weights.npy          f32 [entries]    what it weighs there
    begins.npy           i64 [terms + 1]  where the entries of each term begin, and where the last ones end
    terms.{bin,npy}      terms            sorted

All files are memory-mapped.
"""

import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Floats
from kbq.dump.arrays import GrowingArray, GrowingTexts, Texts, open_array
from kbq.errors import KnowledgeBaseError
from kbq.special_tokens import MARKERS, MENTION

Numbers: TypeAlias = Literal["counts", "weights"]


@dataclass(frozen=True, slots=True)
class Entries:
    """Which passage has which term, each pair once, in any order. Shapes: (entries,)."""

    passages: NDArray[np.int32]
    terms: NDArray[np.int32]  # places in the vocabulary
    numbers: NDArray[Any]


def write_postings(
    folder: Path,
    vocabulary: Sequence[str],
    entries: Entries,
    numbers: Numbers,
    others: Mapping[str, NDArray[np.generic]] | None = None,
) -> None:
    """Write an index in one step, with `others` as files of their own; an earlier index is replaced."""
    order = np.array(sorted(range(len(vocabulary)), key=vocabulary.__getitem__), np.int64)
    place = np.empty(len(order), np.uint16 if len(order) <= 2**16 else np.uint32)  # 16 bits are sorted in one pass
    place[order] = np.arange(len(order))
    terms = place[entries.terms]
    by_term = np.argsort(terms, kind="stable")
    partial = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    columns: dict[str, NDArray[np.generic]] = {
        "passages": entries.passages[by_term],
        numbers: entries.numbers[by_term],
        "begins": np.append(0, np.bincount(terms, minlength=len(order)).cumsum()),
    }
    for name, values in (columns | dict(others or {})).items():
        array = GrowingArray(partial / f"{name}.npy", values.dtype)
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
    """Where the old index lies, and answers, until the new one has taken its place."""
    return folder.with_name(folder.name + ".old")


class Postings:
    """The index of one shard."""

    def __init__(self, folder: Path, numbers: Numbers, made_by: str) -> None:
        """Raises KnowledgeBaseError when a file is missing, damaged, or of another length than the others.

        `made_by`: the option of `kbq index` that makes it again.
        """
        if not folder.exists() and _older(folder).exists():
            folder = _older(folder)
        self.folder, self._made_by = folder, made_by
        try:
            self._passages, self._numbers, self._begins = map(self.array, ("passages", numbers, "begins"))
            self._terms = Texts.open(folder, "terms")
            entries = self._begins[-1]
            if not len(self._passages) == len(self._numbers) == entries or len(self._begins) != len(self._terms) + 1:
                raise ValueError("its files differ in length")
        except (OSError, ValueError, IndexError) as error:
            raise damaged(folder, folder.parent.parent, error, made_by) from None

    def array(self, name: str) -> NDArray[Any]:
        """One file of the index. Raises KnowledgeBaseError when it is missing or damaged."""
        try:
            return open_array(self.folder / f"{name}.npy")
        except (OSError, ValueError) as error:
            raise damaged(self.folder, self.folder.parent.parent, error, self._made_by) from None

    def of(self, term: str) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """The passages that have a term, and the number of each. Shapes: (its passages,)."""
        place = bisect_left(self._terms, term)
        known = place < len(self._terms) and self._terms[place] == term
        first, stop = self._begins[place : place + 2] if known else (0, 0)
        return self._passages[first:stop], self._numbers[first:stop]


def damaged(folder: Path, kb: Path, error: Exception, made_by: str) -> KnowledgeBaseError:
    """The error where an index file of this knowledge base cannot be read, or is of an earlier kbq."""
    return KnowledgeBaseError(
        f"sparse index {folder} is missing or damaged ({error}): make it again with `kbq index {kb} {made_by}`"
    )


class ImpactIndex:
    """What terms weigh in the passages of one shard: as it is stored, unless a subclass computes it."""

    def __init__(self, postings: Postings, count: int) -> None:
        """`count`: passages of the shard."""
        self._postings = postings
        self.count = count

    def impacts(self, term: str) -> tuple[NDArray[np.int32], Floats]:
        """The passages that have a term, and what it weighs there. Shapes: (its passages,)."""
        return self._postings.of(term)

    def scores(self, terms: Sequence[str]) -> Floats:
        """The sum of each passage's impacts; a term that stands twice counts twice. Shape: (passages,)."""
        scores = np.zeros(self.count, np.float32)
        for term in terms:
            passages, weights = self.impacts(term)
            scores[passages] += weights
        return scores

    def parts(self, terms: Sequence[str], passage: int) -> dict[str, float]:
        """What each term adds to a passage's score."""
        return {term: count * float(self.scores([term])[passage]) for term, count in Counter(terms).items()}

    def passages(self, term: str) -> NDArray[np.int32]:
        """The passages that have a term. Shape: (its passages,)."""
        return self._postings.of(term)[0]

    def __contains__(self, term: str) -> bool:
        """Whether any passage has a term."""
        return len(self.passages(term)) > 0


def query_text(text: str) -> str:
    """The text to look up: a marked mention alone, as its context would lead to the page that it was taken from.

    >>> query_text("it joins the [START_ENT] Nile [END_ENT] there"), query_text("Nile [SEP] length")
    (' Nile ', 'Nile   length')
    """
    mention = MENTION.search(text)
    return mention[1] if mention else MARKERS.sub(" ", text)
