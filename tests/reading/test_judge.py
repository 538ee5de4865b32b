"""Relation judge: it judges slots of its relations alone, and its file names the reader that it
belongs to.
"""

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kbq.errors import ModelError
from kbq.kb import KnowledgeBase
from kbq.reading.reader import RELATION_JUDGE, PhraseJudge, RelationJudge
from kbq.reading.reranker import rerank
from kbq.text.queries import Query

QUERIES = list(
    map(
        Query.of,
        (
            "Warsaw [SEP] river",
            "Marie Curie [SEP] place of birth",
            "the river",
            "Paris [sep] river",
        ),
    )
)
CPU = torch.device("cpu")


@pytest.fixture
def relation_judge(judging_kb: KnowledgeBase) -> RelationJudge:
    """The reader's judge with the opposite opinion, on one relation."""
    judge = copy.deepcopy(judging_kb.searcher.reranking.reader.phrase_judge)
    with torch.no_grad():
        judge.outer.weight.neg_()
        judge.retrieval.zero_()
    return RelationJudge(judge, frozenset({"river"}), "the reader")


def test_it_judges_the_slots_of_its_relations(
    judging_kb: KnowledgeBase, relation_judge: RelationJudge
) -> None:
    assert [relation_judge.is_for(query) for query in QUERIES] == [True, False, False, True]
    assert relation_judge.is_for(
        Query.of("Warsaw [SEP] River?")
    )  # it is one query for the default model
    found = judging_kb.query([query.text for query in QUERIES], 6, rerank=0)
    own, mixed = (
        rerank(judging_kb.searcher.reranking.reader, QUERIES, found, 1.0, judge)
        for judge in (None, relation_judge)
    )
    everywhere = RelationJudge(relation_judge.judge, frozenset({"river", "place of birth"}), "")
    other = rerank(judging_kb.searcher.reranking.reader, QUERIES, found, 1.0, everywhere)
    assert mixed == [other[0], own[1], own[2], other[3]]
    assert own[0] != other[0]
    # The search is worth nothing.
    assert [one.answer.score for one in other[0]] == [one.judged for one in other[0]]


def test_it_is_stored_with_its_relations(tmp_path: Path, relation_judge: RelationJudge) -> None:
    relation_judge.save(tmp_path)
    opened = RelationJudge.open(tmp_path, "the reader", CPU)
    assert opened is not None
    assert (opened.relations, opened.reader) == (frozenset({"river"}), "the reader")
    assert opened.fingerprint == relation_judge.fingerprint
    assert opened.judge.retrieval_weight == 0.0
    assert RelationJudge.open(tmp_path / "elsewhere", "the reader", CPU) is None


def test_one_of_another_reader_is_refused(tmp_path: Path, relation_judge: RelationJudge) -> None:
    relation_judge.save(tmp_path)
    with pytest.raises(
        ModelError,
        match=r"judge\.safetensors has learned with another reader than the model has now",
    ):
        RelationJudge.open(tmp_path, "another", CPU)


@pytest.mark.parametrize("relations", [None, "{", '"river"', "[1]"])
def test_one_without_relations_is_refused(
    tmp_path: Path, relation_judge: RelationJudge, relations: str | None
) -> None:
    facts = {"reader": "the reader"} | ({} if relations is None else {"relations": relations})
    save_file(relation_judge.judge.state_dict(), tmp_path / RELATION_JUDGE, facts)
    with pytest.raises(ModelError, match=r"judge\.safetensors"):
        RelationJudge.open(tmp_path, "the reader", CPU)


def test_a_damaged_one_is_refused(tmp_path: Path, relation_judge: RelationJudge) -> None:
    relation_judge.save(tmp_path)
    stored = (tmp_path / RELATION_JUDGE).read_bytes()
    for damaged in (b"", stored[:100], stored[:-1], bytes(8) + stored[8:]):
        (tmp_path / RELATION_JUDGE).write_bytes(damaged)
        with pytest.raises(ModelError, match=r"judge\.safetensors"):
            RelationJudge.open(tmp_path, "the reader", CPU)
    weights = dict(PhraseJudge(3).state_dict())
    del weights["none"]
    save_file(weights, tmp_path / RELATION_JUDGE, {"relations": "[]", "reader": "the reader"})
    with pytest.raises(ModelError, match="none"):
        RelationJudge.open(tmp_path, "the reader", CPU)
