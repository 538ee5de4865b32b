"""Ids: `idx2id.hdf5` says which row of which document each id of an index is; the documents get just these rows.

A group for each part of the index, named by the id of its first vector: `doc`, the number of the document, and `word`,
the row among the kept tokens of that document. An index may leave rows out, so a row is never the neighbour of an id.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from kbq.array_types import Rows
from kbq.errors import CorpusError
from kbq.importing.documents import OfficialDocument
from kbq.importing.hdf5 import dataset, is_number, opened
from kbq.importing.hdf5 import group as part_of
from kbq.importing.official_checkpoint import AGAIN

CHUNK = 2**22  # ids that are read at a time
OTHER = "give the metadata and the index of one dump"


class IndexedRows:
    """The rows that an index has, document by document, each a run of ids."""

    def __init__(self, path: Path, vectors: int) -> None:
        """Read where the runs begin, of an index with this number of vectors.

        Raises CorpusError if the file is missing or damaged, or is of another index.
        """
        self._path, self._vectors = path, vectors
        with opened(path) as file:
            if not all(map(is_number, file)):
                raise ValueError("a group is not named by the first id of a part")
            names = sorted(file, key=int)
            if not names:
                raise ValueError("it names nothing")
            parts = [part_of(file, name) for name in names]
            total = sum(len(dataset(part, "doc", np.integer)) for part in parts)
            if total != vectors:  # before anything is read: a file of some kilobytes may say that it has billions
                raise CorpusError(f"{path} names {total:,} vectors, the index has {vectors:,}: {OTHER}, or {AGAIN}")
            runs = [_runs_of(part) for part in parts]
            self._groups = names
        documents, firsts, places, counts = (np.concatenate(column) for column in zip(*runs, strict=True))
        order = np.argsort(documents, kind="stable")
        self._documents, self._order = documents[order], order
        if (twice := np.flatnonzero(np.diff(self._documents) == 0)).size:
            raise CorpusError(f"{path} has document {self._documents[twice[0]]} in two places: {AGAIN}")
        self._firsts, self._places, self._counts = firsts, places, counts
        self._group_of = np.repeat(np.arange(len(runs)), [len(run[0]) for run in runs])
        self._rows = np.full(len(documents), -1, np.int64)  # the first row of each run, counted over all shards

    def documents(self, documents: Iterator[OfficialDocument]) -> Iterator[OfficialDocument]:
        """Yield the documents with the rows that the index has; `runs` knows them afterwards.

        Raises CorpusError if the index has rows or documents that are not among these.
        """
        row = 0
        with opened(self._path) as file:
            words = _Words(file, self._groups)
            for document in documents:
                run = self._run_of(document.number)
                kept = document.kept[:0]
                if run is not None:
                    numbers = words.read(int(self._group_of[run]), int(self._places[run]), int(self._counts[run]))
                    if numbers[-1] >= len(document.kept):
                        raise CorpusError(
                            f"{self._path} names row {numbers[-1]:,} of document {document.number}, which has "
                            f"{len(document.kept):,} in {document.source}: {OTHER}"
                        )
                    kept, self._rows[run] = document.kept[numbers], row
                row += len(kept)
                yield replace(document, kept=kept)
        missing = np.flatnonzero(self._rows[self._order] < 0)
        if len(missing):
            first = self._documents[missing[0]]
            raise CorpusError(
                f"{self._path} names {len(missing):,} documents that the metadata lacks, the first is {first}: {OTHER}"
            )

    def runs(self) -> Rows:
        """Return first id and first row of each run, in the order of ids. Shape: (runs, 2)."""
        return np.stack([self._firsts, self._rows], axis=1)

    def _run_of(self, number: str) -> int | None:
        place = int(np.searchsorted(self._documents, int(number)))
        is_here = place < len(self._documents) and self._documents[place] == int(number)
        return int(self._order[place]) if is_here else None


def _runs_of(group: object) -> tuple[Rows, Rows, Rows, Rows]:
    """Return document, first id, place in the group and length of each run. Shapes: (runs,). Raises ValueError."""
    documents, words = (dataset(group, name, np.integer) for name in ("doc", "word"))
    offset = int(group.attrs.get("offset", 0))  # type: ignore[attr-defined]
    if len(documents) != len(words):
        raise ValueError(f"it names {len(documents):,} documents and {len(words):,} rows")
    begins, numbers, last = [np.empty(0, np.int64)], [np.empty(0, np.int64)], (-1, -1)
    for first in range(0, len(documents), CHUNK):
        part, rows = documents[first : first + CHUNK].astype(np.int64), words[first : first + CHUNK].astype(np.int64)
        before = np.concatenate([[last[0]], part[:-1]])
        falls = (part == before) & (rows <= np.concatenate([[last[1]], rows[:-1]]))
        if falls.any() or rows.min() < 0 or part.min() < 0:
            raise ValueError(f"the rows of document {part[falls.argmax()]} are not in order")
        new = np.flatnonzero(part != before)
        begins.append(new + first)
        numbers.append(part[new])
        last = int(part[-1]), int(rows[-1])
    places = np.concatenate(begins)
    counts = np.diff(places, append=len(documents))
    return np.concatenate(numbers), places + offset, places, counts


class _Words:
    """The rows of ids, read in larger pieces, as runs follow one another."""

    def __init__(self, file: object, groups: list[str]) -> None:
        self._file, self._groups = file, groups
        self._group, self._first, self._piece = -1, 0, np.empty(0, np.int64)

    def read(self, group: int, first: int, count: int) -> Rows:
        """Return `count` rows. Shape: (count,). Raises ValueError."""
        begin = first - self._first
        if group != self._group or begin < 0 or begin + count > len(self._piece):
            words = dataset(part_of(self._file, self._groups[group]), "word", np.integer)
            self._group, self._first, begin = group, first, 0
            self._piece = words[first : first + max(count, CHUNK)].astype(np.int64)
        return self._piece[begin : begin + count]
