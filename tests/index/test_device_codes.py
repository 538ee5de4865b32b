"""The benchmark of codes on a GPU runs whole on a CPU, so that no line of it runs first on a lent
card.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from kbq.index import gpu_codes
from kbq.index.base import CPU
from kbq.sample_kb import ARTICLES

faiss = pytest.importorskip("faiss")
pytest.importorskip(
    "triton", reason="Triton comes with PyTorch's builds for CUDA, and is in kbq[dev]"
)
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the benchmark itself")
PARTS = (
    *("compact, 46.5 million", "compact, 4.2 million", "faiss, 4.2 million"),
    *("shapes of the kernel, 4.2 million", "tiny, 770 million", "real rows"),
)


class Programs(NamedTuple):
    accelerator: Any
    device_codes: Any


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
        yield Programs(import_module("accelerator"), import_module("device_codes"))


def lines(printed: str) -> dict[str, list[str]]:
    """The figures of each part, by its name."""
    rows = [
        line.strip("| ").split(" | ")
        for line in printed.splitlines()
        if line.startswith("| codes: ")
    ]
    return {name.removeprefix("codes: "): figures for name, *figures in rows}


def test_all_of_it_runs_on_a_cpu(
    programs: Programs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus = tmp_path / "few.jsonl"
    corpus.write_text("".join(ARTICLES.read_text("utf-8").splitlines(True)[:2]), "utf-8")
    shape = gpu_codes.BLOCKS, gpu_codes.STEP
    words = ["codes", "--small", "--device", "cpu", "--corpus", str(corpus)]
    monkeypatch.setattr(sys, "argv", ["benchmarks/accelerator.py", *words])
    programs.accelerator.main()
    printed = capsys.readouterr().out
    assert "failed" not in printed
    figures = lines(printed)
    assert tuple(figures) == PARTS
    rows, *of_kinds = figures["real rows"]
    assert int(rows) > 100
    recall, _, same_hits = of_kinds[:3]
    assert (recall, same_hits) == ("1 1", "20")
    assert shape == (gpu_codes.BLOCKS, gpu_codes.STEP)  # which were varied
    assert "limits" in programs.accelerator.earlier_figures()  # which `codes` keeps


class FaissOfGpus:
    """faiss as its builds for GPUs have it, with the rules of their `GpuIndexIVFPQ`."""

    INDICES_32_BIT, INDICES_64_BIT = 1, 2

    def __init__(self, has_cuvs: bool) -> None:
        self._has_cuvs = has_cuvs
        self.configured: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(faiss, name)

    def StandardGpuResources(self) -> str:  # noqa: N802
        return "resources"

    def GpuIndexIVFPQConfig(self) -> Any:  # noqa: N802
        return SimpleNamespace(
            use_cuvs=self._has_cuvs, interleavedLayout=False, indicesOptions=self.INDICES_64_BIT
        )

    def GpuIndexIVFPQ(self, resources: str, index: Any, config: Any) -> Any:  # noqa: N802
        assert resources == "resources"
        assert config.interleavedLayout, "GPU: only pq.nbits == 8 is supported"
        assert not config.use_cuvs or config.indicesOptions == self.INDICES_64_BIT, (
            "only INDICES_64_BIT is supported"
        )
        self.configured = config
        return index


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, programs: Programs) -> list[float]:
    """The driver's answers, and the free GB of a card one after the other; what lies there lies on
    the CPU.
    """
    free = [70.0]
    make = programs.device_codes.random_cells
    answers = {
        "get_device_name": lambda device: "an imagined card",
        "reset_peak_memory_stats": lambda device: None,
        "max_memory_allocated": lambda device: 3 * 10**9,
        "mem_get_info": lambda device: (
            int(10**9 * (free.pop() if len(free) > 1 else free[0])),
            80 * 10**9,
        ),
        "synchronize": lambda device: None,
        "empty_cache": lambda: None,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(
        programs.device_codes,
        "random_cells",
        lambda kind, rows, dim, device: make(kind, rows, dim, CPU),
    )
    return free


@pytest.mark.parametrize("has_cuvs", [False, True])
def test_faiss_of_gpus_is_given_what_it_takes(
    has_cuvs: bool, programs: Programs, card: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = FaissOfGpus(has_cuvs)
    monkeypatch.setattr(programs.device_codes, "load_faiss", lambda: loaded)
    run = programs.accelerator.Run(torch.device("cuda"), True)
    card[:] = [68.5, 70.0]  # after it is loaded, and before
    run.part("faiss", lambda run, found: programs.device_codes.searched_by_faiss(run, found, 80))
    found = run.figures["faiss"]
    assert "failed" not in found
    assert (found["device"], found["where"], found["GB on the device"]) == (
        "an imagined card",
        "GPU",
        1.5,
    )
    assert loaded.configured.device == 0
    assert loaded.configured.indicesOptions == (2 if has_cuvs else 1)


def test_what_a_card_alone_runs(programs: Programs, card: list[float]) -> None:
    run = programs.accelerator.Run(torch.device("cuda"), True)
    (largest,) = [
        work for name, work in programs.device_codes.parts(run, None) if "770 million" in name
    ]
    run.part("largest", largest)
    found = run.figures["largest"]
    assert "failed" not in found
    assert (found["rows"], found["GB on the device, this process"]) == (80, 3.0)

    def names(small: bool) -> Sequence[str]:
        run.small = small
        return [name for name, _ in programs.device_codes.parts(run, None)]

    card[:] = [50.0]
    assert "codes: tiny, 770 million" not in names(small=False)
    assert "codes: tiny, 770 million" in names(small=True)


def test_codes_that_are_made_are_those_that_would_be_loaded(programs: Programs) -> None:
    """Codes, numbers and cells of 80 rows have the shapes that `GpuCells` gives them: two cells of
    two blocks.
    """
    (cells,) = programs.device_codes.random_cells("tiny", 80, 24, CPU)
    assert (len(cells._codes), len(cells._numbers)) == (4 * 32 * 4 // 2, 4 * 32)
    assert cells._firsts.tolist() == [[0, 2]]
    assert cells._counts.tolist() == [[2, 2]]
    scores, _, numbers = cells.search(np.ones((1, 24), np.float32), 80)
    assert (np.diff(scores[0]) <= 0).all()
    assert set(numbers[0]) <= set(range(80))
