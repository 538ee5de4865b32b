"""Mutations: files of a knowledge base and a model are damaged at random; each trial must tell, or answer as before.

    OMP_NUM_THREADS=1 python benchmarks/mutations.py WORK [--trials 2000]

A trial changes one file (a bit, a byte, zeros, parts swapped, cut, longer, missing), opens what it belongs to and asks.
Half of the trials read nothing but sizes when they open, as with files that are large. WORK is a folder to work in.
"""

import argparse
import itertools
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import reporting
import torch
from measuring import of_tests

from kbq.corpus.readers import read_corpus
from kbq.dump.manifest import read_manifest
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.model.model_folder import DEFAULT_MODEL
from kbq.sample_kb import ARTICLES
from kbq.storage.seals import READ_WHEN_OPENED

PAGES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--trials", type=int, default=2000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tests = of_tests("test_mutations")
    model = Model.open("default", "cpu")
    options.work.mkdir(parents=True, exist_ok=True)
    source = options.work / "source"
    shutil.rmtree(source, ignore_errors=True)
    pages = list(itertools.islice(read_corpus(str(ARTICLES)), PAGES))
    built = KnowledgeBase.build(pages, source, model, index="compact").index_vectors("disk", recall=0.9)
    built.delete([pages[-1].id])

    def asked(index: str) -> Any:
        def ask(folder: Path) -> Any:
            return tests.answers(KnowledgeBase._opened(folder, read_manifest(folder), model, index))

        return ask

    def encoded(folder: Path) -> Any:
        return [side.tolist() for side in Model.open(folder, "cpu").encode_queries(tests.QUERIES)]

    kinds = [(source, asked(index), read) for index in ("exact", "compact", "disk") for read in (READ_WHEN_OPENED, 0)]
    kinds.append((DEFAULT_MODEL, encoded, 0))
    truths = [ask(folder) for folder, ask, _ in kinds]
    done = Counter()
    failures = []
    for seed in range(options.trials):
        number = seed % len(kinds)
        folder, ask, read = kinds[number]
        one = tests.trial(folder, options.work / "trial", seed, ask, truths[number], read)
        what = "model" if folder == DEFAULT_MODEL else "small" if read else "large"
        kind = one.outcome if one.outcome != "other" else "other, verified" if one.verified else "other, unnoticed"
        done[f"{what}: {kind}"] += 1
        if kind in ("failed", "other, unnoticed"):
            failures.append(f"seed {seed}: {one}")
            print(failures[-1], file=sys.stderr, flush=True)
    changed = {
        what: sum(n for name, n in done.items() if name.startswith(what)) for what in ("small", "large", "model")
    }
    noticed = {what: done[f"{what}: refused"] / max(1, n) for what, n in changed.items()}
    figures = {"trials": options.trials, "outcomes": dict(sorted(done.items())), "refused when opened": noticed}
    reporting.write("mutations", figures | {"failures": failures}, [ARTICLES])


if __name__ == "__main__":
    main()
