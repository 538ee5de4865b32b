"""Relation judge: teach a copy of the reader's judge the relations of some triples.

Only the judge learns; the reader's states, which it reads, are computed once. It judges the
relations of the triples, and the reader's own judge all other queries, so that nothing is
forgotten. Source: arXiv 2207.06300 (a reranker learns from what its retriever finds).
"""

import copy
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kbq.answers import Answer
from kbq.asking.searcher import Searcher
from kbq.kilt.records import Gold
from kbq.kilt.scores import NO_GROUP, relation_of
from kbq.reading.phrase_windows import ReadWindow, read_around
from kbq.reading.reader import POINTS, PhraseJudge, RelationJudge
from kbq.reading.reranker import answers_in
from kbq.search.options import SearchOptions
from kbq.search.search import BATCH
from kbq.text.answer_scores import best_f1, normalise_answer
from kbq.training.losses import marginal_losses
from kbq.tuning.triples import GoldQuery, pages_of, sample_by_relation

FOLDS = 5  # a fifth of the queries is judged by what the others teach, in turn
QUERIES = 1000  # queries to learn from; more of them hardly teach more
PASSES = 3000  # queries of all epochs, within the bounds on epochs
LEAST_EPOCHS = 3
MOST_EPOCHS = 20
TOGETHER = 64  # queries of a step
# Rates of the layers, and of the worth of the search.
LEARNING_RATE = 3e-4
SCALAR_RATE = 3e-2
DROPOUT = 0.1  # share of the states that the judge reads
NEARLY = 0.5  # F1 with an answer, from which a phrase is nearly right

Label = Literal[
    "right",
    "nearly",  # shares half of its words with an answer
    "elsewhere",  # the answer, on a page that is not named: it may be right or wrong
    "wrong",
]


@dataclass(frozen=True, slots=True)
class SeenQuery:
    """The phrases that were found for a query and read."""

    edges: Tensor  # Shape: (phrases, 2 dim)
    edge_logits: Tensor  # Shape: (phrases,)
    distances: Tensor  # distances from the best score of the search. Shape: (phrases,)
    labels: tuple[Label, ...]


def teach_judge(kb: Searcher, golds: Sequence[Gold], seed: int) -> RelationJudge | None:
    """Teach a copy of the judge of `kb`; return None if no query is a slot, or fewer would be
    answered rightly.

    It learns from a sample of the slots in `golds`. Right answers are counted among queries that it
    did not learn from: four fifths teach, one fifth is judged, in turn. The query encoder of `kb`
    must not have been tuned on them: it would find their answers first, and a judge would learn to
    trust the search.
    """
    slots = [gold for gold in golds if relation_of(gold) != NO_GROUP]
    seen = seen_queries(kb, list(map(GoldQuery.of, sample_by_relation(slots, QUERIES, seed))))
    before = kb.reranking.relation_judge
    judge = kb.reranking.reader.phrase_judge
    if before:
        judge = before.judge
    own = copy.deepcopy(judge).cpu()
    folds = []
    if len(seen) >= FOLDS:
        folds = [seen[fold::FOLDS] for fold in range(FOLDS)]
    gained = 0
    for fold in folds:
        others = [query for each in folds if each is not fold for query in each]
        gained += right(trained_judge(own, others, seed), fold) - right(own, fold)

    if not folds or gained < 0:
        return None
    relations = frozenset(map(relation_of, slots))
    if before:
        relations |= before.relations
    return RelationJudge(
        trained_judge(own, seen, seed).to(kb.model.device), relations, kb.reranking.reader_digest
    )


def percent_right(
    kb: Searcher, golds: Sequence[GoldQuery], judges: Sequence[PhraseJudge]
) -> list[float]:
    """Return the percentage of queries whose best phrase is right, by each judge."""
    seen = seen_queries(kb, golds)
    return [
        round(100 * right(copy.deepcopy(judge).cpu(), seen) / max(1, len(seen)), 2)
        for judge in judges
    ]


def seen_queries(kb: Searcher, golds: Sequence[GoldQuery]) -> list[SeenQuery]:
    """Ask queries, and read the phrases found without judging them; queries without any are left
    out.
    """
    reader = kb.reranking.reader
    options = SearchOptions(kb.reranking.n_reranked(SearchOptions()), rerank=0)
    asked = [each for each in golds if reader.query_tokenizer.accepts(each.query.text)]
    seen: list[SeenQuery] = []

    for begin in range(0, len(asked), BATCH):
        part = asked[begin : begin + BATCH]
        queries = [each.query for each in part]
        hits = kb.search(queries, options)
        with torch.no_grad():
            ids = [reader.query_tokenizer.ids_of(query.text) for query in queries]
            read = read_around(reader, ids, hits, [query.subject for query in queries])

        score_scale = kb.plan(options).score_scale
        for each, windows, phrases in zip(part, read, map(answers_in_all, read, hits), strict=True):
            if not windows:
                continue
            scores = torch.tensor([phrase.score for phrase in phrases])
            edges = torch.cat([window.edges for window in windows]).cpu()
            edge_logits = torch.cat([window.edge_logits for window in windows]).cpu()
            distances = score_scale * (scores - scores.max())
            labels = labels_of(phrases, each.gold.answers, pages_of(each.gold))
            seen.append(SeenQuery(edges, edge_logits, distances, labels))

    return seen


def answers_in_all(windows: Sequence[ReadWindow], phrases: Sequence[Answer]) -> list[Answer]:
    """Return all phrases of some windows, found by the search or proposed by the reader."""
    return [phrase for window in windows for phrase in answers_in(window.excerpt, phrases)]


def labels_of(
    phrases: Iterable[Answer], answers: Iterable[str], pages: Collection[str]
) -> tuple[Label, ...]:
    """Say how right each phrase is. `pages`: ids or titles of those where an answer is right, or
    none for anywhere.
    """
    golds = {normalise_answer(answer) for answer in answers} - {""}

    def label(phrase: Answer) -> Label:
        text = normalise_answer(phrase.text)
        is_on_page = not pages or phrase.page_id in pages or phrase.title in pages
        if text in golds:
            return "right" if is_on_page else "elsewhere"
        if golds and is_on_page and best_f1(text, golds) >= NEARLY:
            return "nearly"
        return "wrong"

    return tuple(map(label, phrases))


def trained_judge(judge: PhraseJudge, seen: Sequence[SeenQuery], seed: int) -> PhraseJudge:
    judge = copy.deepcopy(judge).requires_grad_(True)
    rng = random.Random(seed)
    torch.manual_seed(seed)
    layers = [*judge.inner.parameters(), *judge.outer.parameters(), judge.none]
    rates = [
        {"params": layers, "lr": LEARNING_RATE},
        {"params": [judge.retrieval], "lr": SCALAR_RATE},
    ]
    optimizer = torch.optim.AdamW(rates, weight_decay=0.0)

    for _ in range(max(LEAST_EPOCHS, min(MOST_EPOCHS, PASSES // len(seen)))):
        order = rng.sample(range(len(seen)), len(seen))
        for begin in range(0, len(order), TOGETHER):
            queries = [seen[number] for number in order[begin : begin + TOGETHER]]
            scores = scores_of(judge, queries, DROPOUT)
            losses = [
                phrase_loss(each, query.labels) for each, query in zip(scores, queries, strict=True)
            ]
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return judge.requires_grad_(False)


def phrase_loss(scores: Tensor, labels: Sequence[Label]) -> Tensor:
    """Return -log of the share of the right phrases among all and "none", or 0 if it is unknown
    which are right.

    `scores`: logarithms of odds against "none". Shape: (phrases,).

    >>> scores = torch.tensor([3.0, 1.0, 9.0]).log()
    >>> round(float((-phrase_loss(scores, ["right", "wrong", "elsewhere"])).exp()), 4)  # 3 of 3 + 1 + 1
    0.6
    >>> float(phrase_loss(scores, ["nearly", "wrong", "wrong"]))
    0.0
    """
    none_is_right = all(label == "wrong" for label in labels)
    gold = [*(label == "right" for label in labels), none_is_right]
    takes_part = [*(label != "elsewhere" for label in labels), True]
    competing = torch.cat([scores, scores.new_zeros(1)])
    masks = (torch.tensor([mask], device=scores.device) for mask in (gold, takes_part))
    return marginal_losses(competing[None], *masks)[0]


def right(judge: PhraseJudge, seen: Sequence[SeenQuery]) -> int:
    if not seen:
        return 0
    with torch.no_grad():
        best = [int(scores.argmax()) for scores in scores_of(judge, seen)]
    return sum(query.labels[number] == "right" for query, number in zip(seen, best, strict=True))


def scores_of(
    judge: PhraseJudge, seen: Sequence[SeenQuery], dropout: float = 0.0
) -> tuple[Tensor, ...]:
    """Score the phrases of some queries; shapes: (phrases,) each. `dropout`: share of the edges
    that is not seen.
    """
    edges = torch.cat([query.edges for query in seen])
    edge_logits = torch.cat([query.edge_logits for query in seen])
    searched = judge.retrieval * torch.cat([query.distances for query in seen]) / POINTS
    scores: Tensor = judge(nn.functional.dropout(edges, dropout)) + edge_logits + searched
    return torch.split(scores, [len(query.labels) for query in seen])
