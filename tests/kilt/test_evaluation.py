"""Whole evaluations: hand-computed files, oracle predictions, bad input, deviations."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kbq.errors import EvaluationError
from kbq.kilt.scores import OFFICIAL, Rules, score

Write: TypeAlias = Callable[..., Path]


def evaluate_downstream(
    gold: Path, guess: Path, rules: Rules = OFFICIAL
) -> dict[str, dict[str, float]]:
    return score(guess, gold, "downstream", rules).layout()


def evaluate_retrieval(gold: Path, guess: Path, rules: Rules = OFFICIAL) -> dict[str, float]:
    return score(guess, gold, "retrieval", rules).layout()


GOLD: list[dict[str, Any]] = [
    {
        "id": "q1",
        "input": "David Bowie [SEP] record label",
        "output": [
            {"answer": "EMI", "provenance": [{"wikipedia_id": "10", "title": "David Bowie"}]},
            {"answer": "Decca Records", "provenance": [{"wikipedia_id": "11", "title": "Decca"}]},
        ],
    },
    {
        "id": "q2",
        "input": "Which page?",
        "output": [{"answer": "both", "provenance": [{"wikipedia_id": 1}, {"wikipedia_id": 2}]}],
    },
    {
        "id": "q3",
        "input": "Who?",
        "output": [{"answer": "the cat"}, {"provenance": [{"wikipedia_id": 3}]}],
    },
    {
        "id": "q4",
        "input": "Where?",
        "output": [{"answer": "Łódź", "provenance": [{"wikipedia_id": 4}]}],
    },
]
GUESS = [
    {"id": "q3", "output": [{"answer": "cat", "provenance": [{"wikipedia_id": "3"}]}]},
    {
        "id": "q1",
        "output": [
            {
                "answer": "Decca",
                "provenance": [
                    {"wikipedia_id": 10, "text": "By Decca."},
                    {"wikipedia_id": 11, "text": "EMI, David Bowie"},
                ],
            }
        ],
    },
    {
        "id": "q2",
        "output": [{"answer": "both", "provenance": [{"wikipedia_id": 1}, {"wikipedia_id": 9}]}],
    },
    {"id": "q4", "output": [{"answer": "", "provenance": []}]},
    {"id": "unknown", "output": "never looked at"},
]


def test_downstream_by_hand(write: Write) -> None:
    decca = 2 * (1 * 0.5) / 1.5
    rouge_decca = 2.0 * ((1 * 0.5) / (1 * 1.5 + 1e-8))
    assert evaluate_downstream(write("gold", *GOLD), write("guess", *GUESS)) == {
        "kilt": {
            "KILT-accuracy": 0.0,
            "KILT-em": 0.25,
            "KILT-f1": (decca + 1.0) / 4,
            "KILT-rougel": (rouge_decca + rouge_decca) / 4,
        },
        "downstream": {
            "accuracy": 0.25,
            "em": 0.5,
            "f1": (decca + 2.0) / 4,
            "rougel": (rouge_decca + 0.999999995 + rouge_decca) / 4,
        },
        "retrieval": {"Rprec": 2.5 / 4, "recall@5": 0.5},
    }


def test_retrieval_by_hand(write: Write) -> None:
    result = evaluate_retrieval(write("gold", *GOLD), write("guess", *GUESS), Rules(ks=(2, 1)))
    assert list(result.items()) == [
        ("Rprec", 2.5 / 4),
        ("entity_in_input", 0.25),
        ("precision@1", 0.5),
        ("answer_in_context@1", 0.0),
        ("answer_and_ent_in_context@1", 0.0),
        ("entity_in_context@1", 0.25),  # the title Decca
        ("precision@2", 0.375),
        ("answer_in_context@2", 0.25),
        ("answer_and_ent_in_context@2", 0.25),
        ("entity_in_context@2", 0.25),
        ("recall@2", 0.5),
        ("success_rate@2", 0.5),
    ]


def test_the_oracle_prediction_is_perfect(write: Write) -> None:
    oracle = [
        {"id": "q1", "output": [GOLD[0]["output"][0]]},
        {"id": "q2", "output": GOLD[1]["output"]},
        {"id": "q3", "output": [{**GOLD[2]["output"][0], **GOLD[2]["output"][1]}]},
        {"id": "q4", "output": GOLD[3]["output"]},
    ]
    result = evaluate_downstream(write("gold", *GOLD), write("guess", *oracle))
    assert result["kilt"] == {
        "KILT-accuracy": 1.0,
        "KILT-em": 1.0,
        "KILT-f1": 1.0,
        "KILT-rougel": 0.999999995,
    }
    assert result["retrieval"] == {"Rprec": 1.0, "recall@5": 0.875}  # one of two sets for q1
    assert "0.999999995" in json.dumps(result)


@pytest.mark.parametrize("missing", ["error", "zero"])
def test_two_empty_files_score_zero_and_it_is_said_why(write: Write, missing: str) -> None:
    empty = write("empty")
    rules = Rules(missing=missing)  # type: ignore[arg-type]
    (note,) = score(empty, empty, rules=rules).notes
    assert note.startswith("the gold file holds no record")
    assert evaluate_downstream(empty, empty, rules)["kilt"]["KILT-em"] == 0.0
    assert evaluate_retrieval(empty, empty, Rules(ks=(2,)))["recall@2"] == 0.0


def test_an_empty_prediction_file_scores_zero_where_missing_is_zero(write: Write) -> None:
    gold, empty = write("gold", *GOLD), write("empty")
    sections = evaluate_downstream(gold, empty, Rules(missing="zero"))
    assert {value for scores in sections.values() for value in scores.values()} == {0.0}
    retrieval = evaluate_retrieval(gold, empty, Rules(missing="zero"))
    assert {name for name, value in retrieval.items() if value} == {"entity_in_input"}


ANSWER = {"answer": "x"}
PAGES = {"provenance": [{"wikipedia_id": 1}]}


@pytest.mark.parametrize(
    ("outputs", "downstream", "retrieval"),
    [
        ([{**ANSWER, **PAGES}], 1.0, 1.0),
        ([ANSWER], 0.0, None),  # without provenance the pages are wrong, or cannot be ranked
        ([{"answer": "x", "provenance": []}], 0.0, 0.0),
        ([{"answer": "x", "provenance": [{"title": "T"}]}], 0.0, 0.0),
        ([PAGES], None, 1.0),
        ([PAGES, ANSWER, ANSWER], None, 1.0),
        ([PAGES, PAGES], None, None),
        ([], None, None),
        ([{"answer": "x", "provenance": None}], None, None),
        ([{"answer": "x", "provenance": [1]}], None, None),
        ([{"answer": "x", "provenance": [{"wikipedia_id": 1, "text": None}]}], None, None),
        ([None], None, None),
        (None, None, None),
        ("x", None, None),
    ],
)
def test_an_input_may_be_fit_for_one_evaluation_and_not_for_the_other(
    write: Write, outputs: object, downstream: float | None, retrieval: float | None
) -> None:
    gold = write("gold", {"id": 1, "input": "", "output": [{**ANSWER, **PAGES}]})
    guess = write("guess", {"id": 1, "output": outputs})
    if downstream is None:
        with pytest.raises(EvaluationError, match="downstream evaluation of"):
            evaluate_downstream(gold, guess)
    else:
        assert evaluate_downstream(gold, guess)["retrieval"]["Rprec"] == downstream
    if retrieval is None:
        with pytest.raises(EvaluationError, match="retrieval evaluation of"):
            evaluate_retrieval(gold, guess)
    else:
        assert evaluate_retrieval(gold, guess)["Rprec"] == retrieval


@pytest.mark.parametrize(
    "gold",
    [
        {"input": "", "output": [ANSWER]},
        {"id": 1, "input": None, "output": [ANSWER]},
        {"id": 1, "input": ""},
        {"id": 1, "input": "", "output": [{"answer": 42}]},
        {"id": 1, "input": "", "output": [{"answer": "x", "provenance": [{"title": 7}]}]},
        {"id": 1, "input": "", "output": [{"answer": "x", "provenance": None}]},
        {"id": 1, "input": "", "output": [None]},
        [],
    ],
)
def test_unusable_gold_is_refused_by_both_evaluations(write: Write, gold: object) -> None:
    gold_path = write("gold", gold)
    guess = write("guess", {"id": 1, "output": [{**ANSWER, **PAGES}]})
    for evaluate in (evaluate_downstream, evaluate_retrieval):
        with pytest.raises(EvaluationError, match="is not possible"):
            evaluate(gold_path, guess)


def test_a_text_that_is_none_is_read_only_until_answer_and_title_are_found(write: Write) -> None:
    outputs = [{"answer": "x", "provenance": [{"wikipedia_id": 1, "title": "T"}]}]
    gold = write("gold", {"id": 1, "input": "", "output": outputs})
    items = [{"wikipedia_id": 1, "text": "x in T"}, {"wikipedia_id": 2, "text": None}]
    guess = write("guess", {"id": 1, "output": [{"answer": "x", "provenance": items}]})
    assert evaluate_retrieval(gold, guess)["answer_and_ent_in_context@1"] == 1.0
    assert evaluate_downstream(gold, guess)["kilt"]["KILT-em"] == 1.0


def test_all_problems_are_collected_with_file_line_and_id(write: Write) -> None:
    gold = write("gold", *GOLD, GOLD[0])
    guess = write(
        "guess", {"id": "q1", "output": []}, "", '{"id": "q2",}', {"output": []}, GUESS[0], GUESS[0]
    )
    with pytest.raises(EvaluationError) as caught:
        evaluate_downstream(gold, guess)
    problems = sorted(
        problem.removeprefix(f"{gold.parent}/").split(" (")[0] for problem in caught.value.problems
    )
    assert problems == [
        "gold:2:q2: has no prediction in " + str(guess),
        "gold:5:q1: has the id of line 1, ids must be unique",
        "guess:1:q1: has 0 outputs, must have exactly one",
        "guess:2: is blank",
        "guess:3: is not JSON",
        "guess:4: has no id",
        "guess:6:q3: has the id of line 5, ids must be unique",
    ]


def test_predictions_for_another_file_are_recognised(write: Write) -> None:
    gold = write("gold", *GOLD)
    guess = write("guess", {"id": "other", "output": [ANSWER]})
    with pytest.raises(
        EvaluationError, match="no id of its 1 predictions is in the gold file: for another file"
    ):
        evaluate_downstream(gold, guess)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_and_outer_blanks_do_not_matter(
    write: Write, tmp_path: Path, ending: str
) -> None:
    guess = tmp_path / "guess"
    guess.write_bytes(ending.join(f" {json.dumps(record)}\t" for record in GUESS).encode())
    assert evaluate_downstream(write("gold", *GOLD), guess)["downstream"]["em"] == 0.5


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xef\xbb\xbf{}\n", "starts with a byte order mark"),
        (b'{"id": 1, "output": []}\n\n', "is blank"),
        (b'{"id": "\xff"}\n', "not UTF-8"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"id": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"7\n", "has no lines of JSON, as it begins with '7'"),
        (b"{}\n7\n", "is not an object (7)"),
        (gzip.compress(b'{"id": 1, "output": []}\n' * 99, mtime=0)[:-20], "damaged"),
    ],
)
def test_unreadable_predictions_are_refused(
    write: Write, tmp_path: Path, content: bytes, problem: str
) -> None:
    guess = tmp_path / "guess"
    guess.write_bytes(content)
    with pytest.raises(EvaluationError) as caught:
        evaluate_downstream(write("gold", *GOLD), guess)
    assert any(problem in found for found in caught.value.problems)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_compressed_files_score_alike(
    write: Write, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    gold, guess = write("gold", *GOLD), write("guess", *GUESS)
    packed = tmp_path / "packed"
    packed.write_bytes(compress(guess.read_bytes()))
    assert evaluate_downstream(gold, packed) == evaluate_downstream(gold, guess)


def test_a_score_that_does_not_exist_is_refused(write: Write) -> None:
    with pytest.raises(
        EvaluationError, match="'MRR' is not a score of this evaluation: choose from KILT-accuracy"
    ):
        score(write("guess", *GUESS), write("gold", *GOLD)).column("MRR")


def test_a_gold_file_given_as_predictions_is_recognised(write: Write) -> None:
    gold = write("gold", *GOLD)
    with pytest.raises(
        EvaluationError, match="has 2 outputs \\(is this a gold file\\?\\), must have exactly one"
    ):
        evaluate_downstream(gold, gold)
