"""Evaluation: score a file of predictions against gold.

`scores` computes the official scores, such as KILT-accuracy. Records that the official evaluation
rejects are refused, with all problems at once. TREC files have one set of relevant pages for each
query, so that evidence sets are united there. Source: arXiv 2009.02252 and the official evaluation.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import numpy as np

from kbq.errors import EvaluationError
from kbq.kilt import records
from kbq.kilt.analysis import (
    Analysis,
    Interval,
    ScoreTable,
    bootstrap_interval,
    broken_down,
    compared,
    score_table,
)
from kbq.kilt.confidence import calibrated, require_matplotlib
from kbq.kilt.scores import (
    NO_GROUP,
    OFFICIAL,
    PAGE_NAMES,
    SEMANTICS,
    Kind,
    Missing,
    Rules,
    Scores,
    grouping,
    item_records,
    score,
    score_kinds,
)
from kbq.kilt.task import Task
from kbq.storage.paths import as_iterable
from kbq.text import html
from kbq.text.answer_scores import UNSPACED_LETTER, scores_by_character

AnyPath = str | PathLike[str]


# The name of a place's page, or of its paragraph, in TREC files.
Named = Callable[[records.JsonObject], str]


def write_run(predictions: records.Source, out_path: Path, named: Named = records.page_of) -> int:
    """Write the distinct pages of every prediction as a TREC run, and return the number of lines."""
    problems = records.Problems()
    rankings = list(records.parse_records(predictions, problems, partial(_ranked, named)))
    problems.raise_if_any(f"exporting {predictions}")
    return records.write_lines(out_path, _run_lines(rankings))


def _run_lines(rankings: Iterable[tuple[str, Mapping[str, float]]]) -> Iterator[str]:
    """Yield the lines of a run of TREC: query, "Q0", page, rank, score, system."""
    for query, scores in rankings:
        for rank, (page, value) in enumerate(scores.items(), 1):
            yield f"{column(query)} Q0 {column(page)} {rank} {value:.9g} kbq"


def _ranked(
    named: Named, record_id: str, line: int, record: records.JsonObject
) -> tuple[str, dict[str, float]]:
    found: dict[str, float | None] = {}
    for item in records.provenance_items(records.only_output(record, "provenance")):
        if records.PAGE in item:
            found.setdefault(named(item), records.score_of(item))
    return record_id, descending(found)


def descending(found: Mapping[str, float | None]) -> dict[str, float]:
    """Return scores that keep the order of the list: those given or, if they do not descend,
    1/rank.

    Tools sort by score, in 32 bits, and break ties by page id, so an equal score is lowered by the
    least step.

    >>> descending({"7": 2.5, "9": 0.5}), descending({"7": 2.5, "9": None})
    ({'7': 2.5, '9': 0.5}, {'7': 1.0, '9': 0.5})
    """
    given = [score for score in found.values() if score is not None]
    if len(given) < len(found) or any(before < after for before, after in pairwise(given)):
        return {page: 1 / rank for rank, page in enumerate(found, 1)}
    scores: list[np.float32] = []
    for value in np.array(given, dtype=np.float32):
        scores.append(
            min(value, np.nextafter(scores[-1], np.float32(-np.inf))) if scores else value
        )
    return dict(zip(found, map(float, scores), strict=True))


def write_qrels(gold: records.Source, out_path: Path, named: Named = records.page_of) -> int:
    """Write the distinct gold pages of every record as TREC qrels, and return the number of lines."""
    problems = records.Problems()
    golds = list(records.parse_records(gold, problems, partial(_relevant, named)))
    problems.raise_if_any(f"exporting {gold}")
    return records.write_lines(
        out_path,
        (
            f"{column(query)} 0 {column(page)} {grade}"
            for query, pages in golds
            for page, grade in pages.items()
        ),
    )


def _relevant(
    named: Named, record_id: str, line: int, record: records.JsonObject
) -> tuple[str, dict[str, object]]:
    """Return a query with its relevant pages."""
    outputs = record.get("output")
    objects = (
        [records.as_output(output, ("provenance",)) for output in outputs]
        if isinstance(outputs, list)
        else []
    )
    items = [
        item
        for output in objects
        for item in records.provenance_items(output)
        if records.PAGE in item
    ]
    return record_id, {named(item): item.get("relevance", 1) for item in items}


def column(text: str) -> str:
    """Escape the blanks of an id, which separate TREC columns.

    >>> column("enwiki-New York 5%")
    'enwiki-New%20York%205%25'
    """
    return re.sub(r"[\s%]", lambda found: quote(found[0]), text)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluation(Mapping[str, float]):
    """The unrounded mean scores, from 0 to 1, by name, such as `evaluation["KILT-accuracy"]`;
    `print` shows the tables.

    `Rprec` and `recall@5`, which both kinds have, are the leaderboard's if it could be scored.
    """

    rules: Rules
    scores: Mapping[Kind, Scores]  # scores of each possible kind
    refusals: Mapping[Kind, EvaluationError]  # why another kind was not possible
    additions: Mapping[str, object]  # further analyses, under their keys in `to_dict`
    tables: tuple[ScoreTable, ...]
    notes: tuple[str, ...]  # what a reader of the scores should know

    def __getitem__(self, name: str) -> float:
        for scores in self.scores.values():
            if name in scores.names:
                return scores.mean(name)
        raise KeyError(f"{name}: choose from {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        names: list[str] = []
        for scores in self.scores.values():
            names.extend(scores.names)
        return iter(dict.fromkeys(names))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _repr_html_(self) -> str:
        return html.element("p", html.text(self.semantics)) + "".join(
            table.html() for table in self.tables
        )

    def to_pandas(self) -> Any:
        """Return the table of scores as a data frame, unrounded. Raises EvaluationError without
        pandas.
        """
        try:
            import pandas
        except ImportError:
            raise EvaluationError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(list(self.tables[0].rows), columns=list(self.tables[0].columns))

    def __repr__(self) -> str:
        return f"Evaluation({dict(self)})"

    def __str__(self) -> str:
        return "\n".join(
            [self.semantics, *(f"\n{table.markdown()}".removesuffix("\n") for table in self.tables)]
        )

    @property
    def semantics(self) -> str:
        """The rules, in one line."""
        return f"semantics: {SEMANTICS}; deviations: {', '.join(self.rules.deviations()) or 'none'}"

    def to_dict(self) -> dict[str, object]:
        """Return the official layouts, unrounded, or None for a kind that was not possible; then
        `additions`.
        """
        document: dict[str, object] = {
            "semantics": SEMANTICS,
            "deviations": self.rules.deviations(),
        } | {
            kind: self.scores[kind].layout() if kind in self.scores else None
            for kind in get_args(Kind)
        }
        if self.refusals:
            document["problems"] = {
                kind: refusal.typed_problems or [refusal.typed]
                for kind, refusal in self.refusals.items()
            }

        return document | dict(self.additions)


class PartlyScoredError(EvaluationError):
    """Some records spoil an evaluation; `evaluation` has the kind that was possible, if any."""

    def __init__(self, evaluation: Evaluation) -> None:
        first, *rest = evaluation.refusals.values()
        # Both kinds of scores may be refused for the same problems.
        others = [refusal for refusal in rest if refusal.problems != first.problems]
        distinct = [first, *others]
        problems: dict[str, None] = {}
        for refusal in distinct:
            problems |= dict.fromkeys(refusal.typed_problems)
        super().__init__("; ".join(refusal.typed for refusal in distinct), list(problems))
        self.evaluation = evaluation


@dataclass(frozen=True, slots=True)
class EvaluationFiles:
    """Files for an evaluation to write."""

    per_item: AnyPath | None = None  # the scores of every query, as JSON lines
    trec_run: AnyPath | None = None  # the predicted pages
    trec_qrels: AnyPath | None = None  # the gold pages
    # A folder for reliability.png and risk-coverage.png of the calibration.
    plots: AnyPath | None = None


NO_FILES = EvaluationFiles()


def evaluate(
    predictions: records.AnyRecords,
    gold: records.AnyRecords,
    task: Task | str | None = None,
    *,
    by: str = "",
    ci: bool = False,
    compare: records.AnyRecords | Sequence[AnyPath] | None = None,
    calibration: bool = False,
    ks: Iterable[int] = OFFICIAL.ks,
    missing: Missing = "error",
    files: EvaluationFiles = NO_FILES,
) -> Evaluation:
    """Score KILT predictions exactly as the leaderboard does, in each way that the records allow.

    Args:
        predictions: a file of KILT lines, plain or compressed, or an iterable of such records as
            dicts.
        gold: the same, or qrels of passages (.tsv, .qrels).
        task: the task whose columns to show, its ranked one first.
        by: a grouping for further scores: relation, evidence-sets or meta.KEY.
        ci: add 95 % confidence intervals, by bootstrap.
        compare: predictions of a second system for a paired test, or the files of several.
        calibration: tell how well probabilities separate right from wrong answers.
        ks: depths of the retrieval scores.
        missing: how a query without prediction counts; the official evaluation stops.
        files: files to write.

    Raises:
        PartlyScoredError: the official evaluation rejects some records; it carries all problems,
            and other scores.
        EvaluationError: a file is missing, an option is unknown or not possible, an output would
            replace an input, or
            a calibration lacks probabilities.

    >>> gold = [
    ...     {"id": "1", "input": "Emma [SEP] author",
    ...      "output": [{"answer": "Jane Austen", "provenance": [{"wikipedia_id": "9"}]}]},
    ...     {"id": "2", "input": "Nile [SEP] mouth",
    ...      "output": [{"answer": "Mediterranean Sea", "provenance": [{"wikipedia_id": "7"}]}]},
    ... ]
    >>> predictions = [
    ...     {"id": "1", "output": [{"answer": "Jane Austen", "provenance": [{"wikipedia_id": "9"}]}]},
    ...     {"id": "2", "output": [{"answer": "Cairo", "provenance": [{"wikipedia_id": "7"}]}]},
    ... ]
    >>> evaluation = evaluate(predictions, gold, task="trex")
    >>> evaluation["KILT-accuracy"], evaluation["Rprec"]
    (0.5, 1.0)
    """
    rules = Rules(
        missing, tuple(as_iterable(ks, EvaluationError, "ks is", "numbers such as (1, 5, 20)"))
    )
    chosen = None if task is None else Task.load(task)
    if files.plots is not None:
        require_matplotlib()
    gold_path = Path(gold) if isinstance(gold, str | PathLike) else None  # qrels become records
    predictions = records.source_of(predictions, "predictions")
    gold = records.gold_of(gold)
    others = _others(compare)
    group_of = grouping(by or "relation")
    outputs = [
        None if path is None else Path(path)
        for path in (files.per_item, files.trec_run, files.trec_qrels)
    ]
    records.check_paths([predictions, gold_path, *others], outputs)
    records.refuse_predictions_as_gold(predictions, gold)
    scores, refusals = score_kinds(predictions, gold, rules, group_of)
    if not scores:
        raise PartlyScoredError(Evaluation(rules, scores, refusals, {}, (), ()))
    main = next(iter(scores.values()))
    if not main.ids:
        raise EvaluationError(f"{gold} holds no record: is it the file you mean?")
    if by and set(main.groups) == {NO_GROUP}:
        raise EvaluationError(f"--by {by}: no query of {gold} has that")

    names = shown_names(main, chosen)
    analyses = dict[str, Analysis]()
    kinds = scores if ci else ()
    intervals = {
        kind: {name: bootstrap_interval(scores[kind].column(name)) for name in scores[kind].names}
        for kind in kinds
    }
    if by:
        analyses["by"] = broken_down(main, names, by)
    if others:
        systems = {str(other): score(other, gold, main.kind, rules, group_of) for other in others}
        analyses["compare"] = compared(main, systems, names, bool(by), str(predictions or ""))

    if calibration or files.plots is not None:
        metric = chosen.answer_metric if chosen else "accuracy"
        analyses["calibration"] = calibrated(
            predictions, scores.get("downstream"), metric, by, files.plots
        )

    if "downstream" in scores and (characters := _by_character(predictions, gold)):
        analyses["by character"] = characters
    _write(files, predictions, gold, scores)
    return _evaluation(chosen, rules, scores, refusals, intervals, analyses)


def _by_character(predictions: records.Source, gold: records.Source) -> Analysis | None:
    """Score answers in scripts without blanks between words, or return None if no gold answer is in
    one.
    """
    problems = records.Problems()  # have been reported before
    golds = list(records.read_golds(gold, problems))
    unspaced = {
        one.id: one.answers for one in golds if any(map(UNSPACED_LETTER.search, one.answers))
    }
    if not unspaced:
        return None
    guesses = records.read_guesses(predictions, records.parse_answer, problems)
    answers = {guess.id: guess.answer for guess in guesses}
    scores = [scores_by_character(answers.get(name, ""), golds) for name, golds in unspaced.items()]
    em, f1 = np.array(scores, np.float64).mean(axis=0).tolist()
    title = (
        f"by character, {len(scores):,} queries answered in scripts without blanks between words"
    )
    table = ScoreTable(title, {"score": "text", "mean": "percent"}, [("EM", em), ("F1", f1)])

    return Analysis({"queries": len(scores), "em": em, "f1": f1}, [table])


def _write(
    files: EvaluationFiles,
    predictions: records.Source,
    gold: records.Source,
    scores: Mapping[Kind, Scores],
) -> None:
    """Write the files that an evaluation is asked for."""
    if files.per_item is not None:
        records.write_lines(Path(files.per_item), map(json.dumps, item_records(scores)))
    if files.trec_run is not None:
        write_run(predictions, Path(files.trec_run))
    if files.trec_qrels is not None:
        write_qrels(gold, Path(files.trec_qrels))


def _evaluation(
    task: Task | None,
    rules: Rules,
    scores: Mapping[Kind, Scores],
    refusals: Mapping[Kind, EvaluationError],
    intervals: Mapping[Kind, Mapping[str, Interval]],
    analyses: Mapping[str, Analysis],
) -> Evaluation:
    """Put an evaluation together. Raises PartlyScoredError with it if some of the records are at
    fault.
    """
    # Predictions that all lack answers are scored by their pages; if only some do, these are at
    # fault.
    predicted = max(each.predictions for each in scores.values())
    is_refused = any(0 < len(refusal.problems) < predicted for refusal in refusals.values())
    notes = [note for each in scores.values() for note in each.notes]
    notes += [note for analysis in analyses.values() for note in analysis.notes]
    if not is_refused:
        notes += [refusal.typed for refusal in refusals.values()]
    tables = [score_table([(each, shown_names(each, task)) for each in scores.values()], intervals)]
    tables += [table for analysis in analyses.values() for table in analysis.tables]
    additions = {name: analysis.document for name, analysis in analyses.items()}
    if intervals:
        ends = {
            kind: {name: (interval.low, interval.high) for name, interval in found.items()}
            for kind, found in intervals.items()
        }
        additions = {"ci": ends} | additions

    evaluation = Evaluation(
        rules, scores, refusals, additions, tuple(tables), tuple(dict.fromkeys(notes))
    )
    if is_refused:
        raise PartlyScoredError(evaluation)

    return evaluation


def shown_names(scores: Scores, task: Task | None) -> tuple[str, ...]:
    """Return the scores to show: the leaderboard's columns of a task, or all; those of texts only
    if one is not 0.
    """
    if scores.kind == "retrieval":
        return tuple(name for name in scores.names if "_in_" not in name or scores.mean(name) > 0)
    if task is None:
        return scores.names
    return tuple(dict.fromkeys((*task.columns, *PAGE_NAMES)))


def _others(compare: records.AnyRecords | Sequence[AnyPath] | None) -> list[records.Source]:
    """Return the predictions to compare with: one source, or several files."""
    if compare is None:
        return []
    if (
        isinstance(compare, list | tuple)
        and compare
        and all(isinstance(path, str | PathLike) for path in compare)
    ):
        return [records.source_of(path, "compare") for path in dict.fromkeys(map(str, compare))]
    return [records.source_of(compare, "compare")]  # type: ignore[arg-type]
