"""Evaluation: a gold file and a prediction file become the official KILT scores, to the last digit.

Source: arXiv 2009.02252 and the official evaluation. What it rejects is refused here, all problems at once.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path

from kbq.errors import EvaluationError
from kbq.kilt.analysis import (
    Breakdown,
    Diagnosis,
    Difference,
    break_down,
    compare,
    compare_groups,
    decompose,
    find_ceilings,
)
from kbq.kilt.lines import refuse_missing, refuse_pipes, refuse_replacing, write_lines
from kbq.kilt.metrics import (
    COUPLED,
    OFFICIAL,
    PAGE_NAMES,
    RANK_KEYS,
    STANDARD_CUTOFFS,
    Cutoffs,
    Deviations,
    Kind,
    downstream_metrics,
    retrieval_metrics,
)
from kbq.kilt.parsing import parse_answer, parse_ranking
from kbq.kilt.report import (
    Table,
    breakdown_table,
    comparison_table,
    diagnosis_table,
    interval_document,
    measure_table,
    official_document,
    score_table,
)
from kbq.kilt.scores import NO_GROUP, GroupOf, Scores, Scoring, grouping, relation_of
from kbq.kilt.task import Task
from kbq.kilt.trec import measure, write_qrels, write_run

AnyPath = str | PathLike[str]


def evaluate_downstream(
    gold_path: AnyPath, guess_path: AnyPath, deviations: Deviations = OFFICIAL
) -> dict[str, dict[str, float]]:
    """The scores of the leaderboard, `{"kilt": …, "downstream": …, "retrieval": …}`, unrounded.

    Raises:
        EvaluationError: the official downstream evaluation rejects the files; it carries all problems.
    """
    return score_downstream(gold_path, guess_path, deviations).downstream_layout()


def evaluate_retrieval(
    gold_path: AnyPath,
    guess_path: AnyPath,
    ks: Iterable[int] = STANDARD_CUTOFFS.ks,
    rank_keys: Iterable[str] = STANDARD_CUTOFFS.rank_keys,
    deviations: Deviations = OFFICIAL,
) -> dict[str, float]:
    """The scores of predicted pages, `{"Rprec": …, "precision@1": …}`, unrounded.

    `entity_in_input` is left out where a gold record has no input.

    Raises:
        EvaluationError: the official retrieval evaluation rejects the files; it carries all problems.
    """
    if isinstance(rank_keys, str):  # its letters would be taken for keys
        raise EvaluationError(f"rank_keys is the text {rank_keys!r}, give a tuple of keys")
    cutoffs = Cutoffs(tuple(ks), tuple(rank_keys))
    return score_retrieval(gold_path, guess_path, cutoffs, deviations).retrieval_layout()


def score_downstream(
    gold_path: AnyPath,
    guess_path: AnyPath,
    deviations: Deviations = OFFICIAL,
    group_of: GroupOf = relation_of,
) -> Scores:
    """Like `evaluate_downstream`, but the scores of every record, with diagnostics."""
    metrics = downstream_metrics(deviations)
    scoring = Scoring(Path(gold_path), Path(guess_path), metrics, deviations, group_of)
    return scoring.run(RANK_KEYS["page"], parse_answer)


def score_retrieval(
    gold_path: AnyPath,
    guess_path: AnyPath,
    cutoffs: Cutoffs = STANDARD_CUTOFFS,
    deviations: Deviations = OFFICIAL,
    group_of: GroupOf = relation_of,
) -> Scores:
    """Like `evaluate_retrieval`, but the scores of every record."""
    metrics = retrieval_metrics(cutoffs, deviations)
    parse = partial(parse_ranking, rank_keys=cutoffs.rank_keys, depth=max(cutoffs.ks, default=0))
    scoring = Scoring(Path(gold_path), Path(guess_path), metrics, deviations, group_of)
    return scoring.run(cutoffs.rank_keys, parse)


@dataclass(frozen=True, slots=True)
class EvaluationExtras:
    """What is wanted on top of the official scores; see `kbq evaluate --help`."""

    task: Task | None = None  # its columns are shown, the ranked one first
    by: str = ""  # a grouping
    other: Path | None = None  # predictions of a second system
    intervals: bool = False
    diagnosis: bool = False
    measures: str = ""  # of ir-measures
    items: Path | None = None  # files to write
    trec_run: Path | None = None
    trec_qrels: Path | None = None


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What to evaluate, and how."""

    guess: Path
    gold: Path
    cutoffs: Cutoffs = STANDARD_CUTOFFS
    deviations: Deviations = OFFICIAL
    extras: EvaluationExtras = EvaluationExtras()


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that was asked for. A kind of evaluation that refused its input is missing in `scores`."""

    request: SummaryRequest
    scores: Mapping[Kind, Scores]
    refusals: Mapping[Kind, EvaluationError]
    breakdown: Breakdown | None = None
    differences: tuple[Difference, ...] = ()
    diagnosis: Diagnosis | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[Kind, Scores] = field(default_factory=dict)  # of the second system

    @property
    def is_refused(self) -> bool:
        """Whether no evaluation was possible, or a part of the records spoils one.

        Predictions that all lack answers, say, are scored by their pages; where only some do, these are at fault.
        """
        predictions = max((scores.predictions for scores in self.scores.values()), default=0)
        return not self.scores or any(0 < len(refusal.problems) < predictions for refusal in self.refusals.values())

    @property
    def main_columns(self) -> tuple[str, ...]:
        """The scores of the first evaluation that was possible, the ranked one first."""
        return columns(next(iter(self.scores.values())), self.request.extras.task)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers should know."""
        notes = [note for scores in (*self.scores.values(), *self.others.values()) for note in scores.notes]
        if self.request.extras.diagnosis and self.diagnosis is None:
            notes.append("there is no diagnosis: it needs the downstream evaluation")
        return (*dict.fromkeys(notes), *([] if self.is_refused else map(str, self.refusals.values())))

    def raise_if_refused(self) -> None:
        """Refuse the files.

        Raises:
            EvaluationError: it carries the problems of all evaluations that were not possible.
        """
        if not self.is_refused:
            return
        problems = dict.fromkeys(problem for refusal in self.refusals.values() for problem in refusal.problems)
        reasons = "; ".join(str(refusal) for refusal in self.refusals.values())
        raise EvaluationError(reasons, list(problems))

    def tables(self) -> list[Table]:
        """The scores, then each table that was asked for."""
        shown = [(scores, columns(scores, self.request.extras.task)) for scores in self.scores.values()]
        tables = [score_table(shown, self.request.extras.intervals)]
        if self.diagnosis:
            tables += [diagnosis_table("answers and pages", self.diagnosis.decomposition)]
            tables += [diagnosis_table("ceilings", self.diagnosis.ceilings)]
        if self.measures:
            tables.append(measure_table(self.measures))
        if self.breakdown:
            tables.append(breakdown_table(self.breakdown, self.request.extras.by))
        if self.differences:
            compared = self.main_columns[0] if self.request.extras.by else ""
            tables.append(comparison_table(self.differences, compared))
        return tables

    def document(self) -> dict[str, object]:
        """Official layouts, unrounded, then what was asked for under keys of its own."""
        extras = self.request.extras
        document = official_document(self.request.deviations, self.request.cutoffs, self.scores)
        if self.refusals:
            document["problems"] = {kind: refusal.problems or [str(refusal)] for kind, refusal in self.refusals.items()}
        if extras.intervals:
            document["ci"] = {kind: interval_document(scores) for kind, scores in self.scores.items()}
        if extras.by:
            document["by"] = self.breakdown and {"grouping": extras.by} | asdict(self.breakdown)
        if extras.other:
            compared = {"score": self.main_columns[0]} if extras.by else {}
            document["compare"] = [compared | asdict(difference) for difference in self.differences]
        if extras.diagnosis:
            document["diagnosis"] = self.diagnosis and asdict(self.diagnosis)
        if extras.measures:
            document["measures"] = dict(self.measures)
        return document


def evaluate_files(request: SummaryRequest) -> Summary:
    """Score both kinds as far as the files allow, and write the files that are wanted.

    Raises:
        EvaluationError: what is wanted on top of the scores is unknown or not possible, a file is missing, or what is
            to be written is one of those that are read.
    """
    extras = request.extras
    refuse_missing(request.guess, request.gold)
    inputs = (request.guess, request.gold, extras.other)
    refuse_pipes(*inputs)
    refuse_replacing((extras.items, extras.trec_run, extras.trec_qrels), inputs)
    scores, refusals = score(request, request.guess)
    summary = Summary(request, scores, refusals)
    if not scores:
        return summary
    main = next(iter(scores.values()))
    if not main.ids:
        predicted = f" with a prediction in {request.guess}" if request.deviations.missing == "skip" else ""
        raise EvaluationError(f"{request.gold} holds no record{predicted}: is it the file you mean?")
    if extras.by and set(main.groups) == {NO_GROUP}:
        raise EvaluationError(f"--by {extras.by}: no query of {request.gold} has that")
    names = columns(main, extras.task)
    others = scores_of_other(request, main.kind)
    keys = request.cutoffs.rank_keys
    summary = replace(
        summary,
        breakdown=break_down(main, names) if extras.by else None,
        differences=differences(request, main, others[main.kind], names) if others else (),
        diagnosis=diagnose(request, scores),
        measures=measure(request.gold, request.guess, extras.measures, main.ids, keys) if extras.measures else {},
        others=others,
    )
    if extras.items:
        write_lines(extras.items, (json.dumps(item) for item in item_documents(summary)))
    if extras.trec_run:
        write_run(request.guess, extras.trec_run, keys)
    if extras.trec_qrels:
        write_qrels(request.gold, extras.trec_qrels, keys)
    return summary


def score(request: SummaryRequest, guess: Path) -> tuple[dict[Kind, Scores], dict[Kind, EvaluationError]]:
    """The scores of each kind that is possible, and why another is not."""
    group_of = grouping(request.extras.by or "relation")
    gold, deviations = request.gold, request.deviations
    evaluations: dict[Kind, Callable[[], Scores]] = {
        "downstream": lambda: score_downstream(gold, guess, deviations, group_of),
        "retrieval": lambda: score_retrieval(gold, guess, request.cutoffs, deviations, group_of),
    }
    scores: dict[Kind, Scores] = {}
    refusals: dict[Kind, EvaluationError] = {}
    for kind, evaluate in evaluations.items():
        try:
            scores[kind] = evaluate()
        except EvaluationError as error:
            if error.is_usage:
                raise
            refusals[kind] = error
    return scores, refusals


def scores_of_other(request: SummaryRequest, kind: Kind) -> dict[Kind, Scores]:
    """The second system's scores, if there is one.

    Raises:
        EvaluationError: its predictions cannot be scored.
    """
    if request.extras.other is None:
        return {}
    others, refusals = score(request, request.extras.other)
    if kind not in others:
        raise refusals[kind]
    return others


def differences(request: SummaryRequest, main: Scores, other: Scores, names: tuple[str, ...]) -> tuple[Difference, ...]:
    """The second system against the first: all columns, or with groups the first column in each group."""
    if request.extras.by:
        return compare_groups(main, other, names[0])
    return compare(main, other, names)


def diagnose(request: SummaryRequest, scores: Mapping[Kind, Scores]) -> Diagnosis | None:
    """Answers against pages, and ceilings; an answer is right by EM where the task ranks by it, else by accuracy."""
    task, downstream = request.extras.task, scores.get("downstream")
    if not request.extras.diagnosis or downstream is None:
        return None
    answer = task.answer_metric if task else "accuracy"
    return Diagnosis(decompose(downstream, answer), find_ceilings(downstream, answer))


def columns(scores: Scores, task: Task | None) -> tuple[str, ...]:
    """The scores to show: the leaderboard's columns of a task, its ranked one first, else all official ones.

    Scores of texts are left out where no text holds an answer or a title, most often as there are no texts.
    """
    if scores.kind == "retrieval":
        return tuple(name for name in scores.names if "_in_" not in name or scores.mean(name) > 0)
    official = scores.official_names()
    if task is None:
        return official
    more = [COUPLED] if COUPLED in official else []
    return tuple(name for name in dict.fromkeys((*task.columns, *more, *PAGE_NAMES)) if scores.is_scored(name))


def item_documents(summary: Summary) -> Iterator[dict[str, object]]:
    """For each query, in gold order: its id, its group, and every score of the official layouts, unrounded."""
    kinds = list(summary.scores.values())
    columns_of = {scores.kind: {name: scores.column(name) for name in scores.official_names()} for scores in kinds}
    for number, (record_id, group) in enumerate(zip(kinds[0].ids, kinds[0].groups, strict=True)):
        item: dict[str, object] = {"id": record_id, "group": group}
        for kind, by_name in columns_of.items():
            item[kind] = {name: float(column[number]) for name, column in by_name.items()}
        yield item
