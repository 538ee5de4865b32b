"""Rows on a GPU: the kernels miss no row that may open a good enough span; without a GPU, in
Triton's interpreter.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from brute_force import best_spans
from paragraphs import EncodedParagraph
from torch.utils._python_dispatch import TorchDispatchMode

from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.index import exact, gpu_rows, placement
from kbq.index.exact import ExactIndex
from kbq.index.factory import open_index
from kbq.index.gpu_rows import PIECE, QueryBatch, best_of_pieces
from kbq.search.search import SearchContext, search

pytest.importorskip(
    "triton", reason="Triton comes with PyTorch's builds for CUDA, and is in kbq[dev]"
)
HAS_GPU = torch.cuda.is_available()
CPU = torch.device("cpu")
DEVICE = torch.device("cuda", 0) if HAS_GPU else CPU  # in the interpreter; see tests/conftest.py


def random_queries(count: int, dim: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Start and end vectors of very different sizes. Shapes: (count, dim)."""
    source = np.random.default_rng(seed)
    sizes = 10.0 ** source.integers(-3, 3, (2, count, 1))
    starts, ends = (source.normal(size=(2, count, dim)) * sizes).astype(np.float32)
    return starts, ends


@pytest.fixture
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "kind_for", lambda device, dim: gpu_rows.GpuRows)
    monkeypatch.setattr(exact, "MANY", 1)  # spans are scored by the device, too
    monkeypatch.setattr(gpu_rows, "NUMBERS", 400)
    one = ThreadPoolExecutor(1)  # as the interpreter computes for one thread at a time
    monkeypatch.setattr(exact, "ThreadPoolExecutor", lambda threads: one)


@pytest.mark.parametrize("dim", [3, 384, 1000])
@pytest.mark.parametrize("count", [1, 64])
@pytest.mark.parametrize("with_bonus", [False, True])
def test_a_kernel_finds_what_a_plain_product_finds(count: int, dim: int, with_bonus: bool) -> None:
    source = np.random.default_rng(0)
    rows = torch.from_numpy(source.integers(-127, 128, (256, dim)).astype(np.int8)).to(DEVICE)
    edges = torch.from_numpy(source.integers(0, 4, 256).astype(np.uint8)).to(DEVICE)
    paragraphs = torch.arange(256, device=DEVICE).div(50, rounding_mode="floor").int()
    starts, ends = random_queries(count, dim)
    added = torch.rand((6, count), device=DEVICE) if with_bonus else None
    asked = QueryBatch.of(starts, ends, added, DEVICE)
    best = best_of_pieces(rows, edges, paragraphs, asked)
    products = (
        rows.double() @ torch.from_numpy(np.concatenate([starts, ends])).to(DEVICE).double().T
    )
    opens, closes = products[:, :count], products[:, count:]
    if added is not None:
        opens = opens + added[paragraphs.long()]
    alone = (opens + closes).masked_fill((edges != 3)[:, None], -torch.inf)
    alone = alone.view(-1, gpu_rows.SHAPES[asked.columns].rows, count).amax(dim=1).T
    opens = (
        opens.masked_fill((edges & OPENS == 0)[:, None], -torch.inf)
        .view(-1, PIECE, count)
        .amax(dim=1)
    )
    closes = (
        closes.masked_fill((edges & CLOSES == 0)[:, None], -torch.inf)
        .view(-1, PIECE, count)
        .amax(dim=1)
    )
    for found, true in ((best.starts, opens), (best.ends, closes), (best.alone.T, alone.T)):
        assert torch.equal(found.isinf(), true.isinf())
        assert ((found.double() - true).nan_to_num().abs() <= asked.errors).all()


SIZES: Sequence[Sequence[tuple[int, ...]]] = (
    [(1,)],
    [(5, 0, 3), (0,), (30, 1, 0, 0, 25, 12)],
    [(60,) * 5, (0, 0), (20, 40, 41, 19, 21)],
    [tuple(range(20)), tuple(range(30))],
)


@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("with_bonus", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("sizes", SIZES)
def test_every_row_that_opens_one_of_the_k_best_spans_is_a_candidate(
    sizes: Sequence[tuple[int, ...]],
    k: int,
    with_bonus: bool,
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_rows, "CHUNK", 512)
    monkeypatch.setattr(gpu_rows, "PAIRS", 5)
    shards = [random_shard(*kept, seed=seed) for seed, kept in enumerate(sizes)]
    starts, ends = random_queries(7, 16)
    size = np.abs(starts).max() * 1000
    bonuses = [
        np.random.default_rng(2).normal(size=(7, len(kept))).astype(np.float32) * size
        for kept in sizes
    ]
    index = ExactIndex(shards, [DEVICE] * len(shards))
    found_in = index.candidates(starts, ends, k, bonuses if with_bonus else None)
    for query in range(7):
        above = 0
        for shard, bonus, of_queries in zip(shards, bonuses, found_in, strict=True):
            found, paragraphs = of_queries[query], shard.paragraphs_of(np.arange(len(shard)))
            true = best_spans(shard, starts[query], ends[query])
            true += with_bonus * bonus[query, paragraphs].astype(np.float64)
            assert (np.diff(found.starts) > 0).all()
            assert np.delete(true, found.starts).max(initial=-np.inf) <= found.complete_above
            above += int(np.count_nonzero(true[found.starts] > found.complete_above))
            if with_bonus and found.bonus is not None:
                assert found.bonus.tolist() == bonus[query, paragraphs[found.starts]].tolist()
        assert above >= min(k, sum(map(sum, sizes)) // 20)


class Made(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that are made, whether they are still there or not."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        result = operation(*given, **(named or {}))
        views = {one.untyped_storage().data_ptr() for one in given if torch.is_tensor(one)}
        for one in result if isinstance(result, tuple | list) else (result,):
            if torch.is_tensor(one) and one.untyped_storage().data_ptr() not in views:
                self.bytes += one.nbytes
        return result


def test_what_is_made_of_a_chunk_fits_into_what_is_kept_free(
    random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = torch.empty((4, 0), device=DEVICE)
    monkeypatch.setattr(gpu_rows.GpuRows, "_scored", lambda *_: nothing)  # a few rows at a time
    rows = gpu_rows.GpuRows([random_shard(*[60] * 100)], [0], DEVICE)
    asked = QueryBatch.of(*random_queries(64, 16), None, DEVICE)
    with Made() as made:
        rows._search(asked, 10)
    assert 20 < made.bytes / rows._count <= placement.WORKING / gpu_rows.CHUNK


@pytest.mark.usefixtures("with_kernels")
def test_few_rows_are_left(random_shard: Callable[..., Shard]) -> None:
    shards = [random_shard(*range(20, 60), seed=seed) for seed in range(2)]  # 3,160 rows
    found = ExactIndex(shards, [DEVICE] * 2).candidates(*random_queries(3, 16), 3)
    assert max(sum(len(of_shard[query].starts) for of_shard in found) for query in range(3)) < 250


@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("values", ["equal", "largest"])
def test_ties_and_the_largest_numbers_are_exact(
    values: str,
    encoded: Callable[..., EncodedParagraph],
    make_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All rows are the same, or all products as large as they can be."""
    row = [[1, 1]] if values == "equal" else [[127, -127]]
    shard = make_shard([encoded(row * 60), encoded(row * 40)], [encoded(row * 160)])
    queries = np.array([[[1, -1], [1, -1]], [[-3, 3], [3, 3]]], np.float32)
    found = search(SearchContext([shard], ExactIndex([shard], [DEVICE])), queries, 5, "phrase")
    monkeypatch.undo()
    assert found == search(SearchContext([shard], ExactIndex([shard], [CPU])), queries, 5, "phrase")
    assert [hit.score for hit in found[0]] == [0.0 if values == "equal" else 508.0] * 5


@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("k", [1, 10])
def test_hits_are_those_of_the_cpu(
    k: int, random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [
        random_shard(*range(20, 60), dim=40),
        random_shard(5, 0, 30, dim=40, seed=1),
        random_shard(0, dim=40),
    ]
    queries = np.stack(random_queries(5, 40), axis=1)
    other = torch.device("cpu", 0)  # torch's second name for it
    on_two = [DEVICE, torch.device("cuda", 0) if HAS_GPU else other, DEVICE]
    found = [
        search(SearchContext(shards, ExactIndex(shards, devices)), queries, k, "phrase")
        for devices in (on_two,)
    ]
    monkeypatch.undo()
    assert found[0] == search(
        SearchContext(shards, open_index(shards, IndexEntry(), CPU)), queries, k, "phrase"
    )


@pytest.mark.usefixtures("with_kernels")
def test_more_queries_than_a_kernel_multiplies(
    random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_rows, "SHAPES", {8: gpu_rows.SHAPES[8]})
    shard = random_shard(*[30] * 5)
    starts, ends = random_queries(10, 16)
    (found,) = ExactIndex([shard], [DEVICE]).candidates(starts, ends, 1)
    (last,) = ExactIndex([shard], [DEVICE]).candidates(starts[-1:], ends[-1:], 1)
    assert found[-1].starts.tolist() == last[0].starts.tolist()
