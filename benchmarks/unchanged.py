"""Unchanged: records what the commands make and print, so that two versions of kbq can be compared.

    python benchmarks/unchanged.py record BEFORE.json --checkout ../before
    python benchmarks/unchanged.py record AFTER.json --checkout .
    python benchmarks/unchanged.py compare BEFORE.json AFTER.json

A recording holds what the commands of unchanged.txt leave: the bytes of knowledge bases, of trained networks and of
filled tables (as digests), and every document that a command prints. Fields in LEFT_OUT are recorded, but not
compared. Commands and files that only one version has are named, and do not count as differences.
"""

import argparse
import collections
import contextlib
import csv
import hashlib
import io
import json
import lzma
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__)
STEPS = HERE.with_suffix(".txt")
DATA = HERE.parents[2] / "shared" / "data"
LONGEST = 60  # characters of a text that is recorded as it is; longer ones by their digest
MOST_JSON = 100_000  # bytes of a file that is recorded as a document: longer ones hold vocabularies
MOST_LINES = 40  # differences that are shown
LEFT_OUT = {  # by kind of document: paths, versions, commands, times, and sizes that depend on these
    "answers": set(),
    "manifest": {"format", "kbq", "corpora"},
    "config": {"format", "command", "versions", "machine", "transformers_version", "corpora"},
    "told": {
        "format", "command", "versions", "machine", "transformers_version", "bytes", "bytes_per_kept_vector",
        "built_by", "seconds",
    },
    "files": set(),
}  # fmt: skip
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]")


# Recording


class Recorder:
    """Runs commands of one checkout in a work folder, and keeps what they print and write."""

    def __init__(self, checkout: Path, work: Path) -> None:
        self.work, self.checkout = work, checkout.resolve()
        self.documents: dict[str, dict[str, Any]] = {kind: {} for kind in LEFT_OUT}

    def follow(self, steps: str) -> None:
        """Follow steps, one passage after another."""
        for passage in re.sub(r"\\\n|^#.*\n", "", steps, flags=re.MULTILINE).strip().split("\n\n"):
            lines = [" ".join(one.split()) for line in passage.splitlines() for one in braced(line)]
            if commands := [line for line in lines if not line.startswith("keep ")]:
                self.run(commands)
            for line in lines[len(commands) :]:
                kind, places = line.removeprefix("keep ").split(": ")
                self.keep(kind, places.split())

    def run(self, commands: Sequence[str]) -> None:
        """Run these commands one after another in one process, and keep what each prints."""
        begun = time.monotonic()
        sent = [[*shlex.split(command), "--json"] for command in commands]
        own = {"PYTHONPATH": str(self.checkout), "KBQ_CACHE": str(self.work / "cache"), "HF_HUB_OFFLINE": "1"}
        threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        process = subprocess.run(
            [sys.executable, str(HERE), "run"], cwd=self.work, env=os.environ | own | threads, input=json.dumps(sent),
            capture_output=True, encoding="utf-8",
        )  # fmt: skip
        if process.returncode:
            raise SystemExit(f"{commands[0]} … ended with {process.returncode}:\n{process.stderr}")
        done = json.loads(process.stdout)
        if not Path(done["kbq"]).is_relative_to(self.checkout):
            raise SystemExit(f"{done['kbq']} was run, not {self.checkout}: check the environment")
        for command, (status, printed, notes) in zip(commands, done["outcomes"], strict=True):
            lines = printed.replace(str(self.work.resolve()), "WORK").splitlines()
            kind = "answers" if command.startswith(("query", "explain")) else "told"
            self.documents[kind][command] = {"status": status, "printed": [_document(line) for line in lines]}
            if status:
                say(f"    status {status}: kbq {command}\n        {notes.strip().splitlines()[-1:]}")
        say(
            f"{time.monotonic() - begun:6.1f} s  {commands[0]}{f', and {len(commands) - 1} more' * (len(commands) > 1)}"
        )

    def keep(self, kind: str, places: Sequence[str]) -> None:
        """Keep files, or all files of folders: small JSON as documents of this kind, others by their digest.

        A file that is not there is left out: its command may be gone.
        """
        for place in places:
            top = self.work / place
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                name = str(path.relative_to(self.work))
                if path.is_file() and path.suffix == ".json" and path.stat().st_size < MOST_JSON:
                    text = path.read_text("utf-8").replace(str(self.work.resolve()), "WORK")
                    self.documents[kind][name] = shortened(json.loads(text))
                elif path.is_file() and path.suffix != ".md":  # what is written for people may be written better
                    self.documents["files"][name] = digest(path.read_bytes())


def run_commands() -> None:
    """Run the commands on standard input, as `python -m kbq` does; print exit statuses and what was printed."""
    commands: list[list[str]] = json.load(sys.stdin)
    outcomes = []
    for command in commands:
        sys.argv = ["kbq", *command]
        printed, notes = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        status: object = 0
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(notes):
            try:
                runpy.run_module("kbq", run_name="__main__", alter_sys=True)
            except SystemExit as end:
                status = end.code or 0
            except Exception:
                traceback.print_exc()
                status = "traceback"
        texts = (stream.buffer.getvalue().decode("utf-8") for stream in (printed, notes))
        outcomes.append((status, *texts))
    import kbq  # only here: the one that was run

    json.dump({"kbq": kbq.__file__, "outcomes": outcomes}, sys.stdout)


def braced(line: str) -> list[str]:
    """Write out the first braces of a line, then the others.

    >>> braced("index {a,b c}")
    ['index a', 'index b c']
    """
    found = re.search(r"\{([^}]*)\}", line)
    if not found:
        return [line]
    return [one for way in found[1].split(",") for one in braced(line[: found.start()] + way + line[found.end() :])]


def _document(line: str) -> Any:
    try:
        return shortened(json.loads(line))
    except ValueError:
        return shortened(line)


def shortened(document: Any) -> Any:
    """Replace the long texts of a document by their digests."""
    if isinstance(document, dict):
        return {name: shortened(value) for name, value in document.items()}
    if isinstance(document, list):
        return [shortened(value) for value in document]
    is_long = isinstance(document, str) and len(document) > LONGEST
    return f"{document[:20]}… {digest(document.encode())}" if is_long else document


def digest(content: bytes) -> str:
    """Return a digest of 16 letters."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def say(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


# What the commands work on


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, plain or compressed."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records as JSON lines."""
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")


def spread(records: Sequence[Any], count: int, first: int = 0) -> list[Any]:
    """Take as many records, from the whole length of a list."""
    return list(records[first :: max(1, len(records) // count)][:count])


def write_inputs(work: Path, checkout: Path, data: Path, share: int) -> None:
    """Write all files that the commands read, most of them parts; Re-DocRED asks about the pages."""
    sample = checkout / "kbq" / "sample"
    articles, asked = read_lines(sample / "articles.jsonl"), read_lines(sample / "queries.jsonl")
    write_lines(work / "articles.jsonl", articles)
    write_lines(work / "first.jsonl", articles[:60])
    write_lines(work / "more.jsonl", articles[60:90])
    slots = read_lines(data / "redocred" / "redocred-dev-kilt.jsonl.xz")
    golds = [page["wikipedia_id"] for slot in slots for out in slot["output"] for page in out.get("provenance", [])]
    wanted = set(list(dict.fromkeys(golds))[: 200 // share])
    pages = read_lines(data / "wiki" / "knowledge_source.jsonl.xz")
    write_lines(work / "wiki.jsonl", [page for page in pages if page["_id"] in wanted])
    questions = []
    for record in spread(asked, 60, 1):
        subject, relation = record["input"].split(" [SEP] ")
        questions.append(record | {"input": f"what is the {relation} of {subject}?"})
    for name, records in {"sample": spread(asked, 30 // share), "slots": spread(slots, 30 // share)}.items():
        (work / f"{name}.txt").write_text("".join(record["input"] + "\n" for record in records), "utf-8")
        (work / f"{name}-15.txt").write_text(
            "".join(record["input"] + "\n" for record in records[: 15 // share]), "utf-8"
        )
    names = list(dict.fromkeys(record["input"].split(" [SEP] ")[0] for record in spread(asked, 40)))[:12]
    rows = "".join(f'"{name}",,\n' for name in names)
    (work / "table.csv").write_text(f"subject,place of birth,date of birth\n{rows}", "utf-8")
    write_lines(work / "triples.jsonl", spread(slots, 300, 3))
    write_lines(work / "dev.jsonl", spread(slots, 30, 5))
    write_lines(work / "gold-slots.jsonl", spread(slots, 60, 7))
    write_lines(work / "gold-slots-10.jsonl", spread(slots, 60, 7)[:10])
    write_lines(work / "gold-questions.jsonl", questions)
    with (work / "triples.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["subject", "relation", "object", "page"])
        for record in spread(asked, 200, 2):
            output = record["output"][0]
            writer.writerow([*record["input"].split(" [SEP] "), output["answer"], output["provenance"][0]["title"]])
    with lzma.open(data / "squad" / "dev-v1.1.json.xz", "rt", encoding="utf-8") as file:
        squad = [(article["title"], each) for article in json.load(file)["data"] for each in article["paragraphs"]]
    for name, chosen in {"squad": spread(squad, 60), "squad-dev": spread(squad, 10, 9)}.items():
        paragraphs: dict[str, list[Any]] = {}
        for title, each in chosen:
            paragraphs.setdefault(title, []).append(each | {"qas": each["qas"][:3]})
        document = {"data": [{"title": title, "paragraphs": some} for title, some in paragraphs.items()]}
        (work / f"{name}.json").write_text(json.dumps(document), "utf-8")


def write_tiny_network(work: Path) -> None:
    """Save a random BERT that knows the most frequent words of the passages, and all letters."""
    import tokenizers  # only here: comparing needs none of these
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    text = json.dumps(json.loads((work / "squad.json").read_text("utf-8")), ensure_ascii=False).lower()
    counts = collections.Counter(re.findall(r"[a-z]{2,}", text))
    words = sorted(counts, key=lambda word: (-counts[word], word))[:1000]
    letters = sorted({letter for letter in text if not letter.isspace()})
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *words]
    numbers = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.BertNormalizer()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    bert = transformers.BertConfig(
        vocab_size=len(numbers), hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BertModel(bert).save_pretrained(work / "tiny")
    names |= {"mask_token": "[MASK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(work / "tiny")


def record(options: argparse.Namespace) -> None:
    """Record one checkout."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kbq-unchanged-") as folder:
        work = Path(folder)
        write_inputs(work, options.checkout, options.data, 5 if options.quick else 1)
        write_tiny_network(work)
        recorder = Recorder(options.checkout, work)
        steps, trainings = STEPS.read_text("utf-8").split("----\n")
        recorder.follow(steps)
        if not options.quick:
            recorder.follow(trainings)
    recording = {"documents": recorder.documents}
    options.out.write_text(json.dumps(recording, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
    say(f"{time.monotonic() - begun:6.1f} s  in all: {options.out}")


# Comparing


def compare(before: Path, after: Path) -> int:
    """Print what differs between two recordings, and which commands and files are gone; return the exit status."""
    recordings = [json.loads(path.read_text("utf-8"))["documents"] for path in (before, after)]
    then, now = (
        {(kind, name): one for kind, some in each.items() for name, one in some.items()} for each in recordings
    )
    gone = [place for place in then if works(then[place]) and not works(now.get(place))]
    new = [place for place in now if works(now[place]) and not works(then.get(place))]
    for said, places in (("gone", gone), ("new", new)):
        for kind, name in places:
            print(f"{said}: {name if kind not in ('told', 'answers') else f'kbq {name}'}")
    both = [place for place in then if place in now and place not in gone and place not in new]
    old, young = (dict(pair for place in both for pair in recorded(place, each[place])) for each in (then, now))
    names = dict.fromkeys([*old, *young])
    different = [name for name in names if old.get(name) != young.get(name) or (name in old) != (name in young)]
    for name in different[:MOST_LINES]:
        print(f"{name}: {old.get(name, 'not there')!r} → {young.get(name, 'not there')!r}")
    print(
        f"{len(different):,} of {len(names):,} things differ" if different else f"same: {len(names):,} things compared"
    )
    return int(bool(different))


def works(document: Any) -> bool:
    """Say whether a file is there, or a command ended well."""
    return document is not None and not (isinstance(document, dict) and document.get("status"))


def recorded(place: tuple[str, str], document: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of a document that is compared, with its path."""
    kind, name = place
    yield from leaves(document, LEFT_OUT[kind], f"{kind} / {name}")


def leaves(document: Any, left_out: set[str], path: str) -> Iterator[tuple[str, Any]]:
    """Yield every value of a document, with its path; an empty list or object is a value, too.

    >>> dict(leaves({"a": [1, {}], "kbq": "0.1"}, {"kbq"}, "x"))
    {'x / a[0]': 1, 'x / a[1]': {}}
    """
    if isinstance(document, dict) and document:
        for name, value in document.items():
            if name not in left_out:
                yield from leaves(value, left_out, f"{path} / {name}")
    elif isinstance(document, list) and document:
        for number, value in enumerate(document):
            yield from leaves(value, left_out, f"{path}[{number}]")
    else:
        yield path, document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the commands of a checkout")
    recording.add_argument("out", type=Path)
    recording.add_argument("--checkout", type=Path, required=True)
    recording.add_argument("--data", type=Path, default=DATA)
    recording.add_argument("--quick", action="store_true", help="train nothing, and ask less")
    comparing = commands.add_parser("compare", help="compare two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    commands.add_parser("run", help="run the commands on standard input: what record uses")
    options = parser.parse_args()
    if options.command == "run":
        run_commands()
        return
    if options.command == "record":
        record(options)
    else:
        sys.exit(compare(options.before, options.after))


if __name__ == "__main__":
    main()
