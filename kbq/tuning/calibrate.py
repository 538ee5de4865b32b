"""Calibrate: fit the probability that an answer is right to known triples. `kbq calibrate`.

A share of the queries is asked a second time without their evidence, half of these without the
sentences, half without the pages: so there are queries with nothing right, too. Triples without an
object are cells that the text does not fill. A few triples change little of the model's own
calibration, that of queries or that of cells of tables; many replace it. The scores of the outcome
are of relations that were left out when they were predicted.

Only the judge learns; the reader's states, which it reads, are computed once. It judges the
relations of the triples, and the reader's own judge all other queries, so that nothing is
forgotten. Source: arXiv 2207.06300 (a reranker learns from what its retriever finds).
"""

import copy
import random
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from kbq.answers import Answer
from kbq.array_types import Bools, Doubles, Rows
from kbq.asking.searcher import Searcher
from kbq.english.sentences import sentence_bounds
from kbq.errors import TrainingError
from kbq.kilt.confidence import (
    PRECISIONS,
    auroc,
    brier,
    coverage_at,
    promised_threshold,
    reliability,
)
from kbq.kilt.records import Gold
from kbq.kilt.scores import NO_GROUP, relation_of
from kbq.model.queries import readable_queries
from kbq.reading.phrase_windows import ReadWindow, read_around
from kbq.reading.probability import (
    FEATURES,
    Calibration,
    chances_of,
    features,
    fit,
    own_calibration,
)
from kbq.reading.reader import POINTS, PhraseJudge, RelationJudge
from kbq.reading.reranker import answers_in, rerank
from kbq.search.options import Purpose, SearchOptions
from kbq.search.search import BATCH
from kbq.storage.folders import make_folders
from kbq.storage.reading import file_digest
from kbq.storage.reports import Note, unheard
from kbq.storage.writing import writing_to
from kbq.text.answer_scores import best_f1, normalise_answer
from kbq.text.whole_words import whole_words
from kbq.training.losses import marginal_losses
from kbq.training.output_folder import versions
from kbq.tuning.settings import HIDDEN
from kbq.tuning.triples import DECIDED, GoldQuery, pages_of, read_triples, sample_by_relation

DEEPER = 4  # times as many phrases are searched for, where pages are hidden
LEAST = 30  # queries: fewer say nothing
FOLDS = 5  # relations are left out a fifth at a time

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
class CalibrationOutcome:
    """The fitted calibration, with its scores on relations that were left out, or None if a score
    does not exist.
    """

    out: Path
    purpose: Purpose  # what it is for
    queries: int  # queries, those that are asked again among them
    hidden: int  # asked again without their evidence
    right: int
    auroc: float | None
    brier: float | None
    ece: float | None
    ece_of_chance: float | None  # error of a perfect calibration with this many queries
    # Share of the queries whose answers can be accepted while nine in ten are right.
    coverage_90: float | None
    thresholds: dict[str, float | None]  # probability above which each precision can be promised


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """The best phrase for a query."""

    relation: str
    is_hidden: bool  # found without the query's evidence
    features: tuple[float, ...]
    is_right: bool


def calibrate(
    kb: Searcher,
    triples: str | Path,
    out: str | Path,
    options: SearchOptions,
    *,
    purpose: Purpose | None = None,
    hidden: float = HIDDEN,
    command: str = "",
    note: Note = unheard,
    report: Callable[[int, int], None] = unheard,
) -> CalibrationOutcome:
    """Fit a calibration for a knowledge base's model and way of searching; see
    `KnowledgeBase.calibrate`.

    `purpose`: what it is for; by default cells, if all triples are decisions on a table, else
    queries. `hidden`: share of the queries that are asked again without the sentences, or pages,
    that answer them. Raises TrainingError if there are fewer than 30 queries, all answers are
    right, none is, or nothing is reranked.
    """
    if purpose not in (None, *get_args(Purpose)):
        raise TrainingError(f"purpose is {purpose!r:.60}, must be query or cell", is_usage=True)
    if not 0 <= hidden <= 1:
        raise TrainingError(f"hidden is {hidden}, must be a share from 0 to 1")
    if not kb.plan(options).n_reranked:
        raise TrainingError(
            "probabilities rest on the reranker, and there is none: leave out --rerank=0"
        )

    triples = Path(triples)
    out = Path(out)
    golds = read_triples(triples, unanswered=True, note=note)
    options = replace(options, purpose=purpose or usual_purpose(golds))
    queries = readable_queries(
        [gold.input or "" for gold in golds],
        kb.query_tokenizers(options),
        [gold.id for gold in golds],
    )
    asked = list(map(GoldQuery, golds, queries))
    facts = {"command": command, "data": {triples.name: file_digest(triples)}, "hidden": hidden}
    if out.is_dir():
        raise TrainingError(f"{out} is a folder: give --out the name of a file")
    with writing_to(out.parent, TrainingError):  # checked first: asking queries takes minutes
        make_folders(out.parent)
        tempfile.TemporaryFile(dir=out.parent).close()

    rows = judge(kb, asked, options, hidden, report)
    _refuse_useless(rows, str(triples))
    return write_calibration(kb, rows, out, options, facts)


def usual_purpose(golds: Iterable[Gold]) -> Purpose:
    """Return what triples are of: cells, if all of them are decisions on a table, else queries."""
    if all(gold.meta.get(DECIDED) for gold in golds):
        return "cell"
    return "query"


def judge(
    kb: Searcher,
    golds: Sequence[GoldQuery],
    options: SearchOptions,
    hidden: float = HIDDEN,
    report: Callable[[int, int], None] = unheard,
) -> list[JudgedAnswer]:
    """Judge the best phrase for each query, and for a share of them the best one without the
    evidence.
    """
    again = [asked for asked in golds if asked.gold.answers and _is_chosen(asked.gold.id, hidden)]
    asked = [(each, False) for each in golds] + [(each, True) for each in again]
    judged: list[JudgedAnswer] = []
    for first in range(0, len(asked), BATCH):
        judged += _judge(kb, asked[first : first + BATCH], options)
        report(len(judged), len(asked))
    return judged


def teaches(kb: Searcher, judged: Sequence[JudgedAnswer]) -> bool:
    """Whether answers are enough to learn probabilities from; without a calibration, some must be
    right.
    """
    right = sum(judged_answer.is_right for judged_answer in judged)
    return len(judged) >= LEAST and (
        own_calibration(kb.model) is not None or 0 < right < len(judged)
    )


def write_calibration(
    kb: Searcher,
    judged: Sequence[JudgedAnswer],
    out: Path,
    options: SearchOptions,
    facts: Mapping[str, object],
    *,
    promises: bool = True,
) -> CalibrationOutcome:
    """Fit a calibration to judged answers and write it.

    Args:
        promises: whether its thresholds promise a precision: not where the answers are of another
            kind than those that it is for.
    """
    rows = np.array([judged_answer.features for judged_answer in judged], np.float64).reshape(
        -1, len(FEATURES)
    )
    right = np.array([judged_answer.is_right for judged_answer in judged], np.bool_)
    before = own_calibration(kb.model, options.purpose)
    chances = _predicted([judged_answer.relation for judged_answer in judged], rows, right, before)
    thresholds = {
        str(each): promised_threshold(chances, right, each) if promises else None
        for each in PRECISIONS
    }
    measured = reliability(chances, right)
    coverage = coverage_at(chances, right, 0.9)
    scores: dict[str, Any] = {
        "auroc": auroc(chances, right),
        "brier": brier(chances, right),
        "ece": measured and measured.ece,
        "ece_of_chance": measured and measured.floor,
        "coverage_90": coverage.share,
        "thresholds": thresholds,
    }
    weights, intercept = fit(rows, right, before)
    by_feature = dict(zip(FEATURES, weights, strict=True))
    made_by = dict(facts) | versions() | {"scores": scores}
    rights = int(right.sum())
    calibration = Calibration(
        kb.plan(options).mode,
        weights=by_feature,
        intercept=intercept,
        queries=len(right),
        right=rights,
        thresholds=thresholds,
        facts=made_by,
        purpose=options.purpose,
    )
    calibration.write(out)
    hidden = sum(answer.is_hidden for answer in judged)

    return CalibrationOutcome(out, options.purpose, len(right), hidden, rights, **scores)


def _is_chosen(identity: str, share: float) -> bool:
    """Whether a record is in this share of all: by its id, so that it does not depend on the
    others.
    """
    return zlib.crc32(identity.encode("utf-8", "surrogatepass")) < share * 2**32


def _judge(
    kb: Searcher, asked: Sequence[tuple[GoldQuery, bool]], options: SearchOptions
) -> list[JudgedAnswer]:
    """Judge the best phrase for each query; with True, the best one without the evidence."""
    plan = kb.plan(options)
    n_reranked = plan.n_reranked
    queries = [each.query for each, _ in asked]
    deep = n_reranked
    if any(is_hidden for _, is_hidden in asked):
        deep = DEEPER * n_reranked
    hits_of = kb.search(queries, replace(options, k=deep, unit="phrase", rerank=0))
    phrases = [
        [*(_unanswering(each.gold, hits) if is_hidden else hits)][:n_reranked]
        for (each, is_hidden), hits in zip(asked, hits_of, strict=True)
    ]
    judged = []
    reranked = rerank(
        kb.reranking.reader, queries, phrases, plan.score_scale, kb.reranking.relation_judge
    )

    for (each, is_hidden), seen in zip(asked, reranked, strict=True):
        if seen:
            answers = {normalise_answer(answer) for answer in each.gold.answers}
            row = tuple(features(each.query, seen, plan.naming(each.query))[0].tolist())
            judged.append(
                JudgedAnswer(
                    relation_of(each.gold),
                    is_hidden,
                    row,
                    normalise_answer(seen[0].answer.text) in answers,
                )
            )

    return judged


def _unanswering(gold: Gold, hits: Sequence[Answer]) -> Iterable[Answer]:
    """Leave out phrases on the pages that answer a query, or the sentences that do from their
    paragraphs.
    """
    if pages_of(gold) and _is_chosen(f"page {gold.id}", 0.5):
        return (hit for hit in hits if not pages_of(gold) & {hit.page_id, hit.title})
    return without_evidence(hits, sorted(gold.answers))


def _refuse_useless(judged: Sequence[JudgedAnswer], source: str) -> None:
    count = len(judged)
    of_right = sum(judged_answer.is_right for judged_answer in judged)
    if count < LEAST:
        raise TrainingError(
            f"{source} gives {count} answers to learn from, {LEAST} are needed: give more triples"
        )

    if of_right in (0, count):
        raise TrainingError(
            f"{'all' if of_right else 'none'} of the {count} answers are right, so there is "
            "nothing to tell apart: give triples that are partly answered wrongly, or check that "
            "they fit the knowledge base"
        )


def _predicted(
    relations: Sequence[str], rows: Doubles, right: Bools, before: Calibration | None
) -> Doubles:
    """Predict the chance of each answer from answers to other relations or, for a question, to
    other questions.

    If one fold has all relations, other answers predict it.
    """
    numbers = [str(number) for number in range(len(relations))]
    folds = _folds(
        [
            number if name == NO_GROUP else name
            for name, number in zip(relations, numbers, strict=True)
        ]
    )
    if len(set(folds.tolist())) == 1:
        folds = _folds(numbers)
    chances = np.empty(len(right))
    for fold in range(FOLDS):
        inside = folds == fold
        if inside.any():
            weights, intercept = fit(rows[~inside], right[~inside], before)
            chances[inside] = chances_of(rows[inside], weights, intercept)

    return chances


def _folds(keys: Iterable[str]) -> Rows:
    return np.array(
        [zlib.crc32(key.encode("utf-8", "surrogatepass")) % FOLDS for key in keys], np.int64
    )


# Texts that discuss a subject, and are silent


def without_evidence(phrases: Sequence[Answer], answers: Sequence[str]) -> Iterator[Answer]:
    """Yield the phrases that stand in no sentence with an answer, in paragraphs without these
    sentences.

    So pages discuss a subject and are silent, and any query becomes one that is not answered.
    Source: arXiv 1806.03822 (questions that a paragraph seems to answer, and does not).
    """
    texts = {phrase.place[:2]: phrase.context for phrase in phrases}
    rests = {span: without_sentences(text, answers) for span, text in texts.items()}
    for phrase in phrases:
        rest, kept = rests[phrase.place[:2]]
        for start, stop, begin in kept:
            if start <= phrase.start and phrase.end <= stop:
                span = phrase.start - start + begin, phrase.end - start + begin
                yield replace(phrase, context=rest, start=span[0], end=span[1], unit=span)


def without_sentences(text: str, answers: Sequence[str]) -> tuple[str, list[tuple[int, int, int]]]:
    """Remove sentences that hold an answer; return the rest, with the characters kept: [start, end)
    and new start.

    >>> without_sentences("Ada was a poet. She died in 1852. Her father was Byron.", ["1852"])
    ('Ada was a poet. Her father was Byron.', [(0, 16, 0), (34, 55, 16)])
    """
    starts = [
        start
        for answer in answers
        if answer.strip()
        for start in whole_words(text, answer, in_any_case=True)
    ]
    bounds = sentence_bounds(text)
    kept = []
    rest = ""

    for (start, _), stop in zip(
        bounds, [*(start for start, _ in bounds[1:]), len(text)], strict=True
    ):
        if not any(start <= start_of < stop for start_of in starts):
            kept.append((start, stop, len(rest)))
            rest += text[start:stop]

    return rest, kept


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
