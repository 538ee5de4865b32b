"""Keeping: nothing has moved before tuning; divergence is the formula's, and agreement counts
answers.
"""

import numpy as np
import pytest
import torch

from kbq.kb import KnowledgeBase
from kbq.tuning.labels import penalties, retrieve, vectors
from kbq.tuning.query_side import Distillation

LEARNED = ["Marie [SEP] river", "who is Curie?", "Warsaw [SEP] of the place"]
WATCHED = ["Paris [SEP] city", "Marie [SEP] place", "born in [START_ENT] Warsaw [END_ENT]", "Curie"]


@pytest.fixture
def distillation(own_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> Distillation:
    monkeypatch.setattr("kbq.model.devices.fast_dtype", lambda device: torch.float32)
    return Distillation(own_kb.searcher, LEARNED, WATCHED, k=20)


def change(kb: KnowledgeBase, by: float) -> None:
    with torch.no_grad():
        kb.model.queries.start_head.get_parameter("bias").add_(
            by * torch.linspace(-1, 1, kb.model.dim)
        )


def test_nothing_has_moved_at_first(distillation: Distillation) -> None:
    assert distillation.divergences([0, 1, 2]).tolist() == pytest.approx([0, 0, 0], abs=2e-3)
    assert distillation.agreement() == 1.0


def test_divergence_is_that_of_two_softmaxes(
    distillation: Distillation, own_kb: KnowledgeBase
) -> None:
    before = retrieve(own_kb.searcher, *own_kb.model.encode_queries(LEARNED), 20)
    change(own_kb, 3.0)
    starts, ends = own_kb.model.encode_queries(LEARNED)
    for query, phrases in enumerate(before):
        first, last = (column.astype(np.float64) for column in vectors(own_kb.searcher, phrases))
        scores = (
            phrases.scores.astype(np.float64),
            first @ starts[query] + last @ ends[query] - penalties(own_kb.searcher, phrases),
        )
        old, new = (np.exp(each - each.max()) / np.exp(each - each.max()).sum() for each in scores)
        assert distillation.divergences([query]).tolist()[0] == pytest.approx(
            (old * np.log(old / new)).sum(), rel=0.02
        )


def test_queries_are_counted_on_from_the_first(
    distillation: Distillation, own_kb: KnowledgeBase
) -> None:
    change(own_kb, 3.0)
    assert distillation.divergences([1, 4, 301]).tolist() == pytest.approx(
        3 * distillation.divergences([1]).tolist(), rel=1e-3
    )


def test_agreement_is_the_share_of_answers_that_are_what_they_were(
    distillation: Distillation, own_kb: KnowledgeBase
) -> None:
    def answers() -> list[tuple[str, str]]:
        found = own_kb.query(WATCHED, 1, backend="dense", rerank=0)
        return [(hits[0].page_id, hits[0].text) for hits in found]

    before = answers()
    change(own_kb, 30.0)
    same = sum(one == other for one, other in zip(before, answers(), strict=True))
    assert same < len(WATCHED)
    assert distillation.agreement() == same / len(WATCHED)


def test_divergence_pulls_the_query_encoder_back(
    distillation: Distillation, own_kb: KnowledgeBase
) -> None:
    change(own_kb, 3.0)
    bias = own_kb.model.queries.start_head.get_parameter("bias")
    first = distillation.divergences([0, 1, 2]).mean()
    first.backward()  # type: ignore[no-untyped-call]
    assert bias.grad is not None
    with torch.no_grad():
        bias.sub_(0.1 * bias.grad / bias.grad.norm())
    assert distillation.divergences([0, 1, 2]).mean().item() < first.item()
