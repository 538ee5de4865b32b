"""Kills: a build is killed with SIGKILL at random moments and resumed; every result must be the same bytes.

    python benchmarks/kills.py CORPUS WORK [--kills 20]

The corpus should be small: blocks are made so short that there are several of them, and each run also builds an index.
Runs have one or two workers by turns, and so have the runs that go on. WORK is a folder for the knowledge bases.
"""

import argparse
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import reporting

from kbq import commands
from kbq.indexing import building
from kbq.indexing.manifest import MANIFEST
from kbq.searching import indexes

BLOCK_CHARACTERS = 2**13
SHARD_ROWS = 3000
OWN_QUERIES = 40  # that the index is measured with


def build(corpus: str, folder: str, workers: int) -> None:
    """What is killed: a build in several blocks and shards, with an index."""
    building.BLOCK_CHARACTERS, building.SHARD_ROWS, indexes.OWN_QUERIES = BLOCK_CHARACTERS, SHARD_ROWS, OWN_QUERIES
    request = commands.BuildRequest(
        corpus, Path(folder), index="approximate", sparse=True, device="cpu", workers=workers
    )
    commands.build(request, lambda counts: None, lambda line: None)


def start(corpus: Path, folder: Path, workers: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, "--child", str(corpus), str(folder), "--workers", str(workers)])


def finish(process: "subprocess.Popen[bytes]") -> None:
    if process.wait():
        raise SystemExit(f"a build ended with status {process.returncode}")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        build(str(options.corpus), str(options.work), options.workers)
        return
    begun = time.monotonic()
    whole = options.work / "whole"
    finish(start(options.corpus, whole, 1))
    seconds = time.monotonic() - begun
    truth = contents(whole)
    moments = random.Random(0)
    kills = in_time = same = published = 0
    while in_time < options.kills:
        folder = options.work / "killed"
        process = start(options.corpus, folder, 1 + kills % 2)
        kills += 1
        try:
            process.wait(moments.uniform(0, seconds))
            shutil.rmtree(folder)  # it was faster than the kill: another moment
            continue
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        in_time += 1
        published += (folder / MANIFEST).exists()
        begun_blocks = (folder / building.STATE).exists()
        finish(start(options.corpus, folder, 1 + in_time // 2 % 2))
        same += contents(folder) == truth
        print(f"kill {in_time}: {'in the build' if begun_blocks else 'before it'}, {same} the same bytes", flush=True)
        shutil.rmtree(folder)
    figures = {"kills": in_time, "resumed with the same bytes": same, "killed after it was published": published}
    figures |= {"files": len(truth), "seconds of a build": round(seconds, 1)}
    reporting.write("kills", figures, [options.corpus], seed=0)


if __name__ == "__main__":
    main()
