"""Bombs: what inputs that are long in one way cost, with this code and with that of an earlier commit.

    git worktree add EARLIER 128875c
    OMP_NUM_THREADS=1 python benchmarks/bombs.py WORK EARLIER [--seconds 120] [--only NAME...]

WORK is a folder for inputs and knowledge bases, EARLIER a checkout. The encoder is a random one of one layer and 16
dimensions, so that what kbq itself does is measured. A bomb that takes more CPU seconds, or more than 8 GB, is ended.
`--only` measures some of them again. An hour; Linux only.
"""

import argparse
import json
import os
import random
import resource
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reporting
from many_pages import small_encoder, write_pages

from kbq.sample_kb import ARTICLES
from kbq.storage.writing import write_json

ROOT = Path(__file__).parents[1]
MOST_MEMORY = 8 * 2**30
SPELLING = """
import sys, time, kbq
kb = kbq.KnowledgeBase.open(sys.argv[1], device="cpu") if sys.argv[1] else kbq.KnowledgeBase.sample(device="cpu")
kb.unknown_words("Warmup [SEP] warm")
words = "Frederik Curei Elizabethanna Sagradda Zelazova Koopenhagen Montevidaeo Alexandriaa Qqzxabcd Wilhelmyna".split()
before = time.process_time()
for word in words:
    kb.unknown_words(f"{word} [SEP] born")
print((time.process_time() - before) / len(words))
"""
READING = "import sys; from kbq.corpus.readers import read_corpus; print(sum(1 for _ in read_corpus(sys.argv[1])))"


def prose(size: int) -> str:
    """Random words of the sample's articles: so many characters."""
    source, words = random.Random(0), ARTICLES.read_text("utf-8").split()
    text = " ".join(source.choices(words, k=size // 5))
    return text[:size]


def write_lines(path: Path, *records: object) -> None:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")


def page(*paragraphs: str, title: str = "Long") -> dict[str, object]:
    return {"id": "1", "title": title, "paragraphs": paragraphs}


def record(answer: str, title: str = "Paris", **others: object) -> dict[str, object]:
    provenance = [{"wikipedia_id": "1", "title": title}]
    return {
        "id": "1",
        "input": "France [SEP] capital",
        "output": [{"answer": answer, "provenance": provenance}],
    } | others


CORPORA: dict[str, Callable[[], dict[str, object]]] = {
    "long": lambda: page(prose(1_500_000)),
    "unspaced": lambda: page("x" * 2_000_000),
    "chinese": lambda: page("居里夫人出生在华沙" * 100_000),
    "marked": lambda: page("a" + "\u0301\u0327" * 500_000 + " river"),
    "many": lambda: page(*(f"The river {number} flows." for number in range(100_000))),
}
ANSWERS: dict[str, Callable[[], str]] = {
    "words": lambda: prose(50_000_000),
    "article": lambda: "the " * 12_500_000,
    "numbers": lambda: "1,000.5 " * 6_250_000,
}


def prepare(work: Path) -> None:
    """Write the inputs, once."""
    if (work / "prepared").exists():
        return
    work.mkdir(parents=True, exist_ok=True)
    small_encoder(work / "model")
    write_pages(work / "pages.jsonl", 20_000)
    for name, corpus in CORPORA.items():
        write_lines(work / f"{name}.jsonl", corpus())
    write_lines(work / "title.jsonl", page(*["The river flows."] * 2000, title=prose(1_000_000)))
    (work / "line.jsonl").write_text(json.dumps({"id": "1", "title": "Long", "text": "word " * 40_000_000}) + "\n")
    (work / "deep.jsonl").write_text('{"id": "1", "output": ' + "[" * 5_000_000 + "\n")
    (work / "query.txt").write_text("word " * 20_000_000 + "\n")
    (work / "markers.txt").write_text("[START_ENT]" * 100_000 + "\n")
    (work / "marks.txt").write_text("a" + "\u0301\u0327" * 40_000 + "\n")
    (work / "queries.txt").write_text("".join(f"Terberg {number} [SEP] located in\n" for number in range(20_000)))
    write_lines(work / "gold.jsonl", record("the capital Paris"))
    for name, answer in ANSWERS.items():
        write_lines(work / f"{name}-guess.jsonl", record(answer()))
    write_lines(
        work / "aliases.jsonl", {**record(""), "output": [record(f"Paris {n}")["output"][0] for n in range(200)]}
    )  # type: ignore[index]
    titled = record("Lyon", title="x" + " " * 200_000 + "x")
    titled["output"][0]["provenance"][0]["wikipedia_id"] = "2"  # type: ignore[index]
    write_lines(work / "titled.jsonl", titled)
    write_lines(work / "titled-gold.jsonl", record("Paris", title="y"))
    for name in ("pages", *CORPORA):
        run(ROOT, ["-m", "kbq", "build", f"{name}.jsonl", f"kb-{name}", *shlex.split(BUILD)], work, 3600)
    write_json(work / "prepared", {})


def limit(seconds: int) -> None:
    """End this process once it has used so many CPU seconds, or too much memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))


def run(code: Path, arguments: list[str], work: Path, seconds: float) -> dict[str, Any]:
    """What a command costs: CPU seconds, the largest memory and what it prints."""
    printed = [0, b""]

    def read(stream: Any) -> None:
        while part := stream.read(2**20):
            printed[0] += len(part)
            printed[1] = part[-200:]

    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: limit(int(seconds)),
    )
    reader = threading.Thread(target=read, args=(process.stdout,))
    reader.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    is_large = usage.ru_maxrss * 1024 > MOST_MEMORY / 2
    outcome = {0: "done", 1: "too much memory" if is_large else "refused"}.get(process.returncode, "too long")
    return {
        "outcome": outcome,
        "CPU seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak MB": round(usage.ru_maxrss / 1000),
        "printed MB": round(printed[0] / 1e6, 1),
        "last": printed[1],
    }


ON_LONG = "query 'Marie Curie [SEP] place of birth' --kb kb-long --json"
BUILD = "--model model --index exact"
COMMANDS = {
    "a paragraph of 1.5 MB, 1,000 phrases": f"{ON_LONG} -k 1000",
    "a paragraph of 1.5 MB, 20,000 phrases": f"{ON_LONG} -k 20000",
    "a paragraph of 1.5 MB, all phrases": f"{ON_LONG} -k 1000000000",
    "a paragraph of 1.5 MB, all sentences": f"{ON_LONG} -k 1000000000 --unit sentence",
    "2 MB without a blank, build": f"build unspaced.jsonl new {BUILD}",
    "2 MB without a blank, all sentences": "query x --kb kb-unspaced --json -k 1000000 --unit sentence",
    "900,000 Chinese characters, 20,000 phrases": "query 居里夫人 --kb kb-chinese --json -k 20000",
    "a letter with 1,000,000 marks, build": f"build marked.jsonl new {BUILD}",
    "a page of 100,000 paragraphs, build": f"build many.jsonl new {BUILD}",
    "a page of 100,000 paragraphs, all of them": "query 'the river' --kb kb-many --json -k 1000000 --unit paragraph",
    "a title of 1 MB on 2,000 paragraphs, build": f"build title.jsonl new {BUILD}",
    "a query of 100 MB": "query --file query.txt --kb kb-pages --json",
    "a query of 100,000 markers": "query --file markers.txt --kb kb-pages --json",
    "a query of a letter with 80,000 marks": "query --file marks.txt --kb kb-pages --json",
    "20,000 queries by words": "query --file queries.txt --kb kb-pages --json --backend bm25 -k 1",
    "deep JSON, 5 MB": "validate deep.jsonl",
    "a title of 200,000 blanks, errors": "errors titled.jsonl titled-gold.jsonl",
    **{
        f"an answer of 50 MB ({name}), {command}": f"{command} {name}-guess.jsonl {others}"
        for name in ANSWERS
        for command, others in (("errors", "gold.jsonl"), ("evaluate", "gold.jsonl"), ("validate", "--task trex"))
    },
    "an answer of 50 MB, 200 gold answers, errors": "errors words-guess.jsonl aliases.jsonl",
    "an answer of 50 MB, 200 gold answers, evaluate": "evaluate words-guess.jsonl aliases.jsonl",
    "an answer of 50 MB, submit": "submit words-guess.jsonl --task trex --out new",
    "an answer of 50 MB, merge": "merge --answers words-guess.jsonl --provenance gold.jsonl --out new",
}
BOMBS = {name: ["-m", "kbq", *shlex.split(command)] for name, command in COMMANDS.items()} | {
    "a corpus line of 200 MB, reading": ["-c", READING, "line.jsonl"],
    "an unknown word, sample": ["-c", SPELLING, ""],
    "an unknown word, 20,000 pages": ["-c", SPELLING, "kb-pages"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    work = options.work.resolve()
    prepare(work)
    written = reporting.RESULTS / "bombs.json"
    figures: dict[str, Any] = json.loads(written.read_text())["figures"] if options.only and written.exists() else {}
    for name, command in BOMBS.items():
        if options.only and not any(part in name for part in options.only):
            continue
        figures[name] = {}
        for when, code in (("before", options.earlier.resolve()), ("now", ROOT)):
            shutil.rmtree(work / "new", ignore_errors=True)
            (work / "new").unlink(missing_ok=True)
            costs = run(code, command, work, options.seconds)
            last = costs.pop("last")
            if name.startswith("an unknown word"):
                costs = {"CPU ms": round(1000 * float(last), 1)}
            figures[name][when] = costs
        print(name, figures[name], flush=True)
    reporting.write("bombs", figures, [], seed=0)


if __name__ == "__main__":
    main()
