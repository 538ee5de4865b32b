"""Recall: probes are chosen by recall measured on queries, and slot queries are about pages of the
dump.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kbq.answers import Answer, BuiltKind
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.index.factory import build_missing
from kbq.kb import KnowledgeBase
from kbq.maintain import indexes
from kbq.maintain.indexes import SLOTS, own_queries, recall, tune_probes
from kbq.model.model import Model

CPU = torch.device("cpu")


def hit(start: int) -> Answer:
    return Answer("w", 1.0, "P1", "Page", 0, start, start + 1, "w w w", (start, start + 1))


@pytest.mark.parametrize(
    ("exact", "found", "share"),
    [
        ([[hit(0), hit(2)]], [[hit(2), hit(0)]], 1.0),
        ([[hit(0), hit(2)]], [[hit(2), hit(4)]], 0.5),
        ([[hit(0), hit(2)], [hit(0)]], [[hit(0)], []], 0.25),
        ([[hit(0)], []], [[hit(0)], [hit(1)]], 1.0),
        ([[]], [[]], 1.0),
        ([], [], 1.0),
    ],
)
def test_recall(exact: list[list[Answer]], found: list[list[Answer]], share: float) -> None:
    assert recall(exact, found) == share


@pytest.mark.parametrize("kind", ["disk", "compact"])
@pytest.mark.parametrize("target", [0.0, 0.9, 0.98])
def test_the_fewest_probes_that_reach_the_target(
    kind: BuiltKind, target: float, random_shard: Callable[..., Shard]
) -> None:
    pytest.importorskip("faiss")
    shards = [random_shard(*[20] * 60), random_shard(3, 4, seed=1), random_shard(0, seed=2)]
    queries = np.random.default_rng(0).normal(size=(20, 2, 16)).astype(np.float32)
    build_missing(shards, IndexEntry(kind), queries.reshape(-1, 16))
    entry = tune_probes(shards, IndexEntry(kind, target=target), queries, CPU)
    assert (entry.kind, entry.target, entry.queries) == (kind, target, 20)
    assert entry.recall >= target
    if (
        target == 0.98
    ):  # of 30 cells; compact asks for a third of these rows, and so of the cells, at the least
        assert entry.probes < 30
        assert entry.probes > 1 or kind == "compact"
    fewer = replace(entry, target=entry.recall + 0.001)
    assert tune_probes(shards, fewer, queries, CPU).probes > entry.probes


def test_a_target_that_no_number_of_probes_reaches_is_not_claimed(
    random_shard: Callable[..., Shard],
) -> None:
    pytest.importorskip("faiss")
    shards = [random_shard(*[20] * 60)]
    queries = np.random.default_rng(0).normal(size=(20, 2, 16)).astype(np.float32)
    build_missing(shards, IndexEntry("disk"), queries.reshape(-1, 16))
    entry = tune_probes(shards, IndexEntry("disk", target=2.0), queries, CPU)
    assert (entry.recall, entry.target) == (1.0, 2.0)
    assert entry == replace(
        tune_probes(shards, replace(entry, target=1.0), queries, CPU), target=2.0
    )


@pytest.mark.parametrize(
    ("target", "needed", "asked", "taken"),
    [
        (2.0, 17, [1, 2, 4, 8, 16, 30, 23, 19, 17], 17),  # of 30 cells; 17 find as much as all
        (2.0, 1, [1, 2, 4, 8, 16, 30], 1),
        (1.0, 9, [1, 2, 4, 8, 16, 12, 10, 9], 9),
        (0.5, 10, [1, 2, 4, 8, 6, 5], 5),
        (0.0, 10, [1], 1),
    ],
)
def test_which_numbers_of_probes_are_tried(
    target: float,
    needed: int,
    asked: list[int],
    taken: int,
    random_shard: Callable[..., Shard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def open_index(shards: object, entry: IndexEntry, device: object, may_leave_gpu: bool) -> int:
        tried.extend([entry.probes] * (entry.kind != "exact"))
        return entry.probes

    monkeypatch.setattr(indexes, "open_index", open_index)
    monkeypatch.setattr(
        indexes, "search", lambda context, queries, *_: [[context.index] for _ in queries]
    )
    monkeypatch.setattr(indexes, "recall", lambda exact, found: min(1.0, found[0][0] / needed))
    queries = np.zeros((3, 2, 16), np.float32)
    entry = IndexEntry("compact", target=target)
    found = tune_probes([random_shard(*[20] * 60)], entry, queries, CPU)
    assert tried == asked
    assert found == replace(entry, probes=taken, recall=min(1.0, taken / needed), queries=3)


def test_own_queries_ask_for_slots_of_own_pages(kb: KnowledgeBase, pages: list[Page]) -> None:
    queries = own_queries(kb.searcher.shards, kb.model, 50)
    assert queries == own_queries(kb.searcher.shards, kb.model, 50)
    assert len(queries) == 50
    titles = {page.title for page in pages}
    for query in queries:
        title, slot = query.split(" [SEP] ")
        assert title in titles
        assert slot in SLOTS


def test_where_a_title_cannot_be_asked_the_slot_is(model: Model, tmp_path: Path) -> None:
    titles = ["", "a [SEP] b", "long " * 800, "Paris"]
    pages = [
        Page(f"P{number}", title, (Paragraph(0, "the city"),))
        for number, title in enumerate(titles)
    ]
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model)
    for query in own_queries(kb.searcher.shards, model, 50):
        assert query.removeprefix("Paris [SEP] ") in SLOTS
    assert set(own_queries([], model, 50)) <= set(SLOTS)
