"""Fill, at its worst: runs that are killed at random moments and resumed, and the memory that ten times the cells take.

    OMP_NUM_THREADS=1 python benchmarks/fill_faults.py WORK [--kills 20] [--subjects 20]

The bundled sample's pages are asked for RELATIONS. A run is a process that this one forks and kills with SIGKILL; the
table and the claims that it ends with after all must be the bytes of one that was never killed. WORK is a folder for
tables.
"""

import argparse
import csv
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import reporting
import torch
from kills import finish
from memory import peaks

from kbq.kb import KnowledgeBase

RELATIONS = (
    "instance of", "place of birth", "date of birth", "date of death", "employer", "country", "founded by",
    "inception", "headquarters location", "named after",
)  # fmt: skip


def start(kb: KnowledgeBase, table: Path, out: Path) -> int:
    """Begin, or go on with, a run in a process of its own; its id."""
    process = os.fork()
    if not process:
        kb.fill(table, RELATIONS, out)
        os._exit(0)
    return process


def contents(out: Path) -> list[bytes]:
    return [path.read_bytes() for path in (out, out.with_suffix(".claims.jsonl"))]


def killed(kb: KnowledgeBase, table: Path, kills: int) -> dict[str, int]:
    """How many of so many killed runs end with the same bytes."""
    whole = table.with_name("whole.csv")
    begun = time.monotonic()
    finish(start(kb, table, whole))
    seconds, truth = time.monotonic() - begun, contents(whole)
    moments, reached, same = random.Random(0), list[int](), 0
    folder = table.with_name("killed")
    while len(reached) < kills:
        folder.mkdir()
        out = folder / "out.csv"
        process = start(kb, table, out)
        time.sleep(moments.uniform(0, seconds))
        if not os.waitpid(process, os.WNOHANG)[0]:  # else it was faster than the kill: another moment
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            partial = out.with_suffix(".answers.jsonl")
            reached.append(len(partial.read_bytes().splitlines()) if partial.exists() else 0)
            finish(start(kb, table, out))
            same += contents(out) == truth
            print(f"kill {len(reached)}: after {reached[-1]} answers; {same} with the same bytes", flush=True)
        shutil.rmtree(folder)
    begun_before = sum(answers > 0 for answers in reached)
    return {"kills": kills, "when some cells were done": begun_before, "resumed with the same bytes": same}


def written(path: Path, subjects: list[str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["subject"], *([subject] for subject in subjects)])
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--subjects", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True)
    kb = KnowledgeBase.sample(device="cpu")
    titles = [title for shard in kb.shards for title in shard.titles]
    figures: dict[str, object] = {
        "killed": killed(kb, written(options.work / "few.csv", titles[: options.subjects]), options.kills)
    }
    for times in (1, 10):
        subjects = titles[: times * options.subjects]
        table = written(options.work / f"{times}.csv", subjects)
        command = [sys.executable, "-m", "kbq", "fill", str(table), "--relations", *RELATIONS]
        usage = peaks([*command, "--out", str(table.with_suffix(".jsonl"))])
        figures[f"{times} times"] = {"cells": len(subjects) * len(RELATIONS), **usage}
    reporting.write("fill_faults", figures, [], seed=0)


if __name__ == "__main__":
    main()
