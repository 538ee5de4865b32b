"""Compact and tiny: the rows of all shards become indexes in memory, which find candidates approximately.

Both store a rotation of the vectors with a third of the dimensions, and four bits for each dimension (compact) or for
every two (tiny), in cells. Codes only select rows: more hits than wanted (the coarser the codes, the more) are rescored
with the dump's vectors, so that the scores of the rows found are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from kbq.answers import IndexKind
from kbq.array_types import Floats
from kbq.dump.arrays import open_array, save_array
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.index.base import Whole
from kbq.index.cell_index import CellIndex
from kbq.index.cells import Cells, build_cells, read_cells
from kbq.index.index_folder import CELLS, ROTATION, cells_bytes, open_folders, writing
from kbq.storage.files import reading_problem
from kbq.storage.machine import available_memory
from kbq.storage.progress import Report, silent

FLOOR = 1e-3  # of the largest eigenvalue of queries: other queries may use directions that these do not
SAMPLE = 100_000  # rows to learn the directions of vectors from


@dataclass(frozen=True, slots=True)
class Rotation:
    """Two matrices, for rows and for queries, with (h @ rows) · (q @ queries) ≈ h · q. Shapes: (dim, kept)."""

    rows: Floats
    queries: Floats

    @classmethod
    def fit(cls, vectors: NDArray[np.int8], queries: Floats, kept: int) -> Self:
        """Learn the matrices from rows and queries. Shapes: vectors (rows, dim), queries (queries, dim)."""
        random = np.random.default_rng(0)
        picked = np.sort(random.choice(len(vectors), min(len(vectors), SAMPLE), replace=False))
        moment = queries.T.astype(np.float64) @ queries / max(1, len(queries))
        values, directions = np.linalg.eigh(moment)
        values = np.maximum(values, max(FLOOR * values[-1], 1e-12))
        root = (directions * values**0.5) @ directions.T
        inverse = (directions * values**-0.5) @ directions.T
        weighted = vectors[picked].astype(np.float64) @ root
        widest = np.linalg.eigh(weighted.T @ weighted)[1][:, ::-1][:, :kept]
        turned = widest @ np.linalg.qr(random.normal(size=(kept, kept)))[0]
        return cls((root @ turned).astype(np.float32), (inverse @ turned).astype(np.float32))

    def save(self, path: Path) -> None:
        save_array(path, np.stack([self.rows, self.queries]))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises KnowledgeBaseError for a damaged file."""
        try:
            return cls(*open_array(path))
        except (OSError, ValueError, TypeError) as error:
            advice = f"`kbq verify {path.parents[2]} --repair` builds it again"
            raise KnowledgeBaseError(reading_problem(path, error, advice)) from None


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of a kind of index, and how many hits it rescores."""

    together: int  # dimensions that share four bits
    overfetch: int  # hits to rescore per hit wanted; half as many lose up to half a percent of the ten best phrases

    def kept(self, dim: int) -> int:
        """How many dimensions of a rotated vector are stored."""
        return max(1, dim // 3 // self.together) * self.together


CODES: dict[IndexKind, Codes] = {"compact": Codes(together=1, overfetch=8), "tiny": Codes(together=2, overfetch=32)}


def build_compact(
    shard: Shard, queries: Floats, entry: IndexEntry, device: torch.device, report: Report = silent
) -> None:
    """Build the index of one shard, of the rows above the entry's filter.

    Args:
        queries: to learn the rotation from, in the units of the rows. Shape: (queries, dim).
        device: where rows are compared with cells.

    Raises:
        KnowledgeBaseError: faiss is not installed, or the disk is full.
    """
    codes = CODES[entry.kind]
    with writing(shard, entry) as folder:
        rotation = Rotation.fit(shard.vectors, queries, codes.kept(queries.shape[1]))
        rotation.save(folder / ROTATION)
        rows = shard.rows_above(entry.filter)
        build_cells(folder / CELLS, shard.vectors, rows, rotation.rows, codes.together, device, report)


def open_compact(shards: Sequence[Shard], entry: IndexEntry, whole: Whole | None = None) -> CellIndex:
    """Open the indexes of these shards as one.

    `whole`: see `CellIndex`.

    Raises:
        KnowledgeBaseError: one is missing, damaged or of other rows, or they do not fit in memory.
    """
    folders = open_folders(shards, entry)
    need, free = cells_bytes(folders), available_memory()
    if need > free:
        tiny = f"build one half as large (`kbq index vectors {shards[0].folder.parent} --kind tiny`), or "
        raise KnowledgeBaseError(
            f"the {entry.kind} index needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free: "
            f"{tiny if entry.kind == 'compact' else ''}use --index disk, which stays on the disk, or --index exact"
        )
    cells = {
        number: Cells(
            read_cells(folder / CELLS),
            entry.probes,
            Rotation.open(folder / ROTATION).queries,
            shown=shards[number].shown_or_all(),
        )
        for number, folder in folders.items()
    }
    return CellIndex(shards, cells, CODES[entry.kind].overfetch, whole)
