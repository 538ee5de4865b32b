"""Reranker: triples teach its judge which of the phrases found for their slots are right.

Only the judge learns; what it reads, the reader's states, is computed once. It judges the relations of the triples, and
the reader's own judge all other queries, so that nothing is forgotten. Source: arXiv 2207.06300 (a reranker learns from
what its retriever finds).
"""

import copy
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kbq.answers import Answer, SearchOptions
from kbq.kilt.records import Gold
from kbq.kilt.scores import NO_GROUP, relation_of
from kbq.reading.network import POINTS, PhraseJudge, RelationJudge
from kbq.reading.phrase_windows import ReadWindow, read_around
from kbq.reading.reranker import answers_in
from kbq.search.search import BATCH
from kbq.text.answer_scores import best_f1, normalise
from kbq.text.letters import clean_text
from kbq.training.losses import marginal_losses
from kbq.tuning.labels import TunableKb
from kbq.tuning.triples import pages_of, sample_by_relation

QUERIES = 1000  # teach; more of them hardly teach more
PASSES = 3000  # queries of all epochs, within the bounds on epochs
LEAST_EPOCHS, MOST_EPOCHS = 3, 20
TOGETHER = 64  # queries of a step
LEARNING_RATE, SCALAR_RATE = 3e-4, 3e-2  # of the layers, and of what the search is worth
DROPOUT = 0.1  # of what the judge reads
FOLDS = 5
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
    tokens: Tensor  # Shape: (phrases,)
    distances: Tensor  # from the best score of the search. Shape: (phrases,)
    labels: tuple[Label, ...]


def teach_judge(kb: TunableKb, golds: Sequence[Gold], seed: int) -> RelationJudge | None:
    """Teach a copy of the judge that `kb` has; None where no query is a slot, or fewer would be answered rightly.

    The right ones are counted among queries that did not teach: four fifths teach, one fifth is judged, in turn. A
    sample of the slots in `golds` teaches. The query encoder of `kb` must not have been tuned on them: it would find
    their answers first, and a judge would learn to trust the search.
    """
    slots = [gold for gold in golds if relation_of(gold) != NO_GROUP]
    seen = seen_queries(kb, sample_by_relation(slots, QUERIES, seed))
    before = kb.reranking.relation_judge
    own = copy.deepcopy(before.judge if before else kb.reranking.reader.reranking[1]).cpu()
    folds = [seen[fold::FOLDS] for fold in range(FOLDS)] if len(seen) >= FOLDS else []
    gained = 0
    for fold in folds:
        others = [query for each in folds if each is not fold for query in each]
        gained += right(taught_by(own, others, seed), fold) - right(own, fold)
    if not folds or gained < 0:
        return None
    relations = frozenset(map(relation_of, slots)) | (before.relations if before else frozenset())
    return RelationJudge(taught_by(own, seen, seed).to(kb.model.device), relations, kb.reranking.reader_digest)


def percent_right(kb: TunableKb, golds: Sequence[Gold], judges: Sequence[PhraseJudge]) -> list[float]:
    """Return the percentage of queries whose best phrase is right, by each judge."""
    seen = seen_queries(kb, golds)
    return [round(100 * right(copy.deepcopy(judge).cpu(), seen) / max(1, len(seen)), 2) for judge in judges]


def seen_queries(kb: TunableKb, golds: Sequence[Gold]) -> list[SeenQuery]:
    """Ask queries, and read what is found without judging it; those for which nothing is found are left out."""
    reader, options = kb.reranking.reader, SearchOptions(kb.reranking.n_reranked(SearchOptions()), rerank=0)
    asked = [(clean_text(gold.input or ""), gold) for gold in golds]
    asked = [(text, gold) for text, gold in asked if reader.query_tokenizer.accepts(text)]
    seen: list[SeenQuery] = []
    for begin in range(0, len(asked), BATCH):
        texts, part = zip(*asked[begin : begin + BATCH], strict=True)
        found = kb.search(texts, options)
        with torch.no_grad():
            read = read_around(reader, [reader.query_tokenizer.ids_of(text) for text in texts], found)
        seen += [
            _seen(gold, answers_in_all(windows, phrases), windows, kb.plan(options).score_scale)
            for gold, phrases, windows in zip(part, found, read, strict=True)
            if windows
        ]
    return seen


def answers_in_all(windows: Sequence[ReadWindow], phrases: Sequence[Answer]) -> list[Answer]:
    """Return what is judged in some windows: the phrases that were found, and those that the reader proposes."""
    return [phrase for window in windows for phrase in answers_in(window.excerpt, phrases)]


def _seen(gold: Gold, phrases: Sequence[Answer], windows: Sequence[ReadWindow], score_scale: float) -> SeenQuery:
    scores = torch.tensor([phrase.score for phrase in phrases])
    edges = torch.cat([window.edges for window in windows]).cpu()
    tokens = torch.cat([window.tokens for window in windows]).cpu()
    return SeenQuery(
        edges, tokens, score_scale * (scores - scores.max()), labels_of(phrases, gold.answers, pages_of(gold))
    )


def labels_of(phrases: Iterable[Answer], answers: Iterable[str], pages: Collection[str]) -> tuple[Label, ...]:
    """Say how right each phrase is. `pages`: ids or titles of those where an answer is right; none: it is anywhere."""
    wanted = {normalise(answer) for answer in answers} - {""}

    def label(phrase: Answer) -> Label:
        text, is_on_page = normalise(phrase.text), not pages or phrase.page_id in pages or phrase.title in pages
        if text in wanted:
            return "right" if is_on_page else "elsewhere"
        return "nearly" if wanted and is_on_page and best_f1(text, wanted) >= NEARLY else "wrong"

    return tuple(map(label, phrases))


def taught_by(judge: PhraseJudge, seen: Sequence[SeenQuery], seed: int) -> PhraseJudge:
    """Return a copy of a judge that has learned from some queries."""
    judge, rng = copy.deepcopy(judge).requires_grad_(True), random.Random(seed)
    torch.manual_seed(seed)
    layers = [*judge.inner.parameters(), *judge.outer.parameters(), judge.none]
    rates = [{"params": layers, "lr": LEARNING_RATE}, {"params": [judge.retrieval], "lr": SCALAR_RATE}]
    optimizer = torch.optim.AdamW(rates, weight_decay=0.0)
    for _ in range(max(LEAST_EPOCHS, min(MOST_EPOCHS, PASSES // len(seen)))):
        order = rng.sample(range(len(seen)), len(seen))
        for begin in range(0, len(order), TOGETHER):
            queries = [seen[number] for number in order[begin : begin + TOGETHER]]
            scores = scores_of(judge, queries, DROPOUT)
            losses = [phrase_loss(each, query.labels) for each, query in zip(scores, queries, strict=True)]
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return judge.requires_grad_(False)


def phrase_loss(scores: Tensor, labels: Sequence[Label]) -> Tensor:
    """Return -log of the share of the right phrases among all and "none"; 0 where it is not known what is right.

    `scores`: logarithms of odds against "none". Shape: (phrases,).

    >>> scores = torch.tensor([3.0, 1.0, 9.0]).log()
    >>> round(float((-phrase_loss(scores, ["right", "wrong", "elsewhere"])).exp()), 4)  # 3 of 3 + 1 + 1
    0.6
    >>> float(phrase_loss(scores, ["nearly", "wrong", "wrong"]))
    0.0
    """
    gold = [*(label == "right" for label in labels), all(label == "wrong" for label in labels)]
    takes_part = [*(label != "elsewhere" for label in labels), True]
    competing = torch.cat([scores, scores.new_zeros(1)])
    masks = (torch.tensor([mask], device=scores.device) for mask in (gold, takes_part))
    return marginal_losses(competing[None], *masks)[0]


def right(judge: PhraseJudge, seen: Sequence[SeenQuery]) -> int:
    """Count the queries whose best phrase is right."""
    if not seen:
        return 0
    with torch.no_grad():
        best = [int(scores.argmax()) for scores in scores_of(judge, seen)]
    return sum(query.labels[number] == "right" for query, number in zip(seen, best, strict=True))


def scores_of(judge: PhraseJudge, seen: Sequence[SeenQuery], dropout: float = 0.0) -> tuple[Tensor, ...]:
    """Score the phrases of some queries; shapes: (phrases,) each. `dropout`: share of the edges that is not seen."""
    edges, tokens = torch.cat([query.edges for query in seen]), torch.cat([query.tokens for query in seen])
    searched = judge.retrieval * torch.cat([query.distances for query in seen]) / POINTS
    scores: Tensor = judge(nn.functional.dropout(edges, dropout)) + tokens + searched
    return torch.split(scores, [len(query.labels) for query in seen])
