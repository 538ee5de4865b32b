"""Examples: three formats, answers at their place, moved, lost or doubtful, and files that are
none.
"""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kbq.errors import TrainingError
from kbq.training.batches import Passage, Repairs, TrainingQuery, read_examples, set_aside

TEXT = "Curie was born in Warsaw; Warsaw is in Poland."


def question(text: str, start: int, **fields: object) -> dict[str, object]:
    return {
        "id": "q",
        "question": "Where?",
        "answers": [{"text": text, "answer_start": start}],
    } | fields


def squad(*questions: object) -> dict[str, object]:
    return {
        "version": "1.1",
        "data": [{"title": "Marie_Curie", "paragraphs": [{"context": TEXT, "qas": questions}]}],
    }


PLAIN = {
    "title": "Curie",
    "context": TEXT,
    "group": "people",
    "questions": [question("Warsaw", 18)],
}
QED = {
    "example_id": 7,
    "title_text": "Curie",
    "paragraph_text": TEXT,
    "question_text": "Where?",
    "answer_spans": [[18, 24], [26, 32]],
}
ONE = TrainingQuery("q", "Where?", ((18, 24),), ("Warsaw",))


@pytest.mark.parametrize(
    ("content", "passage"),
    [
        (
            json.dumps(squad(question("Warsaw", 18))),
            Passage("Marie Curie", TEXT, (ONE,), "Marie Curie"),
        ),
        (
            json.dumps(squad(question("Warsaw", 18)), indent=2),
            Passage("Marie Curie", TEXT, (ONE,), "Marie Curie"),
        ),
        (json.dumps(PLAIN), Passage("Curie", TEXT, (ONE,), "people")),
        (
            json.dumps({k: v for k, v in PLAIN.items() if k != "group"}),
            Passage("Curie", TEXT, (ONE,), "Curie"),
        ),
        (json.dumps({"context": TEXT} | question("Warsaw", 18)), Passage("", TEXT, (ONE,), "")),
        (
            "\n" + json.dumps(QED) + "\n\n",
            Passage(
                "Curie",
                TEXT,
                (TrainingQuery("7", "Where?", ((18, 24), (26, 32)), ("Warsaw", "Warsaw")),),
                "Curie",
            ),
        ),
    ],
)
def test_formats(content: str, passage: Passage, tmp_path: Path) -> None:
    (tmp_path / "examples").write_text(content)
    (tmp_path / "examples.gz").write_bytes(gzip.compress(content.encode()))
    places = sum(len(query.places) for query in passage.queries)
    for name in ("examples", "examples.gz"):
        assert read_examples([tmp_path / name]) == ([passage], Repairs(right=places))


@pytest.mark.parametrize(
    ("asked", "places", "repairs"),
    [
        (question("Warsaw", 18), ((18, 24),), Repairs(right=1)),
        (question("Warsaw", 26), ((26, 32),), Repairs(right=1)),
        (question("Warsaw", 20), ((18, 24),), Repairs(moved=1)),
        (question("Warsaw", 24), ((26, 32),), Repairs(moved=1)),
        (question("Warsaw", 0), ((18, 24),), Repairs(moved=1)),
        (question("Warsaw", -5), ((18, 24),), Repairs(moved=1)),
        (question("Warsaw", 999), ((26, 32),), Repairs(moved=1)),
        (question("Poland", -7), ((39, 45),), Repairs(moved=1)),  # no place from the end
        (question("Paris", 18), None, Repairs(lost=1)),
        (question("", 18), None, Repairs(lost=1)),
        (question(" ", 5), None, Repairs(lost=1)),
        (question("Warsaw", 18, start_inferred=True), None, Repairs(doubtful=1)),
        (question("Warsaw", 18, answers=[]), None, Repairs(lost=1)),
        (question("", 0, answers=["Poland"]), ((39, 45),), Repairs(placed=1)),
        (question("", 0, answers=["Pol"]), None, Repairs(lost=1)),  # a part of a word
        (question("", 0, answers=["Warsaw"]), None, Repairs(doubtful=1)),  # where of the two?
        (question("", 0, answers=[{"text": "Rome"}]), None, Repairs(lost=1)),
        (
            question("", 0, answers={"text": ["Warsaw", "Poland"], "answer_start": [26, 39]}),
            ((26, 32), (39, 45)),
            Repairs(right=2),
        ),
        (question("", 0, answers={"text": ["Poland"]}), ((39, 45),), Repairs(placed=1)),
        (
            question(
                "",
                0,
                answers=[{"text": t, "answer_start": s} for t, s in [("Warsaw", 18), ("Rome", 3)]],
            ),
            ((18, 24),),
            Repairs(right=1, lost=1),
        ),
        (
            question("", 0, answers=[{"text": "Warsaw", "answer_start": s} for s in (18, 18, 26)]),
            ((18, 24), (26, 32)),
            Repairs(right=3),
        ),
    ],
)
def test_answers_are_put_in_their_place(
    asked: dict[str, object],
    places: tuple[tuple[int, int], ...] | None,
    repairs: Repairs,
    tmp_path: Path,
) -> None:
    (tmp_path / "examples.json").write_text(json.dumps(squad(asked, question("Poland", 39))))
    ((passage,), counted) = read_examples([tmp_path / "examples.json"])
    assert counted == replace(repairs, right=repairs.right + 1)
    assert [query.places for query in passage.queries] == [
        *([places] if places else []),
        ((39, 45),),
    ]


def test_doubtful_places_are_kept_where_asked_for(tmp_path: Path) -> None:
    (tmp_path / "examples.json").write_text(
        json.dumps(squad(question("Warsaw", 18, start_inferred=True)))
    )
    ((passage,), repairs) = read_examples([tmp_path / "examples.json"], doubtful=True)
    assert (passage.queries, repairs) == ((ONE,), Repairs(right=1))


def test_text_is_normalised_and_answers_move_along(tmp_path: Path) -> None:
    asked = question("Curie\u0301", 4)
    (tmp_path / "e").write_text(
        json.dumps({"title": "e\u0301", "context": "e\u0301e\u0301 Curie\u0301"} | asked)
    )
    ((passage,), repairs) = read_examples([tmp_path / "e"])
    assert (passage.title, passage.text, passage.queries[0].answers) == (
        "é",
        "éé Curié",
        ("Curié",),
    )
    assert passage.queries[0].places == ((3, 8),)
    assert repairs == Repairs(moved=1)


def test_lines_of_one_passage_are_merged_and_files_are_chained(tmp_path: Path) -> None:
    other = PLAIN | {"title": "Other"}
    (tmp_path / "a").write_text("\n".join(json.dumps(line) for line in (PLAIN, other, PLAIN)))
    (tmp_path / "b").write_text(json.dumps(squad(question("Warsaw", 18))))
    passages, repairs = read_examples([tmp_path / "a", tmp_path / "b"])
    assert [(passage.title, len(passage.queries)) for passage in passages] == [
        ("Curie", 2),
        ("Other", 1),
        ("Marie Curie", 1),
    ]
    assert repairs == Repairs(right=4)


def test_questions_without_an_answer_are_counted(tmp_path: Path) -> None:
    impossible = question("Warsaw", 18) | {"answers": []}
    (tmp_path / "a").write_text(json.dumps(squad(question("Warsaw", 18), impossible)))
    passages, repairs = read_examples(tmp_path / "a")
    assert (len(passages[0].queries), repairs) == (1, Repairs(right=1, lost=1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"examples: cannot be read \(No such file or directory\)"),
        (b"", "examples: no passage has a question with an answer in it"),
        (b"\n\n", "no passage has a question"),
        (json.dumps(squad()).encode(), "no passage has a question"),
        (b'{"data": [', "examples is neither SQuAD JSON, QED, MRQA, DPR nor JSON lines"),
        (b'{"data": 7}', "examples is neither SQuAD JSON, QED, MRQA, DPR nor JSON lines"),
        (b'{"text": "x"}', "examples:1: 'context' is missing, there are text: write"),
        (
            b'{"context": "x", "questions": 5}',
            r"examples:1: is not such a passage \('int' object is not iterable\)",
        ),
        (b'{"context": 5, "questions": []}', "examples is neither SQuAD JSON"),
        (
            b'{"context": "x", "questions": [{"question": "?", "answers": [5]}]}',
            "examples:1: is not such a passage",
        ),
        (
            b'{"context": "x", "questions": [{"question": "?", "answers": [{}]}]}',
            "examples:1: 'text' is missing",
        ),
        (b'{"context": "x", "questions": [{"question": "?"}]}', "examples:1: 'answers' is missing"),
        (b'{"context": "x", "questions": [{"answers": []}]}', "examples:1: 'question' is missing"),
        (
            b'{"context": "x", "question": 5, "answers": [{"text": "x", "answer_start": 0}]}',
            "is neither SQuAD JSON",
        ),
        (b'[{"question": "?", "answers": ["x"], "positive_ctxs": []}]', "has no positive passage"),
        (
            json.dumps(PLAIN | {"questions": [question("Warsaw", 18, negatives=["x"])]}).encode(),
            "the question 'Where\\?' has a negative that is no passage: write",
        ),
        (b"[]", "examples: no passage has a question with an answer in it"),
        (b"no JSON", "examples has no lines of JSON, as it begins with 'no JSON'"),
        (json.dumps(PLAIN).encode() + b"\n{", "examples:2: not JSON"),
        (b"\xff\xfe", "examples:1: not UTF-8"),
        (b"\x1f\x8b\x08rest", "examples:1: compressed data is damaged"),
    ],
)
def test_what_is_no_examples_file_is_refused(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "examples").write_bytes(content)
    with pytest.raises(TrainingError, match=message) as refusal:
        read_examples([tmp_path / "examples"])
    assert "\n" not in str(refusal.value)


def test_no_text_is_trained_on_and_scored_on() -> None:
    # Each twice, as of two files.
    passages = [Passage("T", f"text {number % 40}", (), "g") for number in range(80)]
    train, dev = set_aside(passages, None, seed=0)
    assert len(train) + len(dev) == 80
    assert len(dev) == 2 * len({passage.text for passage in dev})
    assert {passage.text for passage in train}.isdisjoint(passage.text for passage in dev)


def test_a_passage_called_data_is_no_squad_file(tmp_path: Path) -> None:
    question = {"question": "Where?", "answers": [{"text": "Zug", "answer_start": 0}]}
    (tmp_path / "q.jsonl").write_text(
        json.dumps({"title": "data", "context": "Zug", "questions": [question]})
    )
    ((passage,), _) = read_examples([tmp_path / "q.jsonl"])
    assert (passage.title, passage.text) == ("data", "Zug")


def test_hard_negatives_are_read_and_those_with_an_answer_left_out(tmp_path: Path) -> None:
    question = {"question": "Where?", "answers": ["Warsaw"]}
    river, city = (
        {"title": "Vistula", "context": "a river"},
        {"title": "Poland", "context": "Warsaw is in Poland"},
    )
    record = question | {"negatives": [river, city, city | {"same_phrase": True}]}
    ours = tmp_path / "ours.jsonl"
    ours.write_text(
        json.dumps({"title": "Marie", "context": "born in Warsaw", "questions": [record]}) + "\n"
    )
    dpr = tmp_path / "dpr.json"
    found = {"title": "Marie", "text": "born in Warsaw"}
    near = [
        {"title": "Vistula", "text": "a river"},
        {"title": "Poland", "text": "Warsaw is in Poland"},
    ]
    dpr.write_text(json.dumps([question | {"positive_ctxs": [found], "hard_negative_ctxs": near}]))
    for path, expected in (
        (ours, [("Vistula", "a river"), ("Poland", "Warsaw is in Poland")]),
        (dpr, [("Vistula", "a river")]),
    ):
        (passage,), repairs = read_examples(path)
        (query,) = passage.queries
        assert (passage.title, passage.text, query.answers) == (
            "Marie",
            "born in Warsaw",
            ("Warsaw",),
        )
        assert list(query.negatives) == expected
        assert repairs.answering == 1
