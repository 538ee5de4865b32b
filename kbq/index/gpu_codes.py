"""Codes on a GPU: find the rows with the best codes in the probed cells, which are then scored
again from the dump.

The inverted files of `cells.py` are copied as faiss packs them, with four bytes for the number of a
row instead of eight. Cells are chosen, and codes are scored, as faiss does on a CPU: its tables are
rounded to whole numbers, and the sums of these are the same bit by bit. What differs is how a cell
is compared with a query: here by sums that need no rounding, so that a query's candidates do not
depend on those beside it; of rows whose codes are equally good, any may be the last.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kbq.array_types import Bools, Floats, Rows
from kbq.dump.shards import Shard
from kbq.errors import first_line, is_out_of_memory
from kbq.index.base import KnowledgeBaseSize, out_of_memory_refused
from kbq.index.cells import ROTATED_BITS, CellIndex, clusters_for
from kbq.index.gpu_rows import current
from kbq.index.inner_products import rounded_for_exact_sums

VECTORS = 128  # starts and ends that are compared with cells together
COMPARED = 2**27  # vectors × cells at a time: their float64 products take 1 GB
SCORED = 2**27  # rows × vectors at a time: their scores take half a GB
WORKING = 2**31  # bytes that these take at most
# Blocks and rows that a program scores at a time.
BLOCKS = 4
ROWS = 128
STEP = 8  # values whose codes it looks up at a time


class Packing(NamedTuple):
    """How faiss packs the codes of a cell: in blocks, whose rows lie side by side."""

    rows: int  # rows of a block
    values: int  # values that have a code, rounded up
    bits: int  # bits of a code

    @classmethod
    def of_nibbles(cls, values: int) -> Self:
        return cls(32, values + values % 2, 4)

    @property
    def bytes(self) -> int:
        """Those of a block's codes."""
        return self.rows * self.values * self.bits // 8

    @property
    def number_bytes(self) -> int:
        """Those of the number of a row: ids of imported indexes may be larger than 2^31."""
        return 4 if self.bits == 4 else 8


class CodeFile(NamedTuple):
    """An inverted file that will be copied to a GPU."""

    blocks: int  # most blocks
    cells: int  # most cells
    # The index, and the rotation of queries. Shape: (dim, kept).
    open: Callable[[], tuple[Any, Floats]]
    # Whether each number may be found; by default all may. Shape: (all,).
    shown: Bools | None = None

    @classmethod
    def of_shard(cls, shard: Shard, opens: Callable[[], tuple[Any, Floats]]) -> Self:
        """Describe the index of a shard with a block of 32 rows at least for each cell."""
        if shard.shown is None:
            shown = None
        else:
            shown = shard.shown_rows()
        cells = clusters_for(len(shard))
        return cls(len(shard) // 32 + cells, cells, opens, shown)

    def bytes_of(self, packing: Packing, dim: int, kept: int) -> int:
        """Bytes on a GPU: codes and numbers of rows, means and sizes of cells, the rotation."""
        block = packing.bytes + packing.rows * packing.number_bytes
        return self.blocks * block + self.cells * (4 * kept + 16) + 8 * dim * kept


class Codes(NamedTuple):
    """The inverted files of a knowledge base, by the numbers of their shards, as they will lie on
    GPUs.
    """

    files: dict[int, CodeFile]
    packing: Packing
    dim: int
    kept: int  # dimensions of the rotated vectors
    probes: int  # cells of each shard to search

    @property
    def sizes(self) -> list[int]:
        """Bytes on a GPU of each file."""
        return [file.bytes_of(self.packing, self.dim, self.kept) for file in self.files.values()]

    def on_gpus(self, devices: Sequence[torch.device]) -> list["GpuCells"]:
        """Copy each file to its device. Raises KnowledgeBaseError if other programs take the
        memory.
        """
        parts = []
        for device in dict.fromkeys(devices):
            own = [
                number
                for number, chosen in zip(self.files, devices, strict=True)
                if chosen == device
            ]
            with out_of_memory_refused(device):
                files = [self.files[number] for number in own]
                parts.append(GpuCells(files, own, self.packing, self.probes, device))
        return parts


class Probes(NamedTuple):
    """The cells to search for some vectors, and how near they are. Shapes: (shards, vectors,
    probes).
    """

    cells: Tensor
    nearness: Tensor  # -inf where fewer are probed

    @property
    def are_probed(self) -> Tensor:
        return self.nearness > -torch.inf


class GpuCells:
    """The inverted files of some shards, end to end on one GPU."""

    def __init__(
        self,
        files: Sequence[CodeFile],
        numbers: Sequence[int],
        packing: Packing,
        probes: int,
        device: torch.device,
    ) -> None:
        """`numbers` are those of the shards in the index. Shards are read one at a time."""
        self.device = device
        self._packing = packing
        self._probes = probes
        blocks = sum(file.blocks for file in files)
        self._codes = torch.zeros(blocks * packing.bytes, dtype=torch.uint8, device=device)
        wide = torch.int32 if packing.number_bytes == 4 else torch.int64
        self._numbers = torch.full((blocks * packing.rows,), -1, dtype=wide, device=device)
        shards = list(self._loaded(files))
        self._shards = np.array(numbers)
        self._cells = [shard.cells for shard in shards]
        self._findable = [shard.findable for shard in shards]
        # Shards with fewer cells than others have empty ones at the end.
        self._firsts = pad_sequence([shard.firsts for shard in shards], batch_first=True).to(device)
        self._counts = pad_sequence([shard.counts for shard in shards], batch_first=True).to(device)
        self._means = pad_sequence([shard.means for shard in shards], batch_first=True).to(device)
        self._rotations = torch.stack([shard.rotation for shard in shards]).to(device)
        self._centroids = torch.stack([shard.centroids for shard in shards]).to(device)

    def _loaded(self, files: Iterable[CodeFile]) -> Iterable["_ShardCells"]:
        """Copy the cells of each shard to the GPU, one after another."""
        first = 0
        packing = self._packing
        for file in files:
            index, rotation = file.open()
            sizes, codes, numbers = _contents(index, packing)
            if file.shown is not None:
                may_be_found = (numbers >= 0) & (numbers < len(file.shown))
                may_be_found[may_be_found] = file.shown[numbers[may_be_found]]
                numbers[~may_be_found] = -1

            counts = -(-sizes // packing.rows)
            firsts = first + np.cumsum(counts) - counts
            stop = first + int(counts.sum())
            self._codes[first * packing.bytes : stop * packing.bytes] = torch.from_numpy(codes)
            self._numbers[first * packing.rows : stop * packing.rows] = torch.from_numpy(numbers)
            first = stop
            means = rounded_for_exact_sums(
                index.quantizer.reconstruct_n(0, index.nlist), ROTATED_BITS
            ).astype(np.float32)
            exact = rounded_for_exact_sums(rotation.reshape(1, -1), ROTATED_BITS).reshape(
                rotation.shape
            )
            findable = (
                index.ntotal if file.shown is None else min(index.ntotal, int(file.shown.sum()))
            )
            yield _ShardCells(
                firsts=torch.from_numpy(firsts),
                counts=torch.from_numpy(counts),
                means=torch.from_numpy(means),
                rotation=torch.from_numpy(exact),
                centroids=torch.from_numpy(_centroids(index, packing)),
                cells=index.nlist,
                findable=findable,
            )

    def within(self, first: int, stop: int) -> Self:
        """Return those of the shards [first, stop) that are here, numbered from `first`; codes are
        not copied.
        """
        chosen = np.flatnonzero((self._shards >= first) & (self._shards < stop))
        part = copy.copy(self)
        part._shards = self._shards[chosen] - first
        part._cells = [self._cells[number] for number in chosen]
        part._findable = [self._findable[number] for number in chosen]
        places = torch.from_numpy(chosen).to(self.device)
        for name in ("_firsts", "_counts", "_means", "_rotations", "_centroids"):
            setattr(part, name, getattr(self, name)[places])
        return part

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows, Rows]:
        """Return the scores, by codes, the shards and the numbers of the k best rows; -1 where
        there are fewer.

        Shapes: queries (queries, dim), results (queries, k or less).
        """
        parts = []
        with out_of_memory_refused(self.device), current(self.device), torch.inference_mode():
            for first in range(0, len(queries), VECTORS):
                steps = rounded_for_exact_sums(queries[first : first + VECTORS], ROTATED_BITS)
                exact = torch.from_numpy(steps).to(self.device) @ self._rotations
                parts += self._best(exact.float(), k)
        scores, shards, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
        return scores, np.where(numbers < 0, 0, self._shards[shards]), numbers

    def _best(self, queries: Tensor, k: int) -> list[tuple[Floats, Rows, Rows]]:
        """Search for some vectors, as many at a time as there is room for scores. Shape: (shards,
        vectors, kept).
        """
        probes = self._nearest(queries, k)
        shard = torch.arange(len(queries), device=self.device)[:, None, None]
        counts = self._counts[shard, probes.cells] * probes.are_probed
        sizes = counts.movedim(0, 1).flatten(1) * self._packing.rows  # (vectors, shards × probes)
        width = max(1, int(sizes.sum(dim=1).max()))
        together = max(1, SCORED // width)
        parts = []
        for first in range(0, queries.shape[1], together):
            part = slice(first, first + together)
            some = Probes(*(column[:, part] for column in probes))
            parts.append(self._scored(queries[:, part], some, counts[:, part], min(k, width)))

        return parts

    def _nearest(self, queries: Tensor, k: int) -> Probes:
        """Choose cells by exact products; to find a share of a shard's rows, at least that share of
        its cells.
        """
        shards = len(queries)
        vectors = queries.shape[1]
        cells = self._means.shape[1]
        products = torch.empty((shards, vectors, cells), device=self.device)
        exact = _in_steps(queries)
        together = max(1, COMPARED // (shards * vectors))
        for first in range(0, cells, together):
            part = slice(first, first + together)
            products[:, :, part] = exact @ self._means[:, part].double().mT

        numbers = torch.arange(cells, device=self.device)
        products.masked_fill_((numbers >= self._as_column(self._cells))[:, None], -torch.inf)
        probed = []
        for own, findable in zip(self._cells, self._findable, strict=True):
            rows = max(1, findable)
            share = -(-own * min(k, rows) // rows)
            probed.append(min(own, max(self._probes, share)))

        nearness, nearest = products.topk(max(probed), dim=2)
        beyond = torch.arange(max(probed), device=self.device) >= self._as_column(probed)
        return Probes(nearest, nearness.masked_fill(beyond[:, None], -torch.inf))

    def _scored(
        self, queries: Tensor, probes: Probes, counts: Tensor, k: int
    ) -> tuple[Floats, Rows, Rows]:
        """Score the rows of probed cells, and return the k best of each vector. Shape of counts:
        that of probes.
        """
        from kbq.index import gpu_kernels

        shards, vectors, each = probes.cells.shape
        shard = torch.arange(shards, device=self.device)[:, None, None]
        by_vector = [
            column.movedim(0, 1).flatten(1)
            for column in (self._firsts[shard, probes.cells], counts)
        ]
        firsts, blocks = (column.contiguous() for column in by_vector)  # (vectors, shards × probes)
        sizes = blocks * self._packing.rows
        begins = sizes.cumsum(dim=1) - sizes
        width = max(1, int(sizes.sum(dim=1).max()))
        scores = torch.full((vectors, width), -torch.inf, device=self.device)
        places = begins + width * torch.arange(vectors, device=self.device)[:, None]
        tables_of = (shard * vectors + torch.arange(vectors, device=self.device)[:, None]).expand(
            -1, -1, each
        )
        tables_of = tables_of.movedim(0, 1).flatten(1).contiguous()
        given = (self._codes, self._numbers, firsts, blocks, places, tables_of)
        parts = queries.double().view(shards, vectors, -1, 1, self._centroids.shape[-1])
        # (shards, vectors, values, codes of a value).
        floats = (self._centroids[:, None] * parts).sum(dim=-1).float()
        if self._packing.bits == 4:
            rounded = RoundedTables.of(floats, probes)
            levels = rounded.levels.movedim(0, 1).flatten(1).contiguous()
            columns = (rounded.tables.contiguous(), levels, rounded.steps, rounded.offsets)
            gpu_kernels.score_nibbles[(firsts.numel(),)](
                *given, *columns, scores, VALUES=self._packing.values, BLOCKS=BLOCKS, STEP=STEP
            )
        else:
            near = probes.nearness.movedim(0, 1).flatten(1).contiguous()
            gpu_kernels.score_bytes[(firsts.numel(),)](
                *given, floats, near, scores, VALUES=self._packing.values, ROWS=ROWS
            )

        best, columns_of_best = scores.topk(min(k, width), dim=1)
        probe = torch.searchsorted(begins + sizes, columns_of_best, right=True).clamp(
            max=firsts.shape[1] - 1
        )
        place = (
            firsts.gather(1, probe) * self._packing.rows + columns_of_best - begins.gather(1, probe)
        )
        numbers = torch.where(
            best == -torch.inf, -1, self._numbers[place.clamp(max=len(self._numbers) - 1)].long()
        )

        return best.cpu().numpy(), (probe // each).cpu().numpy(), numbers.cpu().numpy()

    def _as_column(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self.device)[:, None]


class _ShardCells(NamedTuple):
    """Cells of one shard. Shapes: firsts and counts (cells,), in blocks; means (cells, kept);
    rotation (dim, kept).
    """

    firsts: Tensor
    counts: Tensor
    means: Tensor
    rotation: Tensor
    centroids: Tensor  # (values, codes of a value, dimensions of a value)
    cells: int
    findable: int


class RoundedTables(NamedTuple):
    """Tables of products in steps that fit a byte, so that their sums fit 16 bits: those of faiss's
    fast scan.

    A score is `steps` times the sum of a cell's level and of one number of each table, plus
    `offsets`.
    Shapes: tables (shards, vectors, values, 16), levels (shards, vectors, probes), steps and
    offsets (shards, vectors).
    """

    tables: Tensor
    levels: Tensor
    steps: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, products: Tensor, probes: Probes) -> Self:
        """Shape of products: that of tables, without the value that fills an odd number up."""
        least, most = products.aminmax(dim=3)
        spans = most - least
        near = probes.nearness
        nearest = near.amax(dim=2)
        farthest = near.masked_fill(~probes.are_probed, torch.inf).amin(dim=2)
        reach = (spans.double().sum(dim=2) + (nearest - farthest)).float()
        scale = torch.minimum(255 / spans.amax(dim=2), 65535 / reach)
        tables = ((products - least[..., None]) * scale[..., None, None] + 0.5).floor()
        levels = ((near - farthest[..., None]) * scale[..., None] + 0.5).floor()
        levels = levels.masked_fill(~probes.are_probed, 0)
        offsets = (least.double().sum(dim=2) + farthest).float()
        filled = torch.nn.functional.pad(tables, (0, 0, 0, tables.shape[2] % 2)).to(torch.uint8)
        return cls(filled, levels.nan_to_num().int(), 1 / scale, offsets)


def _contents(index: Any, packing: Packing) -> tuple[Rows, Any, Any]:
    """Return the rows of each cell, all blocks of codes, and the number of each place in a block,
    or -1.
    """
    import faiss

    lists = index.invlists
    sizes = np.array([lists.list_size(cell) for cell in range(index.nlist)], np.int64)
    counts = -(-sizes // packing.rows)
    begins = np.cumsum(counts) - counts
    codes = np.zeros(int(counts.sum()) * packing.bytes, np.uint8)
    numbers = np.full(
        int(counts.sum()) * packing.rows, -1, np.int32 if packing.number_bytes == 4 else np.int64
    )

    for cell in np.flatnonzero(sizes).tolist():
        size = int(sizes[cell])
        begin = int(begins[cell])
        taken = int(counts[cell]) * packing.bytes
        codes[begin * packing.bytes :][:taken] = faiss.rev_swig_ptr(lists.get_codes(cell), taken)
        numbers[begin * packing.rows :][:size] = faiss.rev_swig_ptr(lists.get_ids(cell), size)

    return sizes, codes, numbers


def _centroids(index: Any, packing: Packing) -> Floats:
    import faiss

    flat: Floats = faiss.vector_to_array(index.pq.centroids)
    return flat.reshape(index.pq.M, 2**packing.bits, -1)


def _in_steps(vectors: Tensor) -> Tensor:
    """`rounded_for_exact_sums` where the vectors are: 2^ROTATED_BITS steps exceed the largest value.
    Shapes: (…, kept).
    """
    exponents = torch.frexp(vectors.abs().amax(dim=-1, keepdim=True)).exponent
    # A power of two.
    step = ((exponents.long() - ROTATED_BITS + 1023).clamp(min=1) << 52).view(torch.float64)
    return (vectors.double() / step).round() * step


class GpuCellIndex(CellIndex):
    """`CellIndex` whose codes lie on GPUs. Hits are scored again with the dump's rows, which stay
    where they are.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        parts: Sequence[GpuCells],
        overfetch: int,
        whole: KnowledgeBaseSize | None = None,
    ) -> None:
        super().__init__(shards, (), overfetch, whole)
        self._parts = parts

    def _within(self, first: int, shards: Sequence[Shard]) -> "GpuCellIndex":
        parts = [part.within(first, first + len(shards)) for part in self._parts]
        own = [part for part in parts if len(part._shards)]
        return GpuCellIndex(shards, own, self._overfetch, self._whole)

    def _best_codes(self, queries: Floats, count: int) -> tuple[Rows, Rows]:
        """See `CellIndex`. GPUs are asked in turn."""
        columns = [part.search(queries, count) for part in self._parts]
        scores, shards, numbers = (
            np.concatenate(column, axis=1) for column in zip(*columns, strict=True)
        )
        if scores.shape[1] > count:
            best = np.argpartition(-scores, count, axis=1)[:, :count]
            shards, numbers = (
                np.take_along_axis(column, best, axis=1) for column in (shards, numbers)
            )
        return shards, numbers


@cache
def codes_work(device: torch.device) -> str | None:
    """Say why the kernels do not work on a device, or return None."""
    try:
        from kbq.index import gpu_kernels

        with current(device):
            codes = torch.full((16,), 0x21, dtype=torch.uint8, device=device)
            ones = torch.ones(1, dtype=torch.int64, device=device)
            tables = torch.arange(16, dtype=torch.uint8, device=device)
            scores = torch.zeros(32, device=device)
            numbers = torch.arange(32, dtype=torch.int32, device=device)
            given = (
                codes,
                numbers,
                ones - 1,
                ones,
                ones - 1,
                ones - 1,
                tables,
                (ones - 1).int(),
                ones.float(),
                ones.float(),
            )
            gpu_kernels.score_nibbles[(1,)](*given, scores, VALUES=1, BLOCKS=1, STEP=1)

        sums = scores.tolist()
    except Exception as error:  # Triton is missing, or knows no such device, or finds no compiler
        if is_out_of_memory(error):
            raise  # the device may still be able to
        return first_line(error)

    if sums == [2.0] * 16 + [3.0] * 16:
        return None
    return "its sums are wrong"
