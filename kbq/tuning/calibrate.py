"""Calibrate: triples whose answers are known become the probability that an answer is right. `kbq calibrate`.

A share of the queries is asked a second time without what answers them, half of these without the sentences, half
without the pages: so "nothing is right" is known, too. Triples without an object are cells that the text does not fill.
A few triples change little of the model's own calibration, many replace it. The scores of the outcome are of relations
that were left out when they were predicted.
"""

import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kbq.answers import Answer, SearchOptions
from kbq.array_types import Bools, Doubles, Rows
from kbq.errors import TrainingError
from kbq.kilt.confidence import auroc, brier, coverage_at, promised_threshold, reliability
from kbq.kilt.records import Gold
from kbq.kilt.scores import NO_GROUP, relation_of
from kbq.model.queries import refuse_unreadable
from kbq.reading.probability import FEATURES, HIDDEN, Calibration, chances_of, features, fit, own_calibration
from kbq.search.search import BATCH
from kbq.storage.files import file_digest
from kbq.storage.folders import make_folders
from kbq.storage.progress import unheard
from kbq.storage.writing import writing_to
from kbq.text.answer_scores import normalise
from kbq.text.letters import clean_text
from kbq.text.sentences import sentence_bounds, whole_words
from kbq.training.output_folder import versions
from kbq.tuning.labels import TunableKb
from kbq.tuning.triples import pages_of, read_triples

DEEPER = 4  # times as many phrases are searched for, where pages are hidden
LEAST = 30  # queries: of fewer nothing can be said
FOLDS = 5  # relations are left out a fifth at a time
PRECISIONS = (0.9, 0.95)  # of the thresholds


@dataclass(frozen=True, slots=True)
class CalibrationOutcome:
    """The fitted calibration, with its scores on relations that were left out; None: the score does not exist."""

    out: Path
    queries: int  # with those asked again
    hidden: int  # asked again without what answers them
    right: int
    auroc: float | None
    brier: float | None
    ece: float | None
    ece_of_chance: float | None  # what a perfect calibration would show with so few queries
    coverage_90: float | None  # share of the queries whose answers can be accepted while nine in ten are right
    thresholds: dict[str, float | None]  # by precision: the probability above which it can be promised


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """The best phrase for a query."""

    relation: str
    is_hidden: bool  # found without what answers the query
    features: tuple[float, ...]
    is_right: bool


def calibrate(
    kb: TunableKb,
    triples: str | Path,
    out: str | Path,
    options: SearchOptions,
    *,
    hidden: float = HIDDEN,
    command: str = "",
    report: Callable[[int, int], None] = unheard,
) -> CalibrationOutcome:
    """Fit a calibration for a knowledge base's model and way of searching; see `KnowledgeBase.calibrate`.

    `hidden`: share of the queries that are asked again without the sentences, or pages, that answer them. Raises
    TrainingError if there are fewer than 30 queries, all answers are right, none is, or nothing is reranked.
    """
    if not 0 <= hidden <= 1:
        raise TrainingError(f"hidden is {hidden}, must be a share from 0 to 1")
    if not kb.plan(options).n_reranked:
        raise TrainingError("probabilities rest on the reranker, and there is none: leave out --rerank=0")
    triples, out = Path(triples), Path(out)
    golds = read_triples(triples, unanswered=True)
    refuse_unreadable([gold.input or "" for gold in golds], kb.query_tokenizers(options), [gold.id for gold in golds])
    facts = {"command": command, "data": {triples.name: file_digest(triples)}, "hidden": hidden}
    if out.is_dir():
        raise TrainingError(f"{out} is a folder: give --out the name of a file")
    with writing_to(out.parent, TrainingError):  # before queries are asked, which takes minutes
        make_folders(out.parent)
        tempfile.TemporaryFile(dir=out.parent).close()
    rows = judge(kb, golds, options, hidden, report)
    _refuse_useless(rows, str(triples))
    return write_calibration(kb, rows, out, options, facts)


def judge(
    kb: TunableKb,
    golds: Sequence[Gold],
    options: SearchOptions,
    hidden: float = HIDDEN,
    report: Callable[[int, int], None] = unheard,
) -> list[JudgedAnswer]:
    """Judge the best phrase for each query, and for a share of them the best one without what answers it."""
    again = [gold for gold in golds if gold.answers and _is_chosen(gold.id, hidden)]
    asked = [(gold, False) for gold in golds] + [(gold, True) for gold in again]
    judged: list[JudgedAnswer] = []
    for first in range(0, len(asked), BATCH):
        judged += _judge(kb, asked[first : first + BATCH], options)
        report(len(judged), len(asked))
    return judged


def teaches(kb: TunableKb, judged: Sequence[JudgedAnswer]) -> bool:
    """Whether answers are enough to say anything about probabilities: without a calibration, some must be right."""
    right = sum(one.is_right for one in judged)
    return len(judged) >= LEAST and (own_calibration(kb.model) is not None or 0 < right < len(judged))


def write_calibration(
    kb: TunableKb,
    judged: Sequence[JudgedAnswer],
    out: Path,
    options: SearchOptions,
    facts: Mapping[str, object],
) -> CalibrationOutcome:
    """Fit a calibration, and write it with its scores and these facts."""
    rows = np.array([one.features for one in judged], np.float64).reshape(-1, len(FEATURES))
    right = np.array([one.is_right for one in judged], np.bool_)
    before = own_calibration(kb.model)
    chances = _predicted([one.relation for one in judged], rows, right, before)
    scores = _scores(chances, right)
    weights, intercept = fit(rows, right, before)
    calibration = Calibration(
        kb.plan(options).mode, dict(zip(FEATURES, weights, strict=True)), intercept, len(right), int(right.sum()),
        scores["thresholds"], dict(facts) | versions() | {"scores": scores},
    )  # fmt: skip
    calibration.write(out)
    hidden = sum(one.is_hidden for one in judged)
    return CalibrationOutcome(out, len(right), hidden, int(right.sum()), **scores)


def _is_chosen(identity: str, share: float) -> bool:
    """Whether a record is in this share of all: by its id, so that it does not depend on the others."""
    return zlib.crc32(identity.encode("utf-8", "surrogatepass")) < share * 2**32


def _judge(kb: TunableKb, asked: Sequence[tuple[Gold, bool]], options: SearchOptions) -> list[JudgedAnswer]:
    """Judge the best phrase for each query; with True, the best one without what answers it."""
    plan = kb.plan(options)
    n_reranked = plan.n_reranked
    texts = [clean_text(gold.input or "") for gold, _ in asked]
    deep = DEEPER * n_reranked if any(is_hidden for _, is_hidden in asked) else n_reranked
    found = kb.search(texts, replace(options, k=deep, unit="phrase", rerank=0))
    phrases = [
        [*(_unanswering(gold, hits) if is_hidden else hits)][:n_reranked]
        for (gold, is_hidden), hits in zip(asked, found, strict=True)
    ]
    judged = []
    for (gold, is_hidden), text, seen in zip(
        asked, texts, kb.reranking.rerank_found(texts, phrases, plan.score_scale), strict=True
    ):
        if seen:
            answers = {normalise(answer) for answer in gold.answers}
            row = tuple(features(text, seen)[0].tolist())
            judged.append(JudgedAnswer(relation_of(gold), is_hidden, row, normalise(seen[0].answer.text) in answers))
    return judged


def _unanswering(gold: Gold, hits: Sequence[Answer]) -> Iterable[Answer]:
    """Leave out phrases on the pages that answer a query, or read paragraphs without the sentences that do."""
    if pages_of(gold) and _is_chosen(f"page {gold.id}", 0.5):
        return (hit for hit in hits if not pages_of(gold) & {hit.page_id, hit.title})
    return without_evidence(hits, sorted(gold.answers))


def _refuse_useless(judged: Sequence[JudgedAnswer], source: str) -> None:
    """Raise TrainingError where there is nothing to learn from."""
    count, of_right = len(judged), sum(one.is_right for one in judged)
    if count < LEAST:
        raise TrainingError(f"{source} gives {count} answers to learn from, {LEAST} are needed: give more triples")
    if of_right in (0, count):
        raise TrainingError(
            f"{'all' if of_right else 'none'} of the {count} answers are right, so there is nothing to tell apart: "
            "give triples that are partly answered wrongly, or check that they fit the knowledge base"
        )


def _predicted(relations: Sequence[str], rows: Doubles, right: Bools, before: Calibration | None) -> Doubles:
    """Predict the chance of each answer from answers to other relations or, for a question, to other questions.

    Where one fold would have all relations, it is predicted from other answers.
    """
    numbers = [str(number) for number in range(len(relations))]
    folds = _folds([number if name == NO_GROUP else name for name, number in zip(relations, numbers, strict=True)])
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
    return np.array([zlib.crc32(key.encode("utf-8", "surrogatepass")) % FOLDS for key in keys], np.int64)


def _scores(chances: Doubles, right: Bools) -> dict[str, Any]:
    calibrated = reliability(chances, right)
    return {
        "auroc": auroc(chances, right),
        "brier": brier(chances, right),
        "ece": calibrated and calibrated.ece,
        "ece_of_chance": calibrated and calibrated.floor,
        "coverage_90": coverage_at(chances, right, 0.9).share,
        "thresholds": {str(precision): promised_threshold(chances, right, precision) for precision in PRECISIONS},
    }


# Texts that discuss a subject, and are silent


def without_evidence(phrases: Sequence[Answer], answers: Sequence[str]) -> Iterator[Answer]:
    """Yield the phrases that stand in no sentence with an answer, in paragraphs without these sentences.

    So pages discuss a subject and are silent, and any query becomes one that is not answered. Source: arXiv 1806.03822
    (questions that a paragraph seems to answer, and does not).
    """
    texts = {phrase.place[:2]: phrase.context for phrase in phrases}
    rests = {place: without_sentences(text, answers) for place, text in texts.items()}
    for phrase in phrases:
        if left := _moved(phrase, *rests[phrase.place[:2]]):
            yield left


def without_sentences(text: str, answers: Sequence[str]) -> tuple[str, list[tuple[int, int, int]]]:
    """Remove sentences that hold an answer; return the rest, with the characters kept: [start, end) and new start.

    >>> without_sentences("Ada was a poet. She died in 1852. Her father was Byron.", ["1852"])
    ('Ada was a poet. Her father was Byron.', [(0, 16, 0), (34, 55, 16)])
    """
    found = [start for answer in answers if answer.strip() for start in whole_words(text, answer, in_any_case=True)]
    bounds = sentence_bounds(text)
    kept, rest = [], ""
    for (start, _), stop in zip(bounds, [*(start for start, _ in bounds[1:]), len(text)], strict=True):
        if not any(start <= place < stop for place in found):
            kept.append((start, stop, len(rest)))
            rest += text[start:stop]
    return rest, kept


def _moved(phrase: Answer, rest: str, kept: Sequence[tuple[int, int, int]]) -> Answer | None:
    """Return the phrase in the rest of its paragraph, None if it is not in the rest."""
    for start, stop, begin in kept:
        if start <= phrase.start and phrase.end <= stop:
            place = phrase.start - start + begin, phrase.end - start + begin
            return replace(phrase, context=rest, start=place[0], end=place[1], unit=place)
    return None
