"""Kills: a build is killed with SIGKILL at random moments and resumed; every result must be the same bytes.

Every second kill comes while indexes are built, which takes a small part of the time.

    OMP_NUM_THREADS=1 python benchmarks/kills.py CORPUS WORK [--kills 20] [--pages 60]

Blocks and shards are so short that there are several, and each build makes a BM25 index and a compact one. A
build is a process that this one forks, so that hardly any kill meets a process that is still loading its libraries.
WORK is a folder for the knowledge bases.
"""

import argparse
import os
import random
import shutil
import signal
import time
from pathlib import Path

import reporting
import torch

from kbq.answers import BuiltKind
from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.dump import building
from kbq.dump.manifest import is_knowledge_base
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search import building_indexes as indexes

building.BLOCK_CHARACTERS, building.SHARD_ROWS = 2**12, 1500
indexes.OWN_QUERIES = 40  # that the index is measured with
INDEX: BuiltKind = "compact"
WHILE_INDEXING = "while an index was built"


def start(pages: list[Page], folder: Path, model: Model) -> int:
    """Begin, or go on with, a build in a process of its own; its id."""
    process = os.fork()
    if not process:
        KnowledgeBase.build(pages, folder, model, index=INDEX)
        os._exit(0)
    return process


def whole_build(pages: list[Page], folder: Path, model: Model) -> tuple[float, float]:
    """Seconds until the first index of a build is begun, and until it ends."""
    begun = time.monotonic()
    process = start(pages, folder, model)
    if not indexing(process, folder):
        raise SystemExit("the build ended before it was seen to make an index: use more --pages")
    reached = time.monotonic() - begun
    finish(process)
    return reached, time.monotonic() - begun


def indexing(process: int, folder: Path) -> bool:
    """Wait until a build makes its first index; False: it has ended, and nobody saw it."""
    while stage(folder) != WHILE_INDEXING:
        if os.waitpid(process, os.WNOHANG)[0]:
            return False
        time.sleep(0.01)
    return True


def finish(process: int) -> None:
    _, status = os.waitpid(process, 0)
    if status:
        raise SystemExit(f"a run ended with status {status}")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pages", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    pages = list(read_corpus(str(options.corpus)))[: options.pages]
    model = Model.open("default", "cpu")
    encoded, ended = whole_build(pages, options.work / "whole", model)
    truth = contents(options.work / "whole")
    moments = random.Random(0)
    reached: list[str] = []
    same = 0
    while len(reached) < options.kills:
        folder = options.work / "killed"
        process = start(pages, folder, model)
        late = bool(len(reached) % 2)
        running = indexing(process, folder) if late else True
        time.sleep(moments.uniform(0, ended - encoded if late else encoded))
        if running and not os.waitpid(process, os.WNOHANG)[0]:  # else it was faster than the kill: another moment
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            if not is_knowledge_base(folder):  # else it was published already: another moment, too
                reached.append(stage(folder))
                finish(start(pages, folder, model))
                same += contents(folder) == truth
                print(f"kill {len(reached)}: {reached[-1]}; {same} with the same bytes", flush=True)
        shutil.rmtree(folder)
    stages = {name: reached.count(name) for name in dict.fromkeys(reached)}
    figures = {"kills": len(reached), "resumed with the same bytes": same, "killed": stages, "files": len(truth)}
    reporting.write("kills", figures, [options.corpus], seed=0)


def stage(folder: Path) -> str:
    """How far a build had got."""
    shards = sorted(folder.glob("shard-*"))
    if any((shard / INDEX).exists() for shard in shards):
        return WHILE_INDEXING
    return f"in shard {len(shards) - 1}" if shards else "before the first shard"


if __name__ == "__main__":
    main()
