"""Question sets of open-domain question answering, each in its own form, give the same records and
scores.
"""

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kbq.errors import EvaluationError, QueryError
from kbq.kb import KnowledgeBase
from kbq.kilt.open_questions import has_open_questions, questions_by_id, read_questions
from kbq.kilt.passages import Judging, Patterns, evaluate_passages, read_candidates
from kbq.kilt.records import UnfitError
from kbq.training.batches import read_examples
from kbq.tuning.triples import read_triples

Write: TypeAlias = Callable[..., Path]
SQUAD = Path(__file__).parents[3] / "shared" / "data" / "squad" / "dev-v1.1.json.xz"
ASKED = {"id": "q1", "question": "who wrote Emma?", "answers": ["Jane Austen", "Austen"]}
RECORD = {
    "id": "q1",
    "input": "who wrote Emma?",
    "output": [{"answer": "Jane Austen"}, {"answer": "Austen"}],
}
TRIVIA = {
    "QuestionId": "q1",
    "Question": "who wrote Emma?",
    "Answer": {"Value": "Jane Austen", "Aliases": ["Austen"]},
}
MRQA_LINE = {"context": "Emma is by Jane Austen.", "qas": [{"qid": "q1"} | ASKED]}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"data": [ASKED]}),
        json.dumps({"version": 1, "data": [ASKED]}, indent=4),
        json.dumps(ASKED),
        json.dumps([ASKED]),
        json.dumps([ASKED], indent=2),
        json.dumps({"Data": [TRIVIA], "Domain": "Web"}, indent=4),
        '{"header": {"dataset": "SQuAD"}}\n' + json.dumps(MRQA_LINE),
        json.dumps({"data": [{"title": "Emma", "paragraphs": [{"context": "", "qas": [ASKED]}]}]}),
        json.dumps(
            {"id": "q1", "question": "who wrote Emma?", "answer": ["Jane Austen", "Austen"]}
        ),
    ],
)
def test_every_form_gives_the_same_record(text: str, tmp_path: Path) -> None:
    path = tmp_path / "questions.json"
    path.write_text(text + "\n", "utf-8")
    assert has_open_questions(path)
    assert [record for _, record in read_questions(str(path))] == [RECORD]
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert [record for _, record in read_questions(str(tmp_path / "packed.jsonl.gz"))] == [RECORD]
    (gold,) = read_triples(path)
    assert gold.input == "who wrote Emma?"
    assert gold.answers == frozenset(["Jane Austen", "Austen"])


def test_a_question_without_an_id_gets_its_number(write: Write) -> None:
    path = write("lines", {"question": "a?", "answer": "x"}, {"question": "b?", "answer": ["y"]})
    assert [record["id"] for _, record in read_questions(str(path))] == ["1", "2"]


def test_records_of_kilt_stay_as_they_are(write: Write) -> None:
    path = write("kilt", RECORD | {"meta": {"question": "no"}})
    assert not has_open_questions(path)
    assert [record for _, record in read_questions(str(path))] == [
        RECORD | {"meta": {"question": "no"}}
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [{"question": "a?"', "is not JSON"),
        ('{"data": [7]}', "must be a list of questions"),
        ('{"data": [{"question": "a?", "answers": [7]}]}', ":1: is no question with its answers"),
        ('{"data": [{"paragraphs": null}]}', ":1: has no list of questions"),
        ('{"data": [{"paragraphs": [{"context": "x"}]}]}', ":1: has no list of questions"),
        ('{"data": [{"qas": null}]}', ":1: has no list of questions"),
    ],
)
def test_what_is_no_question_set_is_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, "utf-8")
    with pytest.raises(QueryError, match=message):
        list(read_questions(str(path)))


def test_kilts_trivia_qa_is_joined_by_id_and_all_missing_ids_are_named(
    write: Write, kb: KnowledgeBase
) -> None:
    questions = write("trivia", {"Data": [TRIVIA]})
    assert questions_by_id(questions) == {"q1": "who wrote Emma?"}
    records = [{"id": "q1", "input": "", "output": [{"answer": "x"}]}]
    (line,) = kb.predict(records, "triviaqa", questions=questions)
    assert line["input"] == "who wrote Emma?"
    with pytest.raises(QueryError, match="2 records that cannot be asked") as caught:
        kb.predict(
            [*records, {"id": "q2", "input": ""}, {"id": "q3"}], "triviaqa", questions=questions
        )
    assert ["q2" in caught.value.problems[0], "q3" in caught.value.problems[1]] == [True, True]


def predictions(write: Write, *answers: str) -> Path:
    items = [
        {"wikipedia_id": 7, "text": f"It was {answer}.", "answer": answer} for answer in answers
    ]
    return write("guess", {"id": "q1", "output": [{"provenance": items}]})


def test_exact_match_is_counted_among_the_first_k(write: Write) -> None:
    gold, guess = write("gold", {"data": [ASKED]}), predictions(write, "Emma", "the Austen", "Jane")
    assert dict(evaluate_passages(guess, gold, (1, 2, 5)).exact) == {1: 0.0, 2: 1.0, 5: 1.0}
    list_of_answers = write("candidates", "AUSTEN", "x")
    only = Judging(candidates=read_candidates(list_of_answers))
    assert dict(
        evaluate_passages(predictions(write, "Emma", "Austen"), gold, (1,), judging=only).exact
    ) == {1: 1.0}


def test_answers_may_be_patterns(write: Write) -> None:
    gold = write("gold", {"id": "q1", "question": "when?", "answer": [r"(July )?18\d\d", "x"]})
    guess = predictions(write, "in 1867", "july 1867")
    scores = evaluate_passages(guess, gold, (1, 2), judging=Judging(Patterns()))
    assert (dict(scores.accuracy), dict(scores.exact)) == ({1: 1.0, 2: 1.0}, {1: 0.0, 2: 1.0})


def test_patterns_that_do_not_compile_are_named(write: Write) -> None:
    gold = write("gold", {"id": "q1", "question": "when?", "answer": "18[67"})
    with pytest.raises(EvaluationError, match=r"has the answer '18\[67', no regular expression"):
        evaluate_passages(predictions(write, "1867"), gold, judging=Judging(Patterns()))


@pytest.mark.parametrize(
    ("pattern", "is_refused"),
    [("((((a|b){900}){900}){900}){900}", True), ("(a{2,9}){0,3}b{4}", False)],
)
def test_a_pattern_larger_than_memory_is_refused(pattern: str, is_refused: bool) -> None:
    patterns = Patterns()
    if not is_refused:
        patterns.add(pattern)
        assert patterns.found("aaaabbbb", [pattern])
        return
    with pytest.raises(UnfitError, match="repeats its parts more than 100,000 times: write"):
        patterns.add(pattern)


def test_a_pattern_that_backtracks_for_ever_counts_as_absent(write: Write) -> None:
    gold = write("gold", {"id": "q1", "question": "what?", "answer": ["(a|aa)+$", "b$"]})
    judging = Judging(Patterns())
    scores = evaluate_passages(
        predictions(write, "a" * 60 + "b", "a"), gold, (1, 2), judging=judging
    )
    assert judging.slow_patterns == ["(a|aa)+$"]
    assert dict(scores.exact) == {1: 0.0, 2: 0.0}


@pytest.mark.skipif(not SQUAD.exists(), reason="needs SQuAD beside the checkout")
def test_squad_in_mrqas_form_has_the_same_questions_and_places(tmp_path: Path) -> None:
    with lzma.open(SQUAD, "rt", encoding="utf-8") as stream:
        articles = json.load(stream)["data"][:2]  # 45 paragraphs
    lines: list[dict[str, Any]] = [{"header": {"dataset": "SQuAD"}}]
    for article in articles:
        for paragraph in article["paragraphs"]:
            asked = []
            for question in paragraph["qas"]:
                spans = [
                    [a["answer_start"], a["answer_start"] + len(a["text"]) - 1]
                    for a in question["answers"]
                ]
                places = [{"text": "", "char_spans": [span]} for span in spans]
                texts = [answer["text"] for answer in question["answers"]]
                asked.append(
                    question | {"qid": question["id"], "answers": texts, "detected_answers": places}
                )
            lines.append({"context": paragraph["context"], "qas": asked})
    mrqa, squad = tmp_path / "SQuAD.jsonl.gz", tmp_path / "squad.json"
    mrqa.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    squad.write_text(json.dumps({"data": articles}), "utf-8")
    expected, found = (read_examples(path, doubtful=True)[0] for path in (squad, mrqa))
    assert len(found) == len(expected) > 40
    assert [(passage.text, passage.queries) for passage in found] == [
        (one.text, one.queries) for one in expected
    ]
