"""Augmentation, whole: what the reader answers likewise is kept."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from killed import Killed

from kbq.augmentation import augment as augmenting
from kbq.augmentation.augment import AugmentationOutcome
from kbq.augmentation.options import AugmentOptions
from kbq.corpus.pages import Page, Paragraph
from kbq.corpus.readers import read_corpus
from kbq.errors import KbqError, ModelError, TrainingError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.training.batches import Repairs, read_examples

from .conftest import QUESTION, sentence

Asked = dict[str, Any]  # arguments of `augment`, and options


def augment(corpus: Path, out: Path, **asked: Any) -> AugmentationOutcome:
    """Make examples with options that are given by name."""
    others = {name: asked.pop(name) for name in ("device", "report") if name in asked}
    return augmenting.augment(corpus, out, AugmentOptions(**asked), **others)


@pytest.fixture
def asked(corpus: Path, generator: Path, reader_folder: Path, tmp_path: Path) -> Asked:
    networks = {"generator": str(generator), "reader": str(reader_folder), "device": "cpu"}
    return networks | {"corpus": corpus, "out": tmp_path / "out.jsonl"}


def test_what_the_reader_answers_likewise_is_kept(asked: Asked) -> None:
    # Asked for in each sentence: Marie Curie, the city, 1867. Of the question only the city is the
    # answer.
    assert augment(**asked) == AugmentationOutcome(6, 9, 3, 3)
    passages, repairs = read_examples([asked["out"]])
    assert repairs == Repairs(right=3)
    assert [(passage.title, passage.text) for passage in passages] == [
        (f"Life in {city}", sentence(city)) for city in ("Paris", "Warsaw", "Zug")
    ]
    assert [passage.queries[0].answers for passage in passages] == [
        ("Paris",),
        ("Warsaw",),
        ("Zug",),
    ]
    assert {passage.queries[0].text.replace(" ", "") for passage in passages} == {
        QUESTION.replace(" ", "")
    }
    assert [path.name for path in asked["out"].parent.glob("out*")] == ["out.jsonl"]


def test_a_killed_run_leaves_nothing(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmenting, "AT_A_TIME", 2)

    def kill(paragraphs: int, questions: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        augment(**asked, report=kill)
    assert not list(asked["out"].parent.glob("out*"))


def test_a_paragraph_is_asked_for_a_few_mentions(asked: Asked) -> None:
    assert augment(**asked | {"each": 1}).asked == 3


@pytest.fixture
def triples(write_json_lines: Callable[..., Path]) -> Path:
    return write_json_lines(
        "triples.jsonl",
        {
            "subject": "Marie Curie",
            "relation": "place of birth",
            "object": "Paris",
            "page": "PParis",
        },
        {"subject": "Marie Curie", "relation": "birth", "object": "1867", "page": "Life in Zug"},
        {"subject": "Life in Zug", "relation": "part", "object": "the river", "aliases": ["city"]},
        {"subject": "Marie Curie", "relation": "child", "object": "Irene", "page": "PParis"},
        {"subject": "Life in Rom", "relation": "part", "object": "Zu"},
    )


def test_triples_become_slot_queries(triples: Path, corpus: Path, tmp_path: Path) -> None:
    request: Asked = {"corpus": corpus, "out": tmp_path / "out.jsonl", "triples": triples}
    assert augment(**request) == AugmentationOutcome(6, 3, 3, 3)
    lines = [json.loads(line) for line in request["out"].read_text("utf-8").splitlines()]
    asked = {
        question["question"]: question["answers"]
        for line in lines
        for question in line["questions"]
    }
    assert asked == {
        "Marie Curie [SEP] place of birth": [{"text": "Paris", "answer_start": 24}],
        "Marie Curie [SEP] birth": [
            {"text": "1867", "answer_start": sentence("Zug").index("1867")}
        ],
        "Life in Zug [SEP] part": [
            {"text": "the river", "answer_start": 0},
            {"text": "city", "answer_start": 21},
        ],
    }


@pytest.fixture
def found_kb(corpus: Path, model: Model, tmp_path: Path) -> Path:
    folder = tmp_path / "kb"
    KnowledgeBase.build(read_corpus(str(corpus)), folder, model)
    return folder


def test_what_a_search_finds_is_taken_for_what_states_a_triple(
    triples: Path, found_kb: Path, tmp_path: Path
) -> None:
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
    assert {context for question, context in stated if question == "Marie Curie [SEP] birth"} > {
        sentence("Zug")
    }
    for line in lines:
        for answer in line["questions"][0]["answers"]:
            assert line["context"][answer["answer_start"] :].startswith(answer["text"])


Change = Callable[[Asked], Asked]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda asked: asked | {"out": asked["corpus"]},
            "already exists: choose another file for out=…",
        ),
        (
            lambda asked: asked | {"out": asked["corpus"] / "x"},
            r"cannot be written \(.+\): choose another name",
        ),
        (lambda asked: asked | {"corpus": "/none"}, "none"),
        (
            lambda asked: asked | {"reader": asked["generator"]},
            "is not a question-answering checkpoint",
        ),
        (lambda asked: asked | {"triples": "/none"}, "none: cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused(change: Change, message: str, asked: Asked) -> None:
    with pytest.raises(KbqError, match=message):
        augment(**change(asked))


def test_known_questions_get_hard_negatives(
    model: Model, write_json_lines: Callable[..., Path], tmp_path: Path
) -> None:
    texts = [
        "Marie was born in Warsaw by the river",
        "Marie was born by the river",
        "Warsaw is a city",
        "the city",
    ]
    pages = [
        Page(str(number), f"Page {number}", (Paragraph(0, text),))
        for number, text in enumerate(texts)
    ]
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, device="cpu")
    asked = {
        "id": "7",
        "question": "Marie born by the river",
        "answers": [{"text": "Warsaw", "answer_start": 18}],
    }
    nowhere = {
        "id": "8",
        "question": "Zug [SEP] Zug",
        "answers": [{"text": "Marie", "answer_start": 0}],
    }
    file = write_json_lines(
        "known.jsonl", {"title": "T", "context": texts[0], "questions": [asked, nowhere]}
    )
    for kind, expected in (
        ("bm25", {"title": "Page 1", "context": texts[1]}),
        ("phrase", {"title": "Page 2", "context": texts[2], "same_phrase": True}),
    ):
        out = tmp_path / f"{kind}.jsonl"
        request: Asked = {
            "corpus": kb.folder,
            "out": out,
            "questions": file,
            "negatives": kind,
            "device": "cpu",
        }
        outcome = augment(**request)
        (line,) = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        assert line["questions"][0] == asked | {"negatives": [expected]}
        found = sum("negatives" in question for question in line["questions"])
        assert (outcome.paragraphs, outcome.asked, outcome.kept) == (1, 2, 2)
        assert 1 <= outcome.with_negative == found
        (passage,), repairs = read_examples(out)
        assert passage.queries[0].negatives == ((expected["title"], expected["context"]),)
        assert repairs.answering == 0


def test_negatives_hold_no_alias_and_join_those_that_are_known(
    model: Model, write_json_lines: Callable[..., Path], tmp_path: Path
) -> None:
    texts = ["Marie was born in Warsaw", "Marie was born in MARIE by the river", "Marie was born"]
    pages = [
        Page(str(number), f"Page {number}", (Paragraph(0, text),))
        for number, text in enumerate(texts)
    ]
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, device="cpu")
    places = [{"text": "Warsaw", "answer_start": 18}, {"text": "river", "answer_start": None}]
    known = {"title": "K", "context": "the city"}
    asked = {"id": "7", "question": "Marie was born in", "answers": places, "negatives": [known]}
    doubtful = asked | {"id": "8", "start_inferred": True}
    file = write_json_lines(
        "known.jsonl", {"title": "T", "context": texts[0], "questions": [asked, doubtful]}
    )
    out = tmp_path / "out.jsonl"
    outcome = augment(kb.folder, out, questions=file, negatives="bm25", device="cpu")
    (line,) = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    (written,) = line["questions"]
    assert [negative["context"] for negative in written["negatives"]] == [texts[2], "the city"]
    assert (outcome.asked, outcome.left_out) == (1, 2)


def test_a_generator_must_say_how_a_question_begins(
    asked: Asked, generator: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(generator, tmp_path / "t5")
    for name in ("config.json", "generation_config.json"):
        facts = json.loads((folder / name).read_text("utf-8"))
        facts.pop("decoder_start_token_id", None)
        (folder / name).write_text(json.dumps(facts), "utf-8")
    with pytest.raises(ModelError, match="t5 names no decoder start token, with which an answer"):
        augment(**asked | {"generator": str(folder)})


def test_negatives_are_looked_for_in_a_knowledge_base(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError,
        match=r"negatives are looked for in a knowledge base, .* is not one: make one",
    ):
        augment(corpus, tmp_path / "out.jsonl", questions=corpus)
