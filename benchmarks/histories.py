"""Histories: random changes of a knowledge base, some killed; at the end it must answer as one built anew.

    OMP_NUM_THREADS=1 python benchmarks/histories.py WORK [--histories 500]

A history is a build and three to six changes: an update, a synchronisation, pages deleted, a compaction. About one
change in ten is made by a process that is killed at a random moment, and then made again. Answers, scores and places
are compared for all units and backends, with exact search. WORK is a folder to work in.
"""

import argparse
import itertools
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reporting
import torch

from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.dump.manifest import read_manifest
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.sample_kb import ARTICLES
from kbq.search.verifying import verify
from kbq.text.sentences import sentence_bounds

IDS, VERSIONS = 30, 3
SLOTS = ("place of birth", "occupation", "date")
KILLED = 0.12  # share of the changes
UNITS, BACKENDS = ("phrase", "sentence", "paragraph", "page"), ("dense", "hybrid", "bm25")


def versions() -> dict[str, list[Page]]:
    """Several pages for each id: an article's first sentence, its second, …"""
    found = {}
    for page in itertools.islice(read_corpus(str(ARTICLES)), IDS):
        text = page.paragraphs[0].text
        sentences = [text[begin:stop] for begin, stop in sentence_bounds(text)][:VERSIONS]
        found[page.id] = [Page(page.id, page.title, [one], metadata={"version": n}) for n, one in enumerate(sentences)]
    return found


def answers(kb: KnowledgeBase, queries: list[str]) -> list[Any]:
    asked: Any = kb.query
    found = []
    for unit, backend in itertools.product(UNITS, BACKENDS):
        if backend != "bm25" or unit in ("paragraph", "page"):
            hits = asked(queries, 5, unit, backend)
            found.append([[one.to_dict() | {"score": one.score} for one in of_query] for of_query in hits])
    return found


def killed(change: Callable[[], object], within: float) -> bool:
    """Make a change in a process that is killed at a random moment; whether it was killed before it had ended."""
    process = os.fork()
    if not process:
        change()
        os._exit(0)
    time.sleep(within)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


def history(folder: Path, model: Model, chance: random.Random, pool: dict[str, list[Page]], done: Counter[str]) -> bool:
    """Whether the knowledge base answers like one that is built from the pages that are left."""
    pages: dict[str, Page] = {}

    def some(most: int) -> list[Page]:
        return [chance.choice(pool[page_id]) for page_id in chance.sample(sorted(pool), chance.randint(1, most))]

    def say(corpus: list[Page]) -> None:
        for page in corpus:
            if pages.get(page.id) != page:
                pages.pop(page.id, None)
                pages[page.id] = page

    first = some(15)
    say(first)
    KnowledgeBase.build(first, folder / "kb", model)
    for _ in range(chance.randint(3, 6)):
        kb = KnowledgeBase._opened(folder / "kb", read_manifest(folder / "kb"), model, None)
        kind = chance.choice(["update", "update", "sync", "delete", "compact"])
        corpus = some(6)
        ids = chance.sample(sorted(pages), min(len(pages) - 1, chance.randint(1, 3)))
        if kind == "delete" and not ids:
            continue
        change: Callable[[], object] = {
            "update": lambda kb=kb, corpus=corpus: kb.update(corpus),
            "sync": lambda kb=kb, corpus=corpus: kb.sync(corpus),
            "delete": lambda kb=kb, ids=ids: kb.delete(ids, missing_ok=True),
            "compact": lambda kb=kb: kb.compact(),
        }[kind]
        if chance.random() < KILLED and killed(change, chance.uniform(0, 0.5 if kind in ("update", "sync") else 0.05)):
            done["kills"] += 1
            done["whole after a kill"] += bool(verify(folder / "kb"))
        change()
        done[kind] += 1
        if kind in ("update", "sync"):
            say(corpus)
        gone = ids if kind == "delete" else set(pages) - {page.id for page in corpus} if kind == "sync" else ()
        for page_id in gone:
            del pages[page_id]
    queries = [f"{page.title} [SEP] {slot}" for page in chance.sample(list(pages.values()), 1) for slot in SLOTS]
    queries += ["who was born in Paris?", "in which year did it open?"]
    kb = KnowledgeBase._opened(folder / "kb", read_manifest(folder / "kb"), model, None)
    truth = KnowledgeBase.build(list(pages.values()), folder / "truth", model)
    return answers(kb, queries) == answers(truth, queries) and kb.counts == truth.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--histories", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, pool, done = Model.open("default", "cpu"), versions(), Counter[str]()
    for seed in range(options.histories):
        folder = options.work / "history"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if history(folder, model, random.Random(seed), pool, done):
            done["equal"] += 1
        else:
            print(f"history {seed} differs", file=sys.stderr, flush=True)
        if seed % 50 == 49:
            print(seed + 1, dict(done), file=sys.stderr, flush=True)
    reporting.write("histories", {"histories": options.histories, **dict(sorted(done.items()))}, [ARTICLES], seed=0)


if __name__ == "__main__":
    main()
