"""Hostile files: what `import`, `fill` and `serve` read is mutated; each trial must answer, or end with one sentence.

    OMP_NUM_THREADS=1 python benchmarks/hostile.py WORK [--trials 2000]

A trial changes one file (as `tests/test_mutations.py` does; a knowledge base is sealed again, so that its lists are
read) and reads it in a process of its own, whose CPU time and largest memory are taken. WORK is a folder to work in.
Linux only.
"""

import json
import os
import random
import resource
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reporting
from measuring import arguments, of_tests

from kbq.corpus.readers import read_corpus
from kbq.importing.checkpoint import import_checkpoint
from kbq.importing.dump import import_dump
from kbq.importing.index import import_index
from kbq.kb import KnowledgeBase
from kbq.sample_kb import ARTICLES
from kbq.tables.decisions import read_decisions
from kbq.tables.relations import read_relations
from kbq.tables.tables import read_table
from kbq.tables.wikidata import read_ids

SECONDS, MEMORY = 20, 2 * 2**30  # of CPU, and bytes
PAGES = 40
INDEX = "start/4_flat_OPQ4"


def written(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """Write a file of each kind that is read alone; return each with its reader."""
    import openpyxl
    import pyarrow
    import pyarrow.parquet

    folder.mkdir()
    rows = [{"subject": f"Subject {n}", "place of birth": "", "many": ["a", "b"], "year": n} for n in range(200)]
    table = pyarrow.table({name: [row[name] for row in rows] for name in rows[0]})
    pyarrow.parquet.write_table(table, folder / "t.parquet")
    book = openpyxl.Workbook()
    for row in (list(rows[0]), *([str(value) for value in row.values()] for row in rows)):
        book.active.append(row)
    book.active.merge_cells("B2:B4")
    book.save(folder / "t.xlsx")
    lines = {
        "t.csv": ["subject,born", *(f'"Subject {n}","a ""b"""' for n in range(200))],
        "t.tsv": ["subject\tborn", *(f"Subject {n}\tx" for n in range(200))],
        "t.jsonl": list(map(json.dumps, rows)),
        "t.json": [json.dumps(rows)],
        "relations.toml": [f'["r {n}"]\nquery = ["a", "b"]\nvalues = "many"\nmin_probability = 0.7' for n in range(50)],
        "decisions.jsonl": [
            json.dumps({"subject": "s", "relation": "r", "value": str(n), "decision": "accept"}) for n in range(100)
        ],
        "ids": [f"Subject {n}\tQ{n + 1}" for n in range(200)],
        "kilt.jsonl": [
            json.dumps({"wikipedia_id": str(n), "wikipedia_title": f"T{n}", "text": ["T", "River."]}) for n in range(99)
        ],
        "pages.jsonl": ARTICLES.read_text("utf-8").splitlines()[:40],
        "squad.json": [json.dumps({"data": [{"title": "T", "paragraphs": [{"context": "River."}] * 50}]})],
        "dpr.tsv": ["id\ttext\ttitle", *(f'{n}\t"A ""river""."\tT{n // 3}' for n in range(1, 99))],
        "page.html": ["<title>T</title>", *(f"<p class='a'>River <b>{n}</b> &amp; <!-- x --></p>" for n in range(99))],
        "page.md": ["# T", *(f"* [a](b) *em* `c` {n}\n" for n in range(99)), "| a | b |", "|---|---|", "| 1 | 2 |"],
    }
    for name, texts in lines.items():
        (folder / name).write_text("\n".join(texts) + "\n", "utf-8")
    import bz2
    import gzip
    import lzma

    for suffix, compress in (("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)):
        (folder / f"t.csv.{suffix}").write_bytes(compress((folder / "t.csv").read_bytes()))
    with zipfile.ZipFile(folder / "pages.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("page.html", "page.md"):
            archive.write(folder / name, name)

    def corpus(path: Path) -> object:
        return sum(1 for _ in read_corpus(str(path)))

    readers: dict[str, Callable[[Path], object]] = dict.fromkeys(
        ("t.csv", "t.tsv", "t.jsonl", "t.json", "t.parquet", "t.xlsx", "t.csv.gz", "t.csv.xz", "t.csv.bz2"), read_table
    )
    readers |= {"relations.toml": read_relations, "decisions.jsonl": read_decisions, "ids": read_ids}
    readers |= {path.name: corpus for path in folder.iterdir() if path.name not in readers}
    return {name: (folder / name, reader) for name, reader in readers.items()}


def official(folder: Path) -> Any:
    """Write miniatures of what DensePhrases writes, as the tests make them."""
    folder.mkdir()
    maker = of_tests("importing/conftest").Maker(folder)
    maker.checkpoint()
    texts = [maker.text("0", "Marie Curie", [60, 30]), maker.text("10", "Paris", [20, 90, 7])]
    maker.dump({"0-1": texts})
    maker.index(INDEX, [texts])
    return folder


def watched(work: Callable[[], object]) -> tuple[str, str, float, int]:
    """Read in a process of its own; return outcome, message, CPU seconds, and the largest memory so far in bytes."""

    def read() -> tuple[str, str]:
        resource.setrlimit(resource.RLIMIT_CPU, (2 * SECONDS, 2 * SECONDS))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        return "read", ""

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome, message = of_tests("test_mutations").in_a_process(read)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return "failed" if len(message) > 2000 else outcome, message[:500], seconds, after.ru_maxrss * 1024


def main() -> None:
    options = arguments(__doc__, work=Path, trials=2000)
    tests, work = of_tests("test_mutations"), options.work
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    alone = written(work / "alone")
    theirs = official(work / "official")
    pages = list(read_corpus(str(ARTICLES)))[:PAGES]
    source = work / "kb"
    kb = KnowledgeBase.build(pages, source, "default", index="compact").index_vectors("disk", recall=0.9)
    model = kb.model

    def imported(folder: Path, out: Path) -> Callable[[], object]:
        return random.choice(
            (
                lambda: import_checkpoint(folder / "checkpoint", out),
                lambda: import_dump(folder / "dump", out, folder / "checkpoint", device="cpu"),
                lambda: import_index(folder / "dump", out, folder / "checkpoint", INDEX, device="cpu"),
            )
        )

    done: Counter[str] = Counter()
    failures, slowest, largest = [], 0.0, 0
    for seed in range(options.trials):
        chance, trial = random.Random(seed), work / "trial"
        random.seed(seed)
        shutil.rmtree(trial, ignore_errors=True)
        kind = ("alone", "alone", "official", "kb")[seed % 4]
        if kind == "alone":
            name = chance.choice(sorted(alone))
            path, reader = alone[name]
            content = bytearray(path.read_bytes())
            trial.mkdir()
            for _ in range(chance.choice((1, 1, 3, 10))):
                if content:
                    chance.choice(tests.MUTATIONS)(content, chance)
            (trial / name).write_bytes(content)
            outcome = watched(lambda: reader(trial / name))  # noqa: B023 - called at once
        elif kind == "official":
            name, _ = tests.mutated(theirs, trial, chance)
            outcome = watched(imported(trial, work / "out"))
            shutil.rmtree(work / "out", ignore_errors=True)
        else:
            name = tests.hostile(source, trial, chance)
            index = chance.choice(("exact", "compact", "disk"))
            outcome = watched(lambda: tests.answers(KnowledgeBase.open(trial, model=model, index=index)))  # noqa: B023
        told, message, seconds, memory = outcome
        done[f"{kind}: {told}"] += 1
        if told == "failed" or seconds > SECONDS or memory > max(MEMORY, largest):
            failures.append(f"seed {seed}: {kind} {name}: {told} {message} ({seconds:.0f} s, {memory / 1e9:.1f} GB)")
            print(failures[-1], flush=True)
        slowest, largest = max(slowest, seconds), max(largest, memory)
        if seed % 100 == 99:
            print(seed + 1, dict(done), f"{slowest:.1f} s, {largest / 1e9:.2f} GB", flush=True)
    figures = {"trials": options.trials, "outcomes": dict(sorted(done.items())), "failures": failures}
    reporting.write("hostile", figures | {"slowest CPU s": slowest, "largest GB": largest / 1e9}, [ARTICLES])


if __name__ == "__main__":
    main()
