"""Unchanged: record what the commands make and print, so that two versions of kbq can be compared.

    python benchmarks/unchanged.py record BEFORE.json --checkout ../before
    python benchmarks/unchanged.py record AFTER.json --checkout .
    python benchmarks/unchanged.py compare BEFORE.json AFTER.json

A recording holds what the commands of unchanged.txt print, and the files that they make: the values
of short JSON files, and digests of the others. It leaves out versions, times and the like
(LEFT_OUT). A command that works in one version only, or a file that only one version makes, is
named as gone or new and does not count as a difference.
"""

import argparse
import collections
import csv
import json
import lzma
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measuring import records_of, write_records

from kbq.storage.reading import file_digest

STEPS = Path(__file__).with_suffix(".txt")
DATA = STEPS.parents[2] / "shared" / "data"
MOST_JSON = 100_000  # bytes of a JSON file whose values are recorded: longer ones hold vocabularies
MOST_LINES = 40  # differences that are shown
LEFT_OUT = {  # versions, commands, times, and sizes that depend on these
    "format", "kbq", "corpora", "command", "versions", "machine", "transformers_version", "bytes",
    "bytes_per_kept_vector", "built_by", "seconds",
}  # fmt: skip
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]")
Values = dict[str, Any]  # by path in the document


# Recording


def record(out: Path, checkout: Path, data: Path, quick: bool) -> None:
    """Record one checkout."""
    steps, _, trainings = STEPS.read_text("utf-8").partition("----\n")
    recording: dict[str, Values] = {}
    with tempfile.TemporaryDirectory(prefix="kbq-unchanged-") as folder:
        work = Path(folder)
        write_inputs(work, checkout, data, 5 if quick else 1)
        write_tiny_network(work)
        for line in re.sub(
            r"\\\n|^#.*\n", "", steps + trainings * (not quick), flags=re.MULTILINE
        ).splitlines():
            for step in filter(None, braced(" ".join(line.split()))):
                print(step, file=sys.stderr, flush=True)
                if step.startswith("keep "):
                    recording |= kept(work, step.split()[1:])
                else:
                    recording[f"kbq {step}"] = ran(step, work, checkout.resolve())
    out.write_text(json.dumps(recording, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")


def braced(line: str) -> list[str]:
    """Write out the first braces of a line, then the others.

    >>> braced("index {a,b c}")
    ['index a', 'index b c']
    """
    found = re.search(r"\{([^}]*)\}", line)
    if not found:
        return [line]
    return [
        one
        for way in found[1].split(",")
        for one in braced(line[: found.start()] + way + line[found.end() :])
    ]


def ran(command: str, work: Path, checkout: Path) -> Values:
    """Run a command; return its status and what it prints, line by line."""
    own = {"PYTHONPATH": str(checkout), "KBQ_CACHE": str(work / "cache"), "HF_HUB_OFFLINE": "1"}
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    process = subprocess.run(
        [sys.executable, "-m", "kbq", *shlex.split(command), "--json"],
        cwd=work, env=os.environ | own | threads, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    if process.returncode:
        print(
            f"    status {process.returncode}: {process.stderr.strip().splitlines()[-1:]}",
            file=sys.stderr,
        )
    lines = process.stdout.replace(str(work.resolve()), "WORK").splitlines()
    return dict(leaves({"status": process.returncode, "printed": list(map(parsed, lines))}))


def parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def kept(work: Path, places: Sequence[str]) -> dict[str, Values]:
    """Record files, or all files of folders. A file may be missing, since its command may be gone."""
    found: dict[str, Values] = {}
    for place in places:
        top = work / place
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            name = str(path.relative_to(work))
            if path.is_file() and path.suffix == ".json" and path.stat().st_size < MOST_JSON:
                text = path.read_text("utf-8").replace(str(work.resolve()), "WORK")
                found[name] = dict(leaves(json.loads(text)))
            elif path.is_file() and path.suffix != ".md":  # model cards may change their wording
                found[name] = {"digest": file_digest(path)}
    return found


def leaves(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a document, with its path; an empty list or object is a value, too.

    >>> dict(leaves({"a": [1, {}], "kbq": "0.1"}))
    {' / a[0]': 1, ' / a[1]': {}}
    """
    if isinstance(document, dict) and document:
        for name, value in document.items():
            if name not in LEFT_OUT:
                yield from leaves(value, f"{path} / {name}")
    elif isinstance(document, list) and document:
        for number, value in enumerate(document):
            yield from leaves(value, f"{path}[{number}]")
    else:
        yield path, document


# Inputs of the commands


def spread(records: Sequence[Any], count: int, first: int = 0) -> list[Any]:
    """Take so many records from the whole length of a list."""
    return list(records[first :: max(1, len(records) // count)][:count])


def write_inputs(work: Path, checkout: Path, data: Path, share: int) -> None:
    """Write all files that the commands read, most of them parts; Re-DocRED asks about the pages."""
    sample = checkout / "kbq" / "sample"
    articles, asked = records_of(sample / "articles.jsonl"), records_of(sample / "queries.jsonl")
    slots = records_of(data / "redocred" / "redocred-dev-kilt.jsonl.xz")
    golds = [
        page["wikipedia_id"]
        for slot in slots
        for out in slot["output"]
        for page in out.get("provenance", [])
    ]
    wanted = set(list(dict.fromkeys(golds))[: 200 // share])
    files = {
        "articles": articles,
        "first": articles[:60],
        "more": articles[60:90],
        "wiki": [
            page
            for page in records_of(data / "wiki" / "knowledge_source.jsonl.xz")
            if page["_id"] in wanted
        ],
        "triples": spread(slots, 300, 3),
        "dev": spread(slots, 30, 5),
        "gold-slots": spread(slots, 60, 7),
        "gold-slots-10": spread(slots, 60, 7)[:10],
        "gold-questions": [
            one | {"input": "what is the {1} of {0}?".format(*one["input"].split(" [SEP] "))}
            for one in spread(asked, 60, 1)
        ],
    }
    for name, records in files.items():
        write_records(work / f"{name}.jsonl", records)
    for name, records in {
        "sample": spread(asked, 30 // share),
        "slots": spread(slots, 30 // share),
    }.items():
        lines = [one["input"] + "\n" for one in records]
        (work / f"{name}.txt").write_text("".join(lines), "utf-8")
        (work / f"{name}-15.txt").write_text("".join(lines[: 15 // share]), "utf-8")
    names = list(dict.fromkeys(one["input"].split(" [SEP] ")[0] for one in spread(asked, 40)))[:12]
    write_rows(
        work / "table.csv",
        [["subject", "place of birth", "date of birth"], *([name, "", ""] for name in names)],
    )
    triples = [
        [
            *one["input"].split(" [SEP] "),
            one["output"][0]["answer"],
            one["output"][0]["provenance"][0]["title"],
        ]
        for one in spread(asked, 200, 2)
    ]
    write_rows(work / "triples.csv", [["subject", "relation", "object", "page"], *triples])
    with lzma.open(data / "squad" / "dev-v1.1.json.xz", "rt", encoding="utf-8") as file:
        squad = [
            (article["title"], each)
            for article in json.load(file)["data"]
            for each in article["paragraphs"]
        ]
    for name, chosen in {"squad": spread(squad, 60), "squad-dev": spread(squad, 10, 9)}.items():
        paragraphs: dict[str, list[Any]] = collections.defaultdict(list)
        for title, each in chosen:
            paragraphs[title].append(each | {"qas": each["qas"][:3]})
        document = {
            "data": [{"title": title, "paragraphs": some} for title, some in paragraphs.items()]
        }
        (work / f"{name}.json").write_text(json.dumps(document), "utf-8")


def write_rows(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def write_tiny_network(work: Path) -> None:
    """Save a random BERT that knows the most frequent words of the passages, and all letters."""
    import torch  # only here: comparing needs neither
    import transformers

    text = json.dumps(
        json.loads((work / "squad.json").read_text("utf-8")), ensure_ascii=False
    ).lower()
    counts = collections.Counter(re.findall(r"[a-z]{2,}", text))
    words = sorted(counts, key=lambda word: (-counts[word], word))[:1000]
    letters = sorted({letter for letter in text if not letter.isspace()})
    pieces = dict.fromkeys([*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *words])
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(work / "tiny")
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
    }
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(vocabulary), initializer_range=0.2, **sizes)
    transformers.BertModel(config).save_pretrained(work / "tiny")


# Comparing


def compare(before: Path, after: Path) -> int:
    """Print what differs between two recordings, and which commands and files are gone; return the
    exit status.
    """
    then, now = (json.loads(path.read_text("utf-8")) for path in (before, after))
    different, compared = [], 0
    for place in dict.fromkeys([*then, *now]):
        old, new = then.get(place), now.get(place)
        if works(old) and works(new):
            names = dict.fromkeys([*old, *new])
            compared += len(names)
            pairs = (
                (name, old.get(name, "not there"), new.get(name, "not there")) for name in names
            )
            different += [
                f"{place}{name}: {one!r:.100} → {other!r:.100}"
                for name, one, other in pairs
                if one != other
            ]
        elif works(old) or works(new):
            print(f"{'gone' if works(old) else 'new'}: {place}")
    for line in different[:MOST_LINES]:
        print(line)
    print(
        f"{len(different):,} of {compared:,} things differ"
        if different
        else f"same: {compared:,} things compared"
    )
    return int(bool(different))


def works(values: Values | None) -> bool:
    """Return whether a file is there, or a command ended well."""
    return values is not None and not values.get(" / status")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the commands of a checkout")
    recording.add_argument("out", type=Path)
    recording.add_argument("--checkout", type=Path, required=True)
    recording.add_argument("--data", type=Path, default=DATA)
    recording.add_argument("--quick", action="store_true", help="train nothing, and ask less")
    comparing = commands.add_parser("compare", help="compare two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        sys.exit(compare(options.before, options.after))
    record(options.out, options.checkout, options.data, options.quick)


if __name__ == "__main__":
    main()
