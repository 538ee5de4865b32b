"""Changes: what opening, verifying, deleting, updating and compacting cost, beside building the knowledge base anew.

    OMP_NUM_THREADS=1 python benchmarks/changes.py KB CORPUS WORK --build-seconds S [--pages 1 100 10000]

KB was built from CORPUS with the default model, in S CPU seconds. It is not changed: copies of it in WORK share its
files, which never change. The pages that change are a random sample; each gets another sentence, and then its old text
again, after which the knowledge base must answer as before.
"""

import argparse
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import reporting
import torch

from kbq.corpus.pages import Page, Paragraph
from kbq.corpus.readers import read_corpus
from kbq.dump.manifest import read_manifest
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.model.model_files import model_files
from kbq.model.model_folder import DEFAULT_MODEL
from kbq.search.recall import own_queries
from kbq.search.verifying import verify
from kbq.storage.seals import first_damage

QUERIES, ROUNDS = 200, 5


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds, wall seconds, and the outcome."""
    cpu, wall = time.process_time(), time.perf_counter()
    outcome = work()
    return time.process_time() - cpu, time.perf_counter() - wall, outcome


def copy_of(kb: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(kb, folder, copy_function=os.link))


def changed(page: Page) -> Page:
    first, *others = page.paragraphs or (Paragraph(0, ""),)
    return replace_paragraphs(page, [replace(first, text=f"{first.text} It was read again in 2026.".strip()), *others])


def replace_paragraphs(page: Page, paragraphs: list[Paragraph]) -> Page:
    return Page(page.id, page.title, paragraphs, metadata=page.metadata)


def opening(kb: Path) -> dict[str, float]:
    """CPU milliseconds of the checks of a knowledge base and of the model, in memory; the least of some."""
    manifest = read_manifest(kb)

    def check() -> None:
        files = manifest.files(kb, [*(shard.name for shard in manifest.shards), *manifest.parts()])
        assert first_damage(files) is None

    def check_model() -> None:
        assert first_damage(model_files(DEFAULT_MODEL), at_most=2**40) is None

    return {
        "knowledge base, CPU ms": 1e3 * min(timed(check)[0] for _ in range(ROUNDS)),
        "model, CPU ms": 1e3 * min(timed(check_model)[0] for _ in range(ROUNDS)),
        "all of opening, CPU ms": 1e3 * min(timed(lambda: KnowledgeBase.open(kb, device="cpu"))[0] for _ in range(3)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--build-seconds", type=float, required=True, help="CPU seconds that building KB took")
    parser.add_argument("--pages", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--most-updated", type=int, default=10_000, help="of these, leave out updates of more pages")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = Model.open("default", "cpu")
    figures: dict[str, Any] = {"pages": read_manifest(options.kb).counts.pages, "opening": opening(options.kb)}
    _, seconds, found = timed(lambda: verify(options.kb))
    figures["verify"] = {"bytes": found.bytes, "seconds": seconds, "GB/s": found.bytes / seconds / 1e9}
    pages = list(read_corpus(str(options.corpus)))
    random.Random(0).shuffle(pages)
    original = KnowledgeBase._opened(options.kb, read_manifest(options.kb), model, None)
    queries = own_queries(original.shards, model, QUERIES)
    before = [[(one.place, one.score) for one in hits] for hits in original.query(queries, 5, rerank=0)]
    for count in options.pages:
        folder = copy_of(options.kb, options.work / "kb")
        ids = [page.id for page in pages[:count]]
        kb = KnowledgeBase._opened(folder, read_manifest(folder), model, None)
        cpu, wall, kb = timed(lambda kb=kb, ids=ids: kb.delete(ids))
        figures[f"delete {count}"] = {"CPU seconds": cpu, "seconds": wall}
        gone = set(ids)
        places = [one.page_id for hits in kb.query(queries, 5, rerank=0) for one in hits]
        assert not gone.intersection(places)
        cpu, wall, kb = timed(lambda kb=kb: kb.compact())
        figures[f"compact after {count}"] = {"CPU seconds": cpu, "seconds": wall}
        if count > options.most_updated:
            continue
        folder = copy_of(options.kb, options.work / "kb")
        kb = KnowledgeBase._opened(folder, read_manifest(folder), model, None)
        new = [changed(page) for page in pages[:count]]
        cpu, wall, kb = timed(lambda kb=kb, new=new: kb.update(new))
        figures[f"update {count}"] = {"CPU seconds": cpu, "seconds": wall, "of a build": cpu / options.build_seconds}
        assert kb.changes.replaced == count
        if count < 10_000:
            kb = kb.update(pages[:count])
            after = [[(one.place, one.score) for one in hits] for hits in kb.query(queries, 5, rerank=0)]
            equal = sum(one == other for one, other in zip(before, after, strict=True))
            figures[f"answers as before, after {count} pages changed and changed back"] = f"{equal} of {len(queries)}"
        print(figures, flush=True)
    folder = copy_of(options.kb, options.work / "kb")
    kb = KnowledgeBase._opened(folder, read_manifest(folder), model, None)
    cpu, wall, kb = timed(lambda: kb.sync(options.corpus))
    figures["sync with nothing new"] = {"CPU seconds": cpu, "seconds": wall, "changes": str(kb.changes)}
    figures["build"] = {"CPU seconds": options.build_seconds}
    reporting.write("changes", figures, [options.corpus, options.kb], seed=0)


if __name__ == "__main__":
    main()
