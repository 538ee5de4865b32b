"""Judging: a judge learns which phrases are right, where that helps, and only for the relations of
the triples.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kbq.commands.teach import finetuning_lines
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold
from kbq.reading import reranker
from kbq.reading.reader import PhraseJudge
from kbq.search.options import SearchOptions
from kbq.tuning import relation_judge as module
from kbq.tuning.relation_judge import (
    Label,
    SeenQuery,
    percent_right,
    right,
    scores_of,
    seen_queries,
    teach_judge,
    trained_judge,
)
from kbq.tuning.triples import GoldQuery

DIM = 4


@pytest.fixture
def own_kb(judging_kb: KnowledgeBase) -> KnowledgeBase:
    """A knowledge base whose judge may be changed."""
    return KnowledgeBase.open(judging_kb.folder, device="cpu")


def seen(marked: int, count: int = 4, of_search: int = 0) -> SeenQuery:
    """Phrases that are alike but for one, which is marked, and right; the search prefers another."""
    edges = torch.zeros(count, 2 * DIM)
    edges[marked, 0] = 1.0
    distances = torch.full((count,), -5.0)
    distances[of_search] = 0.0
    labels: list[Label] = ["wrong"] * count
    labels[marked] = "right"
    return SeenQuery(edges, torch.zeros(count), distances, tuple(labels))


def untaught() -> PhraseJudge:
    torch.manual_seed(0)
    judge = PhraseJudge(DIM)
    with torch.no_grad():
        judge.retrieval.fill_(1.0)
    return judge


def test_a_judge_learns_what_right_phrases_have_in_common() -> None:
    judge, queries = untaught(), [seen(1 + number % 3) for number in range(300)]
    assert right(judge, queries) == 0  # the first of the search is the best
    taught = trained_judge(judge, queries, seed=0)
    assert right(taught, queries) == 300
    assert taught.retrieval < judge.retrieval == 1.0  # the search was wrong
    again = trained_judge(judge, queries, seed=0).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in taught.state_dict().items())


def test_phrases_are_read_as_the_reranker_reads_them(
    monkeypatch: pytest.MonkeyPatch, own_kb: KnowledgeBase, golds: list[Gold]
) -> None:
    """The scores of the judge that was not taught are those that order the answers, but for what
    supports them.
    """
    monkeypatch.setattr(reranker, "SUPPORT", 1e-6)
    asked = golds[:5]
    judge = own_kb.searcher.reranking.reader.phrase_judge
    # The first cannot be read.
    records = [replace(golds[0], input="word " * 300), *asked]
    queries = seen_queries(own_kb.searcher, list(map(GoldQuery.of, records)))
    assert len(queries) == len(asked)
    for gold, query in zip(asked, queries, strict=True):
        best = own_kb.query(str(gold.input), 1)[0]
        with torch.no_grad():
            scores = scores_of(judge, [query])[0]
        assert float(scores.max()) == pytest.approx(best.score, abs=1e-4)
        answers = {output.answer for output in gold.outputs}
        assert (query.labels[int(scores.argmax())] == "right") == (best.text in answers and best.page_id in {
            page for output in gold.outputs for page in output.pages
        })  # fmt: skip


def test_it_is_kept_unless_fewer_are_right(
    own_kb: KnowledgeBase, golds: list[Gold], monkeypatch: pytest.MonkeyPatch
) -> None:
    taught = teach_judge(own_kb.searcher, golds, seed=0)
    assert taught is not None
    assert taught.relations == {"birth", "place of birth"}
    assert taught.reader == own_kb.searcher.reranking.reader_digest != ""
    own = own_kb.searcher.reranking.reader.phrase_judge
    queries = list(map(GoldQuery.of, golds))
    seen = seen_queries(own_kb.searcher, queries)
    expected = [round(100 * right(judge, seen) / len(seen), 2) for judge in (own, taught.judge)]
    assert percent_right(own_kb.searcher, queries, [own, taught.judge]) == expected
    assert expected[1] >= expected[0]

    own_kb.searcher.reranking.relation_judge = replace(taught, relations=frozenset({"river"}))
    more = teach_judge(own_kb.searcher, golds, seed=0)
    assert more is not None
    assert more.relations == {"birth", "place of birth", "river"}

    counts = iter([0, 1] * module.FOLDS)  # taught, untaught
    monkeypatch.setattr(module, "right", lambda *_: next(counts))
    assert teach_judge(own_kb.searcher, golds, seed=0) is None


def test_questions_and_a_few_slots_teach_nothing(own_kb: KnowledgeBase, golds: list[Gold]) -> None:
    questions = [replace(gold, input="who was born there?") for gold in golds]
    assert teach_judge(own_kb.searcher, questions, seed=0) is None
    assert teach_judge(own_kb.searcher, golds[: module.FOLDS - 1], seed=0) is None


def test_fine_tuning_writes_the_judge_beside_the_query_encoder(
    own_kb: KnowledgeBase,
    rows: list[dict[str, str]],
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
) -> None:
    triples = write_json_lines("triples.jsonl", *rows)
    settings: dict[str, Any] = {"k": 10, "epochs": 1, "batch": 5, "dev": triples}
    outcome = own_kb.finetune(triples, tmp_path / "tuned", **settings)
    before, after = outcome.reranker
    said = finetuning_lines(outcome)
    assert f"{'with reranking, answers right':40}  {before:6.1f}  {after:5.1f}" in said
    assert (
        f"{f'vectors alone, {outcome.measure}':40}  {outcome.scores[0]:6.1f}  "
        f"{max(outcome.scores):5.1f}" in said
    )
    assert said[-1] == (
        "probabilities stay the model's own: they are learned from 30 or more answers to dev "
        "queries"
    )
    # The knowledge base itself is as it was.
    assert own_kb.searcher.reranking.relation_judge is None
    tuned = own_kb.with_model(outcome)
    assert tuned.searcher.reranking.relation_judge is not None
    assert tuned.searcher.reranking.relation_judge.relations == {"birth", "place of birth"}
    digest, judge = (
        own_kb.searcher.reranking.reader_digest,
        tuned.searcher.reranking.relation_judge.fingerprint,
    )
    assert tuned.searcher.plan(SearchOptions()).mode.reader == f"{digest} {judge}"
    assert own_kb.searcher.plan(SearchOptions()).mode.reader == digest
    again = tuned.finetune(triples, tmp_path / "again", **settings)
    assert tuned.with_model(again).searcher.reranking.relation_judge is not None

    all_kept = own_kb.finetune(triples, tmp_path / "kept", keep=1.0, **settings)
    assert all_kept.reranker == ()
    assert own_kb.with_model(all_kept).searcher.reranking.relation_judge is None
