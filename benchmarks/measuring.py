"""Measuring: arguments, clocks, processes, queries and scores, which the benchmarks share."""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
import timeit
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kbq.kilt.analysis import bootstrap_interval
from kbq.kilt.scores import Scores, score
from kbq.storage.lines import read_json_lines

if TYPE_CHECKING:
    from kbq.answers import Answer
    from kbq.kb import KnowledgeBase  # which takes long to load, and much memory

SCORES = ("accuracy", "em", "f1", "Rprec", "recall@5", "KILT-accuracy", "KILT-f1")
Records = list[dict[str, Any]]


# Arguments


def arguments(description: str | None, **wanted: Any) -> argparse.Namespace:
    """Parse the command line.

    Args:
        wanted: by name, the type of a required argument, in a list if it takes several values; a
            frozenset for an optional one of some words; or the default of an option: False for a
            switch, None for a text, a tuple for several values.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in wanted.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, list):
            parser.add_argument(name, type=default[0], nargs="+")
        elif callable(default):
            parser.add_argument(name, type=default)
        elif isinstance(default, frozenset):
            parser.add_argument(name, nargs="?", choices=sorted(default))
        elif default is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(option, type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(
                option, type=str if default is None else type(default), default=default
            )
    return parser.parse_args()


def folder_of_runs(options: argparse.Namespace, *varying: str) -> Path:
    """Make WORK, which keeps finished runs, and return it.

    Args:
        varying: the options that may differ between its runs, as their names in WORK say them.

    Raises SystemExit if WORK has runs with other settings.
    """
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    named = {"work", "name", *varying}
    settings = {name: str(value) for name, value in vars(options).items() if name not in named}
    path = work / "settings.json"
    if path.exists() and json.loads(path.read_text("utf-8")) != settings:
        raise SystemExit(f"{work} has runs with other settings, {path}: choose another WORK")
    path.write_text(json.dumps(settings, indent=1), "utf-8")
    return work


class DataSet(NamedTuple):
    """A knowledge base and queries with gold answers, given as NAME=KB:GOLD."""

    name: str
    kb: Path
    gold: Path

    @classmethod
    def of(cls, text: str) -> "DataSet":
        found = re.fullmatch(r"([^=]+)=([^:]+):(.+)", text)
        if not found:
            raise ArgumentTypeError(f"{text!r} is not NAME=KB:GOLD")
        return cls(found[1], Path(found[2]), Path(found[3]))


# Clocks and processes


def cpu_seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """Return the fewest CPU seconds of several runs, since other processes can only slow one down."""
    return min(timeit.repeat(work, "gc.enable()", time.process_time, repeat, number=1))


def wall_seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """Return the fewest wall seconds of several runs, for GPUs and work in several threads."""
    return min(timeit.repeat(work, "gc.enable()", time.perf_counter, repeat, number=1))


def megabytes(process: int | str = "self", what: str = "RssAnon") -> float:
    """Return the memory of a process on Linux: without mapped files, or its peak with them (VmHWM)."""
    found = re.search(
        rf"^{what}:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE
    )
    return int(found[1]) / 1000 if found else 0.0  # a process that is ending has none


def run(*words: str | Path) -> dict[str, float]:
    """Run a `kbq` command; return its seconds, CPU seconds, and peak memory with and without mapped
    files.
    """
    begun, own, peak = time.perf_counter(), 0.0, 0.0
    process = subprocess.Popen(
        [sys.executable, "-m", "kbq", *map(str, words)], stdout=subprocess.DEVNULL
    )
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        own, peak = max(own, megabytes(process.pid)), max(peak, megabytes(process.pid, "VmHWM"))
        time.sleep(0.05)
    _, status, usage = ended
    if status:
        raise SystemExit(f"kbq {' '.join(map(str, words))} ended with status {status}")
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "CPU seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak memory, MB": round(peak),  # ru_maxrss has that of this process in it
        "own, MB": round(own),
    }


# Queries and scores


def searched(
    kb: "KnowledgeBase", starts: np.ndarray, ends: np.ndarray, together: int
) -> list[list["Answer"]]:
    """Return the ten best phrases for each encoded query, searching `together` queries at a time."""
    from kbq.search.search import search

    hits: list[list[Answer]] = []
    for first in range(0, len(starts), together):
        part = slice(first, first + together)
        hits += search(
            kb.searcher.search_context,
            kb.model.in_row_units(starts[part], ends[part]),
            10,
            "phrase",
        )
    return hits


def records_of(gold: Path, most: int = 0) -> Records:
    """Return the records of a KILT file; `most` limits them to a random sample."""
    records: Records = [record for _, record in read_json_lines(str(gold))]
    return records if not most or len(records) <= most else random.Random(0).sample(records, most)


def inputs(queries: Path, most: int = 0) -> list[str]:
    """Return the inputs of these records."""
    return [str(record["input"]) for record in records_of(queries, most)]


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    """Write JSON lines."""
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8"
    )
    return path


def predicted(
    kb: "KnowledgeBase", records: Records, task: str = "slot_filling", **options: Any
) -> Scores:
    """Predict records, and score the predictions as KILT does."""
    return score(kb.predict(records, task, **options), records)


def intervals(scores: Scores, names: Sequence[str] = SCORES) -> dict[str, Any]:
    """Return the number of queries, and each score in percent with its confidence interval."""
    return {"queries": len(scores.ids)} | {name: interval(scores.column(name)) for name in names}


def interval(column: np.ndarray) -> list[float]:
    """Return the mean and its 95 % confidence interval, in percent: mean, low, high."""
    found = bootstrap_interval(column)
    return [round(100 * value, 2) for value in (found.mean, found.low, found.high)]


def rounded(value: float | None) -> float | None:
    """Round a share to four digits."""
    return None if value is None else round(value, 4)


def share_of(column: np.ndarray) -> float | None:
    """Return the share of true values, or None if there are none."""
    return rounded(float(column.mean())) if len(column) else None
