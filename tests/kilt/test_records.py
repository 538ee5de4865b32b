"""Scoring records in memory: the same numbers as files, and one sentence for what cannot be scored."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kbq.errors import EvaluationError, KbqError
from kbq.kilt.evaluation import PartlyScoredError, evaluate
from kbq.kilt.records import place_of
from kbq.kilt.scores import score
from kbq.kilt.task import Task

Write: TypeAlias = Callable[..., Path]


def record(number: int, answer: str, *pages: int) -> dict[str, Any]:
    return {
        "id": number,
        "output": [{"answer": answer, "provenance": [{"wikipedia_id": page} for page in pages]}],
    }


GOLD = [record(n, f"x{n}", n) | {"input": f"a [SEP] r{n % 2}"} for n in range(4)]
GUESS = [record(0, "x0", 0), record(1, "x1", 9, 1), record(2, "no", 2), record(3, "no", 5)]


def test_records_score_like_their_files(write: Write, tmp_path: Path) -> None:
    files = evaluate(
        write("guess", *GUESS), write("gold", *GOLD), by="relation", compare=write("other", *GOLD)
    )
    records = evaluate(GUESS, GOLD, by="relation", compare=GOLD)
    in_memory, on_disk = (json.dumps(one.to_dict()) for one in (records, files))
    assert in_memory.replace('"system": "compare"', f'"system": "{tmp_path / "other"}"') == on_disk
    named = str(files).replace("other", "compare").replace("guess", "predictions")
    assert str(records) == named
    assert (records["KILT-accuracy"], records["accuracy"], records["Rprec"], records["recall@10"]) == (
        0.25, 0.5, 0.5, 0.75
    )  # fmt: skip


def test_texts_and_iterators_and_tasks_are_accepted(write: Write) -> None:
    def lines() -> Iterator[dict[str, Any]]:
        yield from GUESS

    gold = str(write("gold", *GOLD))
    results = [evaluate(lines(), gold, task) for task in (None, "trex", Task.load("trex"))]
    assert [one["KILT-f1"] for one in results] == [0.25] * 3
    assert evaluate(tuple(GUESS), gold, ks=[1])["precision@1"] == 0.5


def test_an_evaluation_is_a_mapping_of_the_official_scores() -> None:
    evaluation = evaluate(GUESS, GOLD, ks=(1,))
    assert list(evaluation) == [
        "KILT-accuracy", "KILT-em", "KILT-f1", "KILT-rougel", "accuracy", "em", "f1", "rougel", "Rprec", "recall@5",
        "entity_in_input", "precision@1", "answer_in_context@1", "answer_and_ent_in_context@1", "entity_in_context@1",
    ]  # fmt: skip
    assert len(evaluation) == 15
    assert dict(evaluation)["em"] == 0.5
    assert repr(evaluation).startswith("Evaluation({'KILT-accuracy': 0.25,")
    assert evaluation.get("MRR") is None
    with pytest.raises(KeyError, match="MRR: choose from KILT-accuracy"):
        evaluation["MRR"]


def test_one_kind_gives_the_scores_of_every_record() -> None:
    scores = score(GUESS, GOLD)
    assert scores.column("accuracy").tolist() == [1.0, 1.0, 0.0, 0.0]
    assert score(GUESS, GOLD, "retrieval").column("Rprec").tolist() == [1.0, 0.0, 1.0, 0.0]


def test_records_are_not_changed_and_read_once() -> None:
    before = json.dumps(GUESS)
    evaluate(iter(GUESS), iter(GOLD), compare=iter(GOLD))
    assert json.dumps(GUESS) == before


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([], "predictions is empty: give at least one KILT record"),
        (7, "predictions is of type int: give the path of a KILT file, or a list of KILT records"),
        (None, "predictions is of type NoneType"),
        (GUESS[0], "predictions is of type dict"),
        (b"guess.jsonl", "predictions is of type bytes"),
        (["guess.jsonl"], "record 1 of predictions is of type str, must be a dict"),
        ([*GUESS, 3], "record 5 of predictions is of type int, must be a dict"),
        (
            [{"id": 1, "output": {1, 2}}],
            "record 1 of predictions cannot be written as JSON: Object of type set",
        ),
        ("nowhere.jsonl", "nowhere.jsonl: cannot be read (No such file or directory): check"),
        ('{"id": 1}' * 100, "cannot be read (File name too long)"),
        (".", ". is a folder: give a file"),
    ],
)
def test_what_is_not_predictions_is_one_sentence(predictions: Any, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(predictions, GOLD)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "trexx"}, "task 'trexx' is unknown"),
        ({"task": 7}, "task is 7: give its name, a task file, or a Task"),
        ({"compare": []}, "compare is empty"),
        ({"compare": "nowhere"}, "nowhere: cannot be read (No such file or directory)"),
        ({"by": "subject"}, "'subject' is not a grouping"),
        ({"by": "meta.fold"}, "no query of gold has that"),
        ({"ks": 5}, "ks is 5: give numbers"),
        ({"ks": "1,5"}, "ks is '1,5': give numbers"),
        ({"ks": (1, "5")}, "every k must be a number from 1"),
        ({"missing": "nil"}, "missing is 'nil', choose from error, zero"),
    ],
)
def test_an_option_that_is_not_possible_is_one_sentence(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(KbqError) as caught:
        evaluate(GUESS, GOLD, **options)
    assert message in str(caught.value)


def test_a_refusal_names_the_records_and_has_what_could_be_scored() -> None:
    guess = [GUESS[0], {"id": 1, "output": [{"provenance": [{"wikipedia_id": 1}]}]}, *GUESS[2:]]
    with pytest.raises(PartlyScoredError) as caught:
        evaluate(guess, GOLD)
    assert caught.value.problems == ("predictions:2:1: has no answer in its output",)
    assert caught.value.evaluation["Rprec"] == 0.75
    with pytest.raises(
        PartlyScoredError, match="gold:4:3: has no prediction in predictions"
    ) as caught:
        evaluate(GUESS[:3], GOLD)
    assert dict(caught.value.evaluation) == {}


@pytest.mark.parametrize(
    ("item", "characters"),
    [
        ({"start_character": 3, "end_character": 7}, (3, 7)),
        ({"start_character": 3}, None),
        ({"end_character": 7}, None),
        ({"start_character": "3", "end_character": 7}, None),
    ],
)
def test_a_place_has_both_of_its_characters_or_none(
    item: dict[str, object], characters: tuple[int, int] | None
) -> None:
    assert place_of(item, "Nile").characters == characters
