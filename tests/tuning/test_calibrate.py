"""Calibrating: triples give a file that gives answers their probabilities, and bad ones are refused
in a sentence.
"""

import json
import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbq.errors import KbqError, QueryError, TrainingError
from kbq.kb import KnowledgeBase
from kbq.reading.probability import FEATURES, Calibration
from kbq.search.options import Purpose, SearchOptions
from kbq.tuning.calibrate import (
    FOLDS,
    JudgedAnswer,
    calibrate,
    judge,
    teaches,
    usual_purpose,
    write_calibration,
)
from kbq.tuning.triples import GoldQuery, read_triples

SUBJECTS = ["Marie", "Curie", "Warsaw", "Paris", "river", "city", "place", "birth"]
RELATIONS = ["the city", "river of", "born in", "place", "of Paris"]


def some_right(kb: KnowledgeBase) -> list[dict[str, str]]:
    """Forty triples; every other one has what the knowledge base answers as its object."""
    asked = [(subject, relation) for subject in SUBJECTS for relation in RELATIONS]
    found = kb.query([f"{subject} [SEP] {relation}" for subject, relation in asked], 1)
    return [
        {"subject": subject, "relation": relation, "page": answers[0].page_id}
        | {"object": answers[0].text if number % 2 else "nothing of the kind"}
        for number, ((subject, relation), answers) in enumerate(zip(asked, found, strict=True))
    ]


def write(path: Path, triples: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(triple) + "\n" for triple in triples))
    return path


@pytest.fixture(scope="module")
def triples(judging_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("triples") / "t.jsonl", some_right(judging_kb))


@pytest.fixture(scope="module")
def file(judging_kb: KnowledgeBase, triples: Path) -> Path:
    outcome = judging_kb.calibrate(triples, triples.parent / "c.json")
    assert outcome.out == triples.parent / "c.json"
    return outcome.out


def test_what_is_learned_is_said(judging_kb: KnowledgeBase, triples: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    outcome = judging_kb.calibrate(
        triples, tmp_path / "c.json", hidden=0.5, report=lambda *s: seen.append(s)
    )
    assert outcome.queries == 40 + outcome.hidden
    assert 10 <= outcome.hidden <= 30
    assert outcome.right >= 20
    assert outcome.auroc is not None
    assert 0 <= outcome.auroc <= 1
    assert list(outcome.thresholds) == ["0.9", "0.95"]
    assert seen[-1] == (outcome.queries, outcome.queries)
    record = Calibration.read(tmp_path / "c.json")
    assert (record.queries, record.right) == (outcome.queries, outcome.right)
    assert record.facts["hidden"] == 0.5
    again = judging_kb.calibrate(triples, tmp_path / "d.json", hidden=0.5)
    assert (tmp_path / "c.json").read_bytes() == (tmp_path / "d.json").read_bytes()
    assert again.auroc == outcome.auroc


def test_hidden_pages_answer_nothing(
    judging_kb: KnowledgeBase, triples: Path, tmp_path: Path
) -> None:
    plain = judging_kb.calibrate(triples, tmp_path / "c.json", hidden=0.0)
    assert (plain.queries, plain.hidden) == (40, 0)
    hidden = judging_kb.calibrate(triples, tmp_path / "d.json", hidden=1.0)
    assert (hidden.queries, hidden.hidden) == (80, 40)
    assert hidden.right < 2 * plain.right


def test_answers_have_probabilities(judging_kb: KnowledgeBase, file: Path) -> None:
    texts = ["Marie [SEP] born in", "Curie"]
    plain, found = judging_kb.query(texts, 12), judging_kb.query(texts, 12, calibration=file)
    for before, after in zip(plain, found, strict=True):
        assert [one.place for one in before] == [one.place for one in after]
        assert all(one.probability is None for one in before)
        chances = [one.probability for one in after]
        assert all(0 < chance < 1 for chance in chances if chance is not None)
        assert None not in chances[:5]
        assert chances[-1] is None or len([chance for chance in chances if chance]) > 10
    (one,) = judging_kb.query(texts[0], 1, "page", calibration=file)
    assert one.probability == found[0][0].probability
    assert [judging_kb.query(text, 12, calibration=file) for text in texts] == found


def test_unlikely_answers_are_left_out(judging_kb: KnowledgeBase, file: Path) -> None:
    answers = judging_kb.query("Marie [SEP] born in", 10, calibration=file)
    chances = sorted(one.probability or 0.0 for one in answers)
    kept = judging_kb.query("Marie [SEP] born in", 10, calibration=file, min_probability=chances[5])
    assert sorted(one.probability or 0.0 for one in kept) == [
        chance for chance in chances if chance >= chances[5]
    ]
    assert judging_kb.query("Marie [SEP] born in", 10, calibration=file, min_probability=1.0) == []


def test_a_prediction_may_be_withheld(judging_kb: KnowledgeBase, file: Path) -> None:
    records = [
        {"id": str(number), "input": text}
        for number, text in enumerate(["Marie [SEP] born in", "Curie"])
    ]
    given = judging_kb.predict(records, "slot_filling", calibration=file)
    chances = [one["output"][0]["meta"]["probability"] for one in given]
    assert chances == [
        round(judging_kb.query(one["input"], 1, calibration=file)[0].probability or 0, 6)
        for one in records
    ]
    limit = max(chances)
    withheld = judging_kb.predict(
        records, "slot_filling", calibration=file, min_probability=limit - 1e-6
    )
    assert [one["output"][0]["answer"] != "" for one in withheld] == [
        chance == limit for chance in chances
    ]
    assert [one["output"][0]["provenance"] for one in withheld] == [
        one["output"][0]["provenance"] for one in given
    ]
    assert "meta" not in judging_kb.predict(records, "slot_filling")[0]["output"][0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"backend": "dense"},
            r"was made for another search \(scores vectors \+ 8 BM25, not vectors\)",
        ),
        ({"rerank": 5}, r"was made for another search \(rerank 10, not 5\)"),
        (
            {"rerank": 0},
            r"nothing is reranked \(rerank=0\): leave calibration=… out",
        ),
        ({"unit": "sentence"}, r"where sentences are asked for: leave calibration=… out"),
        (
            {"bm25_weight": 3.0},
            r"\(scores vectors \+ 8 BM25, not vectors \+ 3 BM25\): search like that",
        ),
    ],
)
def test_another_search_is_refused(
    judging_kb: KnowledgeBase, file: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(QueryError, match=message):
        judging_kb.query("Marie", 1, calibration=file, **options)


def test_without_a_calibration_no_chance_can_be_asked_for(judging_kb: KnowledgeBase) -> None:
    with pytest.raises(
        QueryError, match=r"answers have no probability here: the calibration .* is missing"
    ):
        judging_kb.query("Marie", 1, min_probability=0.5)
    with pytest.raises(QueryError, match=r"no probability where nothing is reranked"):
        judging_kb.query("Marie", 1, min_probability=0.5, rerank=0)


def test_decisions_on_a_table_are_of_cells_unless_another_purpose_is_given(
    judging_kb: KnowledgeBase, tmp_path: Path
) -> None:
    rows = some_right(judging_kb)
    decided = [row | {"decision": "accept"} for row in rows]
    cases: list[tuple[list[dict[str, str]], Purpose | None, Purpose]] = [
        (rows, None, "query"),
        (decided, None, "cell"),
        ([*decided[1:], rows[0]], None, "query"),  # not all of them are sure to be cells
        (decided, "query", "query"),
        (rows, "cell", "cell"),
    ]
    for number, (given, purpose, meant) in enumerate(cases):
        triples = write(tmp_path / f"{number}.jsonl", given)
        golds = read_triples(triples, unanswered=True)
        assert (purpose or usual_purpose(golds)) == meant, number
    triples = write(tmp_path / "t.decisions.jsonl", decided)
    outcome = judging_kb.calibrate(triples, tmp_path / "cells.json", hidden=0.0)
    assert outcome.purpose == Calibration.read(tmp_path / "cells.json").purpose == "cell"


def test_what_was_made_for_queries_is_not_for_cells(
    judging_kb: KnowledgeBase, file: Path, triples: Path, tmp_path: Path
) -> None:
    of_cells = tmp_path / "cells.json"
    judging_kb.calibrate(triples, of_cells, purpose="cell", hidden=0.0)
    table = [{"subject": "Marie", "born in": ""}]
    claims = judging_kb.fill(table, ["born in"], calibration=of_cells).claims
    assert all(0 < (claim.probability or 0) < 1 for claim in claims)
    assert len(claims) == 1
    again = "calibrate again with purpose"
    with pytest.raises(QueryError, match=f"cells of tables, and queries are asked for: {again}"):
        judging_kb.query("Marie", 1, calibration=of_cells)
    with pytest.raises(QueryError, match=f"queries, and cells of tables are asked for: {again}"):
        judging_kb.fill(table, ["born in"], calibration=file)


def test_few_cells_change_little_of_the_calibration_of_cells(
    judging_kb: KnowledgeBase, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their prior is that of cells, whatever that of queries says."""
    of_queries = Calibration.read(file)
    of: dict[Purpose, Calibration] = {
        "query": of_queries,
        "cell": replace(of_queries, intercept=of_queries.intercept - 3),
    }
    monkeypatch.setattr("kbq.tuning.calibrate.own_calibration", lambda model, purpose: of[purpose])
    few = [JudgedAnswer("r", False, (1.0,) * len(FEATURES), bool(i % 2)) for i in range(4)]
    for purpose, before in of.items():
        search = SearchOptions(purpose=purpose)
        write_calibration(judging_kb.searcher, few, tmp_path / "c.json", search, {})
        after = Calibration.read(tmp_path / "c.json")
        moved = [after.all_weights[number] - before.all_weights[number] for number in range(5)]
        assert moved == pytest.approx([0.0] * 5, abs=0.2)
        assert after.purpose == purpose
        assert after.intercept == pytest.approx(before.intercept, abs=1.0)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "half"])
def test_a_threshold_is_a_chance(judging_kb: KnowledgeBase, value: float) -> None:
    with pytest.raises(QueryError, match=r"min_probability is .*, must be a number from 0 to 1"):
        judging_kb.query("Marie", 1, min_probability=value)


def test_triples_that_teach_nothing_are_refused(
    judging_kb: KnowledgeBase, kb: KnowledgeBase, triples: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in triples.read_text().splitlines()]
    cases: list[tuple[list[dict[str, str]], str]] = [
        (rows[:29], "gives 29 answers to learn from, 30 are needed: give more triples"),
        (
            [row | {"object": "nothing"} for row in rows],
            "none of the 40 answers are right, so there is nothing",
        ),
        ([row | {"object": ""} for row in rows], "none of the 40 answers are right"),
        ([{"subject": "", "relation": "a", "object": "b"}], "has 1 line that cannot be used"),
    ]
    for given, message in cases:
        with pytest.raises(TrainingError, match=message):
            judging_kb.calibrate(
                write(tmp_path / "t.jsonl", given), tmp_path / "c.json", hidden=0.0
            )
    with pytest.raises(TrainingError, match="hidden is 2, must be a share from 0 to 1"):
        judging_kb.calibrate(triples, tmp_path / "c.json", hidden=2)
    wrong: Any = "table"
    with pytest.raises(TrainingError, match="purpose is 'table', must be query or cell"):
        judging_kb.calibrate(triples, tmp_path / "c.json", purpose=wrong)
    with pytest.raises(
        TrainingError, match="probabilities rest on the reranker, and there is none"
    ):
        calibrate(kb.searcher, triples, tmp_path / "c.json", SearchOptions())
    with pytest.raises(KbqError, match=r"missing.jsonl"):
        judging_kb.calibrate(tmp_path / "missing.jsonl", tmp_path / "c.json")
    assert not (tmp_path / "c.json").exists()


def test_relations_that_share_a_fold_are_judged_by_other_answers(
    judging_kb: KnowledgeBase, triples: Path, tmp_path: Path
) -> None:
    relations = ["the city", "born in", "of Paris"]
    assert len({zlib.crc32(name.encode()) % FOLDS for name in relations}) == 1
    rows = [
        row
        for row in map(json.loads, triples.read_text().splitlines())
        if row["relation"] in relations
    ]
    outcome = judging_kb.calibrate(
        write(tmp_path / "t.jsonl", rows), tmp_path / "c.json", hidden=1.0
    )
    assert (outcome.queries, outcome.auroc is not None) == (48, True)


def test_no_answer_is_more_probable_than_one_before_it(
    judging_kb: KnowledgeBase, file: Path
) -> None:
    texts = [f"{subject} [SEP] {relation}" for subject in SUBJECTS for relation in RELATIONS]
    for text, answers in zip(texts, judging_kb.query(texts, 10, calibration=file), strict=True):
        chances = [answer.probability for answer in answers if answer.probability is not None]
        assert len(chances) > 1
        assert chances == sorted(chances, reverse=True)
        for least in chances[::4]:
            first = judging_kb.query(text, 1, calibration=file, min_probability=least)
            assert first == judging_kb.query(text, 10, calibration=file, min_probability=least)[:1]


def test_a_file_that_was_written_again_is_read_again(
    judging_kb: KnowledgeBase, triples: Path, tmp_path: Path
) -> None:
    file, chances = tmp_path / "c.json", []
    for hidden in (0.0, 1.0):
        judging_kb.calibrate(triples, file, hidden=hidden)
        os.utime(file, (hidden, hidden))  # for clocks that are coarse
        chances.append(judging_kb.query("Marie", 1, calibration=file)[0].probability)
    assert chances[0] != chances[1]


def test_no_query_is_asked_for_a_file_that_cannot_be_written(
    judging_kb: KnowledgeBase, triples: Path, tmp_path: Path
) -> None:
    asked: list[int] = []
    (tmp_path / "file").touch()
    for out, message in (
        (tmp_path, "is a folder: give out=…"),
        (tmp_path / "file" / "c.json", "cannot be written"),
    ):
        with pytest.raises(TrainingError, match=message):
            judging_kb.calibrate(triples, out, report=lambda done, _: asked.append(done))
    assert asked == []


def test_the_page_of_a_mention_has_no_probability(judging_kb: KnowledgeBase, file: Path) -> None:
    mention = "[START_ENT] Marie [END_ENT] was a physicist"
    assert judging_kb.query(mention, 1, calibration=file)[0].probability is None
    with pytest.raises(
        QueryError, match="the page of a mention has no probability: leave min_probability=… out"
    ):
        judging_kb.query(mention, 1, calibration=file, min_probability=0.5)
    record = {"id": "1", "input": "a claim"}
    with pytest.raises(
        QueryError, match="asks for pages alone, so min_probability=… has no effect: leave it out"
    ):
        judging_kb.predict([record], "fact_checking", calibration=file, min_probability=0.5)


def test_a_single_answer_changes_hardly_anything(
    judging_kb: KnowledgeBase, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Calibration.read(file)
    kb = judging_kb.with_model(judging_kb.model.source)
    monkeypatch.setattr("kbq.tuning.calibrate.own_calibration", lambda model, purpose: before)
    golds = read_triples(write(tmp_path / "one.jsonl", some_right(judging_kb)[:1]))
    judged = judge(kb.searcher, list(map(GoldQuery.of, golds)), SearchOptions(), hidden=0.0)
    assert not teaches(kb.searcher, judged)  # too few to replace the model's own probabilities
    outcome = write_calibration(kb.searcher, judged, tmp_path / "c.json", SearchOptions(), {})
    assert (outcome.queries, outcome.auroc, outcome.thresholds) == (
        1,
        None,
        {"0.9": None, "0.95": None},
    )
    after = Calibration.read(tmp_path / "c.json")
    assert list(after.weights.values()) == pytest.approx(list(before.weights.values()), abs=0.2)


def test_answers_of_another_kind_promise_no_precision(
    judging_kb: KnowledgeBase, tmp_path: Path
) -> None:
    sure = [JudgedAnswer("r", False, (1.0,) * len(FEATURES), True)] * 900
    judged = [*sure, *[JudgedAnswer("r", False, (0.0,) * len(FEATURES), False)] * 300]
    out, cell = tmp_path / "c.json", SearchOptions(purpose="cell")
    write_calibration(judging_kb.searcher, judged, out, cell, {})
    assert Calibration.read(out).thresholds["0.9"] is not None
    other = [replace(answer, promises=False) for answer in judged]
    write_calibration(judging_kb.searcher, other, out, cell, {})
    assert Calibration.read(out).thresholds == {"0.9": None, "0.95": None}


def test_answers_of_another_kind_teach_and_leave_the_promise_to_the_others(
    judging_kb: KnowledgeBase, tmp_path: Path
) -> None:
    """Wrong answers of another kind would spoil the promise, if they counted."""
    sure = [JudgedAnswer("r", False, (1.0,) * len(FEATURES), True)] * 900
    other = [JudgedAnswer("r", False, (1.0,) * len(FEATURES), False, promises=False)] * 900
    out, cell = tmp_path / "c.json", SearchOptions(purpose="cell")
    outcome = write_calibration(judging_kb.searcher, [*sure, *other], out, cell, {})
    assert outcome.thresholds["0.9"] is not None
    assert (outcome.queries, outcome.right) == (1800, 900)
