"""Postings: an inverted index of one shard, memory-mapped."""

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Bools, Floats
from kbq.dump.shards import (
    LOOKED_AT,
    GrowingArray,
    GrowingTexts,
    Texts,
    open_array,
    refuse_descending,
)
from kbq.errors import KnowledgeBaseError
from kbq.storage.folders import discard_folder, new_folder, remove_folder
from kbq.storage.reading import reading_problem
from kbq.storage.seals import first_damage, read_seal, seal_folder
from kbq.storage.writing import move

Numbers: TypeAlias = Literal["counts", "weights"]
# The command that builds an index.
BUILD = {"counts": "kbq index bm25 {kb}", "weights": "kbq index sparta {kb} MODEL"}


class Entries(NamedTuple):
    """Pairs of a passage and a term that it contains, distinct, in any order. Shapes: (entries,)."""

    passages: NDArray[np.int32]
    terms: NDArray[np.int32]  # indices into the vocabulary
    numbers: NDArray[Any]


def write_postings(
    folder: Path,
    vocabulary: Sequence[str],
    entries: Entries,
    numbers: Numbers,
    of: str,
    others: Mapping[str, NDArray[np.generic]] | None = None,
) -> None:
    """Write and seal an index, atomically replacing an earlier one.

    Args:
        of: digest of the seal of its shard.
        others: arrays to store with it, by name.
    """
    order = np.array(sorted(range(len(vocabulary)), key=vocabulary.__getitem__), np.int64)
    # 16 bits are sorted in one pass.
    rank = np.empty(len(order), np.uint16 if len(order) <= 2**16 else np.uint32)
    rank[order] = np.arange(len(order))
    terms = rank[entries.terms]
    # Makes the bytes independent of the given order.
    by_passage = np.argsort(entries.passages, kind="stable")
    by_term = by_passage[np.argsort(terms[by_passage], kind="stable")]
    partial = folder.with_name(folder.name + ".tmp")
    new_folder(partial)
    counts = np.bincount(terms, minlength=len(order))
    columns: dict[str, NDArray[np.generic]] = {
        "passages": entries.passages[by_term],
        numbers: entries.numbers[by_term],
        "begins": np.append(0, counts.cumsum()),
    }

    for name, values in (columns | dict(others or {})).items():
        array = GrowingArray(partial / f"{name}.npy", values.dtype)
        array.append(values)
        array.close()

    texts = GrowingTexts(partial, "terms")
    try:
        texts.append([vocabulary[index] for index in order])
        texts.bytes.close()
        texts.ends.close()
    finally:
        texts.abandon()

    seal_folder(partial, of)
    old = _old(folder)
    if folder.exists():
        remove_folder(old)
        move(folder, old)

    move(partial, folder)
    discard_folder(old)


def _old(folder: Path) -> Path:
    """Return the folder of an earlier index, which is used until the new one has been renamed."""
    return folder.with_name(folder.name + ".old")


class Postings:
    """The index of one shard: the passages that contain each term, with the weight of the term in
    each.
    """

    def __init__(self, folder: Path, numbers: Numbers) -> None:
        """Open it; call `expect` next. Raises KnowledgeBaseError if a file is missing or damaged,
        or lengths differ.
        """
        self.count = 0
        self.live: Bools | None = None  # whether each passage still counts; None: all do
        if not folder.exists() and _old(folder).exists():
            folder = _old(folder)
        self.folder = folder
        self._kind = numbers
        try:
            self._passages, self._numbers, self._begins = map(
                self.array, ("passages", numbers, "begins")
            )
            self._terms = Texts.open(folder, "terms")
            entries = self._begins[-1]
            if (
                not len(self._passages) == len(self._numbers) == entries
                or len(self._begins) != len(self._terms) + 1
            ):
                raise ValueError("its files differ in length")
            refuse_descending("begins", self._begins, len(self._passages))
        except (OSError, ValueError, IndexError) as error:
            raise damaged(folder, folder.parent.parent, numbers, error) from None

    def expect(self, count: int) -> None:
        """Set the number of passages. A small index is checked: its entries must be of these, its
        weights finite.
        """
        self.count = count
        passages = self._passages
        numbers = self._numbers
        if not len(passages) or passages.nbytes > LOOKED_AT:
            return
        is_inside = (
            passages.dtype.kind == "i" and 0 <= int(passages.min()) <= int(passages.max()) < count
        )
        if not (
            is_inside
            and numbers.dtype.kind in "uf"
            and math.isfinite(float(numbers.min()) + float(numbers.max()))
        ):
            error = ValueError(f"its entries are not numbers of {count:,} passages")
            raise damaged(self.folder, self.folder.parent.parent, self._kind, error)

    def array(self, name: str) -> NDArray[Any]:
        """Open an array of the index. Raises KnowledgeBaseError if its file is missing or damaged."""
        try:
            return open_array(self.folder / f"{name}.npy")
        except (OSError, ValueError) as error:
            raise damaged(self.folder, self.folder.parent.parent, self._kind, error) from None

    def entries(self) -> tuple[list[str], Entries]:
        """Return the vocabulary, and all entries of passages that still count, term by term."""
        terms = np.repeat(np.arange(len(self._terms), dtype=np.int32), np.diff(self._begins))
        if self.live is None:
            kept = slice(None)
        else:
            kept = self.live[self._passages]
        return list(self._terms), Entries(self._passages[kept], terms[kept], self._numbers[kept])

    def of(self, term: str) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """Return the passages that contain a term, and the number of each. Shapes: (passages with
        it,).
        """
        rank = bisect_left(self._terms, term)
        is_known = rank < len(self._terms) and self._terms[rank] == term
        first, stop = self._begins[rank : rank + 2] if is_known else (0, 0)
        passages = self._passages[first:stop]
        numbers = self._numbers[first:stop]
        if self.live is None:
            return passages, numbers
        kept = self.live[passages]
        return passages[kept], numbers[kept]

    def __contains__(self, term: str) -> bool:
        return len(self.of(term)[0]) > 0

    def scores(self, terms: Sequence[str], shares: Sequence[float] = ()) -> Floats:
        """Add up the weights of terms in each passage, or a share of each; repeated terms count
        repeatedly.

        Shapes: shares (terms,) or (0,), result (passages,).
        """
        scores = np.zeros(self.count, np.float32)
        for term, share in zip(terms, itertools.chain(shares, itertools.repeat(1.0)), strict=False):
            passages, weights = self.of(term)
            scores[passages] += np.float32(share) * weights
        return scores

    def strongest(self, passage: int, k: int | None) -> dict[str, float]:
        """Return the k terms with the largest numbers in a passage, or all, the largest first."""
        places = np.flatnonzero(self._passages == passage)
        numbers = self._numbers[places].astype(np.float64)
        best = np.argsort(-numbers, kind="stable")[:k]
        terms = np.searchsorted(self._begins, places[best], side="right") - 1
        return {
            self._terms[int(term)]: float(number)
            for term, number in zip(terms, numbers[best], strict=True)
        }

    def parts(self, terms: Sequence[str], passage: int) -> dict[str, float]:
        """Return the share of each term in the score of a passage."""
        return {
            term: count * float(self.scores([term])[passage])
            for term, count in Counter(terms).items()
        }


def damaged(folder: Path, kb: Path, numbers: Numbers, error: Exception) -> KnowledgeBaseError:
    """Make the error for an index of a knowledge base that cannot be read."""
    advice = f"build it again with `{BUILD[numbers].format(kb=kb)}`"
    return KnowledgeBaseError(f"word index {reading_problem(folder, error, advice)}")


def is_complete(folder: Path, of: str, named: str | None = None) -> bool:
    """Return whether a folder holds a whole index of the shard with this seal, the one `named` if
    one is.
    """
    try:
        seal = read_seal(folder)
        is_named = seal.of == of and seal.digest == (named or seal.digest)
        files = {folder / name: file for name, file in seal.files.items()}
        return is_named and first_damage(files) is None
    except (OSError, ValueError):
        return False
