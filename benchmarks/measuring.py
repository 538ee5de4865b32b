"""Measuring: what work takes, the queries that it is done for, and what the tests have for it."""

import importlib
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbq.storage.lines import read_json_lines


def cpu_seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """CPU seconds, the fewest of some runs: other processes only ever slow one down."""
    return _fewest(time.process_time, work, repeat)


def wall_seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """Seconds that somebody waits, the fewest of some runs: of GPUs, and where several threads work."""
    return _fewest(time.perf_counter, work, repeat)


def _fewest(clock: Callable[[], float], work: Callable[[], object], repeat: int) -> float:
    taken = []
    for _ in range(repeat):
        begun = clock()
        work()
        taken.append(clock() - begun)
    return min(taken)


def inputs(queries: Path, count: int | None = None) -> list[str]:
    """The inputs of a KILT file, or as many of them, drawn at random with seed 0."""
    texts = [str(record["input"]) for _, record in read_json_lines(str(queries))]
    return texts if count is None else random.Random(0).sample(texts, min(count, len(texts)))


def of_tests(name: str) -> Any:
    """A module of the tests."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    return importlib.import_module(name.replace("/", "."))
