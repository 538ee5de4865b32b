"""Unchanged: records what the commands make and print, so that two versions of kbq can be compared.

    python benchmarks/unchanged.py record BEFORE.json --checkout ../before
    python benchmarks/unchanged.py record AFTER.json --checkout .
    python benchmarks/unchanged.py compare BEFORE.json AFTER.json

A recording holds the bytes of knowledge bases, of trained networks and of filled tables (as digests), and every
document that a command prints. Fields in LEFT_OUT are recorded, but not compared.
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
BACKENDS = ("auto", "dense", "bm25", "sparta", "hybrid")
UNITS = ("phrase", "sentence", "paragraph", "page")
KINDS = ("exact", "disk", "compact", "tiny")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]")


# Recording


class Recorder:
    """Runs commands of one checkout in a work folder, and keeps what they print and write."""

    def __init__(self, checkout: Path, work: Path) -> None:
        self.work, self.checkout = work, checkout.resolve()
        self.documents: dict[str, dict[str, Any]] = {kind: {} for kind in LEFT_OUT}

    def run(self, *commands: str, kind: str = "told") -> None:
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
            self.documents[kind][command] = {"status": status, "printed": [_document(line) for line in lines]}
            if status:
                say(f"    status {status}: kbq {command}\n        {notes.strip().splitlines()[-1:]}")
        say(
            f"{time.monotonic() - begun:6.1f} s  {commands[0]}{f', and {len(commands) - 1} more' * (len(commands) > 1)}"
        )

    def keep(self, kind: str, *places: str) -> None:
        """Keep files, or all files of folders: small JSON as documents of this kind, others by their digest."""
        for place in places:
            top = self.work / place
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                name = str(path.relative_to(self.work))
                if path.suffix == ".json" and path.stat().st_size < MOST_JSON:
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


def write_tiny_networks(work: Path) -> None:
    """Save a random BERT and a random T5 that know the most frequent words of the passages, and all letters."""
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
    t5 = transformers.T5Config(
        vocab_size=len(numbers), d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, pad_token_id=0,
        eos_token_id=numbers["[SEP]"], decoder_start_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    networks = {"tiny": transformers.BertModel(bert), "tiny-t5": transformers.T5ForConditionalGeneration(t5)}
    for name, network in networks.items():
        network.save_pretrained(work / name)
        more = {"eos_token": "[SEP]"} if name == "tiny-t5" else {"mask_token": "[MASK]"}
        transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names, **more).save_pretrained(work / name)


# What is recorded


def record_knowledge_bases(recorder: Recorder) -> None:
    """Record knowledge bases of the sample (a), of Wikipedia (b), and of small parts; every index, appended, merged."""
    recorder.run("train sparta squad.json --out sparta --init tiny --epochs 1 --batch-tokens 1024 --seed 1")
    recorder.keep("config", "sparta")
    recorder.run("build articles.jsonl a")
    recorder.run("build wiki.jsonl b")
    recorder.run("index vectors b --kind disk", "index vectors b --kind compact", "index vectors b --kind tiny")
    recorder.run("index sparta b sparta --terms 100")
    recorder.run("build first.jsonl c", "build more.jsonl c --append")
    recorder.run("build squad.json d --no-bm25 --index disk --sparta sparta --terms 20 --format squad")
    recorder.run("index bm25 d", "index vectors d --kind compact --filter 0 --recall 0.9 --queries sample-15.txt")
    recorder.run("merge-kb merged a b", "merge-kb merged-again a a", "info b", "info d", "info merged", "info default")
    recorder.keep("manifest", "a", "b", "c", "d", "merged")


def record_answers(recorder: Recorder) -> None:
    """Record answers of every backend in every unit, from every index, read, and explained."""
    for kb, queries, backends in (("a", "sample", ("auto", "dense", "bm25", "hybrid")), ("b", "slots", BACKENDS)):
        asked = [f"query --file {queries}.txt --kb {kb} --backend {backend}" for backend in backends]
        recorder.run(*(f"{one} --unit {unit}" for one in asked for unit in UNITS), kind="answers")
    asked = [f"query --file slots.txt --kb b --backend {backend}" for backend in ("dense", "hybrid")]
    for kind in KINDS:
        recorder.run(*(f"{one} --unit {unit} --index {kind}" for one in asked for unit in UNITS), kind="answers")
    read = "query --file slots-15.txt --kb b --reader default --depth 8"
    recorder.run(read, f"{read} --unit page", f"{read} --backend sparta --retrieval-weight 0.3", kind="answers")
    recorder.run(
        "query --file slots-15.txt --kb b --backend sparta",
        "query --file sample-15.txt --kb merged -k 7 --bm25-weight 2.5",
        "query --file slots-15.txt --kb b --sparta-weight 1.5",
        "query --file sample-15.txt --kb d --index compact -k 2",
        "query 'Marie Curie [SEP] place of brith' qqzzq",  # from the bundled sample
        "explain 'Marie Curie [SEP] place of birth' --kb a",
        "explain 'who founded the university of the country?' --kb b --backend sparta -k 5",
        "explain qqzzq --kb a",
        "query nothing --kb nowhere",
        "query nothing --kb a --index tiny",
        "query nothing --kb a --backend sparta",
        "query nothing --kb a --unit word",
        "query nothing --kb a --backend bm25 --index exact",
        "query nothing --kb a --depth 3",
        kind="answers",
    )


def record_finetuning(recorder: Recorder) -> None:
    """Record query encoders: tuned, tuned once more with a dev file of their own, and tuned on a table."""
    recorder.run("finetune triples.jsonl --kb b --out tuned --examples 150 --epochs 1 --seed 3")
    # On its own dev queries, and at lower rates: where no epoch is better, nothing of the tuning would be recorded.
    more = "--out tuned-more --model tuned --dev dev.jsonl --epochs 2 --batch 12 --learning-rate 1e-4"
    recorder.run(f"finetune dev.jsonl --kb b {more}")
    table = "--out tuned-table --terms joint,start --objective phrase --epochs 1 -k 50 --learning-rate 1e-4"
    recorder.run(f"finetune triples.csv --kb a {table}")
    recorder.run("query --file slots.txt --kb b --model tuned-more --index exact", kind="answers")
    refused = ("finetune triples.csv --kb a --out tuned", "finetune no.csv --kb a --out new")
    recorder.run("info tuned", "info tuned-more", *refused)
    recorder.keep("config", "tuned", "tuned-more", "tuned-table")


def record_training(recorder: Recorder) -> None:
    """Record encoders, readers, generators, SPARTA, and examples made from triples."""
    start = "squad.json --epochs 1 --batch-tokens 2048"
    recorder.run(f"train encoders {start} --out encoders --init default --dev squad-dev.json --seed 2")
    recorder.run(f"train encoders {start} --out distilled --init default --distill default --weights int8")
    options = "--two-query-encoders --pre-batches 1 --dropout 0.1 --same-answers --accumulate 2"
    recorder.run(f"train encoders {start} --out small --init tiny {options}")
    recorder.run(f"train reader {start} --out reader --init tiny --dev squad-dev.json")
    recorder.run(f"train generator {start} --out generator --init tiny-t5 --dev squad-dev.json")
    recorder.run(f"train sparta {start} --out marked --init tiny --marked --learning-rate 1e-3")
    networks = ("encoders", "distilled", "small", "reader", "generator", "marked")
    recorder.run(*(f"info {network}" for network in networks))
    recorder.keep("config", *networks)
    recorder.run(
        "augment b --triples gold-slots.jsonl --out found.jsonl --depth 3",
        "augment b --triples gold-slots.jsonl --out found-words.jsonl --backend bm25",
        "augment articles.jsonl --triples triples.csv --out slots.jsonl",
    )
    recorder.keep("files", "found.jsonl", "found-words.jsonl", "slots.jsonl")


def record_predictions(recorder: Recorder) -> None:
    """Record KILT predictions, and all that is done with them."""
    slots = "predict gold-slots.jsonl --task slot_filling --kb b --out"
    recorder.run(
        f"{slots} slots-out.jsonl",
        f"{slots} text-out.jsonl --with-text --top-pages 5 --backend hybrid",
        f"{slots} words-out.jsonl --backend bm25 --with-text",
        f"{slots} dense-out.jsonl --backend dense --index exact",
        "predict gold-slots-10.jsonl --task trex --kb b --out read-out.jsonl --reader default --depth 8",
        "predict gold-questions.jsonl --task question_answering --kb a --out questions-out.jsonl --with-text",
    )
    pair = "slots-out.jsonl gold-slots.jsonl"
    recorder.run(
        f"evaluate {pair} --task slot_filling",
        f"evaluate {pair} --by relation --ci --diagnosis --per-item items.jsonl",
        f"evaluate {pair} --coupled --top-1 --ks 1,3 --no-rouge --rank-keys title",
        f"evaluate {pair} --compare text-out.jsonl --trec-run run.txt --trec-qrels qrels.txt",
        "evaluate questions-out.jsonl gold-questions.jsonl --task nq --ci",
        "evaluate read-out.jsonl gold-slots.jsonl",
        "evaluate read-out.jsonl gold-slots.jsonl --missing zero --empty-provenance ignore",
        f"errors {pair} --kb b --task slot_filling",
        "errors questions-out.jsonl gold-questions.jsonl --sample 1 --kind page-right-answer-wrong",
        "validate slots-out.jsonl --inputs gold-slots.jsonl --kb b --strict",
        "validate questions-out.jsonl --inputs gold-slots.jsonl --task nq",
        "validate questions-out.jsonl --strict --fix fixed.jsonl",
        "passages text-out.jsonl gold-slots.jsonl --ks 1,5 --export passages-out.json",
        "merge --answers slots-out.jsonl --provenance words-out.jsonl --out merged.jsonl",
        "submit slots-out.jsonl text-out.jsonl --tasks trex,structured_zeroshot --out upload",
        "submit slots-out.jsonl --task trex --inputs gold-slots.jsonl --out upload-checked",
    )
    written = ("slots", "text", "words", "dense", "read", "questions")
    recorder.keep("files", *(f"{name}-out.jsonl" for name in written))
    recorder.keep("files", "items.jsonl", "merged.jsonl", "fixed.jsonl", "run.txt", "qrels.txt")
    recorder.keep("told", "passages-out.json", "upload", "upload-checked")


def record_tables(recorder: Recorder) -> None:
    """Record filled tables and their claims, in every format; checked, and scored."""
    asked = read_lines(recorder.checkout / "kbq" / "sample" / "queries.jsonl")
    names = list(dict.fromkeys(record["input"].split(" [SEP] ")[0] for record in spread(asked, 40)))[:12]
    rows = "".join(f'"{name}",,\n' for name in names)
    (recorder.work / "table.csv").write_text(f"subject,place of birth,date of birth\n{rows}", "utf-8")
    fill = "fill table.csv --kb a --relations 'place of birth' 'date of birth' --out"
    recorder.run(
        f"{fill} filled.csv --min-probability 0.3",
        f"{fill} filled.csv --min-probability 0.7 --overwrite",
        f"{fill} many.csv --values many --dates iso --top 1",
        f"{fill} filled.jsonl",
        "fill filled.csv --kb a --relations 'place of birth' --check --out checked.csv",
        "evaluate-table many.csv filled.csv",
        "relations @people",
    )
    outs = ("filled.csv", "many.csv", "checked.csv", "filled.jsonl")
    recorder.keep("files", *outs, "filled.claims.jsonl", "many.claims.jsonl")


def record(options: argparse.Namespace) -> None:
    """Record one checkout."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kbq-unchanged-") as folder:
        work = Path(folder)
        write_inputs(work, options.checkout, options.data, 5 if options.quick else 1)
        write_tiny_networks(work)
        recorder = Recorder(options.checkout, work)
        record_knowledge_bases(recorder)
        record_answers(recorder)
        record_tables(recorder)
        record_predictions(recorder)
        if not options.quick:
            record_finetuning(recorder)
            record_training(recorder)
    recording = {"documents": recorder.documents}
    options.out.write_text(json.dumps(recording, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
    say(f"{time.monotonic() - begun:6.1f} s  in all: {options.out}")


# Comparing


def compare(before: Path, after: Path) -> int:
    """Print what differs between two recordings; return the exit status."""
    then, now = (dict(recorded(json.loads(path.read_text("utf-8")))) for path in (before, after))
    names = dict.fromkeys([*then, *now])
    different = [name for name in names if name not in then or name not in now or then[name] != now[name]]
    for name in different[:MOST_LINES]:
        print(f"{name}: {then.get(name, 'not there')!r} → {now.get(name, 'not there')!r}")
    print(
        f"{len(different):,} of {len(names):,} things differ" if different else f"same: {len(names):,} things compared"
    )
    return int(bool(different))


def recorded(recording: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every value of a recording that is compared, with its path."""
    for kind, documents in recording["documents"].items():
        for name, document in documents.items():
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
