"""GPUs: shards are assigned to those with room, and results equal those of the CPU to the last bit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kbq.answers import IndexKind
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.index import exact, factory, placement
from kbq.index.base import MAX_TOKENS, out_of_memory_refused
from kbq.index.cells import Clusters
from kbq.index.exact import ExactIndex
from kbq.index.factory import build_missing, choose_place, open_index
from kbq.index.inner_products import has_fast_int8
from kbq.index.placement import bytes_of, devices_for, spread
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search.search import SearchContext, search

CPU = torch.device("cpu")
ONE, TWO = torch.device("cuda", 0), torch.device("cuda", 1)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(
    ("sizes", "free", "chosen"),
    [
        ([], {ONE: 5}, []),
        ([3, 2], {ONE: 5}, [ONE, ONE]),
        ([3, 3, 2], {ONE: 5, TWO: 5}, [ONE, TWO, ONE]),
        ([4, 1], {TWO: 4, ONE: 4}, [TWO, ONE]),
        ([3, 3, 3], {ONE: 5, TWO: 5}, None),
        ([2, 2, 2, 2], {ONE: 9, TWO: 9}, [ONE, TWO, ONE, TWO]),
        ([2, 2, 2, 2], {ONE: 3, TWO: 9}, [ONE, TWO, TWO, TWO]),  # of different sizes
        ([1, 1, 4, 4], {ONE: 5, TWO: 5}, [ONE, TWO, ONE, TWO]),
        ([1, 1, 3, 5], {ONE: 5, TWO: 5}, [ONE, ONE, ONE, TWO]),  # only so do they fit
        ([6], {ONE: 5, TWO: 5}, None),
    ],
)
def test_all_that_are_needed_are_busy(
    sizes: list[int], free: dict[torch.device, int], chosen: list[torch.device] | None
) -> None:
    assert spread(sizes, free) == chosen


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> dict[torch.device, int]:
    """Bytes that two GPUs have free; -1: another process has it for itself. Those asked are taken
    out.
    """
    free = {ONE: 22_000, TWO: 25_000}

    def asked(gpu: torch.device) -> tuple[int, int]:
        if free[gpu] < 0:
            raise RuntimeError("CUDA-capable device(s) is/are busy or unavailable")
        return free.pop(gpu), 10**6

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", asked)
    # Of which this process uses 500.
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda gpu: 1_500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda gpu: 500)
    monkeypatch.setattr(placement, "WORKING", 18_000)
    return free


def test_no_gpu_is_asked_that_is_not_needed(
    two_gpus: dict[torch.device, int], random_shard: Callable[..., Shard]
) -> None:
    shards = [random_shard(*[30] * 5), random_shard(20, seed=1)]  # 3,230 and 436 bytes
    assert devices_for(shards, ONE) == [ONE, ONE]
    assert two_gpus == {TWO: 25_000}


@pytest.mark.parametrize("busy", [True, False])
def test_the_next_gpu_is_asked_where_one_has_no_room(
    busy: bool, two_gpus: dict[torch.device, int], random_shard: Callable[..., Shard]
) -> None:
    two_gpus[ONE] = -1 if busy else 17_000
    shards = [random_shard(*[30] * 5), random_shard(*[30] * 5, seed=1)]
    assert devices_for(shards, ONE) == [TWO, TWO]
    two_gpus |= {ONE: 25_000, TWO: 19_000}
    assert devices_for(shards, TWO) == [ONE, ONE]


def test_few_rows_need_little_to_work_in(
    two_gpus: dict[torch.device, int], random_shard: Callable[..., Shard]
) -> None:
    two_gpus[ONE] = (
        1_700  # and 1,000 that torch keeps; a row takes 37, and 2,624 while it is multiplied
    )
    assert devices_for([random_shard(1)], ONE) == [ONE]
    two_gpus |= {ONE: 1_600, TWO: 0}
    with pytest.raises(KnowledgeBaseError):
        devices_for([random_shard(1)], ONE)


def test_too_little_memory_is_said_with_what_is_needed_and_what_is_there(
    two_gpus: dict[torch.device, int],
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "WORKING", 2 * 10**9)
    monkeypatch.setattr(placement, "BATCH_NUMBERS", 10**9)
    monkeypatch.setattr(placement, "bytes_of", lambda shard: 35 * 10**9)
    two_gpus |= {ONE: 42 * 10**9, TWO: 32 * 10**9}
    shards = [random_shard(1), random_shard(1, seed=1)]
    message = r"needs 74\.0 GB of GPU memory, but only 42\.0 GB on cuda:0, 32\.0 GB on cuda:1 are free: use dev"
    with pytest.raises(KnowledgeBaseError, match=message):
        devices_for(shards, ONE)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_auto_searches_on_the_cpu_where_gpus_have_no_room(
    device: str, kb_folder: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model says that it lies on a GPU, which is full."""
    tried: list[torch.device] = []

    def full(
        shards: Sequence[Shard], device: torch.device, *_: object, **__: object
    ) -> list[torch.device]:
        tried.append(device)
        raise KnowledgeBaseError("exact search needs more")

    monkeypatch.setattr(Model, "device", ONE)
    monkeypatch.setattr(Model, "open", lambda *_: model)
    monkeypatch.setattr(factory, "devices_for", full)
    if device == "auto":
        place = KnowledgeBase.open(kb_folder, device=device).searcher.place
        assert place is not None
        assert (place.device, place.why) == (
            CPU,
            "on the CPU: exact index; exact search needs more",
        )
        assert tried == [ONE]
    else:
        with pytest.raises(KnowledgeBaseError, match="needs more"):
            KnowledgeBase.open(kb_folder, device=device)


def test_a_full_gpu_says_nothing_of_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "ones", full)
    with pytest.raises(torch.OutOfMemoryError):
        has_fast_int8(ONE)
    monkeypatch.undo()
    assert isinstance(has_fast_int8(CPU), bool)


def test_shards_on_several_devices_are_searched_as_if_on_one(
    random_shard: Callable[..., Shard],
) -> None:
    shards = [random_shard(*range(20, 60), dim=32, seed=seed) for seed in range(3)]
    other = torch.device("cpu", 0)  # torch's second name for it
    one, two = (
        search(
            SearchContext(shards, ExactIndex(shards, devices)),
            queries_like(shards[0]),
            10,
            "phrase",
        )
        for devices in ([CPU, CPU, CPU], [CPU, other, CPU])
    )
    assert one == two


NO_MEMORY = (  # as PyTorch's allocator, a library of CUDA and Triton say it
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
)


@pytest.mark.parametrize("error", NO_MEMORY, ids=["PyTorch", "cuBLAS", "Triton"])
def test_memory_that_others_have_taken_is_said(error: RuntimeError) -> None:
    message = r"cuda:0 ran out of memory, .*: use device=cpu, or build an index that fits"
    with pytest.raises(KnowledgeBaseError, match=message), out_of_memory_refused(ONE):
        raise error


@pytest.mark.parametrize(
    ("device", "error"),
    [
        (ONE, RuntimeError("CUDA error: an illegal memory access was encountered")),
        (CPU, RuntimeError("out of memory")),
    ],
    ids=["another error", "a CPU"],
)
def test_no_other_error_is_taken_for_a_lack_of_gpu_memory(
    device: torch.device, error: RuntimeError
) -> None:
    with pytest.raises(RuntimeError) as raised, out_of_memory_refused(device):
        raise error
    assert raised.value is error


def test_a_gpu_that_is_filled_while_its_kernels_are_tried_is_left(
    places: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def filled(device: torch.device) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(factory, "codes_work", filled)
    told = (
        "compact cpu: compact index; cuda:0 ran out of memory, which other programs may use: use "
        "device=cpu"
    )
    assert places(453, kind="compact").startswith(told)
    with pytest.raises(KnowledgeBaseError, match="cuda:0 ran out of memory"):
        places(453, kind="compact", may_leave_gpu=False)


def test_without_gpus_every_shard_lies_on_the_cpu(random_shard: Callable[..., Shard]) -> None:
    assert devices_for([random_shard(3), random_shard(4, seed=1)], CPU) == [CPU, CPU]


def test_what_lies_on_a_gpu_is_counted(random_shard: Callable[..., Shard]) -> None:
    # vectors, edges, paragraphs of rows, two numbers a paragraph.
    assert bytes_of(random_shard(3, 4)) == 7 * 16 + 7 + 7 * 4 + 2 * 16


def queries_like(shard: Shard) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(20, 2, shard.vectors.shape[1])).astype(np.float32)


@pytest.mark.parametrize("fast", [True, False], ids=["integers", "floats"])
def test_the_code_for_gpus_finds_the_same_on_a_cpu(
    fast: bool, random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = random_shard(*range(20, 60), dim=32)
    starts, ends = queries_like(shard).transpose(1, 0, 2)
    (truth,) = ExactIndex([shard], [CPU]).candidates(starts, ends, 5)
    monkeypatch.setattr(exact, "BLOCK_SCORES", 2**20)
    monkeypatch.setattr("kbq.index.inner_products.has_fast_int8", lambda device: fast)
    (found,) = ExactIndex([shard], [CPU]).candidates(starts, ends, 5)
    for one, other in zip(truth, found, strict=True):
        sure = one.complete_above  # rounding decides about others
        assert abs(other.complete_above - sure) < 1e-3 * abs(sure)
        assert len(np.setxor1d(one.starts, other.starts)) <= 0.1 * len(one.starts)


@pytest.mark.parametrize("in_integers", [True, False])
@pytest.mark.parametrize("dim", [32, 384, 768, 1024])
@pytest.mark.parametrize("queries", [1, 8, 64, 512, 4096])
def test_what_is_made_of_a_block_fits_into_what_is_kept_free(
    queries: int, dim: int, in_integers: bool
) -> None:
    rows = MAX_TOKENS * exact.pieces_at_a_time("cuda", queries, dim, in_integers)
    # Of products; float32 rows go before those.
    columns = max(32, 4 * queries) if in_integers else 2 * queries
    made = max(rows * columns, 0 if in_integers else rows * (dim + columns))
    # Limbs together, and once more where the last rows are joined.
    sums = 2 * rows * 2 * queries if in_integers else 0
    alone = rows * queries
    assert 4 * (made + sums + alone) <= placement.WORKING
    assert made + sums + alone <= rows * (dim + placement.BATCH_NUMBERS) or queries > 64
    assert rows >= 2**16 or queries > 64  # and is worth the launch


@pytest.fixture
def places(
    two_gpus: dict[torch.device, int],
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., str]:
    """Says where 300 rows of 384 dimensions are searched if two GPUs have so many bytes free, in
    thousands.
    """
    pytest.importorskip("faiss")
    shard = random_shard(*[30] * 10, dim=384)
    entries = [IndexEntry("compact", filter=1.0), IndexEntry("disk", filter=1.0), IndexEntry()]
    build_missing([shard], entries[0], np.eye(384, dtype=np.float32))
    monkeypatch.setattr(placement, "WORKING", 0)
    monkeypatch.setattr(factory, "CODES_WORKING", 0)
    monkeypatch.setattr(factory, "codes_work", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda gpu: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda gpu: 0)

    def placed(
        free: int, device: torch.device = ONE, kind: IndexKind | None = None, **how: Any
    ) -> str:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda gpu: (free * 1000, 10**9))
        place = choose_place([shard], entries, kind, device, **how)
        assert place.why.startswith("on the CPU") == (place.device == CPU)
        return f"{place.entry.kind} {place.device}: {place.why.removeprefix('on the CPU: ')}"

    return placed


def test_rows_are_searched_where_they_fit_else_codes_else_on_the_cpu(
    places: Callable[..., str],
) -> None:
    # Of 300 rows, 389 bytes each; the rotation is most of the codes' bytes.
    rows, codes = (
        117.0,
        453.0,
    )
    assert places(1000).startswith("exact cuda:0: on cuda:0: exact search of all vectors, 0.0 GB")
    assert places(rows, kind="compact").startswith(
        "compact cpu: compact index; the compact index needs 0.0 GB of GPU"
    )
    assert places(codes, kind="compact").startswith(
        "compact cuda:0: on cuda:0: codes of the compact index"
    )
    assert places(5).startswith(
        "compact cpu: compact index; exact search needs 0.0 GB of GPU memory, but only 0.0 GB"
    )
    assert places(1000, CPU) == "compact cpu: compact index; no GPU is used"
    assert places(1000, kind="disk") == "disk cpu: disk index; a disk index stays on the disk"


def test_cuda_alone_is_refused_with_what_would_fit(places: Callable[..., str]) -> None:
    message = r"compact index needs .* cuda:0, 0.0 GB on cuda:1 are free: use device=cpu, or build one half as large"
    with pytest.raises(KnowledgeBaseError, match=message):
        places(5, may_leave_gpu=False)
    with pytest.raises(
        KnowledgeBaseError, match=r"or build an index of codes .*: compact \(0\.0 GB\) or tiny"
    ):
        places(5, kind="exact", may_leave_gpu=False)


def test_every_worker_holds_a_copy_so_too_many_are_refused(places: Callable[..., str]) -> None:
    assert places(240, kind="exact", copies=4, may_leave_gpu=False).startswith("exact cuda:0")
    message = r"of GPU memory for 5 processes, but only .*: use fewer workers, or use device=cpu"
    with pytest.raises(KnowledgeBaseError, match=message):
        places(240, kind="exact", copies=5, may_leave_gpu=False)
    assert places(240, kind="exact", copies=5).startswith(
        "exact cpu: exact index; exact search needs"
    )


def test_memory_that_another_process_takes_during_the_load_is_said(
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def filled(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(factory, "devices_for", lambda shards, *_, **__: [ONE] * len(shards))
    monkeypatch.setattr(exact, "kind_for", filled)
    shard = random_shard(30)
    with pytest.raises(
        KnowledgeBaseError, match="cuda:0 ran out of memory, which other programs may use: use dev"
    ):
        open_index([shard], IndexEntry(), ONE)
    queries = queries_like(shard)[:2]
    monkeypatch.undo()
    expected = search(
        SearchContext([shard], open_index([shard], IndexEntry(), CPU)), queries, 3, "phrase"
    )
    monkeypatch.setattr(factory, "_open_on_gpus", filled_codes)
    index = open_index([shard], IndexEntry(), ONE, may_leave_gpu=True)
    assert search(SearchContext([shard], index), queries, 3, "phrase") == expected
    assert [record.message for record in caplog.records] == [
        "searching on the CPU: another process filled it"
    ]


def filled_codes(*_: object) -> None:
    raise KnowledgeBaseError("another process filled it")


@needs_gpu
def test_a_gpu_gives_the_same_hits(random_shard: Callable[..., Shard]) -> None:
    shards = [random_shard(*range(20, 60), dim=384), random_shard(5, 0, 30, dim=384, seed=1)]
    found = [
        search(
            SearchContext(shards, open_index(shards, IndexEntry(), device)),
            queries_like(shards[0]),
            10,
            "phrase",
        )
        for device in (CPU, ONE)
    ]
    # Scores too: they are computed by the CPU, from rows that the GPU has found.
    assert found[0] == found[1]


@needs_gpu
def test_a_gpu_finds_the_same_cells() -> None:
    random = np.random.default_rng(0)
    rows = random.integers(-127, 128, (3000, 40)).astype(np.int8)
    means = random.normal(0, 40, (70, 40)).astype(np.float32)
    on_gpu, on_cpu = (Clusters(means, device).nearest(rows) for device in (ONE, CPU))
    assert (
        on_gpu == on_cpu
    ).mean() > 0.97  # one of them may round the means, and values may be equal


@needs_gpu
def test_a_gpu_that_is_too_small_is_said(
    random_shard: Callable[..., Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "bytes_of", lambda shard: 2**50)
    with pytest.raises(KnowledgeBaseError, match=r"needs 1125899\.\d GB of GPU memory, but only"):
        open_index([random_shard(30)], IndexEntry(), torch.device("cuda"))
