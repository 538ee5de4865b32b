"""The surprises of the official evaluation: what its code does beyond its description."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError
from kbq.kilt.scores import OFFICIAL, Rules
from kbq.kilt.scores import score as score_files
from kbq.kilt.submission import validate
from kbq.text.answer_scores import normalise_answer, score_answer

Write: TypeAlias = Callable[..., Path]
Score: TypeAlias = Callable[..., dict[str, float]]


def evaluate_downstream(
    gold: Path, guess: Path, rules: Rules = OFFICIAL
) -> dict[str, dict[str, float]]:
    return score_files(guess, gold, "downstream", rules).layout()


def evaluate_retrieval(gold: Path, guess: Path, rules: Rules = OFFICIAL) -> dict[str, float]:
    return score_files(guess, gold, "retrieval", rules).layout()


def pages(*ids: object) -> list[dict[str, object]]:
    return [{"wikipedia_id": page} for page in ids]


def test_gold_without_input_is_scored_without_entity_in_input(write: Write) -> None:
    gold = write("gold", {"id": 1, "output": [{"answer": "x", "provenance": pages(1)}]})
    guess = write("guess", {"id": 1, "output": [{"answer": "x", "provenance": pages(1)}]})
    assert evaluate_downstream(gold, guess)["kilt"]["KILT-accuracy"] == 1.0
    scores = score_files(guess, gold, "retrieval")
    assert "entity_in_input" not in scores.layout()
    assert scores.mean("Rprec") == 1.0
    assert scores.notes == ("1 gold records have no input: entity_in_input is left out",)


def test_an_empty_provenance_list_is_an_evidence_set_and_a_missing_one_is_not(
    score: Score,
) -> None:
    guess = {"answer": "x", "provenance": pages(1)}
    named = {"answer": "x", "provenance": pages(1)}
    assert score([named, {"answer": "y"}], guess)["recall@5"] == 1.0
    assert score([named, {"answer": "y", "provenance": []}], guess)["recall@5"] == 0.5


def test_empty_provenance_is_noted(write: Write) -> None:
    outputs = [{"answer": "x", "provenance": pages(1)}, {"answer": "y", "provenance": []}]
    gold = write("gold", {"id": 1, "input": "", "output": outputs})
    guess = write("guess", {"id": 1, "output": [{"answer": "x", "provenance": pages(1)}]})
    scores = score_files(guess, gold)
    assert scores.mean("recall@5") == 0.5
    assert "1 gold records have empty provenance lists" in scores.notes[0]


def test_a_page_of_several_sets_takes_several_positions(score: Score) -> None:
    gold = [
        {"provenance": pages(1, 2)},
        {"provenance": pages(1, 3)},
        {"provenance": pages(4)},
        {"answer": "x"},
    ]
    assert score(gold, {"answer": "x", "provenance": pages(1, 4)})["recall@2"] == 0.0


def test_a_completed_bundle_frees_the_positions_of_its_earlier_pages(score: Score) -> None:
    gold = [{"answer": "x", "provenance": pages(1, 2)}]
    guess = {"answer": "x", "provenance": pages(1, 91, 92, 93, 94, 2)}
    assert score(gold, guess)["recall@5"] == 1.0


def test_a_gold_item_without_rank_key_counts_for_recall_only(score: Score) -> None:
    gold = [{"answer": "x", "provenance": [{"wikipedia_id": 1}, {"title": "T"}]}]
    scores = score(gold, {"answer": "x", "provenance": pages(1)})
    assert (scores["Rprec"], scores["recall@5"]) == (1.0, 0.0)


def test_the_gate_is_not_coupled_to_the_answer(write: Write) -> None:
    outputs = [{"answer": "x", "provenance": pages(1)}, {"answer": "y", "provenance": pages(2)}]
    gold = write("gold", {"id": 1, "input": "", "output": outputs})
    guess = write("guess", {"id": 1, "output": [{"answer": "x", "provenance": pages(2)}]})
    assert evaluate_downstream(gold, guess)["kilt"]["KILT-accuracy"] == 1.0


def test_answers_that_normalise_to_nothing_match_but_share_nothing(score: Score) -> None:
    scores = score(
        [{"answer": "A", "provenance": pages(1)}], {"answer": "The", "provenance": pages(1)}
    )
    assert (scores["em"], scores["f1"], scores["KILT-em"], scores["accuracy"]) == (
        1.0,
        0.0,
        1.0,
        0.0,
    )


def test_null_is_the_text_none(score: Score, write: Write) -> None:
    gold = [{"answer": "None", "provenance": pages(None)}]
    guess = {"answer": None, "provenance": pages(None)}
    scores = score(gold, guess)
    assert (scores["KILT-accuracy"], scores["Rprec"]) == (1.0, 1.0)
    findings = validate(write("null", {"id": 1, "output": [guess]})).errors
    assert [finding.kind for finding in findings] == ["answer is not text", "empty wikipedia_id"]


def test_an_empty_answer_scores_zero_before_gold_is_looked_at(score: Score) -> None:
    scores = score([{"provenance": pages(1)}], {"answer": " \t", "provenance": pages(1)})
    assert (scores["accuracy"], scores["em"], scores["KILT-f1"], scores["Rprec"]) == (
        0.0,
        0.0,
        0.0,
        1.0,
    )


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        (
            [{"provenance": pages(1)}],
            "has an answer, but its gold record on line 1 has none to compare it with",
        ),
        ([], "has no gold output: is this the test file without answers?"),
    ],
)
def test_gold_without_answers_or_outputs_is_a_readable_error(
    write: Write, outputs: list[object], reason: str
) -> None:
    gold = write("gold", {"id": 1, "input": "", "output": outputs})
    guess = write("guess", {"id": 1, "output": [{"answer": "x"}]})
    with pytest.raises(EvaluationError) as caught:
        evaluate_downstream(gold, guess)
    assert caught.value.problems[0].endswith(f":1:1: {reason}")


def test_numbers_and_texts_agree_but_leading_zeros_count(score: Score) -> None:
    gold = [{"answer": "x", "provenance": pages(1)}]
    assert score(gold, {"answer": "x", "provenance": pages(" 1 ")})["Rprec"] == 1.0
    assert score(gold, {"answer": "x", "provenance": pages("01")})["Rprec"] == 0.0


@pytest.mark.parametrize("ks", [(5, 5), (0, 1), (-1,)])
def test_repeated_and_non_positive_ks_are_refused(write: Write, ks: tuple[int, ...]) -> None:
    gold = write("gold", {"id": 1, "input": "", "output": [{"provenance": pages(1)}]})
    with pytest.raises(EvaluationError, match=r"ks are \("):
        evaluate_retrieval(gold, gold, Rules(ks=ks))


def test_there_is_no_recall_at_1(write: Write) -> None:
    gold = write("gold", {"id": 1, "input": "", "output": [{"provenance": pages(1)}]})
    official = evaluate_retrieval(gold, gold, Rules(ks=(1,)))
    assert "recall@1" not in official
    assert "success_rate@1" not in official


def test_a_file_of_another_size_is_a_note_with_the_sizes_the_right_way_round(
    write: Write,
) -> None:
    gold = write("gold", {"id": 1, "input": "", "output": [{"answer": "x"}]})
    guess = write("guess", *({"id": n, "output": [{"answer": "x"}]} for n in (2, 1, 3)))
    notes = score_files(guess, gold).notes
    assert notes == (
        "1 gold records, 3 predictions",
        "2 predictions have ids that the gold file lacks: ignored",
    )


def test_contexts_match_parts_of_words_and_an_empty_needle_always(score: Score) -> None:
    text = [{"wikipedia_id": 9}, {"wikipedia_id": 9, "text": "Yorkshire"}]
    scores = score(
        [{"answer": "York", "provenance": [{"title": "The"}]}], {"answer": "x", "provenance": text}
    )
    assert scores["answer_in_context@1"] == 0.0
    assert scores["answer_in_context@2"] == 1.0
    assert scores["answer_and_ent_in_context@2"] == 1.0
    assert scores["entity_in_input"] == 1.0


@pytest.mark.parametrize("position", [5, 6])
def test_five_texts_are_read_for_the_scores_of_answers(position: int, write: Write) -> None:
    gold = write(
        "gold", {"id": 1, "input": "Q", "output": [{"answer": "x", "provenance": pages(1)}]}
    )
    texts: list[dict[str, object]] = [{"wikipedia_id": 1, "text": "none"} for _ in range(position)]
    texts[-1]["text"] = 7
    guess = write("guess", {"id": 1, "output": [{"answer": "x", "provenance": texts}]})
    if position == 6:
        assert evaluate_downstream(gold, guess)["kilt"]["KILT-f1"] == 1.0
    else:
        with pytest.raises(
            EvaluationError, match="has a text in provenance item 5 that is not a string"
        ):
            evaluate_downstream(gold, guess)


def test_answers_of_thousands_of_words_have_a_rouge_score() -> None:
    words = " ".join(f"w{number}" for number in range(2000))
    assert score_answer(words, [words]).rougel == 2 * (1 / (2 + 1e-8))


def test_twenty_thousand_records_are_read_in_one_pass(write: Write) -> None:
    outputs = [{"answer": "x", "provenance": pages(1)}]
    gold = write("gold", *({"id": n, "input": "", "output": outputs} for n in range(20_000)))
    guess = write("guess", *({"id": n, "output": outputs} for n in reversed(range(20_000))))
    assert evaluate_downstream(gold, guess)["kilt"]["KILT-f1"] == 1.0


def test_normalisation_keeps_inner_blanks() -> None:
    assert normalise_answer("The  New\tYork") == "new york"


def test_files_are_utf_8_whatever_the_locale(score: Score, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    gold = [{"answer": "Łódź", "provenance": pages(1)}]
    assert score(gold, {"answer": "Łódź", "provenance": pages(1)})["KILT-accuracy"] == 1.0


def test_titles_that_were_not_mapped_are_found_by_validation(write: Write) -> None:
    item = {"wikipedia_id": "None", "wikipedia_title": "T"}
    validation = validate(
        write("guess", {"id": 1, "output": [{"answer": "x", "provenance": [item]}]})
    )
    assert [finding.kind for finding in validation.errors] == ["empty wikipedia_id"]
    assert "wikipedia_title instead of title" in str(validation.to_dict()["counts"])


def test_missing_predictions_are_an_error_unless_asked_otherwise(write: Write) -> None:
    outputs = [{"answer": "x", "provenance": pages(1)}]
    gold = write("gold", *({"id": n, "input": "", "output": outputs} for n in (1, 2)))
    guess = write("guess", {"id": 1, "output": outputs})
    with pytest.raises(EvaluationError, match="has no prediction"):
        evaluate_downstream(gold, guess)
    assert evaluate_downstream(gold, guess, Rules(missing="zero"))["kilt"]["KILT-em"] == 0.5


@pytest.mark.parametrize("answer", ["Beyoncé", "Łódź"])
def test_decomposed_answers_score_nothing_and_validation_says_so(
    score: Score, write: Write, answer: str
) -> None:
    decomposed = unicodedata.normalize("NFD", answer)
    scores = score([{"answer": answer}], {"answer": decomposed, "provenance": []})
    assert (scores["accuracy"], scores["em"], scores["f1"]) == (0.0, 0.0, 0.0)
    record = json.dumps({"id": 1, "output": [{"answer": decomposed, "provenance": []}]})
    assert "answer is not NFC" in str(validate(write("guess", record)).to_dict()["counts"])
