"""Kills: kill builds and tables with SIGKILL at random moments, and count how many end with the
same bytes.

    OMP_NUM_THREADS=1 python benchmarks/kills.py CORPUS WORK
        [--kills 20] [--pages 60] [--subjects 20]

Each build makes a BM25 index and a compact one; every second kill comes while these are built,
which takes a small part of the time. Blocks and shards are so short that there are several. Tables
ask the bundled sample for RELATIONS, at last for ten times the cells, to compare the memory. Runs
are forked, so that hardly any kill meets a process that is still loading its libraries. WORK is a
new folder. Writes `kills` and `fill_faults`.
"""

import random
import shutil
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import reporting
import torch
from measuring import arguments, run, write_records

from kbq.corpus.readers import read_corpus
from kbq.dump import resumable_build
from kbq.dump.manifest import is_knowledge_base
from kbq.kb import KnowledgeBase
from kbq.maintain import indexes
from kbq.model.model import Model

resumable_build.BLOCK_CHARACTERS, resumable_build.SHARD_ROWS = 2**12, 1500
indexes.OWN_QUERIES = 40  # to measure the index with
WHILE_INDEXING = "while an index was built"
RELATIONS = (
    "instance of", "place of birth", "date of birth", "date of death", "employer", "country", "founded by",
    "inception", "headquarters location", "named after",
)  # fmt: skip


def main() -> None:
    options = arguments(__doc__, corpus=Path, work=Path, kills=20, pages=60, subjects=20)
    torch.set_num_threads(1)
    options.work.mkdir(parents=True)
    pages, model = (
        list(read_corpus(str(options.corpus)))[: options.pages],
        Model.open("default", "cpu"),
    )

    def build(folder: Path) -> None:
        KnowledgeBase.build(pages, folder / "kb", model, index="compact")

    stages, same = killed(build, options.work, options.kills, stage, WHILE_INDEXING)
    figures: dict[str, Any] = {"kills": len(stages), "resumed with the same bytes": same}
    figures["killed"] = {name: stages.count(name) for name in dict.fromkeys(stages)}
    reporting.write("kills", figures, [options.corpus], seed=0)
    kb = KnowledgeBase.sample(device="cpu")
    rows = [{"subject": title} for shard in kb.searcher.shards for title in shard.titles]

    def fill(folder: Path) -> None:
        kb.fill(rows[: options.subjects], RELATIONS, folder / "out.csv")

    stages, same = killed(fill, options.work, options.kills, answers)
    counts = {
        "kills": len(stages),
        "when some cells were done": len(stages) - stages.count("no answer"),
    }
    figures = {"killed": counts | {"resumed with the same bytes": same}}
    for times in (1, 10):
        some = rows[: times * options.subjects]
        table = write_records(options.work / f"{times}.jsonl", some)
        usage = run(
            "fill", table, "--relations", *RELATIONS, "--out", options.work / f"{times}.csv"
        )
        figures[f"{times} times"] = {"cells": len(some) * len(RELATIONS), **usage}
    reporting.write("fill_faults", figures, [], seed=0)


def killed(
    work: Callable[[Path], object],
    folder: Path,
    kills: int,
    reached: Callable[[Path], str],
    late: str = "",
) -> tuple[list[str], int]:
    """Kill work in a folder at random moments, and do it again.

    Args:
        reached: returns how far the work has got, or "" when it is done.
        late: the stage that every second kill waits for.

    Returns:
        The stage at each kill, and how many runs ended with the same bytes.
    """
    whole, victim, moments, stages, same = (
        folder / "whole",
        folder / "killed",
        random.Random(0),
        list[str](),
        0,
    )
    begun = time.monotonic()
    process = started(work, whole)
    early = waited(process, whole, reached, late) - begun if late else 0.0
    finish(process)
    seconds, truth = time.monotonic() - begun, contents(whole)
    while len(stages) < kills:
        process = started(work, victim)
        is_late = bool(late) and len(stages) % 2 == 1
        if is_late:
            waited(process, victim, reached, late)
        time.sleep(moments.uniform(0, seconds - early if is_late else early or seconds))
        process.kill()
        process.join()
        if stage := reached(victim):  # otherwise it ended before the kill: try another moment
            stages.append(stage)
            finish(started(work, victim))
            same += contents(victim) == truth
            print(f"kill {len(stages)}: {stage}; {same} with the same bytes", flush=True)
        shutil.rmtree(victim)
    shutil.rmtree(whole)
    return stages, same


def started(work: Callable[[Path], object], folder: Path) -> ForkProcess:
    """Begin work in a process of its own, or resume it."""
    folder.mkdir(exist_ok=True)
    process = get_context("fork").Process(target=work, args=(folder,))
    process.start()
    return process


def waited(process: ForkProcess, folder: Path, reached: Callable[[Path], str], stage: str) -> float:
    """Wait until work has reached a stage, or has ended; return the time."""
    while reached(folder) != stage and process.is_alive():
        time.sleep(0.01)
    return time.monotonic()


def finish(process: ForkProcess) -> None:
    process.join()
    if process.exitcode:
        raise SystemExit(f"a run ended with status {process.exitcode}")


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files, except the description of a run, which has its time."""
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".run.json")
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def stage(folder: Path) -> str:
    """Return how far a build has got."""
    shards = sorted((folder / "kb").glob("shard-*"))
    if is_knowledge_base(folder / "kb"):
        return ""
    if any((shard / "compact").exists() for shard in shards):
        return WHILE_INDEXING
    return f"in shard {len(shards) - 1}" if shards else "before the first shard"


def answers(folder: Path) -> str:
    """Return how many answers a table has got."""
    if (folder / "out.csv").exists():
        return ""
    partial = folder / "out.answers.jsonl"
    count = len(partial.read_bytes().splitlines()) if partial.exists() else 0
    return f"after {count} answers" if count else "no answer"


if __name__ == "__main__":
    main()
