"""Augmentation, whole: what the reader answers likewise is kept, and a killed run ends with the same file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbq.augmentation import augment as augmenting
from kbq.augmentation.augment import AugmentationOutcome, augment
from kbq.corpus.readers import read_corpus
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.storage.locks import writing_alone
from kbq.training.examples import Repairs, read_examples

from .conftest import QUESTION, sentence


class Killed(BaseException):
    """Stands for `kill -9`."""


Asked = dict[str, Any]  # arguments of `augment`


@pytest.fixture
def asked(corpus: Path, generator: Path, reader_folder: Path, tmp_path: Path) -> Asked:
    networks = {"generator": str(generator), "reader": str(reader_folder), "device": "cpu"}
    return networks | {"corpus": corpus, "out": tmp_path / "out.jsonl"}


def test_what_the_reader_answers_likewise_is_kept(asked: Asked) -> None:
    # Asked for in each sentence: Marie Curie, the city, 1867. Of the question only the city is the answer.
    assert augment(**asked) == AugmentationOutcome(6, 9, 3, 3)
    passages, repairs = read_examples([asked["out"]])
    assert repairs == Repairs(right=3)
    assert [(passage.title, passage.text) for passage in passages] == [
        (f"Life in {city}", sentence(city)) for city in ("Paris", "Warsaw", "Zug")
    ]
    assert [passage.queries[0].answers for passage in passages] == [("Paris",), ("Warsaw",), ("Zug",)]
    assert {passage.queries[0].text.replace(" ", "") for passage in passages} == {QUESTION.replace(" ", "")}
    assert [path.name for path in asked["out"].parent.glob("out*")] == ["out.jsonl"]


def test_one_run_at_a_time_writes_a_file(asked: Asked) -> None:
    partial = asked["out"].with_name("out.jsonl.partial")
    partial.write_text("the header of another run\n")
    with (
        writing_alone(partial),
        pytest.raises(KbqError, match=r"another kbq process is writing to .*partial"),
    ):
        augment(**asked)
    assert partial.read_text() == "the header of another run\n"


def test_the_reader_that_ships_is_told_from_the_one_before(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "reader.safetensors").write_text(name)
        monkeypatch.setattr("kbq.model.model_folder.DEFAULT_MODEL", tmp_path / name)
        digests.append(augmenting._description("", "", "default", None, [])["digests"])
    assert digests[0] != digests[1]


@pytest.mark.parametrize("content", ["my own notes\n", "[1]\n{}\n"])
def test_a_file_of_somebody_else_is_left_alone(content: str, asked: Asked) -> None:
    partial = asked["out"].with_name("out.jsonl.partial")
    partial.write_text(content)
    with pytest.raises(KbqError, match=r"out\.jsonl\.partial (was not made by kbq augment|is from a run with another)"):
        augment(**asked)
    assert partial.read_text() == content


@pytest.mark.parametrize("cut", [0, 5])
@pytest.mark.parametrize("stop", [2, 4, 6])
def test_a_killed_run_goes_on(
    stop: int, cut: int, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augmenting, "AT_A_TIME", 2)
    whole = augment(**asked | {"out": tmp_path / "whole.jsonl"})

    def kill(paragraphs: int, questions: int) -> None:
        if paragraphs == stop:
            raise Killed

    with pytest.raises(Killed):
        augment(**asked, report=kill)
    partial = tmp_path / "out.jsonl.partial"
    partial.write_bytes(partial.read_bytes()[: -cut or None])  # half a line
    seen: list[int] = []
    assert augment(**asked, report=lambda paragraphs, questions: seen.append(paragraphs)) == whole
    assert len(seen) == {2: 2, 4: 1, 6: 0}[stop] + (cut > 0)
    assert asked["out"].read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_folder_that_has_changed_is_another_corpus(asked: Asked, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.txt").write_text(f"{name}\n\nMarie Curie lived there.")
    request = asked | {"corpus": str(folder)}

    def kill(paragraphs: int, questions: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        augment(**request, report=kill)
    (folder / "a.txt").unlink()
    with pytest.raises(KbqError, match="is from a run with another corpus or other options"):
        augment(**request)


def test_a_run_of_another_kind_is_not_gone_on_with(asked: Asked) -> None:
    def kill(paragraphs: int, questions: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        augment(**asked, report=kill)
    with pytest.raises(KbqError, match=r"out\.jsonl\.partial is from a run with another corpus or other options"):
        augment(**asked | {"each": 1})


def test_a_paragraph_is_asked_for_a_few_mentions(asked: Asked) -> None:
    assert augment(**asked | {"each": 1}).asked == 3


@pytest.fixture
def triples(write_json_lines: Callable[..., Path]) -> Path:
    return write_json_lines(
        "triples.jsonl",
        {"subject": "Marie Curie", "relation": "place of birth", "object": "Paris", "page": "PParis"},
        {"subject": "Marie Curie", "relation": "birth", "object": "1867", "page": "Life in Zug"},
        {"subject": "Life in Zug", "relation": "part", "object": "the river", "aliases": ["city"]},
        {"subject": "Marie Curie", "relation": "child", "object": "Irene", "page": "PParis"},
        {"subject": "Life in Rom", "relation": "part", "object": "Zu"},
    )


def test_triples_become_slot_queries(triples: Path, corpus: Path, tmp_path: Path) -> None:
    request: Asked = {"corpus": corpus, "out": tmp_path / "out.jsonl", "triples": triples}
    assert augment(**request) == AugmentationOutcome(6, 3, 3, 3)
    lines = [json.loads(line) for line in request["out"].read_text("utf-8").splitlines()]
    asked = {question["question"]: question["answers"] for line in lines for question in line["questions"]}
    assert asked == {
        "Marie Curie [SEP] place of birth": [{"text": "Paris", "answer_start": 24}],
        "Marie Curie [SEP] birth": [{"text": "1867", "answer_start": sentence("Zug").index("1867")}],
        "Life in Zug [SEP] part": [{"text": "the river", "answer_start": 0}, {"text": "city", "answer_start": 21}],
    }


@pytest.fixture
def found_kb(corpus: Path, model: Model, tmp_path: Path) -> Path:
    folder = tmp_path / "kb"
    KnowledgeBase.build(read_corpus(str(corpus)), folder, model)
    return folder


def test_what_a_search_finds_is_taken_for_what_states_a_triple(triples: Path, found_kb: Path, tmp_path: Path) -> None:
    request: Asked = {
        "corpus": found_kb,
        "out": tmp_path / "out.jsonl",
        "triples": triples,
        "depth": 6,
        "backend": "bm25",
    }
    outcome = augment(**request)
    lines = [json.loads(line) for line in request["out"].read_text("utf-8").splitlines()]
    assert (outcome.asked, outcome.kept, outcome.paragraphs_kept) == (len(lines),) * 3
    assert outcome.paragraphs > outcome.kept  # found, but without the answer
    stated = {(line["questions"][0]["question"], line["context"]) for line in lines}
    assert ("Marie Curie [SEP] place of birth", sentence("Paris")) in stated
    assert {context for question, context in stated if question == "Marie Curie [SEP] birth"} > {sentence("Zug")}
    for line in lines:
        for answer in line["questions"][0]["answers"]:
            assert line["context"][answer["answer_start"] :].startswith(answer["text"])


def test_a_killed_search_goes_on(triples: Path, found_kb: Path, tmp_path: Path) -> None:
    request: Asked = {"corpus": found_kb, "out": tmp_path / "out.jsonl", "triples": triples, "depth": 4}
    whole = augment(**request | {"out": tmp_path / "whole.jsonl"})

    def kill(paragraphs: int, questions: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        augment(**request, report=kill)
    assert augment(**request) == whole
    assert request["out"].read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


Change = Callable[[Asked], Asked]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda asked: asked | {"out": asked["corpus"]}, "already exists: choose another file for --out"),
        (
            lambda asked: asked | {"out": asked["corpus"] / "x"},
            r"cannot be written \(.+\): choose another name",
        ),
        (lambda asked: asked | {"corpus": "/none"}, "none"),
        (lambda asked: asked | {"reader": asked["generator"]}, "is not a question-answering checkpoint"),
        (lambda asked: asked | {"triples": "/none"}, "none: cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused(change: Change, message: str, asked: Asked) -> None:
    with pytest.raises(KbqError, match=message):
        augment(**change(asked))
