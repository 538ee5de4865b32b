"""Breakdowns, comparisons and how they are printed."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError
from kbq.kilt.analysis import (
    ScoreTable,
    bootstrap_interval,
    broken_down,
    compare,
    compared,
    score_table,
)
from kbq.kilt.evaluation import evaluate
from kbq.kilt.scores import Scores, grouping, score

Write: TypeAlias = Callable[..., Path]


def provenance(page: int) -> list[dict[str, int]]:
    return [{"wikipedia_id": page}]


@pytest.fixture
def gold(write: Write) -> Path:
    """Ten queries of relation r, two of relation s, one without; the answer is x on page 1."""
    inputs = ["a [SEP] r"] * 10 + ["b [SEP] s"] * 2 + ["What?"]
    output = [{"answer": "x", "provenance": provenance(1)}]
    records = [
        {"id": n, "input": text, "output": output, "meta": {"fold": n % 2}}
        for n, text in enumerate(inputs)
    ]
    return write("gold", *records)


@pytest.fixture
def guess(write: Write) -> Path:
    """Answers right for the first 8, pages right for the last 7."""
    records = [
        {
            "id": n,
            "output": [
                {"answer": "x" if n < 8 else "y", "provenance": provenance(1 if n > 5 else 2)}
            ],
        }
        for n in range(13)
    ]
    return write("guess", *records)


@pytest.fixture
def scores(gold: Path, guess: Path) -> Scores:
    return score(guess, gold)


def test_groups_come_largest_first_with_both_means(scores: Scores) -> None:
    document, (table,), _ = broken_down(scores, ["accuracy", "Rprec"], "relation")
    assert [(row["group"], row["count"], row["means"]) for row in document["groups"]] == [
        ("r", 10, [0.8, 0.4]),
        ("s", 2, [0.0, 1.0]),
        ("(none)", 1, [0.0, 1.0]),
    ]
    assert document["micro"] == [8 / 13, 7 / 13]
    assert document["macro"] == pytest.approx([0.8 / 3, 2.4 / 3])
    assert document["groups"][1]["interval"]["high"] == 0.0
    assert "| r | 10 | 80.00 | 40.00 |" in table.markdown()
    assert table.csv().splitlines()[-1].endswith(",,")


@pytest.mark.parametrize(
    ("name", "groups"),
    [("meta.fold", {"0", "1"}), ("meta.none", {"(none)"}), ("evidence-sets", {"1"})],
)
def test_other_groupings(gold: Path, guess: Path, name: str, groups: set[str]) -> None:
    assert set(score(guess, gold, group_of=grouping(name)).groups) == groups


def test_comparison_of_a_system_with_itself_and_with_a_perfect_one(
    scores: Scores, gold: Path, write: Write
) -> None:
    perfect = score(gold, gold)
    same, better = (
        compare(scores, {"same": scores}, ["accuracy"])[0],
        compare(scores, {"p": perfect}, ["accuracy", "Rprec"]),
    )
    assert (same.gain, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)
    assert better[0].low < better[0].gain < better[0].high
    assert better[0].gain == pytest.approx(5 / 13)
    assert better[0].p == pytest.approx(2 / 2**5, abs=0.01)
    assert better[1].adjusted_p == 2 * better[1].p
    assert better[0].adjusted_p == max(better[0].p, better[1].adjusted_p)
    groups = compare(scores, {"perfect": perfect}, ["Rprec"], by_group=True)
    assert [(row.name, row.count, row.gain) for row in groups] == [
        ("(none)", 1, 0.0),
        ("r", 10, 0.6),
        ("s", 2, 0.0),
    ]
    table = (
        compared(scores, {"p": perfect}, ["accuracy", "Rprec"], by_group=False).tables[0].markdown()
    )
    assert "| accuracy | 13 | 61.54 | 100.00 | 38.46 | 15.38 | 61.54 | 0.0" in table
    both = compare(scores, {"same": scores, "perfect": perfect}, ["accuracy"])
    assert [(row.system, row.p, row.adjusted_p) for row in both] == [
        ("same", 1.0, 1.0),
        ("perfect", better[0].p, 2 * better[0].p),
    ]
    table = (
        compared(scores, {"same": scores, "perfect": perfect}, ["accuracy"], by_group=False)
        .tables[0]
        .markdown()
    )
    assert "each system against first" in table
    assert (
        "| same | accuracy | 13 | 61.54 | 61.54 | 0.00 | 0.00 | 0.00 | 1.0000 | 1.0000 |" in table
    )


def test_systems_on_other_queries_are_not_compared(scores: Scores, write: Write) -> None:
    gold = write("other", {"id": 1, "input": "", "output": [{"answer": "x", "provenance": []}]})
    with pytest.raises(EvaluationError, match="scored on 13 and 1 queries, 12 of them in one only"):
        compare(scores, {"other": score(gold, gold)}, ["em"])


def test_the_score_table_shows_percentages_and_csv_all_digits(scores: Scores) -> None:
    intervals = {"KILT-accuracy": bootstrap_interval(scores.column("KILT-accuracy"))}
    table = score_table([(scores, ["KILT-accuracy"])], {"downstream": intervals})
    assert "| evaluation | score | mean | 95 % from | to |" in table.markdown()
    assert "| downstream | KILT-accuracy | 15.38 | 0.00 | 38.46 |" in table.markdown()
    assert (
        table.csv().splitlines()[1].startswith("downstream,KILT-accuracy,0.15384615384615385,0.0,")
    )
    without = score_table([(scores, ["KILT-accuracy"])], {})
    assert without.csv() == "evaluation,score,mean\ndownstream,KILT-accuracy,0.15384615384615385\n"


def test_an_evaluation_is_a_data_frame(gold: Path, guess: Path) -> None:
    evaluation = evaluate(guess, gold)
    means = evaluation.to_pandas().set_index("score")["mean"]
    assert means["accuracy"] == evaluation["accuracy"] == pytest.approx(8 / 13)
    assert list(means.index) == [row[1] for row in evaluation.tables[0].rows]


def test_the_first_line_names_semantics_and_deviations(gold: Path, guess: Path) -> None:
    assert str(evaluate(guess, gold)).startswith(
        "semantics: kilt-2664322; deviations: none\n\n**scores, 13 queries**\n"
    )
    assert (
        evaluate(guess, gold, missing="zero").semantics
        == "semantics: kilt-2664322; deviations: missing=zero"
    )


def test_tables_are_written_for_latex() -> None:
    table = ScoreTable("scores", {"score": "text", "mean %": "percent"}, [("a_b", 0.5)])
    assert table.latex().splitlines() == [
        "% scores", r"\begin{tabular}{lr}", r"\toprule", r"score & mean \% \\", r"\midrule", r"a\_b & 50.00 \\",
        r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip
