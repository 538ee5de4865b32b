"""Factory: choose, build or open the index of a knowledge base.

Disk, compact and tiny indexes have their rows in cells. Disk maps the int8 vectors. The others keep
a rotation of the vectors in memory, with a third of the dimensions and four bits for each dimension
(compact) or every two (tiny). Codes only select rows: the coarser they are, the more hits are
scored again with the dump's vectors, so that all scores are exact.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from kbq.answers import BuiltKind, IndexKind, WantedKind
from kbq.array_types import Floats
from kbq.dump.manifest import IMPORTED, IndexEntry, Manifest
from kbq.dump.shards import Shard, open_array, save_array
from kbq.errors import KnowledgeBaseError
from kbq.index.base import CPU, Index, KnowledgeBaseSize, out_of_memory_refused
from kbq.index.cells import CellIndex, Cells, build_cells, read_cells
from kbq.index.exact import ExactIndex
from kbq.index.gpu_codes import WORKING as CODES_WORKING
from kbq.index.gpu_codes import CodeFile, Codes, GpuCellIndex, Packing, codes_work
from kbq.index.placement import bytes_of, devices_for, gpus_for
from kbq.plugins import plugin
from kbq.storage.folders import discard_folder, new_folder
from kbq.storage.machine import available_memory, stays_in_memory
from kbq.storage.reading import reading_from, reading_problem
from kbq.storage.reports import Report, silent
from kbq.storage.seals import SEAL, first_damage, head_damage, read_seal, seal_folder

# `build_missing`.
Build = Callable[[Sequence[Shard], IndexEntry, Floats, torch.device, Report], None]
EXACT_ROWS = 2_000_000  # above, exact search becomes slow
CELLS = "cells.faiss"
ROTATION = "rotation.npy"
# Share of the largest eigenvalue of queries: other queries may use directions that these do not.
FLOOR = 1e-3
SAMPLE = 100_000  # rows to learn the directions of vectors from


def chosen_kind(manifest: Manifest, wanted: WantedKind) -> BuiltKind:
    """Return the wanted kind. `auto` is that of the default index or, if it is exact, depends on
    the number of rows.
    """
    if wanted != "auto":
        return wanted
    kind = manifest.index.kind
    if kind != "exact" and kind != "official":
        return kind
    if manifest.counts.rows <= EXACT_ROWS:
        return "exact"
    return "compact"


@dataclass(frozen=True, slots=True)
class CellCodes:
    """How a kind of index stores rows in cells, and how many hits it scores again."""

    together: int  # dimensions of rotated vectors that share four bits; 0: int8 vectors as they are
    overfetch: int  # hits to score again per hit wanted

    def kept(self, dim: int) -> int:
        return max(1, dim // 3 // self.together) * self.together


CODES: dict[IndexKind, CellCodes] = {
    "disk": CellCodes(0, 2),  # 4 found nothing more among 1.4 million rows
    # Half as many lose up to half a percent of the ten best phrases; so they do of tiny.
    "compact": CellCodes(1, 8),
    "tiny": CellCodes(2, 32),
}


@dataclass(frozen=True, slots=True)
class Rotation:
    """Two matrices, for rows and for queries, with (h @ rows) · (q @ queries) ≈ h · q. Shapes:
    (dim, kept).
    """

    rows: Floats
    queries: Floats

    @classmethod
    def fit(cls, vectors: NDArray[np.int8], queries: Floats, kept: int) -> Self:
        """Learn the matrices from rows and queries. Shapes: vectors (rows, dim), queries (queries,
        dim).
        """
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

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the matrices. Raises KnowledgeBaseError if the file is damaged."""
        with reading_from(
            path, KnowledgeBaseError, f"`kbq verify {path.parents[2]} --repair` builds it again"
        ):
            rows, queries = open_array(path, np.float32, 3)
        return cls(rows, queries)


def build_missing(
    shards: Sequence[Shard],
    entry: IndexEntry,
    queries: Floats,
    device: torch.device = CPU,
    report: Report = silent,
) -> None:
    """Build an index for every shard that lacks it; exact search needs none.

    `queries` are examples of those to expect, in the units of the rows. Shape: (queries, dim).
    Raises KnowledgeBaseError if faiss is not installed, or the disk is full.
    """
    for number, shard in enumerate(shards, start=1):
        if is_built([shard], entry):
            continue

        def report_shard(stage: str, done: int, total: int, number: int = number) -> None:
            report(f"{entry.kind} index, shard {number} of {len(shards)}, {stage}", done, total)

        _build(shard, entry, queries, device, report_shard)


def _build(
    shard: Shard, entry: IndexEntry, queries: Floats, device: torch.device, report: Report
) -> None:
    """Index the rows of a shard above the entry's filter, in a folder that is sealed at the end."""
    folder = shard.folder / entry.part
    codes = CODES[entry.kind]
    rotation = None
    new_folder(folder)
    if codes.together:
        fitted = Rotation.fit(shard.vectors, queries, codes.kept(queries.shape[1]))
        save_array(folder / ROTATION, np.stack([fitted.rows, fitted.queries]))
        rotation = fitted.rows
    rows = shard.rows_above(entry.filter)
    build_cells(folder / CELLS, shard.vectors, rows, rotation, codes.together, device, report)
    seal_folder(folder, of=shard.seal)


def is_built(shards: Sequence[Shard], entry: IndexEntry) -> bool:
    try:
        return entry.kind == "exact" or _folders(shards, entry) is not None
    except KnowledgeBaseError:
        return False


def remove_others(shards: Sequence[Path], entry: IndexEntry) -> None:
    """Remove indexes of the same kind with another filter, or for other queries, from the folders
    of shards.
    """
    for shard in shards:
        for other in set(shard.glob(f"{entry.kind}*")) - {shard / entry.part}:
            discard_folder(other)


@dataclass(frozen=True, slots=True)
class Place:
    """Which index a search uses, on which device, and why; GPUs beside this one may hold shards,
    too.
    """

    entry: IndexEntry
    device: torch.device
    why: str


def choose_place(
    shards: Sequence[Shard],
    entries: Sequence[IndexEntry],
    wanted: IndexKind | None,
    device: torch.device,
    may_leave_gpu: bool = True,
    copies: int = 1,
) -> Place:
    """Choose the wanted index or, on a GPU, exact search if all rows fit there, codes if they do,
    or the CPU.

    Args:
        entries: the indexes that there are, the default first.
        copies: processes that each hold the rows or codes.

    Raises:
        KnowledgeBaseError: nothing fits, and the search may not leave the GPU.
    """
    default = next(entry for entry in entries if wanted in (None, entry.kind))
    if device.type != "cuda":
        return Place(default, device, f"on the CPU: {default.kind} index; no GPU is used")
    if wanted:
        chosen = [default]
    else:
        chosen = sorted(entries, key=lambda entry: entry.kind != "exact")
    problems: list[KnowledgeBaseError] = []
    for entry in chosen:
        if not lies_on_gpus(entry):
            continue
        try:
            sizes = bytes_on_gpus(shards, entry, device, copies)
        except KnowledgeBaseError as error:
            problems.append(error)
            continue

        what = (
            "exact search of all vectors"
            if entry.kind == "exact"
            else f"codes of the {entry.kind} index"
        )
        why = f"on {device}: {what}, {sizes / 1e9:.1f} GB"
        return Place(entry, device, "; ".join([why, *map(str, problems)]))

    if problems and not may_leave_gpu:
        raise problems[-1]
    reasons = list(map(str, problems)) or ["a disk index stays on the disk"]
    return Place(default, CPU, f"on the CPU: {default.kind} index; {'; '.join(reasons)}")


def lies_on_gpus(entry: IndexEntry) -> bool:
    """Whether a kind of index can be searched on GPUs: all rows, or codes."""
    return entry.kind in ("exact", IMPORTED) or CODES[entry.kind].together > 0


def bytes_on_gpus(
    shards: Sequence[Shard], entry: IndexEntry, device: torch.device, copies: int = 1
) -> int:
    """Bytes that an index takes on GPUs. Raises KnowledgeBaseError if they have no room, or no
    kernels.
    """
    if entry.kind == "exact":
        devices_for(shards, device, copies, smaller_than_rows(shards))
        return sum(map(bytes_of, shards))
    codes = codes_of(shards, entry)
    _gpus_of(codes, entry, device, copies)
    return sum(codes.sizes)


def smaller_than_rows(shards: Sequence[Shard]) -> str:
    """Advise what fits a smaller GPU, and say how much that takes there."""
    sizes = []
    for kind in ("compact", "tiny"):
        entry = IndexEntry(kind)
        folders = {
            number: shard.folder / entry.part for number, shard in enumerate(shards) if len(shard)
        }
        sizes.append(f"{kind} ({sum(_codes_in(folders, shards, entry).sizes) / 1e9:.1f} GB)")

    kb = shards[0].folder.parent if shards else "KB"
    return (
        f"use --device=cpu, or build an index of codes with `kbq index vectors {kb} --kind`: "
        f"{' or '.join(sizes)}"
    )


def codes_of(shards: Sequence[Shard], entry: IndexEntry) -> Codes:
    """Describe the codes of an index. Raises KnowledgeBaseError if it is missing, damaged or older
    than its rows.
    """
    folders = _folders(shards, entry)
    if entry.kind == IMPORTED:
        codes: Codes = plugin("codes").codes_for_gpu(shards, entry)
        return codes
    return _codes_in(folders, shards, entry)


def _codes_in(folders: Mapping[int, Path], shards: Sequence[Shard], entry: IndexEntry) -> Codes:
    """Describe the codes in the folders of some shards, which are opened when they are copied to a
    GPU.
    """

    def opens(folder: Path) -> tuple[Any, Floats]:
        return read_cells(folder / CELLS), Rotation.open(folder / ROTATION).queries

    files = {
        number: CodeFile.of_shard(shards[number], partial(opens, folder))
        for number, folder in folders.items()
    }
    dim = shards[0].shape[1] if shards else 1
    kept = CODES[entry.kind].kept(dim)
    return Codes(
        files, Packing.of_nibbles(kept // CODES[entry.kind].together), dim, kept, entry.probes
    )


def _gpus_of(
    codes: Codes, entry: IndexEntry, device: torch.device, copies: int = 1
) -> list[torch.device]:
    """Choose the GPU of each file of codes. Raises KnowledgeBaseError if none has room, or kernels
    do not work.
    """
    with out_of_memory_refused(device):
        problem = codes_work(device)
    if problem:
        raise KnowledgeBaseError(
            f"codes cannot be searched on {device} ({problem}): use --device=cpu"
        )
    tiny = ", or build one half as large with `kbq index vectors KB --kind tiny`" * (
        entry.kind == "compact"
    )
    advice = f"use --device=cpu{tiny}"
    return gpus_for(codes.sizes, device, f"the {entry.kind} index", CODES_WORKING, advice, copies)


def open_index(
    shards: Sequence[Shard],
    entry: IndexEntry,
    device: torch.device,
    may_leave_gpu: bool = False,
    whole: KnowledgeBaseSize | None = None,
) -> Index:
    """Open the index of all shards, or of some neighbouring groups of the `whole` knowledge base.

    A search that `may_leave_gpu` uses the CPU if the GPUs lack memory.
    """
    if entry.kind != "exact":
        # Raises what is no reason to leave the GPU: the index is missing or damaged.
        _folders(shards, entry)

    if device.type == "cuda" and lies_on_gpus(entry):
        try:
            return _open_on_gpus(shards, entry, device, whole)
        except KnowledgeBaseError as error:
            if not may_leave_gpu:
                raise
            getLogger("kbq").warning("searching on the CPU: %s", error)

    if entry.kind == "exact":
        return ExactIndex(shards, [CPU] * len(shards))
    if entry.kind == IMPORTED:
        index: CellIndex = plugin("codes").open_official(shards, entry)
        return index

    return CellIndex(shards, open_cells(shards, entry), CODES[entry.kind].overfetch, whole)


def _open_on_gpus(
    shards: Sequence[Shard],
    entry: IndexEntry,
    device: torch.device,
    whole: KnowledgeBaseSize | None,
) -> Index:
    """Open an index in the memory of GPUs."""
    if entry.kind == "exact":
        return ExactIndex(shards, devices_for(shards, device, advice=smaller_than_rows(shards)))
    codes = codes_of(shards, entry)
    parts = codes.on_gpus(_gpus_of(codes, entry, device))
    if entry.kind == IMPORTED:
        index: CellIndex = plugin("codes").open_official(shards, entry, parts[0])
        return index
    return GpuCellIndex(shards, parts, CODES[entry.kind].overfetch, whole)


def open_cells(shards: Sequence[Shard], entry: IndexEntry) -> list[Cells | None]:
    """Open the cells of each shard; those without rows have none. Raises KnowledgeBaseError; see
    `open_index`.
    """
    folders = _folders(shards, entry)
    size = sum((folder / CELLS).stat().st_size for folder in folders.values())
    codes = CODES[entry.kind]
    stay = True
    free = available_memory()
    if not codes.together:
        stay = stays_in_memory(size + sum(shard.vectors.nbytes for shard in shards))
    elif size > free:
        tiny = (
            f"build one half as large (`kbq index vectors {shards[0].folder.parent} --kind "
            "tiny`), or "
        )
        raise KnowledgeBaseError(
            f"the {entry.kind} index needs {size / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are "
            f"free: {tiny if entry.kind == 'compact' else ''}use --index=disk, which stays on the "
            "disk, or --index=exact"
        )

    cells: list[Cells | None] = [None] * len(shards)
    for number, folder in folders.items():
        rotation = None
        if codes.together:
            rotation = Rotation.open(folder / ROTATION).queries
        if shards[number].shown is None:
            shown = None
        else:
            shown = shards[number].shown_rows()
        cells[number] = Cells(read_cells(folder / CELLS), entry.probes, rotation, stay, shown)

    return cells


def _folders(shards: Sequence[Shard], entry: IndexEntry) -> dict[int, Path]:
    """Return the checked folders of an index for all shards that have rows, by shard number."""
    return {number: _folder(shard, entry) for number, shard in enumerate(shards) if len(shard)}


def _folder(shard: Shard, entry: IndexEntry) -> Path:
    """Return the folder of a shard's index. Raises KnowledgeBaseError if it does not fit."""
    folder = shard.folder / entry.part
    kind = entry.kind
    advice = (
        f"build it with `kbq index vectors {shard.folder.parent} --kind {kind}`, or use "
        "--index=exact"
    )
    if not folder.is_dir():
        raise KnowledgeBaseError(f"shard {shard.folder} has no complete {kind} index: {advice}")
    try:
        seal = read_seal(folder)
    except (OSError, ValueError) as error:
        raise KnowledgeBaseError(f"index {reading_problem(folder / SEAL, error, advice)}") from None

    files = {folder / name: file for name, file in seal.files.items()}
    # Files that are read into memory are compared as a whole; of mapped ones, only the part that
    # says what lies where.
    if kind in ("disk", "official"):
        damage = next(filter(None, (head_damage(path, file) for path, file in files.items())), None)
    else:
        damage = first_damage(files, at_most=sys.maxsize)

    if damage is not None:
        raise KnowledgeBaseError(f"index {reading_problem(damage.path, damage.problem, advice)}")
    if seal.of != shard.seal:
        raise KnowledgeBaseError(f"index {folder} was built from another shard: {advice}")

    return folder
