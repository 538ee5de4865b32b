"""Codes on a GPU: the rows, and the sums of their codes, are faiss's bit by bit, here in Triton's
interpreter.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from kbq.answers import BuiltKind
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.index import factory, gpu_codes
from kbq.index.base import CPU, Index
from kbq.index.cells import Cells
from kbq.index.factory import CODES, build_missing, choose_place, codes_of, open_index
from kbq.index.gpu_codes import CodeFile, GpuCellIndex, GpuCells, Packing
from kbq.search.search import SearchContext, search

faiss = pytest.importorskip("faiss")
pytest.importorskip(
    "triton", reason="Triton comes with PyTorch's builds for CUDA, and is in kbq[dev]"
)
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
# The widest table: then a step of faiss's sums is 1, and no float32 is rounded on any kind of CPU.
LARGEST = 255


class Made(NamedTuple):
    """An inverted file of random codes, and the quantizer that it needs to live."""

    index: Any
    kept_alive: tuple[Any, ...]


def random_file(
    values: int, together: int, cells: int, rows: int, bits: int = 4, seed: int = 0
) -> Made:
    """Make an inverted file of whole numbers; its first value has the widest table."""
    source, dim = np.random.default_rng(seed), values * together
    means = faiss.IndexFlatIP(dim)
    means.add(source.integers(-40, 40, (cells, dim)).astype(np.float32))
    index = faiss.IndexIVFPQ(means, dim, cells, values, bits, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = index.is_trained = True
    centroids = source.integers(-30, 30, (values, 2**bits, together))
    centroids[0] = 0
    centroids[0, :, 0] = np.linspace(0, LARGEST, 2**bits).round()
    faiss.copy_array_to_vector(centroids.astype(np.float32).ravel(), index.pq.centroids)
    vectors = source.integers(-80, 80, (rows, dim)).astype(np.float32)
    vectors[:, 0] += source.integers(0, LARGEST, rows)
    numbers, nearest = source.permutation(rows), source.integers(0, cells, rows)
    index.add_core(rows, *(faiss.swig_ptr(column) for column in (vectors, numbers, nearest)))
    return Made(index if bits == 8 else faiss.IndexIVFPQFastScan(index), (means, index))


def queries_for(count: int, dim: int, seed: int = 1) -> np.ndarray:
    queries = np.random.default_rng(seed).integers(-1, 2, (count, dim)).astype(np.float32)
    queries[:, 0] = 1
    return queries


def identity(made: Made) -> np.ndarray:
    return np.eye(made.index.d, dtype=np.float32)


def opened(index: Any, rotation: np.ndarray) -> tuple[Any, np.ndarray]:
    return index, rotation


def on_gpu(
    files: Sequence[Made], probes: int, shown: Sequence[np.ndarray | None] | None = None
) -> GpuCells:
    index = files[0].index
    is_short = index.pq.nbits == 4
    packing = Packing.of_nibbles(index.pq.M) if is_short else Packing(1, index.pq.M, 8)
    rotation = identity(files[0])
    described = []
    for file, own in zip(files, shown or [None] * len(files), strict=True):
        blocks = file.index.ntotal // packing.rows + file.index.nlist
        described.append(
            CodeFile(blocks, file.index.nlist, partial(opened, file.index, rotation), own)
        )
    return GpuCells(described, range(len(files)), packing, probes, DEVICE)


def same(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, np.ndarray], k: int) -> None:
    """Scores are equal to the last bit, and so are the rows, but for those that share the last
    place.
    """
    scores, _, numbers = found
    for own, rows, true, true_rows in zip(scores, numbers, *expected, strict=True):
        real = true_rows >= 0
        assert (rows >= 0).sum() == real.sum()
        assert np.sort(own[rows >= 0]).tolist() == np.sort(true[real]).tolist()
        worst = true[real].min(initial=np.inf) if real.sum() == k else -np.inf
        assert set(rows[(rows >= 0) & (own > worst)]) == set(true_rows[real & (true > worst)])


FILES = (
    (1, 1, 1, 1),
    (4, 1, 3, 100),
    (5, 1, 2, 333),
    (3, 2, 7, 200),
    (17, 2, 4, 300),
    (2, 2, 6, 64),
)
# values, dimensions of each, cells, rows


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", FILES)
def test_rows_and_scores_are_those_of_faiss_bit_by_bit(
    size: tuple[int, int, int, int], bits: int
) -> None:
    values, together, cells, rows = size
    made = random_file(values, together, cells, rows, bits)
    queries = queries_for(2, values * together)
    for probes, k in ((1, 1), (2, 10), (cells, rows)):
        expected = Cells(made.index, probes, identity(made)).search(queries, k)
        same(on_gpu([made], probes).search(queries, k), expected, min(k, rows))


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_that_may_not_be_found_are_left_out(bits: int) -> None:
    made, queries = random_file(6, 1, 5, 300, bits), queries_for(2, 6)
    for share in (0.0, 0.4):
        shown = np.random.default_rng(2).random(300) < share
        expected = Cells(made.index, 2, identity(made), shown=shown).search(queries, 20)
        found = on_gpu([made], 2, [shown]).search(queries, 20)
        same(found, expected, 20)
        assert shown[found[2][found[2] >= 0]].all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("is_last_shown", [True, False])
def test_numbers_beyond_the_rows_that_may_be_found_are_left_out(
    is_last_shown: bool, bits: int
) -> None:
    """An imported index may number more vectors than its dump has; the last row of the dump says
    nothing of them.
    """
    made, queries = random_file(6, 1, 3, 100, bits), queries_for(2, 6)
    shown = np.full(60, True)
    shown[-1] = is_last_shown
    found = on_gpu([made], 3, [shown]).search(queries, 100)
    same(found, Cells(made.index, 3, identity(made), shown=shown).search(queries, 100), 100)
    assert [set(rows[rows >= 0]) for rows in found[2]] == [set(range(59 + is_last_shown))] * 2


def test_shards_lie_end_to_end_and_each_probes_its_own_cells() -> None:
    files = [
        random_file(6, 1, cells, rows, seed=rows)
        for cells, rows in ((4, 70), (1, 2), (6, 41), (2, 90))
    ]
    queries = queries_for(2, 6)
    for probes in (1, 3):
        cells, expected = on_gpu(files, probes), []
        for number, made in enumerate(files):
            scores, rows = Cells(made.index, probes, identity(made)).search(queries, 30)
            expected.append((scores, np.where(rows < 0, -1, rows + 1000 * number)))
            same(
                cells.within(number, number + 1).search(queries, 30),
                (scores, rows),
                min(30, made.index.ntotal),
            )
        scores, shards, rows = cells.search(queries, 30)
        all_scores, all_rows = (
            np.concatenate(column, axis=1) for column in zip(*expected, strict=True)
        )
        all_scores = np.where(all_rows < 0, -np.inf, all_scores)
        best = np.argsort(-all_scores, axis=1)[:, :30]
        of_all = (
            np.take_along_axis(all_scores, best, axis=1),
            np.take_along_axis(all_rows, best, axis=1),
        )
        same((scores, shards, np.where(rows < 0, -1, rows + 1000 * shards)), of_all, 30)


def with_codes_on(
    shards: Sequence[Shard], entry: IndexEntry, devices: Sequence[torch.device]
) -> Index:
    """The index of a GPU, on these devices."""
    return GpuCellIndex(
        shards, codes_of(shards, entry).on_gpus(devices), CODES[entry.kind].overfetch
    )


def random_queries(dim: int, count: int = 4) -> np.ndarray:
    """Shape: (count, start and end, dim)."""
    return np.random.default_rng(1).normal(size=(count, 2, dim)).astype(np.float32)


@pytest.mark.parametrize("kind", ["compact", "tiny"])
def test_answers_are_those_of_the_cpu_with_deleted_pages_a_filter_and_several_gpus(
    kind: BuiltKind, random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.index.cells.LEAST_HITS", 1)
    monkeypatch.setattr("kbq.index.base.FEW_SHOWN", 0)
    shards = [
        random_shard(*[20] * 6, dim=24),
        random_shard(*[9] * 8, dim=24, seed=1),
        random_shard(0, dim=24),
    ]
    shards[0].show_only(np.array([True, False]))
    queries, entry = random_queries(24, count=2), IndexEntry(kind, probes=1, filter=1.0)
    build_missing(shards, entry, np.concatenate([queries[:, 0], queries[:, 1]]))
    expected = search(SearchContext(shards, open_index(shards, entry, CPU)), queries, 3, "phrase")
    # torch's second name for it.
    other = DEVICE if DEVICE.type == "cuda" else torch.device("cpu", 0)
    index = with_codes_on(shards, entry, [DEVICE, other])
    assert [group.first for group in index.groups] == [0, 1, 2]
    assert search(SearchContext(shards, index), queries, 3, "phrase") == expected
    assert all(len(hits) == 3 for hits in expected)


def test_vectors_that_have_no_room_together_are_scored_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells, queries = on_gpu([random_file(4, 1, 3, 100)], 2), queries_for(5, 4)
    together = cells.search(queries, 10)
    monkeypatch.setattr(gpu_codes, "SCORED", 1)
    monkeypatch.setattr(gpu_codes, "COMPARED", 1)
    monkeypatch.setattr(gpu_codes, "VECTORS", 2)
    same(cells.search(queries, 10), (together[0], together[2]), 10)


def test_what_lies_on_a_gpu_is_counted(random_shard: Callable[..., Shard]) -> None:
    """Blocks of 32 rows, one more for each cell; 8 values of four bits and a number of 32 bits a
    row.
    """
    shard, entry = random_shard(*[30] * 10, dim=24), IndexEntry("compact")
    build_missing([shard], entry, np.concatenate(list(random_queries(24))))
    codes = codes_of([shard], entry)
    (file,) = codes.files.values()
    (cells,) = codes.on_gpus([DEVICE])
    held = [
        cells._codes,
        cells._numbers,
        cells._means,
        cells._firsts,
        cells._counts,
        cells._rotations,
    ]
    assert (file.blocks, file.cells) == (9 + 7, 7)
    assert codes.sizes == [16 * (128 + 128) + 7 * (4 * 8 + 16) + 8 * 24 * 8]
    assert sum(part.nbytes for part in held) == codes.sizes[0]


def test_kernels_that_do_not_work_are_said(
    random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, entry = random_shard(30, 40, dim=24), IndexEntry("tiny")
    build_missing([shard], entry, np.concatenate(list(random_queries(24))))
    monkeypatch.setattr(factory, "codes_work", lambda device: "Triton knows no sm_35")
    with pytest.raises(
        KnowledgeBaseError, match=r"cannot be searched on cuda:0 \(Triton knows no sm_35\): use dev"
    ):
        open_index([shard], entry, torch.device("cuda", 0))
    monkeypatch.undo()
    assert gpu_codes.codes_work(DEVICE) is None


def test_triton_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("kbq.index.gpu_kernels")
    monkeypatch.delitem(sys.modules, "kbq.index.gpu_kernels")
    monkeypatch.setitem(sys.modules, "triton", None)
    assert (
        gpu_codes.codes_work.__wrapped__(DEVICE) == "import of triton halted; None in sys.modules"
    )


@pytest.fixture
def one(random_shard: Callable[..., Shard]) -> tuple[list[Shard], IndexEntry]:
    """A shard with a `tiny` index."""
    shard, entry = random_shard(30, 40, dim=24), IndexEntry("tiny", probes=1)
    build_missing([shard], entry, np.concatenate(list(random_queries(24))))
    return [shard], entry


@pytest.mark.parametrize("may_leave_gpu", [True, False])
def test_codes_without_any_faiss_are_refused(
    may_leave_gpu: bool, one: tuple[list[Shard], IndexEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """faiss-cpu is enough: it reads the files."""
    monkeypatch.setattr(factory, "_gpus_of", lambda *_: [DEVICE])
    monkeypatch.setitem(sys.modules, "faiss", None)
    message = (
        r"this index needs faiss \(.*\): install it with pip install faiss-cpu, or use exact search"
    )
    with pytest.raises(KnowledgeBaseError, match=message):
        open_index(*one, torch.device("cuda", 0), may_leave_gpu)


def test_a_gpu_that_another_process_fills_while_codes_are_copied_is_left(
    one: tuple[list[Shard], IndexEntry],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def filled(files: Sequence[CodeFile], *_: object) -> None:
        for file in files:
            file.open()
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    gpu, (shards, entry) = torch.device("cuda", 0), one
    monkeypatch.setattr(factory, "_gpus_of", lambda *_: [gpu])
    monkeypatch.setattr(gpu_codes, "GpuCells", filled)
    told = "cuda:0 ran out of memory, which other programs may use: use device=cpu"
    with pytest.raises(KnowledgeBaseError, match=told):
        open_index(shards, entry, gpu)
    queries = random_queries(24)
    on_cpu, left = (
        open_index(shards, entry, CPU),
        open_index(shards, entry, gpu, may_leave_gpu=True),
    )
    expected = search(SearchContext(shards, on_cpu), queries, 3, "phrase")
    assert search(SearchContext(shards, left), queries, 3, "phrase") == expected
    (record,) = caplog.records
    assert record.message.startswith(f"searching on the CPU: {told}")


def test_an_index_that_is_older_than_its_rows_is_said(
    random_shard: Callable[..., Shard], tmp_path: Path
) -> None:
    shard, entry = random_shard(30, 40, dim=24), IndexEntry("tiny")
    build_missing([shard], entry, np.concatenate(list(random_queries(24))))
    other = random_shard(30, 41, dim=24, seed=1)
    (shard.folder / "tiny").rename(other.folder / "tiny")
    message = "was built from another shard: build it with"
    with pytest.raises(KnowledgeBaseError, match=message):
        codes_of([other], entry)
    gpu = torch.device("cuda", 0)
    with pytest.raises(KnowledgeBaseError, match=message):
        choose_place([other], [entry], None, gpu, may_leave_gpu=False)
    place = choose_place([other], [entry], None, gpu)
    assert place.device == CPU
    assert message in place.why
    for device in (CPU, gpu):  # a CPU does no better
        with pytest.raises(KnowledgeBaseError, match=message):
            open_index([other], entry, device, may_leave_gpu=True)
