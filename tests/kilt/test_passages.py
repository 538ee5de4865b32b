"""RetrievedPassage scores of the EMNLP paper, answer containment, and the readers' JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError
from kbq.kb import KnowledgeBase
from kbq.kilt.passages import (
    PassageFiles,
    PassageScores,
    Question,
    RetrievedPassage,
    contains_answer,
    evaluate_passages,
    export_for_readers,
    read_questions,
    score_passages,
)

Write: TypeAlias = Callable[..., Path]


def question(*texts: str) -> Question:
    passages = (
        RetrievedPassage("7", "T", text, 1.0, contains_answer(text, ["x"])) for text in texts
    )
    return Question("1", "?", ("x",), tuple(passages))


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("He came from New York.", "new york", True),
        ("Yorkshire", "York", False),
        ("Beyonce\u0301 sang", "Beyoncé", True),
        ("Beyoncé sang", "Beyonce", False),
        ("in 1,200 years", "1,200", True),
        ("U.S. troops", "U.S.", True),
        ("a b", "", False),
        ("", "x", False),
        ("गुड़िया", "गुड", False),  # combining marks belong to the word
        ("x\u00ady", "x y", True),  # a soft hyphen is not seen
    ],
)
def test_contains_answer(text: str, answer: str, expected: bool) -> None:
    assert contains_answer(text, [answer]) is expected


@pytest.mark.parametrize(
    ("questions", "expected"),
    [
        ([], PassageScores(0, ((1, 0.0), (5, 0.0), (20, 0.0), (100, 0.0)), 0.0, 0.0)),
        ([question()], PassageScores(1, ((1, 0.0), (5, 0.0), (20, 0.0), (100, 0.0)), 0.0, 0.0)),
        (
            [question("n", "x", "x"), question(*["n"] * 24, "x")],
            PassageScores(2, ((1, 0.0), (5, 0.5), (20, 0.5), (100, 1.0)), 0.25, 0.05),
        ),
    ],
)
def test_score_passages(questions: list[Question], expected: PassageScores) -> None:
    assert score_passages(questions) == expected


def test_predictions_with_texts_become_questions_and_readers_json(
    write: Write, tmp_path: Path
) -> None:
    gold = write("gold", {"id": 1, "input": "Who?", "output": [{"answer": "x"}, {"answer": "X"}]})
    items = [
        {"wikipedia_id": 7, "title": "T", "text": "no", "score": 2.5},
        {"wikipedia_id": "8", "text": "an x"},
    ]
    guess = write("guess", {"id": "1", "output": [{"provenance": items}]})
    questions = read_questions(gold, guess)
    found = (
        RetrievedPassage("7", "T", "no", 2.5, False),
        RetrievedPassage("8", "", "an x", 0.5, True),
    )
    assert questions == [Question("1", "Who?", ("X", "x"), found)]
    assert export_for_readers(questions, tmp_path / "out") == 1
    (entry,) = json.loads((tmp_path / "out").read_text("utf-8"))
    assert (entry["question"], entry["answers"]) == ("Who?", ["X", "x"])
    assert entry["ctxs"] == [
        {"id": "7", "title": "T", "text": "no", "score": 2.5, "has_answer": False},
        {"id": "8", "title": "", "text": "an x", "score": 0.5, "has_answer": True},
    ]


def test_no_questions_are_an_empty_array(tmp_path: Path) -> None:
    assert export_for_readers([], tmp_path / "out") == 0
    assert json.loads((tmp_path / "out").read_text("utf-8")) == []


def test_a_missing_prediction_is_refused(write: Write) -> None:
    gold = write("gold", {"id": 1, "input": "Who?", "output": [{"answer": "x"}]})
    with pytest.raises(EvaluationError, match=":1:1: has no prediction"):
        read_questions(gold, write("guess"))


def test_a_page_gives_several_passages_and_all_if_more_are_wanted_than_there_are(
    kb: KnowledgeBase,
) -> None:
    found = kb.query("the river", 10_000, unit="paragraph")
    (line,) = kb.predict(
        [{"id": 1, "input": "the river"}], "nq", unit="paragraph", top_pages=10_000, with_text=True
    )
    items = line["output"][0]["provenance"]
    places = [(item["wikipedia_id"], item["start_paragraph_id"]) for item in items]
    assert places == [(hit.page_id, hit.paragraph) for hit in found]
    assert (
        len(set(places)) == len(places) == kb.counts.paragraphs > len({page for page, _ in places})
    )
    assert [item["text"] for item in items] == [hit.context for hit in found]
    assert [item["end_character"] for item in items] == [len(hit.context) for hit in found]


def test_a_sentence_is_a_passage(kb: KnowledgeBase) -> None:
    (line,) = kb.predict(
        [{"id": 1, "input": "the river"}], "nq", unit="sentence", top_pages=3, with_text=True
    )
    found = kb.query("the river", 3, unit="sentence")
    assert [item["text"] for item in line["output"][0]["provenance"]] == [
        hit.context[slice(*hit.unit)] for hit in found
    ]
    assert [item["answer"] for item in line["output"][0]["provenance"]] == [
        hit.text for hit in found
    ]


def test_trec_files_name_paragraphs(write: Write, tmp_path: Path) -> None:
    gold_items = [{"wikipedia_id": "7", "start_paragraph_id": 3}, {"wikipedia_id": "8"}]
    gold = write(
        "gold", {"id": 1, "input": "Who?", "output": [{"answer": "x", "provenance": gold_items}]}
    )
    items = [
        {"wikipedia_id": "7", "start_paragraph_id": n, "text": "an x", "score": 2.0 - n}
        for n in (3, 3, 4)
    ]
    guess = write("guess", {"id": "1", "output": [{"provenance": items}]})
    run, qrels = tmp_path / "run", tmp_path / "qrels"
    assert (
        evaluate_passages(guess, gold, files=PassageFiles(None, run, qrels)).precision_at_20 == 0.15
    )
    assert run.read_text("utf-8").splitlines() == ["1 Q0 7:3 1 -1 kbq", "1 Q0 7:4 2 -2 kbq"]
    assert qrels.read_text("utf-8").splitlines() == ["1 0 7:3 1", "1 0 8 1"]


def test_the_gold_sentence_has_a_rank(write: Write) -> None:
    def item(paragraph: int, start: int, text: str) -> dict[str, object]:
        place = {"wikipedia_id": "7", "start_paragraph_id": paragraph, "text": text, "score": 1.0}
        return place | {"start_character": start, "end_character": start + len(text)}

    answer = {
        "wikipedia_id": "7",
        "start_paragraph_id": 3,
        "start_character": 12,
        "end_character": 14,
    }
    found = {"answer": "x", "provenance": [answer]}
    gold = write(
        "gold",
        *({"id": n, "input": "?", "output": [found]} for n in range(3)),
        {"id": 3, "output": [found]},
    )
    ranked = [item(4, 10, "other"), item(3, 0, "before"), item(3, 10, "it is x.")]
    lines = [
        {"id": 0, "output": [{"provenance": ranked}]},
        {"id": 1, "output": [{"provenance": ranked[2:]}]},
    ]
    lines.append({"id": 2, "output": [{"provenance": ranked[:2]}]})
    # Characters of a phrase.
    page = item(3, 12, "x") | {
        "text": "a whole paragraph",
        "end_character": 14,
    }
    lines.append({"id": 3, "output": [{"provenance": [page]}]})
    scores = evaluate_passages(write("guess", *lines), gold)
    assert (scores.gold_first, scores.gold_mrr) == (1 / 3, (1 / 3 + 1) / 3)
    assert ("gold passage, R@1", 1 / 3) in scores.table().rows
