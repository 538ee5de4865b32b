"""The command line: what it prints, where, and with which exit status; every bad input is one clear
sentence.
"""

import dataclasses
import gzip
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from bundle_reader import save_reader
from command_line import Outcome, Run
from typer.testing import CliRunner

import kbq
from cli import app
from kbq import sample_kb
from kbq.asking.searcher import Searcher
from kbq.corpus.pages import Page
from kbq.description import IndexFacts
from kbq.dump.manifest import STATE, read_manifest, write_manifest
from kbq.dump.page_directory import Pages
from kbq.kb import KnowledgeBase
from kbq.maintain.options import TERMS
from kbq.model.model import Model
from kbq.model.model_folder import DEFAULT_MODEL, read_config
from kbq.reading.reader import READER, Reader
from kbq.search.options import BM25_WEIGHT, DEPTH, RETRIEVAL_WEIGHT, SPARTA_WEIGHT
from kbq.storage.seals import FileSeal, seal_of

ANSWER_KEYS = {
    "text", "score", "page_id", "title", "paragraph", "start", "end", "unit_start", "unit_end",
}  # fmt: skip
ANSWER_KEYS |= {"context_start", "context", "probability"}


@pytest.fixture
def corpus(pages: list[Page], write_json_lines: Callable[..., Path]) -> Path:
    """The pages as JSON lines."""
    return write_json_lines("corpus.jsonl", *map(page_line, pages))


def page_line(page: Page) -> dict[str, object]:
    texts = [paragraph.text for paragraph in page.paragraphs]
    return {"id": page.page_id, "title": page.title, "paragraphs": texts}


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("--version", ""),
        ("--help", "1"),
        ("relations @employer", ""),
        ("info {model} --json", "1"),
        ("compact --help", ""),
    ],
)
def test_an_output_that_takes_no_more_is_said_and_a_reader_that_has_ended_is_not(
    command: str, unbuffered: str, model_folder: Path
) -> None:
    arguments = [sys.executable, "-m", "kbq", *command.format(model=model_folder).split()]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        told = subprocess.run(
            arguments, stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert (told.returncode, told.stderr) == (
        1,
        "error: standard output cannot be written (No space left on device): free disk space, or "
        "send it elsewhere\n",
    )
    reading, writing = os.pipe()
    os.close(reading)
    told = subprocess.run(
        arguments, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment
    )
    os.close(writing)
    assert (told.returncode, told.stderr) == (1, "")
    closed = ["sh", "-c", 'exec "$@" <&- >&-', "sh", *arguments]
    told = subprocess.run(closed, stderr=subprocess.PIPE, text=True, env=environment)
    assert (told.returncode, told.stderr) == (
        1,
        "error: standard output is closed, so the output is lost: send it to a file\n",
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(12, "Cannot allocate memory"),
            "the system cannot be used (Cannot allocate memory): end other programs",
        ),
        (
            PermissionError(13, "Permission denied", "x/y"),
            "x/y cannot be used (Permission denied): choose a folder",
        ),
    ],
)
def test_an_error_of_the_system_is_not_said_of_the_output(
    error: OSError, said: str, run: Run, kb_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("kbq.model.model.Model.encode_ids", encode)
    told = run("query", "the river", "--kb", kb_folder)
    assert (told.status, told.out) == (1, "")
    assert told.err.startswith(f"error: {said}")


@pytest.mark.parametrize(
    "kind", [torch.AcceleratorError, RuntimeError]
)  # of PyTorch today, and in some of its parts
def test_a_gpu_that_is_lost_is_said(
    kind: type[Exception], run: Run, kb_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(*arguments: object) -> None:
        raise kind("CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA`")

    monkeypatch.setattr("kbq.model.model.Model.encode_ids", encode)
    told = run("query", "the river", "--kb", kb_folder)
    reason = "CUDA error: unspecified launch failure"
    assert (told.status, told.out) == (1, "")
    assert told.err == f"error: the GPU cannot go on ({reason}): try again, or use --device cpu\n"


def too_little_for_torch() -> None:
    torch.empty(2**50)


def too_little_for_python() -> None:
    bytes(2**60)


def too_little_for_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried\nto")


def too_little_for_a_library() -> None:
    raise ImportError("libtorch_cpu.so: failed to map segment from shared object")


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (
            too_little_for_torch,
            r"\[enforce fail at .* can't allocate memory: you tried to allocate \d+ bytes.*",
        ),
        (too_little_for_python, "MemoryError"),
        (too_little_for_a_gpu, "CUDA out of memory. Tried"),
        (too_little_for_a_library, "libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_too_little_memory_is_said(
    fail: Callable[[], None],
    reason: str,
    run: Run,
    kb_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbq.model.model.Model.encode_ids", lambda *_: fail())
    told = run("query", "the river", "--kb", kb_folder)
    assert (told.status, told.out) == (1, "")
    advice = "end other programs, or try --device cpu or fewer --workers"
    assert re.fullmatch(rf"error: too little memory \({reason}\): {advice}\n", told.err), told.err


def test_an_error_of_ours_is_no_lack_of_memory(
    run: Run, kb_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(*arguments: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr("kbq.model.model.Model.encode_ids", encode)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        run("query", "the river", "--kb", kb_folder)


def test_build_query_info(run: Run, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
    built = run("build", corpus, tmp_path / "kb", "--model", model_folder)
    assert (built.status, built.err) == (0, "")
    assert built.out.startswith(f"{tmp_path / 'kb'}: 12 pages, 18 paragraphs, ")
    found = run("query", "the river", "--kb", tmp_path / "kb", "-k", 2)
    assert (found.status, found.err) == (0, "")
    lines = found.out.splitlines()
    assert lines[0] == "the river"
    assert lines[1].startswith("  1. ")
    assert "(page P" in lines[1]
    assert "«" in lines[2]
    assert lines[3].startswith("  2. ")
    assert "\x1b" not in found.out
    told = run("info", tmp_path / "kb")
    assert (told.status, told.err) == (0, "")
    assert "knowledge base" in told.out
    assert str(model_folder) in told.out


def test_build_as_json(run: Run, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
    built = run("build", corpus, tmp_path / "kb", "--model", model_folder, "--json")
    (outcome,) = built.documents
    assert outcome["kb"] == str(tmp_path / "kb")
    assert (outcome["pages"], outcome["paragraphs"], outcome["index"], outcome["bad_lines"]) == (
        12,
        18,
        "exact",
        0,
    )
    (told,) = run("info", tmp_path / "kb", "--json").documents
    shared = ("pages", "paragraphs", "tokens", "kept_vectors", "bytes")
    assert [outcome[name] for name in shared] == [told[name] for name in shared]
    assert outcome["bytes"] == sum(
        path.stat().st_size for path in (tmp_path / "kb").rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("later", [False, True])
def test_a_bm25_index_comes_with_the_build_or_later(
    later: bool, run: Run, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    kb = tmp_path / "kb"
    options = ["--no-bm25"] if later else []
    assert run("build", corpus, kb, "--model", model_folder, *options).status == 0
    vectors = (kb / "shard-00000" / "vectors.npy").stat()
    if later:
        refused = run("query", "the river", "--kb", kb, "--backend", "hybrid")
        assert (refused.status, refused.out) == (1, "")
        assert f"kb has no BM25 index: add one with `kbq index bm25 {kb}`" in refused.err
    added = run("index", "bm25", kb, "--json")
    size = sum(path.stat().st_size for path in (kb / "shard-00000" / "bm25").iterdir())
    assert added.documents == [{"kb": str(kb), "bytes": size}]
    assert (kb / "shard-00000" / "vectors.npy").stat().st_mtime_ns == vectors.st_mtime_ns
    assert run("info", kb, "--json").documents[0]["bm25"] is True
    for backend, unit, text in (("bm25", "paragraph", True), ("hybrid", "phrase", False)):
        (found,) = run(
            "query", "Paris river", "--kb", kb, "--backend", backend, "-k", 2, "--json"
        ).documents
        answers = found["answers"]
        assert isinstance(answers, list)
        assert len(answers) == 2, unit
        assert (answers[0]["text"] == answers[0]["context"]) is text


def test_an_index_that_is_added_leaves_a_stopped_append_alone(
    run: Run, kb_folder: Path, tmp_path: Path
) -> None:
    kb = shutil.copytree(kb_folder, tmp_path / "kb")
    (kb / STATE).write_text("{}")
    assert run("index", "bm25", kb).out.startswith(f"{kb}: a BM25 index of 0.0 MB")
    assert (kb / STATE).exists()


def test_the_terms_of_sparta_are_the_librarys(run: Run) -> None:
    assert f"[default: {TERMS};" in " ".join(run("index", "sparta", "--help").out.split())


@pytest.mark.parametrize("command", ["query", "predict"])
def test_the_weights_are_the_librarys(command: str, run: Run) -> None:
    told = " ".join(run(command, "--help").out.split())
    factor = read_config(DEFAULT_MODEL).lexical_factor
    for weight in (BM25_WEIGHT, SPARTA_WEIGHT):
        assert told.count(f"[default: ({weight:g}; default model: {weight * factor:g});") == 1


@pytest.mark.parametrize("option", ["--bm25-weight", "--sparta-weight"])
@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_a_weight_that_means_nothing_is_refused(
    option: str, backend: str, run: Run, kb_folder: Path
) -> None:
    refused = run("query", "the river", "--kb", kb_folder, "--backend", backend, option, 2)
    assert (refused.status, refused.out) == (2, "")
    assert (
        f"{option} has no effect with the backend dense of {kb_folder}: leave it out" in refused.err
    )


@pytest.mark.parametrize("option", ["--bm25-weight", "--sparta-weight", "--retrieval-weight"])
@pytest.mark.parametrize("weight", ["inf", "nan", "-1", "1000001"])
def test_a_weight_without_end_is_refused(
    option: str, weight: str, run: Run, kb_folder: Path
) -> None:
    refused = run("query", "the river", "--kb", kb_folder, f"{option}={weight}", "--json")
    assert (refused.status, refused.out) == (2, "")
    assert f"Invalid value for '{option}': " in refused.err


@pytest.mark.parametrize(("task", "is_said"), [("trex", True), ("aidayago2", False)])
def test_words_alone_find_no_phrases_to_predict(
    task: str, is_said: bool, run: Run, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    assert run("build", corpus, tmp_path / "kb", "--model", model_folder).status == 0
    (tmp_path / "in.jsonl").write_text('{"id": 1, "input": "the river"}\n')
    options = (
        "--task",
        task,
        "--kb",
        tmp_path / "kb",
        "--backend",
        "bm25",
        "--out",
        tmp_path / "out.jsonl",
    )
    told = run("predict", tmp_path / "in.jsonl", *options)
    assert told.status == 0
    assert ("answers are whole paragraphs: --reader reads phrases in them" in told.err) == is_said


def test_what_the_knowledge_base_has_decides_the_backend(
    run: Run, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    kb = tmp_path / "kb"
    assert run("build", corpus, kb, "--model", model_folder).status == 0
    by_default, hybrid, dense = (
        run("query", "the river of Paris", "--kb", kb, *backend, "--json").documents
        for backend in ([], ["--backend", "hybrid"], ["--backend", "dense"])
    )
    assert by_default == hybrid != dense


def test_sparta_from_training_to_an_explanation(
    run: Run,
    examples_file: Path,
    checkpoint: Path,
    kb_folder: Path,
    corpus: Path,
    model_folder: Path,
    tmp_path: Path,
) -> None:
    kb = shutil.copytree(kb_folder, tmp_path / "kb")
    refused = run("query", "the river", "--kb", kb, "--backend", "sparta")
    assert f"kb has no learned impacts: add them with `kbq index sparta {kb} MODEL`" in refused.err
    options = ("--epochs", 1, "--batch-tokens", 128, "--init", checkpoint, "--out", tmp_path / "m")
    trained = run("train", "sparta", examples_file, *options, "--json").documents
    assert [(outcome["queries"], outcome["left_out"]) for outcome in trained] == [(24, 0)]
    added = run("index", "sparta", kb, tmp_path / "m", "--terms", 100)
    assert (added.status, added.out) == (0, f"{kb}: learned impacts of 0.0 MB\n")
    assert run("info", kb, "--json").documents[0]["learned_impacts"] is True
    built = run(
        "build",
        corpus,
        tmp_path / "new",
        "--model",
        model_folder,
        "--sparta",
        tmp_path / "m",
        "--json",
    )
    size = sum(path.stat().st_size for path in (tmp_path / "new").rglob("*") if path.is_file())
    # That of the tokenizer is not counted.
    assert built.documents[0]["bytes"] == pytest.approx(size, rel=0.5)
    assert run("info", tmp_path / "new", "--json").documents[0]["learned_impacts"] is True
    (found,) = run(
        "query", "the river of Paris", "--kb", kb, "--backend", "sparta", "-k", 2, "--json"
    ).documents
    answers = found["answers"]
    assert isinstance(answers, list)
    (document,) = run(
        "explain", "the river of Paris", "--kb", kb, "--backend", "sparta", "-k", 2, "--json"
    ).documents
    explained = document["answers"]
    assert isinstance(explained, list)
    assert [place["text"] for place in explained] == [answer["text"] for answer in answers]
    for place in explained:
        terms = place["terms"]
        assert isinstance(terms, dict)
        assert list(terms) == ["the", "river", "of", "Paris"]
        assert sum(terms.values()) == pytest.approx(place["score"], abs=1e-3)


def test_bm25_is_explained_word_by_word(
    run: Run, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    assert run("build", corpus, tmp_path / "kb", "--model", model_folder).status == 0
    (document,) = run(
        "explain", "river river whale", "--kb", tmp_path / "kb", "-k", 1, "--json"
    ).documents
    assert (document["query"], document["backend"]) == ("river river whale", "bm25")
    assert isinstance(document["answers"], list)
    (first,) = document["answers"]
    assert first["terms"]["whale"] == 0
    assert first["terms"]["river"] == pytest.approx(first["score"], abs=1e-3)
    nothing = run("explain", "whale", "--kb", tmp_path / "kb")
    assert (nothing.status, nothing.out) == (0, "")
    assert "no paragraph shares a term with 'whale': nothing is found" in nothing.err
    assert run("explain", "whale", "--kb", tmp_path / "kb", "--json").documents[0]["answers"] == []
    nothing = run("query", "whale", "--kb", tmp_path / "kb", "--backend", "bm25")
    assert (nothing.status, nothing.out) == (0, "whale\n\n")
    assert "nothing is found: no text shares a term with the query" in nothing.err
    shown = run("explain", "river whale", "--kb", tmp_path / "kb", "-k", 1).out.splitlines()
    assert shown[0].endswith(f"(page {first['page_id']}, paragraph {first['paragraph']})")
    assert [line.split()[1] for line in shown[2:]] == ["river", "whale"]


def test_a_reader_answers_from_what_was_found(
    run: Run,
    corpus: Path,
    model_folder: Path,
    qa_checkpoint: Path,
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
) -> None:
    kb = tmp_path / "kb"
    assert run("build", corpus, kb, "--model", model_folder).status == 0
    options = ("--kb", kb, "--backend", "bm25", "--reader", qa_checkpoint)
    (found,) = run(
        "query", "the river of Paris", *options, "--depth", 2, "-k", 3, "--json"
    ).documents
    answers = found["answers"]
    assert isinstance(answers, list)
    assert len(answers) == 3
    for answer in answers:
        assert answer["text"] == answer["context"][answer["start"] : answer["end"]]
    inputs = write_json_lines("in.jsonl", {"id": "1", "input": "Paris [SEP] river"})
    out = tmp_path / "out.jsonl"
    assert run("predict", inputs, "--task", "trex", "--out", out, *options).status == 0
    (output,) = json.loads(out.read_text())["output"]
    assert output["answer"]
    assert output["provenance"][0]["end_character"] - output["provenance"][0][
        "start_character"
    ] == len(output["answer"])
    described = json.loads((tmp_path / "out.jsonl.run.json").read_text())["reader"]
    assert described.pop("fingerprint")
    assert described == {
        "name": str(qa_checkpoint),
        "depth": DEPTH,
        "retrieval_weight": RETRIEVAL_WEIGHT,
    }
    told = [
        run("query", "Paris", *options, "-k", 9, "--json", *more).out
        for more in (
            (),
            ("--retrieval-weight", RETRIEVAL_WEIGHT, "--depth", DEPTH),
            ("--retrieval-weight", 9),
        )
    ]
    assert told[0] == told[1] != told[2]
    again = run(
        "predict", inputs, "--task", "trex", "--out", out, *options, "--retrieval-weight", "2"
    )
    assert "was made by a run that differs in reader (see out.jsonl.run.json)" in again.err


def test_bm25_finds_no_sentence(run: Run, tmp_path: Path, corpus: Path, model_folder: Path) -> None:
    assert run("build", corpus, tmp_path / "kb", "--model", model_folder).status == 0
    refused = run(
        "query", "Paris", "--kb", tmp_path / "kb", "--backend", "bm25", "--unit", "sentence"
    )
    assert refused.status == 2
    assert "BM25 finds no sentence" in refused.err


def test_build_from_standard_input_and_append(
    run: Run, pages: list[Page], model_folder: Path, tmp_path: Path
) -> None:
    first, rest = (
        "".join(json.dumps(page_line(page)) + "\n" for page in part).encode()
        for part in (pages[:5], pages[5:])
    )
    options = (tmp_path / "kb", "--json")
    (outcome,) = run("build", "-", *options, "--model", model_folder, stdin=first).documents
    assert (outcome["pages"], outcome["paragraphs"]) == (5, 6)
    (outcome,) = run(
        "build", "-", *options, "--append", stdin=rest
    ).documents  # with the same model
    assert outcome["pages"] == 12
    again = run("build", "-", *options, "--append", stdin=rest)
    assert again.status == 1
    assert "standard input:1: page id 'P5' is already in the knowledge base" in again.err


def test_append_where_the_model_has_moved(
    run: Run,
    corpus: Path,
    model_folder: Path,
    tmp_path: Path,
    write_json_lines: Callable[..., Path],
) -> None:
    shutil.copytree(model_folder, tmp_path / "model")
    assert run("build", corpus, tmp_path / "kb", "--model", tmp_path / "model").status == 0
    (tmp_path / "model").rename(tmp_path / "moved")
    more = write_json_lines(
        "more.jsonl", {"id": "new", "title": "T", "text": "Marie was born in Paris."}
    )
    refused = run("build", more, tmp_path / "kb", "--append")
    assert refused.status == 1
    assert "kb needs the model it was built with: model folder " in refused.err
    assert refused.err.endswith("say with --model where it is\n")
    added = run("build", more, tmp_path / "kb", "--append", "--model", tmp_path / "moved", "--json")
    # It is there and whole, but its manifest still names the old place.
    assert (added.status, added.err, len(list(Pages.open(tmp_path / "kb").ids()))) == (0, "", 13)
    found = run("query", "the river", "--kb", tmp_path / "kb", "--model", tmp_path / "moved")
    assert found.status == 0


def test_the_default_model_is_kbqs_own_even_beside_a_folder_of_that_name(
    run: Run, corpus: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.model.model_folder.DEFAULT_MODEL", model_folder)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "default").mkdir()
    assert run("build", corpus, "kb").status == 0
    assert run("info", "kb", "--json").documents[0]["model"] == "default"
    assert run("query", "the river", "--kb", "kb").status == 0


def test_bad_lines_may_be_skipped(
    run: Run, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    corpus.write_text("{\n" + corpus.read_text("utf-8"), "utf-8")
    options = ("--format", "jsonl", "--model", model_folder, "--json")
    refused = run("build", corpus, tmp_path / "kb", *options)
    assert refused.status == 1
    assert f"error: {corpus}:1: not JSON" in refused.err
    assert not (tmp_path / "kb").exists()
    built = run("build", corpus, tmp_path / "other", *options, "--skip-bad-lines")
    assert (built.status, built.documents[0]["bad_lines"]) == (0, 1)
    assert built.err.startswith(f"skipped: {corpus}:1: not JSON")


def test_all_bad_lines_of_a_corpus_are_named(
    run: Run, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    corpus.write_text("{\n" + corpus.read_text("utf-8") + "[]\n", "utf-8")
    refused = run("build", corpus, tmp_path / "kb", "--format", "jsonl", "--model", model_folder)
    assert refused.status == 1
    assert (
        f"{corpus} has 2 bad lines: correct them, or leave them out with --skip-bad-lines"
        in refused.err
    )
    assert f"{corpus}:1: not JSON" in refused.err
    assert "[]' is not a JSON object: write one object" in refused.err
    assert not (tmp_path / "kb").exists()


@pytest.mark.parametrize("unit", ["phrase", "sentence", "paragraph", "page"])
def test_query_as_json(unit: str, run: Run, kb_folder: Path, pages: list[Page]) -> None:
    found = run(
        "query", "Marie Curie [SEP] birth", "--kb", kb_folder, "-k", 3, "--unit", unit, "--json"
    )
    assert (found.status, found.err) == (0, "")
    (document,) = found.documents
    assert set(document) == {"query", "exact", "unknown_words", "answers"}
    assert document["exact"] is True
    assert document["query"] == "Marie Curie [SEP] birth"
    assert isinstance(document["answers"], list)
    assert len(document["answers"]) == 3
    texts = {(page.page_id, p.number): p.text for page in pages for p in page.paragraphs}
    for answer in document["answers"]:
        assert set(answer) >= ANSWER_KEYS
        assert answer["context"] == texts[answer["page_id"], answer["paragraph"]]
        assert answer["context"][answer["start"] : answer["end"]] == answer["text"]
    scores = [answer["score"] for answer in document["answers"]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("source", ["file", "gz", "-"])
def test_many_queries(source: str, run: Run, kb_folder: Path, tmp_path: Path) -> None:
    lines = "the river\n\nMarie [SEP] place of birth\r\nin 居里?\n".encode()
    (tmp_path / "file").write_bytes(lines)
    (tmp_path / "gz").write_bytes(gzip.compress(lines))
    path = source if source == "-" else tmp_path / source
    found = run(
        "query",
        "first",
        "second",
        "--file",
        path,
        "--kb",
        kb_folder,
        "-k",
        1,
        "--json",
        stdin=lines,
    )
    assert [document["query"] for document in found.documents] == [
        "first",
        "second",
        "the river",
        "Marie [SEP] place of birth",
        "in 居里?",
    ]
    assert (found.status, found.err) == (0, "")


def test_k_larger_than_the_knowledge_base(run: Run, kb_folder: Path) -> None:
    found = run("query", "the river", "--kb", kb_folder, "-k", 100, "--unit", "page")
    assert found.status == 0
    assert found.err == "9 of the 100 answers asked for were found\n"
    assert "  9. " in found.out
    answers = run(
        "query", "the river", "--kb", kb_folder, "-k", 100, "--unit", "page", "--json"
    ).documents[0]["answers"]
    assert isinstance(answers, list)
    assert len({answer["page_id"] for answer in answers}) == len(answers) == 9


def test_info_of_a_model(run: Run, model_folder: Path) -> None:
    told = run("info", model_folder, "--json")
    assert told.status == 0
    (facts,) = told.documents
    assert (facts["kind"], facts["max_query_tokens"], facts["filter_threshold"]) == (
        "model",
        32,
        0.0,
    )
    assert facts["edge_threshold"] == -0.2


def test_info_of_other_networks(
    run: Run, checkpoint: Path, qa_checkpoint: Path, tmp_path: Path
) -> None:
    from kbq.words.sparta import SpartaConfig, SpartaModel

    SpartaModel.new(str(checkpoint), SpartaConfig(marked=True)).save(tmp_path / "sparta")
    folders = (checkpoint, qa_checkpoint, tmp_path / "sparta")
    network, reader, sparta = (run("info", folder, "--json").documents[0] for folder in folders)
    assert (network["kind"], network["architecture"]) == ("network", "BertModel")
    assert (reader["kind"], reader["architecture"]) == ("reader", "BertForQuestionAnswering")
    assert (sparta["kind"], sparta["marked"]) == ("SPARTA model", True)
    assert ["marked", "True"] in [
        line.split() for line in run("info", tmp_path / "sparta").out.splitlines()
    ]
    assert sparta["bytes"] == sum(path.stat().st_size for path in (tmp_path / "sparta").iterdir())
    (tmp_path / "sparta" / "config.json").write_text("[]")
    told = run("info", tmp_path / "sparta")
    assert told.status == 1
    assert told.err.startswith(f"error: {tmp_path}/sparta/config.json is damaged (it has 2 of ")
    shutil.copytree(qa_checkpoint, tmp_path / "reader")
    (tmp_path / "reader" / "config.json").write_text("[]")
    told = run("info", tmp_path / "reader")
    assert (told.status, told.err) == (
        1,
        f"error: {tmp_path}/reader is damaged: it does not hold a JSON object\n",
    )


def test_info_says_whether_a_model_brings_a_reader(
    run: Run, model_folder: Path, kb_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "m")
    assert run("info", folder, "--json").documents[0]["reader"] is False
    network = Reader.new(str(folder), "cpu").network
    (folder / READER).write_bytes(b"")  # what a killed run has left
    assert run("info", folder, "--json").status == 1
    (folder / READER).unlink()
    save_reader(network, folder)
    assert run("info", folder, "--json").documents[0]["reader"] is True
    found = run("query", "the river", "--kb", kb_folder, "--reader", folder, "-k", 1, "--json")
    assert (found.status, '"text": ' in found.out) == (0, True)


def test_info_of_a_query_encoder_without_its_facts_is_one_sentence(
    run: Run, model_folder: Path, tmp_path: Path
) -> None:
    Model.open(model_folder, "cpu").save_query_encoder(tmp_path / "tuned", {})
    told = run("info", tmp_path / "tuned")
    sentence = f"error: {tmp_path}/tuned/kbq.json does not say how it was tuned: tune it again\n"
    assert (told.status, told.err) == (1, sentence)


def test_info_says_true_and_false(run: Run, model_folder: Path) -> None:
    told = run("info", model_folder).out.splitlines()
    assert "shared query encoder  True" in told


def test_info_of_a_knowledge_base(run: Run, kb_folder: Path, model_folder: Path) -> None:
    (facts,) = run("info", kb_folder, "--json").documents
    assert (facts["kind"], facts["pages"], facts["paragraphs"]) == ("knowledge base", 12, 18)
    exact = {
        "kind": "exact",
        "bytes_per_vector": 0.0,
        "probes": 1,
        "recall": 1.0,
        "target": 1.0,
        "queries": 0,
        "filter": None,
    }
    assert facts["indexes"] == [exact]
    assert (facts["model"], facts["built_by"]) == (str(model_folder), f"kbq {kbq.__version__}")


@pytest.mark.parametrize(
    ("kind", "options", "way_out"),
    [
        ("tiny", (), "choose --kind compact, disk or exact for that"),
        ("compact", (), "choose --kind disk or exact for that"),
        ("disk", (), "choose --kind exact for that"),
        ("tiny", ("--filter", 1), "its --filter hides the rest"),
    ],
)
def test_a_recall_that_was_not_reached_is_said(
    kind: str,
    options: tuple[object, ...],
    way_out: str,
    run: Run,
    kb_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = IndexFacts(kind, 45.0, 7, recall=0.5, target=0.99, queries=10, filter=None)
    monkeypatch.setattr("kbq.maintain.indexes.add_index", lambda *_: read_manifest(kb_folder))
    monkeypatch.setattr("kbq.description.index_facts", lambda *_: facts)
    told = run("index", "vectors", kb_folder, "--kind", kind, *options)
    assert told.status == 0
    assert f"even all of its cells do not find 99.00 %: {way_out}" in told.err
    assert "outweigh" not in told.err
    large = dataclasses.replace(facts, bytes_per_vector=1072.6)
    monkeypatch.setattr("kbq.description.index_facts", lambda *_: large)
    told = run("index", "vectors", kb_folder, "--kind", kind, *options)
    assert (f"the tables of {kind} outweigh its codes" in told.err) == (kind != "disk")


def test_predictions_resume_after_an_index_came_along(
    kb_folder: Path, tmp_path: Path, run: Run, write_json_lines: Any
) -> None:
    pytest.importorskip("faiss")
    kb, inputs = (
        tmp_path / "kb",
        write_json_lines("in.jsonl", *({"id": n, "input": "Paris"} for n in range(3))),
    )
    shutil.copytree(kb_folder, kb)
    predict = (
        "predict",
        inputs,
        "--task",
        "nq",
        "--kb",
        kb,
        "--out",
        tmp_path / "out.jsonl",
        "--backend",
        "dense",
    )
    assert run(*predict).status == 0
    begun = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out.jsonl").write_text("".join(begun[:2]))
    run("index", "vectors", kb, "--kind", "compact", "--recall", 0.5)
    refused = run(*predict)  # its answers may be others
    assert refused.status == 1
    assert "out.jsonl was made by a run that differs in index (see" in refused.err
    assert "--index resumes what another index has begun" in refused.err
    assert run(*predict, "--index", "exact").out.endswith(
        "3 predictions, 2 of them from an earlier run\n"
    )
    assert (tmp_path / "out.jsonl").read_text().splitlines(keepends=True) == begun


def test_index_and_query_with_it(run: Run, kb_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    kb = tmp_path / "kb"
    shutil.copytree(kb_folder, kb)
    (tmp_path / "queries").write_text("the river\nParis\n\nMarie Curie [SEP] birth\n")
    built = run(
        "index",
        "vectors",
        kb,
        "--kind",
        "compact",
        "--recall",
        0.5,
        "--queries",
        tmp_path / "queries",
    )
    assert (built.status, built.err) == (0, "")
    assert built.out.startswith(f"{kb}: compact, ")
    assert "(50.00 % asked for, 2 queries) with 1 probe\n" in built.out
    (facts,) = run("index", "vectors", kb, "--kind", "disk", "--recall", 0.5, "--json").documents
    size = sum(path.stat().st_size for path in kb.glob("*/disk/*"))
    rows = run("info", kb, "--json").documents[0]["kept_vectors"]
    assert isinstance(rows, int)
    assert facts["bytes_per_vector"] == round(size / rows, 1)
    assert [
        line.split()[1] for line in run("info", kb).out.splitlines() if line.startswith("index ")
    ] == [
        "disk,",
        "compact,",
        "exact,",
    ]
    for options in ((), ("--index", "compact"), ("--index", "exact")):
        assert run("query", "the river", "--kb", kb, *options).status == 0
    assert (
        run("index", "vectors", kb, "--kind", "exact").out
        == f"{kb}: exact, compares every vector: nothing is missed\n"
    )


def test_merge_kb(
    run: Run, kb_folder: Path, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    lines = corpus.read_text("utf-8").splitlines(keepends=True)
    for name, part, options in (
        ("a", lines[:5], ()),
        ("b", lines[5:], ()),
        ("dense", lines[5:], ("--no-bm25",)),
    ):
        (tmp_path / f"{name}.jsonl").write_text("".join(part), "utf-8")
        assert (
            run(
                "build",
                tmp_path / f"{name}.jsonl",
                tmp_path / name,
                "--model",
                model_folder,
                *options,
            ).status
            == 0
        )
    merged = run("merge-kb", tmp_path / "some", tmp_path / "a", tmp_path / "dense")
    assert merged.status == 0
    assert (
        f"not all of them have an index of words: add one with `kbq index bm25 {tmp_path / 'some'}`"
        in merged.err
    )
    merged = run("merge-kb", tmp_path / "both", tmp_path / "a", tmp_path / "b")
    assert merged.status == 0
    assert merged.err == ""
    assert merged.out.startswith(f"{tmp_path / 'both'}: 12 pages, ")
    assert merged.out.endswith(" token vectors, in 2 shards\n")
    dense = ("query", "Paris", "--backend", "dense", "--json")
    whole, both = (run(*dense, "--kb", kb) for kb in (kb_folder, tmp_path / "both"))
    # Two paragraphs of a page are the same text.
    names = (
        "text",
        "score",
        "page_id",
        "unit_start",
        "unit_end",
    )
    answers = [
        [[hit[name] for name in names] for hit in told.documents[0]["answers"]]  # type: ignore[attr-defined]
        for told in (whole, both)
    ]
    assert len(answers[0]) == 5
    assert answers[0] == answers[1]


def test_encoders_learn_from_a_reader(
    run: Run, examples_file: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBQ_CACHE", str(tmp_path / "cache"))
    options = (examples_file, "--init", checkpoint, "--epochs", 1, "--batch-tokens", 200)
    trained = run("train", "reader", *options, "--out", tmp_path / "reader")
    assert (trained.status, trained.err) == (0, "")
    assert trained.out.splitlines()[0].endswith(" steps over 11 passages with 22 queries")
    assert trained.out.splitlines()[1].startswith("reading, passage given    EM ")
    distilled = (
        "train",
        "encoders",
        *options,
        "--distill",
        tmp_path / "reader",
        "--temperature",
        2,
        "--json",
    )
    (outcome,) = run(*distilled, "--out", tmp_path / "model").documents
    assert (outcome["passages"], outcome["queries"]) == (11, 22)
    facts = run("info", tmp_path / "model", "--json").documents[0]
    assert isinstance(facts["training"], dict)
    assert facts["training"]["reader"] == "reader"
    assert facts["training"]["settings"]["temperature"] == 2
    assert len(list((tmp_path / "cache" / "reader").iterdir())) == 1


def test_questions_are_asked_by_any_generator(
    run: Run,
    make_tokenizer: Callable[..., Any],
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
) -> None:
    import transformers

    tokenizer = make_tokenizer(eos_token="[SEP]")
    ids = {"pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": 0, "bos_token_id": 0}
    ids |= {"eos_token_id": tokenizer.eos_token_id, "forced_eos_token_id": tokenizer.eos_token_id}
    config = transformers.BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, **ids,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BartForConditionalGeneration(config).save_pretrained(tmp_path / "generator")
    tokenizer.save_pretrained(tmp_path / "generator")
    page = {"id": "1", "title": "Marie", "paragraphs": ["Marie Curie was born in Paris in 1867."]}
    corpus = write_json_lines("corpus.jsonl", page)
    asked = (
        "augment",
        corpus,
        "--generator",
        tmp_path / "generator",
        "--reader",
        "default",
        "--out",
    )
    made = run(*asked, tmp_path / "made.jsonl", "--json")
    assert made.status == 0
    assert (made.documents[0]["paragraphs"], made.documents[0]["asked"]) == (1, 3)


def test_triples_become_examples_to_train_on(
    run: Run, corpus: Path, write_json_lines: Callable[..., Path], tmp_path: Path
) -> None:
    first = next(
        page
        for page in map(json.loads, corpus.read_text("utf-8").splitlines())
        if page["paragraphs"]
    )
    word = first["paragraphs"][0].split()[0]
    triple = {"subject": "Marie", "relation": "first word", "object": word, "page": first["id"]}
    command = ("augment", corpus, "--triples", write_json_lines("triples.jsonl", triple), "--out")
    made = run(*command, tmp_path / "made.jsonl")
    assert (made.status, made.err) == (0, "")
    assert made.out.startswith(f"{tmp_path / 'made.jsonl'}: 1 of 1 questions kept, on 1 of ")
    (outcome,) = run(*command, tmp_path / "again.jsonl", "--json").documents
    assert (outcome["asked"], outcome["kept"], outcome["out"]) == (
        1,
        1,
        str(tmp_path / "again.jsonl"),
    )


@pytest.mark.parametrize("options", [(), ("--two-query-encoders", "--weights", "int8")])
def test_train(
    options: tuple[str, ...],
    run: Run,
    examples_file: Path,
    checkpoint: Path,
    corpus: Path,
    tmp_path: Path,
) -> None:
    command = (
        "train",
        "encoders",
        examples_file,
        "--out",
        tmp_path / "model",
        "--init",
        checkpoint,
        "--epochs",
        1,
    )
    trained = run(*command, *options, "--json")
    assert (trained.status, trained.err) == (0, "")
    (outcome,) = trained.documents
    assert (outcome["passages"], outcome["queries"], outcome["out"]) == (
        11,
        22,
        str(tmp_path / "model"),
    )
    assert outcome["repairs"] == {
        "right": 24,
        "moved": 0,
        "lost": 0,
        "doubtful": 0,
        "placed": 0,
        "answering": 0,
    }
    facts = run("info", tmp_path / "model", "--json").documents[0]
    assert isinstance(facts["training"], dict)
    assert facts["training"]["command"].startswith(f"kbq train encoders {examples_file} --out ")
    assert run("build", corpus, tmp_path / "kb", "--model", tmp_path / "model").status == 0
    assert run("query", "the river", "--kb", tmp_path / "kb").status == 0


@pytest.fixture
def triples(pages: list[Page], write_json_lines: Callable[..., Path]) -> Path:
    """The first word of each paragraph, asked for by its page's title."""
    rows = [
        {
            "subject": f"{page.title} {paragraph.number}",
            "relation": "birth" if paragraph.number else "place of birth",
            "object": paragraph.text.split()[0],
            "page": page.page_id,
        }
        for page in pages
        for paragraph in page.paragraphs
    ]
    return write_json_lines("triples.jsonl", *rows)


@pytest.mark.usefixtures("few_watched")
def test_finetune_query_predict_info(
    run: Run, triples: Path, kb_folder: Path, tmp_path: Path
) -> None:
    options = ("--kb", kb_folder, "--epochs", 1, "--batch", 12, "-k", 5, "--device", "cpu")
    tuned = run("finetune", triples, "--out", tmp_path / "tuned", *options, "--json")
    assert (tuned.status, tuned.err) == (0, "")
    (outcome,) = tuned.documents
    assert isinstance(outcome["reach"], dict)
    assert (outcome["reach"]["queries"], outcome["dev_queries"], outcome["out"]) == (
        15,
        3,
        str(tmp_path / "tuned"),
    )
    assert (outcome["measure"], outcome["steps"]) == ("KILT-accuracy", 9)
    told = run(
        "finetune",
        triples,
        "--out",
        tmp_path / "other",
        *options,
        "--terms",
        "joint",
        "--objective",
        "phrase",
    )
    assert (told.status, told.err) == (0, "")
    lines = told.out.splitlines()
    assert (
        lines[0]
        == f"{tmp_path / 'other'}: 9 steps on 15 queries, 7 times an epoch, 0 unreadable left out"
    )
    assert lines[1].startswith("answers of ")
    assert "3 dev queries                             before  after" in lines
    (score,) = (line for line in lines if line.startswith("vectors alone, KILT-accuracy  "))
    assert re.search(r"  \d+\.\d   +\d+\.\d$", score)
    (facts,) = run("info", tmp_path / "tuned", "--json").documents
    assert (facts["kind"], str(facts["command"]).split()[1]) == ("query encoder", "finetune")
    scores = outcome["scores"]
    assert isinstance(scores, list)
    relations = 2 if max(scores) > scores[0] else 0  # else the query encoder stays as it was
    assert (facts["queries_tuned_on"], facts["relations_tuned_on"], facts["dev_queries"]) == (
        15,
        relations,
        3,
    )
    found = run(
        "query", "Marie [SEP] birth", "--kb", kb_folder, "--model", tmp_path / "tuned", "--json"
    )
    assert (found.status, len(found.documents)) == (0, 1)
    further = run(
        "finetune", triples, "--out", tmp_path / "third", *options, "--model", tmp_path / "tuned"
    )
    assert further.status == 0
    inputs = tmp_path / "in.jsonl"
    inputs.write_text('{"id": 1, "input": "Marie [SEP] birth"}\n')
    command = (
        "predict",
        inputs,
        "--task",
        "slot_filling",
        "--kb",
        kb_folder,
        "--model",
        tmp_path / "tuned",
    )
    assert run(*command, "--out", tmp_path / "out.jsonl").status == 0
    (line,) = (tmp_path / "out.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["output"][0]["answer"]


def test_triples_from_a_pipe_are_refused_before_tuning(
    run: Run, triples: Path, kb_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tune(*_: object) -> None:
        pytest.fail("tunes")

    monkeypatch.setattr("kbq.tuning.query_side.Finetuner.run", tune)
    refused = run(
        "finetune", "-", "--kb", kb_folder, "--out", tmp_path / "tuned", stdin=triples.read_bytes()
    )
    assert (refused.status, "standard input can be read only once" in refused.err) == (1, True)
    assert not (tmp_path / "tuned.partial").exists()


@pytest.mark.usefixtures("few_watched")
def test_finetune_where_the_model_has_moved(
    run: Run, triples: Path, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(model_folder, tmp_path / "model")
    assert run("build", corpus, tmp_path / "kb", "--model", tmp_path / "model").status == 0
    (tmp_path / "model").rename(tmp_path / "moved")
    options = ("--kb", tmp_path / "kb", "--model", tmp_path / "moved", "--epochs", 1)
    assert run("finetune", triples, "--out", tmp_path / "tuned", *options).status == 0
    found = run("query", "the river", "--kb", tmp_path / "kb", "--model", tmp_path / "tuned")
    assert (found.status, found.err) == (0, "")


def test_version_and_help(run: Run) -> None:
    assert run("--version") == Outcome(0, f"{kbq.__version__}\n", "")
    told = run("--help")
    assert told.status == 0
    names = (
        "build", "index", "merge-kb", "query", "explain", "train", "augment", "finetune", "info",
    )  # fmt: skip
    assert all(f"  {name} " in told.out for name in names)


def test_json_is_utf_8_wherever_it_goes(tmp_path: Path) -> None:
    (tmp_path / "Żółć.jsonl").write_text('{"id": "1", "output": [{"answer": "x"}]}\n')
    command = [sys.executable, "-m", "kbq", "validate", str(tmp_path / "Żółć.jsonl"), "--json"]
    printed = subprocess.run(
        command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False
    )
    assert json.loads(printed.stdout.decode("utf-8"))["file"] == str(tmp_path / "Żółć.jsonl")


def test_ctrl_c_says_that_nothing_is_lost(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kbq.description.describe", interrupted)
    stopped = "stopped; what is on the disk stays, and commands that can resume go on from there\n"
    assert run("info", "kb") == Outcome(130, "", stopped)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("build",),
        ("build", "corpus", "kb", "--format", "word"),
        ("build", "corpus", "kb", "--index", "fast"),
        ("query", "x", "-k", "0"),
        ("query", "x", "-k", "many"),
        ("query", "x", "--unit", "word"),
        ("query", "x", "--nonsense"),
        ("train", "x"),
        ("train", "encoders", "x"),
        ("train", "encoders", "x", "--out", "y", "--init", "z", "--epochs", "-1"),
        ("augment", "x", "--out", "y"),
        ("augment", "x", "--out", "y", "--generator", "g"),
        ("augment", "x", "--out", "y", "--triples", "t", "--reader", "r"),
        ("finetune", "x", "--out", "y"),
        ("finetune", "x", "--kb", "y"),
        ("finetune", "x", "--kb", "y", "--out", "z", "-k", "0"),
        ("finetune", "x", "--kb", "y", "--out", "z", "--objective", "word"),
        ("finetune", "x", "--kb", "y", "--out", "z", "--learning-rate", "-1"),
        ("info",),
        ("index", "kb"),
        ("index", "vectors"),
        ("index", "vectors", "kb", "--kind", "fast"),
        ("index", "vectors", "kb", "--recall", "2"),
        ("index", "vectors", "kb", "--terms", "100"),
        ("index", "vectors", "kb", "--kind", "exact", "--recall", "0.9"),
        ("index", "vectors", "kb", "--kind", "exact", "--queries", "file"),
        ("index", "bm25", "kb", "--kind", "compact"),
        ("index", "bm25", "kb", "--recall", "0.9"),
        ("index", "bm25", "kb", "--device", "cpu"),
        ("index", "sparta", "kb"),
        ("index", "sparta", "kb", "model", "--kind", "compact"),
        ("index", "sparta", "kb", "model", "--queries", "file"),
        ("index", "sparta", "kb", "model", "--terms", "0"),
        ("merge-kb", "new"),
        ("train", "reader", "file", "--out", "new", "--init", "model", "--weights", "int8"),
        ("train", "encoders", "file", "--out", "new", "--init", "model", "--temperature", "2"),
        ("train", "sparta", "file", "--out", "new", "--init", "model", "--distill", "reader"),
        ("train", "encoders", "file", "--out", "new", "--init", "model", "--marked"),
        ("query", "who", "--depth", "3"),
        ("query", "who", "--retrieval-weight", "1"),
        ("query", "who", "--backend", "bm25", "--index", "exact"),
        (
            "predict",
            "file",
            "--task",
            "trex",
            "--out",
            "new",
            "--backend",
            "sparta",
            "--index",
            "compact",
        ),
        ("predict", "file", "--task", "trex", "--out", "new", "--depth", "3"),
        ("augment", "file", "--out", "new", "--triples", "file", "--backend", "bm25"),
        ("augment", "file", "--out", "new", "--triples", "file", "--seed", "1"),
        ("info", "kb", "--device", "cpu"),
        ("evaluate", "file", "file", "--csv", "--json"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], run: Run) -> None:
    outcome = run(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("Usage: ")
    assert outcome.err.splitlines()[-1].startswith("Error: ")


@pytest.fixture
def place(
    tmp_path: Path,
    corpus: Path,
    kb_folder: Path,
    model_folder: Path,
    other_folder: Path,
    examples_file: Path,
) -> Path:
    """A folder with everything that may be wrong."""
    (tmp_path / "empty").write_text("")
    (tmp_path / "blank").write_text("\n \n")
    (tmp_path / "word.doc").write_text("Marie Curie was born in Warsaw.\n")
    (tmp_path / "broken.gz").write_bytes(gzip.compress(corpus.read_bytes())[:60])
    (tmp_path / "twice.jsonl").write_text('{"id": "1", "title": "T", "text": "x"}\n' * 2)
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "title": "T", "text": "x"}\n{"id"\n')
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "header.csv").write_text("subject,relation,object\n")
    (tmp_path / "one.csv").write_text("subject,relation,object\nMarie,birth,Warsaw\n")
    (tmp_path / "short.csv").write_text("subject,relation\nMarie,birth\n")
    (tmp_path / "two.csv").write_text(
        "subject,relation,object\nMarie,birth,Warsaw\nCurie,birth,Paris\n"
    )
    (tmp_path / "queries").write_text("fine\n[SEP] x\na [SEP] b [SEP] c\n")
    (tmp_path / "folder").mkdir()
    for name in ("half", "old", "modelless"):
        shutil.copytree(kb_folder, tmp_path / name)
    (tmp_path / "half" / "manifest.json").rename(tmp_path / "half" / "building.json")
    written = json.loads((tmp_path / "old" / "manifest.json").read_text()) | {"format": 0}
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(written))
    write_manifest(
        tmp_path / "modelless", dataclasses.replace(read_manifest(kb_folder), model="gone")
    )
    for name, target in (("kb", kb_folder), ("model", model_folder), ("other", other_folder)):
        (tmp_path / name).symlink_to(target)
    return tmp_path


LONG = "word " * 10_000


def assert_one_sentence(outcome: Outcome, message: str) -> None:
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("build nothing new --model model", "nothing: cannot be read (No such file or directory)"),
        (
            "build empty new --model model",
            "empty contains no pages: check that it is the right file",
        ),
        ("build blank new --model model", "blank contains no pages"),
        ("build folder new --model model", "folder contains no .txt, .md, .html, .docx, .odt"),
        (
            "build word.doc new --model model",
            "word.doc is of an old version of Word: save it as .docx",
        ),
        ("build broken.gz new --model model", "compressed data is damaged"),
        (
            "build twice.jsonl new --model model",
            "twice.jsonl:2: page id '1' is that of an earlier page, too",
        ),
        ("build bad.jsonl new --model model", "bad.jsonl:2: not JSON"),
        (
            "build corpus.jsonl new --model nowhere",
            "model folder nowhere does not exist: give `default`, a folder, or a name on the hub",
        ),
        ("build corpus.jsonl new --model folder", "folder is not a kbq model (no kbq.json)"),
        (
            "build corpus.jsonl kb --model model",
            "kb already holds a knowledge base: add to it with --append",
        ),
        (
            "build corpus.jsonl model --model model",
            "model is not empty, and holds no unfinished build",
        ),
        ("build corpus.jsonl empty/new --model model", "new cannot be written (Not a directory)"),
        (
            "build corpus.jsonl new --model model --append",
            "new does not exist: make a knowledge base with",
        ),
        (
            "query x --kb nowhere",
            "nowhere does not exist: make a knowledge base with `kbq build CORPUS nowhere`",
        ),
        ("query x --kb folder", "folder is not a knowledge base (has no manifest.json)"),
        (
            "query x --kb half",
            "half is not a complete knowledge base, its build is running or was stopped",
        ),
        ("query x --kb old", "old has format version 0, this kbq reads 4"),
        (
            "query x --kb modelless",
            "modelless needs the model it was built with: model folder gone does not exist; say",
        ),
        ("query x --kb kb --model other", "was built with the model"),
        ("query x --kb kb --model nowhere", "model folder nowhere does not exist: give"),
        ("query x --kb kb --reader nowhere", "reader folder nowhere does not exist: give"),
        ("explain --page nope --kb kb", "kb has no page 'nope': `kbq pages kb` lists them"),
        ("query --kb kb", "there is no query: write kbq query"),
        ("query  --kb kb", "there is no query: write kbq query"),
        ("query --kb kb --file empty", "empty holds no query: write one per line"),
        ("query --kb kb --file nothing", "nothing: cannot be read (No such file or directory)"),
        ("query --kb kb --file latin", "latin:1: not UTF-8"),
        (
            "query x --kb kb --index compact",
            "kb has no compact index, only exact: build it with `kbq index vectors kb",
        ),
        ("index vectors nowhere", "nowhere does not exist"),
        ("index bm25 nowhere", "nowhere does not exist"),
        ("index sparta nowhere empty", "nowhere does not exist"),
        (
            "index sparta kb nothing",
            "nothing is not a SPARTA model: make one with `kbq train sparta`",
        ),
        (
            "index vectors kb --kind compact --queries nothing",
            "nothing: cannot be read (No such file or directory)",
        ),
        (
            "index vectors kb --kind compact --queries empty",
            "empty holds no query: write one per line",
        ),
        ("merge-kb new kb nowhere", "nowhere does not exist"),
        ("merge-kb new kb kb", "kb is given twice: give each knowledge base once"),
        ("merge-kb new kb kb/../kb", "kb is given twice: give each knowledge base once"),
        ("merge-kb kb kb new", "kb is a knowledge base; the new folder comes first: `kbq merge-kb"),
        ("merge-kb folder/new half", "half is not a complete knowledge base"),
        ("merge-kb model kb", "model is not empty: name a new folder, which comes first"),
        ("merge-kb empty/new kb", "new cannot be written (Not a directory)"),
        ("delete nowhere x", "nowhere does not exist"),
        ("delete kb nope", "kb has no page 'nope': `kbq pages kb` lists them"),
        ("delete kb --file nothing", "nothing: cannot be read (No such file or directory)"),
        ("delete kb --file empty", "empty holds no page id: give at least one"),
        ("update nowhere corpus.jsonl", "nowhere does not exist: make a knowledge base with"),
        ("update kb nothing", "nothing: cannot be read"),
        ("update kb empty", "empty"),
        ("update kb header.csv", "header.csv"),
        ("sync kb empty", "empty"),
        ("sync half corpus.jsonl", "half is not a complete knowledge base"),
        ("compact folder", "folder is not a knowledge base"),
        (
            "verify nowhere",
            "nowhere is neither a knowledge base nor a model: name the folder of one",
        ),
        ("verify folder", "folder is neither a knowledge base nor a model"),
        ("verify old", "old has format version 0, this kbq reads 4"),
        ("query x --kb kb --pages nothing", "nothing: cannot be read"),
        (
            "query x --kb kb --pages header.csv",
            "kb has no page 'subject,relation,object': `kbq pages kb` lists",
        ),
        ("info nowhere", "nowhere is neither a knowledge base nor a model: name the folder of one"),
        ("info folder", "folder is neither a knowledge base nor a model"),
        ("info half", "half is not a complete knowledge base"),
        ("explain [SEP]", "has nothing on one side"),
        ("train encoders - --out new --init model", "standard input can be read only once"),
        ("train encoders nothing --out new --init model", "nothing: cannot be read"),
        (
            "train encoders corpus.jsonl --out new --init model",
            "is missing, there are id, title, paragraphs: write",
        ),
        (
            "train encoders examples.jsonl --out folder --init model",
            "folder already exists: choose another folder",
        ),
        ("train encoders examples.jsonl --out new --init folder", "folder has no tokenizer"),
        (
            "train encoders examples.jsonl --out new --init model --epochs 0",
            "epochs is 0.0, must be above 0",
        ),
        (
            "train encoders examples.jsonl --out new --init model --distill folder",
            "folder is not a checkpoint that",
        ),
        (
            "train encoders examples.jsonl --out new --init model --distill model",
            "the model model has no reader",
        ),
        (
            "train reader examples.jsonl --out new --init folder",
            "folder is not a checkpoint that transformers",
        ),
        (
            "train encoders examples.jsonl --out empty/new --init model",
            "new cannot be written (Not a directory)",
        ),
        (
            "finetune nothing --kb kb --out new",
            "nothing: cannot be read (No such file or directory)",
        ),
        ("finetune folder --kb kb --out new", "folder is a folder: give a file"),
        (
            "finetune empty --kb kb --out new",
            "empty is empty: write a header with the names of the columns",
        ),
        ("finetune blank --kb kb --out new", "blank is empty"),
        ("finetune header.csv --kb kb --out new", "header.csv has no triple with an answer"),
        (
            "finetune one.csv --kb kb --out new",
            "one subject or page is not enough to tune and to score: give more triples",
        ),
        ("finetune short.csv --kb kb --out new", "short.csv:1: column 'object' is missing"),
        ("finetune latin --kb kb --out new", "latin:1: column 'subject' is missing"),
        ("finetune broken.gz --kb kb --out new", "compressed data is damaged"),
        ("finetune bad.jsonl --kb kb --out new", "bad.jsonl:1: column 'subject' is missing"),
        ("finetune two.csv --kb kb --out new --dev nothing", "nothing: cannot be read"),
        (
            "finetune two.csv --kb nowhere --out new",
            "nowhere does not exist: make a knowledge base with",
        ),
        ("finetune two.csv --kb kb --out new --model other", "was built with the model"),
        (
            "finetune two.csv --kb kb --out folder",
            "folder already exists: choose another folder for --out",
        ),
        ("finetune two.csv --kb kb --out empty/new", "new cannot be written (Not a directory)"),
    ],
)
def test_bad_input_gets_one_clear_sentence(
    command: str, message: str, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    outcome = run(*command.split())
    assert (outcome.status, outcome.out) == (1, "")
    assert_one_sentence(outcome._replace(err=without_guess(outcome.err)), message)
    assert not (place / "new" / "manifest.json").exists()


def without_guess(told: str) -> str:
    """Leave out the note that a table is not UTF-8, which stands before an error in it."""
    first, _, rest = told.partition("\n")
    return rest if first.endswith("which is a guess") else told


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("build corpus.jsonl new --model model --device gpu", "device 'gpu' is unknown"),
        ("query x --kb kb --device gpu", "error: device 'gpu' is unknown: choose"),
        ("query kb x", "kb is a knowledge base, not a query: ask it with --kb kb"),
        (
            "finetune two.csv --kb kb --out new --terms joint,word",
            "term 'word' is unknown: choose from joint, start",
        ),
        (
            "finetune two.csv --kb kb --out new --task nonsense",
            "task 'nonsense' is unknown: choose one of",
        ),
        ("index vectors kb --kind compact --filter nan", "--filter is nan, must be a number"),
        ("verify model --repair", "model is a model, which cannot be repaired: restore it"),
        (
            "query x --kb kb --reader default --unit sentence",
            "a reader finds no sentence: ask for phrases or",
        ),
        ("update corpus.jsonl kb", "the knowledge base comes first: kbq update kb corpus.jsonl"),
        ("sync folder kb", "the knowledge base comes first: kbq sync kb folder"),
        ("sync nowhere kb", "the knowledge base comes first: kbq sync kb nowhere"),
        ("delete P1 kb", "the knowledge base comes first: kbq delete kb P1"),
        ("pages river kb", "the knowledge base comes first: kbq pages kb river"),
        ("index sparta model kb", "the knowledge base comes first: kbq index sparta kb model"),
        ("build kb folder", "the corpus comes first: kbq build folder kb"),
        ("evaluate two.csv two.csv --ks 5,1,1", "a k twice would be counted twice"),
    ],
)
def test_what_means_nothing_whatever_the_input_is_wrong_usage(
    command: str, message: str, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    outcome = run(*command.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert_one_sentence(outcome, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the query is empty"),
        (" ", "the query is empty"),
        ("a [SEP] b [SEP] c", 'has 2 "[SEP]"'),
        ("[SEP] b", 'has nothing on one side of "[SEP]"'),
        (LONG, "tokens, the encoder reads 32: shorten it"),
    ],
)
def test_bad_queries_get_one_clear_sentence(
    text: str, message: str, run: Run, kb_folder: Path
) -> None:
    outcome = run("query", text, "--kb", kb_folder)
    assert (outcome.status, outcome.out) == (1, "")
    assert_one_sentence(outcome, message)
    assert len(outcome.err) < 300


@pytest.mark.parametrize("as_json", [False, True])
def test_queries_are_typed_at_a_terminal(as_json: bool, run: Run, kb_folder: Path) -> None:
    lines = "the river\n\n[SEP] x\nWarsaw [SEP] city\n"
    arguments = ("query", "--kb", kb_folder, "-k", 1, *(["--json"] if as_json else []))
    piped = run(*arguments, stdin=lines.encode())
    assert (piped.status, piped.out) == (1, "")
    assert piped.err.startswith("error: there is no query")
    typed = run(*arguments, typed=lines.encode())
    alone = [run(*arguments, text).out for text in ("the river", "Warsaw [SEP] city")]
    assert (typed.status, typed.out) == (0, "".join(alone))
    assert "error: the query '[SEP] x' has nothing on one side" in typed.err
    assert typed.err.count("query: ") == 5  # the last one meets the end


def test_json_has_a_window_of_evidence(run: Run, model_folder: Path, tmp_path: Path) -> None:
    text = "The river flows. " * 100 + "Marie was born in Warsaw. " + "The river flows. " * 100
    corpus = tmp_path / "long.jsonl"
    corpus.write_text(json.dumps({"id": "1", "title": "Long", "paragraphs": [text]}) + "\n")
    assert run("build", corpus, tmp_path / "kb", "--model", model_folder).status == 0
    kb = KnowledgeBase.open(tmp_path / "kb", device="cpu")
    found = kb.query("Marie [SEP] birth", 30)
    for options, width in (
        ((), 500),
        (("--context", 7), 7),
        (("--context", 0), 0),
        (("--context", 10**9), 10**9),
    ):
        asked = ("Marie [SEP] birth", "--kb", tmp_path / "kb", "-k", 30, "--json", *options)
        outcome = run("query", *asked)
        (document,) = outcome.documents
        assert document["answers"] == [answer.to_dict(width) for answer in found]
        # The same bytes as if it were not written answer by answer.
        assert outcome.out == json.dumps(document, ensure_ascii=False) + "\n"
        assert all(
            len(one["context"]) <= len(one["text"]) + 2 * width for one in document["answers"]
        )
    assert {one["context"] for one in document["answers"]} == {text}  # type: ignore[attr-defined]
    assert {answer.context for answer in found} == {text}
    explained = run(
        "explain", "Marie", "--kb", tmp_path / "kb", "--json", "--context", 0
    ).documents[0]["answers"]
    assert [(one["text"], one["context"]) for one in explained] == [(text.rstrip(), text)]  # type: ignore[attr-defined]
    for command in ("query", "explain"):
        refused = run(command, "Marie", "--kb", tmp_path / "kb", "--context", 5)
        assert refused.status == 2
        assert "--context" in refused.err
        assert "has no effect without --json" in " ".join(refused.err.replace("│", " ").split())


def test_queries_are_refused_before_their_words_are_looked_up(
    run: Run, kb_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_up(searcher: Searcher, text: str) -> list[str]:
        raise AssertionError(text)

    monkeypatch.setattr(Searcher, "unknown_words", looked_up)
    refused = run("query", "the river", LONG, "--kb", kb_folder)
    assert (refused.status, refused.out) == (1, "")
    assert "tokens, the encoder reads 32: shorten it" in refused.err


def test_words_that_stand_nowhere_are_named_once(
    run: Run, corpus: Path, model_folder: Path, tmp_path: Path
) -> None:
    run("build", corpus, tmp_path / "kb", "--model", model_folder)
    queries = ("the river", "Qqz [SEP] rivr", "Qqz [SEP] xxv", "Wwk")
    outcome = run("query", *queries, "--kb", tmp_path / "kb", "-k", 1, "--json")
    assert (outcome.status, len(outcome.documents)) == (0, 4)
    nowhere = "nowhere in the knowledge base, so maybe mistyped: "
    assert outcome.err == f"{nowhere}Qqz, rivr, xxv …\n"
    unknown = [one["unknown_words"] for one in outcome.documents]
    assert unknown == [[], ["Qqz", "rivr"], ["Qqz", "xxv"], ["Wwk"]]
    (tmp_path / "queries.txt").write_text("the river\nQqz [SEP] river\n")
    from_file = run("query", "--file", tmp_path / "queries.txt", "--kb", tmp_path / "kb", "-k", 1)
    assert from_file.err.startswith(f"{nowhere}Qqz ({tmp_path}/queries.txt:2)")


@pytest.mark.parametrize("place", ["-", "out.jsonl.gz"])
@pytest.mark.parametrize(
    "command",
    [
        ("predict", "x", "--task", "trex", "--out"),
        ("evaluate", "x", "y", "--per-item"),
        ("passages", "x", "y", "--export"),
        ("build", "x"),
        ("merge-kb",),
    ],
)
def test_what_is_written_is_a_plain_file_with_a_name(
    command: tuple[str, ...], place: str, run: Run
) -> None:
    outcome = run(*command, place, *(["x"] if command == ("merge-kb",) else []))
    assert outcome.status == 2
    said = " ".join(outcome.err.replace("│", " ").split())
    assert (
        "stands for standard input" if place == "-" else "would not be compressed: leave out .gz"
    ) in said


def test_all_bad_lines_of_a_query_file_are_named(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    outcome = run("query", "--file", "queries", "--kb", "kb")
    lines = outcome.err.splitlines()
    assert (outcome.status, outcome.out, len(lines)) == (1, "", 3)
    assert lines[0].startswith("queries:2: the query '[SEP] x' has nothing on one side")
    assert lines[1].startswith("queries:3: the query 'a [SEP] b [SEP] c' has 2")
    assert lines[2] == "error: 2 of 3 queries cannot be asked"


def test_all_lines_that_are_too_long_are_named_before_anything_is_answered(
    run: Run, kb_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "queries").write_text("fine\n" * 70 + f"{LONG}\nfine\n{LONG}\n")
    outcome = run("query", "--file", tmp_path / "queries", "--kb", kb_folder)
    lines = outcome.err.splitlines()
    assert (outcome.status, outcome.out, len(lines)) == (1, "", 3)
    assert lines[0].startswith(f"{tmp_path / 'queries'}:71: the query 'word word")
    assert lines[1].startswith(f"{tmp_path / 'queries'}:73: the query 'word word")
    assert lines[2] == "error: 2 of 73 queries cannot be asked"


def test_a_query_is_cleaned_like_the_corpus(run: Run, kb_folder: Path) -> None:
    # A byte that is no UTF-8 reaches Python as half a surrogate pair; é may come as two characters.
    found = run("query", "caf\udce9", "cafe\u0301", "--kb", kb_folder, "-k", 1, "--json")
    assert (found.status, found.err) == (0, "")
    assert [document["query"] for document in found.documents] == ["caf\ufffd", "caf\xe9"]


def test_odd_text_is_indexed(
    run: Run, model_folder: Path, write_json_lines: Callable[..., Path], tmp_path: Path
) -> None:
    texts = [
        "",
        "  ",
        "\x00\x07 river",
        "מארי קירי נולדה בוורשה.",
        "居里夫人出生在华沙。",
        "\u202eriver\u202c",
    ]
    corpus = write_json_lines("odd.jsonl", {"id": 1, "title": "\x1b[31mRed", "paragraphs": texts})
    assert run("build", corpus, tmp_path / "kb", "--model", model_folder).status == 0
    found = run("query", "the river", "--kb", tmp_path / "kb", "-k", 50)
    assert found.status == 0
    assert "\x1b" not in found.out
    answers = run("query", "x", "--kb", tmp_path / "kb", "-k", 50, "--json").documents[0]["answers"]
    assert isinstance(answers, list)
    assert {answer["paragraph"] for answer in answers} == {2, 3, 4, 5}


@pytest.mark.skipif(not DEFAULT_MODEL.exists(), reason="the default model is not there")
def test_the_sample_answers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBQ_CACHE", str(tmp_path / "cache"))
    with sample_kb.ARTICLES.open("rb") as articles:
        # All of them take seconds.
        (tmp_path / "articles.jsonl").write_bytes(b"".join(itertools.islice(articles, 10)))
    monkeypatch.setattr(sample_kb, "ARTICLES", tmp_path / "articles.jsonl")
    found = run("query", "Marie Curie [SEP] place of birth", "--json")
    assert found.status == 0
    assert "building the sample knowledge base, once, in " in found.err
    answers = found.documents[0]["answers"]
    assert isinstance(answers, list)
    best = answers[0]
    assert (best["text"], best["page_id"], best["start"], best["end"]) == ("Warsaw", "S001", 24, 30)
    again = run("query", "Marie Curie [SEP] place of birth", "-k", 1)
    assert (again.status, again.err) == (0, "")
    assert "Warsaw" in again.out


@pytest.mark.parametrize(
    ("content", "problem", "sentence"),
    [
        (
            "subject,relation,object\na,b, \n",
            "triples:2: object is empty, which `kbq calibrate` takes as a slot without",
            "1 line that cannot",
        ),
        (
            '{"id": 1, "input": "a", "output": [{"answer": "x"}]}\n{"id"\n',
            "triples:2: is not JSON",
            "1 line that",
        ),
    ],
)
def test_all_bad_triples_are_named(
    content: str, problem: str, sentence: str, run: Run, kb_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "triples").write_text(content)
    outcome = run("finetune", tmp_path / "triples", "--kb", kb_folder, "--out", tmp_path / "new")
    lines = outcome.err.splitlines()
    assert (outcome.status, outcome.out, len(lines)) == (1, "", 2)
    assert problem in lines[0]
    assert lines[1].startswith("error: ")
    assert sentence in lines[1]


def test_a_knowledge_base_follows_its_corpus(
    run: Run,
    corpus: Path,
    model_folder: Path,
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
) -> None:
    kb = tmp_path / "kb"
    run("build", corpus, kb, "--model", model_folder)
    new = {
        "id": "new",
        "title": "Nile",
        "text": "The Nile is a river.",
        "licence": "CC0",
        "tags": ["water"],
    }
    changed = write_json_lines(
        "changed.jsonl", {"id": "P1", "title": "other", "text": "the city"}, new
    )
    planned = run("sync", kb, changed, "--dry-run", "--json").documents[0]
    assert [planned[name] for name in ("added", "replaced", "deleted", "unchanged", "pages")] == [
        1,
        1,
        11,
        0,
        12,
    ]
    done = run("update", kb, changed, "--json").documents[0]
    assert [done[name] for name in ("added", "replaced", "deleted", "unchanged", "pages")] == [
        1,
        1,
        0,
        11,
        13,
    ]
    (tmp_path / "ids").write_text("new\n")
    (found,) = run(
        "query", "the Nile", "--kb", kb, "--pages", tmp_path / "ids", "-k", "1", "--json"
    ).documents
    assert [answer["page_id"] for answer in cast(list[dict[str, object]], found["answers"])] == [
        "new"
    ]
    assert cast(list[dict[str, object]], found["answers"])[0]["metadata"] == {
        "licence": "CC0",
        "tags": ["water"],
    }
    outcome = run("delete", kb, "new", "P1")
    assert (outcome.status, outcome.out) == (0, f"{kb}: 2 pages deleted, 11 are left\n")
    outcome = run("sync", kb, changed)
    assert outcome.out.splitlines()[0] == f"{kb}: +2 ~0 −11 =0"
    assert "deleted pages take" in outcome.err
    before = run("info", kb, "--json").documents[0]
    compacted = run("compact", kb, "--json").documents[0]
    assert (compacted["pages"], compacted["shards"]) == (2, 1)
    assert cast(int, compacted["bytes"]) < cast(int, compacted["bytes_before"]) == before["bytes"]
    verified = run("verify", kb, "--json").documents[0]
    assert (verified["whole"], verified["problems"], verified["repaired"]) == (True, [], [])
    (kb / "shard-00003" / "bm25" / "lengths.npy").unlink()
    refused = run("verify", kb)
    assert (refused.status, refused.err.count("\n")) == (1, 2)
    assert "lengths.npy is missing: `kbq verify" in refused.err
    assert run("verify", kb, "--repair").out.splitlines()[1] == "built again: shard-00003/bm25"
    assert run("query", "the Nile", "--kb", kb).status == 0


def test_what_cannot_be_read_is_not_called_damaged(
    run: Run, kb_folder: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sealed(path: Path) -> FileSeal:
        if path.name in ("starts.npy", "config.json"):
            raise PermissionError(13, "Permission denied", str(path))
        return seal_of(path)

    monkeypatch.setattr("kbq.storage.seals.seal_of", sealed)
    for folder, name in ((kb_folder, "shard-00000/starts.npy"), (model_folder, "config.json")):
        refused = run("verify", folder)
        assert refused.status == 1
        assert f"{folder} may be whole, but 1 of its files cannot be read" in refused.err
        assert (
            f"{folder / name} cannot be read (Permission denied): ask for permission to read it"
            in refused.err
        )


def test_predictions_from_some_pages_are_another_run(
    run: Run, kb_folder: Path, write_json_lines: Callable[..., Path], tmp_path: Path
) -> None:
    records, out = (
        write_json_lines("records.jsonl", {"id": "1", "input": "the river"}),
        tmp_path / "out.jsonl",
    )
    (tmp_path / "ids").write_text("P3\n")
    command = ("predict", records, "--kb", kb_folder, "--task", "slot_filling", "--out", out)
    assert run(*command, "--pages", tmp_path / "ids").status == 0
    (line,) = map(json.loads, out.read_text().splitlines())
    assert {place["wikipedia_id"] for place in line["output"][0]["provenance"]} == {"P3"}
    assert "was made by a run that differs in pages" in run(*command).err


# Answers that know when they are right


@pytest.fixture(scope="module")
def calibrated(judging_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command wrote for forty triples, half of them answered as the knowledge base answers
    them.
    """
    subjects, relations = (
        ["Marie", "Curie", "Warsaw", "Paris", "river", "city", "place", "birth"],
        list("abcde"),
    )
    asked = [(subject, relation) for subject in subjects for relation in relations]
    found = judging_kb.query([f"{subject} [SEP] {relation}" for subject, relation in asked], 1)
    rows = [
        {"subject": subject, "relation": relation, "object": answers[0].text if number % 2 else ""}
        for number, ((subject, relation), answers) in enumerate(zip(asked, found, strict=True))
    ]
    folder = tmp_path_factory.mktemp("calibrated")
    triples, out = folder / "triples.jsonl", folder / "c.json"
    triples.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    command = ["calibrate", triples, "--kb", judging_kb.folder, "--out", out, "--json"]
    outcome = CliRunner().invoke(app, list(map(str, command)))
    assert outcome.exit_code == 0, outcome.output
    told = json.loads(outcome.stdout)
    assert (told["queries"], told["hidden"], told["out"]) == (43, 3, str(out))
    assert told["purpose"] == "query"
    return out


def test_probabilities_are_printed_and_no_answer_is_said(
    run: Run, judging_kb: KnowledgeBase, calibrated: Path
) -> None:
    arguments = (
        "query",
        "Marie [SEP] b",
        "--kb",
        judging_kb.folder,
        "--calibration",
        calibrated,
        "-k",
        2,
    )
    chances = [
        answer.probability or 0
        for answer in judging_kb.query("Marie [SEP] b", 2, calibration=calibrated)
    ]
    shown = run(*arguments)
    assert f"  {round(100 * chances[0])} %  " in shown.out
    (told,) = run(*arguments, "--json").documents
    answers = told["answers"]
    assert isinstance(answers, list)
    rounded = [round(chance, 4) for chance in chances]
    assert [answer["probability"] for answer in answers] == rounded
    nothing = run(*arguments, "--min-probability", 1)
    assert (nothing.status, nothing.err) == (0, "")
    assert "     no answer  (best guess: " in nothing.out
    (told,) = run(*arguments, "--min-probability", 1, "--json").documents
    assert told["answers"] == []
    assert cast(dict[str, object], told["best_guess"])["probability"] == round(chances[0], 4)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ("--min-probability 1.5", 2, "Invalid value for '--min-probability'"),
        ("--min-probability x", 2, "Invalid value for '--min-probability'"),
        ("--rerank -1", 2, "Invalid value for '--rerank'"),
        ("--rerank 3 --unit sentence", 2, "--rerank has no effect where sentences are asked for"),
        ("--rerank 3 --backend bm25", 2, "--rerank has no effect where bm25 finds no phrases"),
        (
            "--rerank 3",
            1,
            "was made for another search (rerank 10, not 3): search like that, or calibrate",
        ),
        (
            "--backend dense",
            1,
            "was made for another search (scores vectors + 8 BM25, not vectors): search like",
        ),
    ],
)
def test_bad_ways_to_ask_how_sure_it_is(
    arguments: str, status: int, message: str, run: Run, judging_kb: KnowledgeBase, calibrated: Path
) -> None:
    told = run(
        "query", "Marie", "--kb", judging_kb.folder, "--calibration", calibrated, *arguments.split()
    )
    assert (told.status, told.out) == (status, "")
    assert message in told.err.replace("\n", " ")


def test_a_calibration_is_for_queries_or_for_cells(
    run: Run, judging_kb: KnowledgeBase, calibrated: Path, tmp_path: Path
) -> None:
    triples, out = calibrated.parent / "triples.jsonl", tmp_path / "cells.json"
    arguments = ("calibrate", triples, "--kb", judging_kb.folder, "--out", out)
    refused = run(*arguments, "--purpose", "table")
    assert (refused.status, out.exists()) == (2, False)
    assert "'table' is not one of 'query', 'cell'" in refused.err
    told = run(*arguments, "--purpose", "cell", "--hidden", 0)
    assert (
        told.out.splitlines()[1] == "for cells of tables: give it to `kbq fill` with --calibration"
    )
    asked = run("query", "Marie", "--kb", judging_kb.folder, "--calibration", out)
    assert (asked.status, asked.out) == (1, "")
    message = (
        "made for cells of tables, and queries are asked for: calibrate again with --purpose=query"
    )
    assert message in asked.err.replace("\n", " ")


def test_a_calibration_that_is_none_is_refused(
    run: Run, judging_kb: KnowledgeBase, corpus: Path, tmp_path: Path
) -> None:
    for path, message in (
        (corpus, "is damaged"),
        (tmp_path / "none.json", "does not exist: make it with `kbq calibrate`"),
    ):
        told = run("query", "Marie", "--kb", judging_kb.folder, "--calibration", path)
        assert (told.status, told.out) == (1, "")
        assert message in told.err


def test_a_prediction_of_other_options_is_another_run(
    run: Run,
    judging_kb: KnowledgeBase,
    calibrated: Path,
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
) -> None:
    inputs = write_json_lines("inputs.jsonl", {"id": "1", "input": "Marie [SEP] b"})
    arguments = (
        "predict",
        inputs,
        "--task",
        "trex",
        "--kb",
        judging_kb.folder,
        "--out",
        tmp_path / "p.jsonl",
    )
    assert run(*arguments).status == 0
    for option in (("--rerank", 3), ("--rerank", 0), ("--calibration", calibrated)):
        told = run(*arguments, *option)
        assert told.status == 1
        assert "differs in reranker" in told.err
    told = run(
        *arguments[:-1], tmp_path / "q.jsonl", "--calibration", calibrated, "--min-probability", 1
    )
    assert told.status == 0, told.err
    line = json.loads((tmp_path / "q.jsonl").read_text())
    assert line["output"][0]["answer"] == ""
    assert 0 < line["output"][0]["meta"]["probability"] < 1
    assert run("validate", tmp_path / "q.jsonl", "--inputs", inputs, "--task", "trex").status == 0
