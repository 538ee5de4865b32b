"""Calibrate: fit the probability that an answer is right to known triples. `kbq calibrate`.

A share of the queries is asked a second time without their evidence, half of these without the
sentences, half without the pages: so there are queries with nothing right, too. Triples without an
object are cells that the text does not fill. A few triples change little of the model's own
calibration, that of queries or that of cells of tables; many replace it. The scores of the outcome
are of relations that were left out when they were predicted.
"""

import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

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
from kbq.reading.probability import (
    FEATURES,
    Calibration,
    chances_of,
    features,
    fit,
    own_calibration,
)
from kbq.reading.reranker import rerank
from kbq.search.options import Purpose, SearchOptions
from kbq.search.search import BATCH
from kbq.storage.folders import make_folders
from kbq.storage.reading import file_digest
from kbq.storage.reports import Note, unheard
from kbq.storage.writing import writing_to
from kbq.text.answer_scores import normalise_answer
from kbq.text.whole_words import whole_words
from kbq.training.output_folder import versions
from kbq.tuning.settings import HIDDEN
from kbq.tuning.triples import DECIDED, GoldQuery, pages_of, read_triples

DEEPER = 4  # times as many phrases are searched for, where pages are hidden
LEAST = 30  # queries: fewer say nothing
FOLDS = 5  # relations are left out a fifth at a time


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
    # Of the kind that the calibration is for: only these promise a precision.
    promises: bool = True


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
) -> CalibrationOutcome:
    """Fit a calibration to judged answers and write it."""
    rows = np.array([judged_answer.features for judged_answer in judged], np.float64).reshape(
        -1, len(FEATURES)
    )
    right = np.array([judged_answer.is_right for judged_answer in judged], np.bool_)
    before = own_calibration(kb.model, options.purpose)
    chances = _predicted([judged_answer.relation for judged_answer in judged], rows, right, before)
    promises = np.array([judged_answer.promises for judged_answer in judged], np.bool_)
    thresholds = {
        str(each): promised_threshold(chances[promises], right[promises], each)
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
