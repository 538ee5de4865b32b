"""Evaluation: predictions and gold become the official KILT scores, to the last digit, with tables and diagnoses.

Records that the official evaluation rejects are refused, all problems at once. Source: arXiv 2009.02252 and the
official evaluation.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from kbq.errors import EvaluationError
from kbq.kilt.analysis import Interval, bootstrap_interval, break_down, compared, diagnosed, score_table
from kbq.kilt.calibration import calibrated, require_matplotlib
from kbq.kilt.files import AnyRecords, Source, refuse_missing, refuse_pipes, refuse_replacing, source_of, write_lines
from kbq.kilt.report import Analysis, ScoreTable
from kbq.kilt.rules import (
    COUPLED,
    OFFICIAL,
    PAGE_NAMES,
    RANK_KEYS,
    SEMANTICS,
    EmptyProvenance,
    Kind,
    Missing,
    Rules,
)
from kbq.kilt.scores import NO_GROUP, Scores, grouping, item_records, score_kinds
from kbq.kilt.task import Task
from kbq.kilt.trec import measure, write_qrels, write_run
from kbq.text import html

AnyPath = str | PathLike[str]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluation(Mapping[str, float]):
    """The scores by name, such as `evaluation["KILT-accuracy"]`: means from 0 to 1, unrounded.

    `Rprec` and `recall@5`, which both kinds have, are those of the leaderboard if it could be scored. `print` shows the
    tables.
    """

    rules: Rules
    scores: Mapping[Kind, Scores]  # of the kinds that were possible
    refusals: Mapping[Kind, EvaluationError]  # why another kind was not possible
    additions: Mapping[str, object]  # analyses that were asked for, under their keys in `to_dict`
    tables: tuple[ScoreTable, ...]
    notes: tuple[str, ...]  # for a reader of the numbers

    def __getitem__(self, name: str) -> float:
        for scores in self.scores.values():
            if name in scores.official_names():
                return scores.mean(name)
        raise KeyError(f"{name}: choose from {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for scores in self.scores.values() for name in scores.official_names()))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _repr_html_(self) -> str:
        return html.element("p", html.text(self.semantics)) + "".join(table.html() for table in self.tables)

    def to_pandas(self) -> Any:
        """Return the first table, of the scores, as a data frame, unrounded.

        Raises EvaluationError if pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise EvaluationError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(list(self.tables[0].rows), columns=list(self.tables[0].columns))

    def __repr__(self) -> str:
        return f"Evaluation({dict(self)})"

    def __str__(self) -> str:
        return "\n".join([self.semantics, *(f"\n{table.markdown()}".removesuffix("\n") for table in self.tables)])

    @property
    def semantics(self) -> str:
        """Return one line on the rules."""
        return f"semantics: {SEMANTICS}; deviations: {', '.join(self.rules.deviations()) or 'none'}"

    def to_dict(self) -> dict[str, object]:
        """Return the official layouts, unrounded, None for a kind that was not possible; then `additions`."""
        document: dict[str, object] = {
            "semantics": SEMANTICS,
            "deviations": self.rules.deviations(),
            "rank_keys": list(self.rules.rank_keys),
        } | {kind: self.scores[kind].layout() if kind in self.scores else None for kind in get_args(Kind)}
        if self.refusals:
            document["problems"] = {kind: refusal.problems or [str(refusal)] for kind, refusal in self.refusals.items()}
        return document | dict(self.additions)


class PartlyScoredError(EvaluationError):
    """Predictions or gold that spoil an evaluation; `evaluation` has the kind that was possible, if any."""

    def __init__(self, evaluation: Evaluation) -> None:
        refusals = evaluation.refusals.values()
        problems = dict.fromkeys(problem for refusal in refusals for problem in refusal.problems)
        super().__init__("; ".join(map(str, refusals)), list(problems))
        self.evaluation = evaluation


def evaluate(
    predictions: AnyRecords,
    gold: AnyRecords,
    task: Task | str | None = None,
    *,
    by: str = "",
    ci: bool = False,
    compare: AnyRecords | Sequence[AnyPath] | None = None,
    diagnosis: bool = False,
    calibration: bool = False,
    plots: AnyPath | None = None,
    per_item: AnyPath | None = None,
    ks: Iterable[int] = OFFICIAL.ks,
    rank_keys: str | Iterable[str] = "page",
    missing: Missing = "error",
    empty_provenance: EmptyProvenance = "count",
    coupled: bool = False,
    top_1: bool = False,
    rouge: bool = True,
    measures: str = "",
    trec_run: AnyPath | None = None,
    trec_qrels: AnyPath | None = None,
) -> Evaluation:
    """Score KILT predictions exactly as the leaderboard does, by each kind of evaluation that the records allow.

    Args:
        predictions: a file of KILT lines, plain or compressed, or an iterable of such records as dicts.
        gold: the same.
        task: its columns are shown, the ranked one first.
        by: scores by group: relation, evidence-sets or meta.KEY.
        ci: 95 % confidence intervals, by bootstrap.
        compare: predictions of a second system, tested in pairs; or the files of several systems.
        diagnosis: how often answer and pages are right, and the best that is possible.
        calibration: how well the probabilities of the predictions tell right from wrong answers.
        plots: a folder for pictures of the calibration: reliability.png and risk-coverage.png.
        per_item: a file to write every query's scores to, as JSON lines.
        ks: depths of the retrieval scores.
        rank_keys: what retrieval counts as one page: page, section, paragraph, title, or the keys of an item.
        missing: a query without prediction is an error (official), scores zero, or is skipped.
        empty_provenance: gold provenance that is empty counts (official) or is ignored.
        coupled: add KILT-accuracy-coupled: pages must be those of the answer given.
        top_1: add recall@1 and success_rate@1.
        rouge: score ROUGE-L, the slowest score.
        measures: of ir-measures where installed, such as "RR nDCG@10".
        trec_run: a file to write the predicted pages to, as a TREC run.
        trec_qrels: a file to write the gold pages to, as TREC qrels.

    Raises:
        PartlyScoredError: the official evaluation rejects some records; it carries all problems, and other scores.
        EvaluationError: a file is missing, an option is unknown or not possible, an output would replace an input, or
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
    rules = Rules(missing, empty_provenance, coupled, top_1, rouge, _depths(ks), _keys(rank_keys))
    chosen = None if task is None else Task.load(task)
    answer_metric = chosen.answer_metric if chosen else "accuracy"
    if plots is not None:
        if not calibration:
            raise EvaluationError("--plots draws a calibration: add --calibration", is_usage=True)
        require_matplotlib()
    predictions, gold = source_of(predictions, "predictions"), source_of(gold, "gold")
    others = _others(compare)
    items, run, qrels, pictures = (
        None if path is None else Path(path) for path in (per_item, trec_run, trec_qrels, plots)
    )
    refuse_missing(predictions, gold, *others)
    refuse_pipes(predictions, gold, *others)
    refuse_replacing([items, run, qrels], [predictions, gold, *others])
    group_of = grouping(by or "relation")
    scores, refusals = score_kinds(predictions, gold, rules, group_of)
    if not scores:
        asked: dict[str, tuple[object, object]] = {
            "ci": (ci, {}), "by": (by, None), "compare": (others, []), "diagnosis": (diagnosis, None),
            "calibration": (calibration, None), "measures": (measures, {}),
        }  # fmt: skip
        nothing = {name: empty for name, (wish, empty) in asked.items() if wish}
        raise PartlyScoredError(Evaluation(rules, scores, refusals, nothing, (), ()))
    main = next(iter(scores.values()))
    _check_queries(main, str(gold), str(predictions), by)

    names = shown_names(main, chosen)
    notes = [note for each in scores.values() for note in each.notes]
    intervals: dict[Kind, dict[str, Interval]] = {}
    analyses: dict[str, Analysis] = {}
    if ci:
        for kind, each in scores.items():
            intervals[kind] = {name: bootstrap_interval(each.column(name)) for name in each.official_names()}
        ends = {kind: {name: (one.low, one.high) for name, one in found.items()} for kind, found in intervals.items()}
        analyses["ci"] = Analysis(ends)
    if by:
        breakdown = break_down(main, names)
        analyses["by"] = Analysis({"grouping": by} | asdict(breakdown), [breakdown.table(by)])
    if others:
        systems: dict[str, Scores] = {}
        for other in others:
            found, other_refusals = score_kinds(other, gold, rules, group_of)
            if main.kind not in found:
                raise other_refusals[main.kind]
            notes += [note for each in found.values() for note in each.notes]
            systems[str(other)] = found[main.kind]
        analyses["compare"] = compared(main, systems, names, bool(by))
    downstream = scores.get("downstream")
    for name in [name for name, wish in (("diagnosis", diagnosis), ("calibration", calibration)) if wish]:
        if downstream is None:
            analyses[name] = Analysis(None, notes=[f"there is no {name}: it needs the downstream evaluation"])
        elif name == "diagnosis":
            analyses[name] = diagnosed(downstream, answer_metric)
        else:
            analyses[name] = calibrated(predictions, downstream, answer_metric, by, pictures)
    if measures:
        means = measure(gold, predictions, measures, main.ids, rules.rank_keys)
        rows = [(name, f"{value:.4f}") for name, value in means.items()]  # not all of them are shares
        analyses["measures"] = Analysis(means, [ScoreTable("ir-measures", {"measure": "text", "mean": "text"}, rows)])

    if items:
        write_lines(items, map(json.dumps, item_records(scores)))
    if run:
        write_run(predictions, run, rules.rank_keys)
    if qrels:
        write_qrels(gold, qrels, rules.rank_keys)

    # Predictions that all lack answers are scored by their pages; where only some do, these are at fault.
    predicted = max(each.predictions for each in scores.values())
    is_refused = any(0 < len(refusal.problems) < predicted for refusal in refusals.values())
    notes += [note for analysis in analyses.values() for note in analysis.notes]
    notes += [] if is_refused else map(str, refusals.values())
    tables = [score_table([(each, shown_names(each, chosen)) for each in scores.values()], intervals)]
    tables += [table for name in TABLE_ORDER if name in analyses for table in analyses[name].tables]
    additions = {name: analysis.document for name, analysis in analyses.items()}
    evaluation = Evaluation(rules, scores, refusals, additions, tuple(tables), tuple(dict.fromkeys(notes)))
    if is_refused:
        raise PartlyScoredError(evaluation)
    return evaluation


TABLE_ORDER = ("diagnosis", "measures", "by", "compare", "calibration")


def shown_names(scores: Scores, task: Task | None) -> tuple[str, ...]:
    """Return the scores to show: the leaderboard's columns of a task, its ranked one first, else all official ones.

    Scores of texts are left out where no text holds an answer or a title, most often as there are no texts.
    """
    if scores.kind == "retrieval":
        return tuple(name for name in scores.names if "_in_" not in name or scores.mean(name) > 0)
    official = scores.official_names()
    if task is None:
        return official
    more = [COUPLED] if COUPLED in official else []
    return tuple(name for name in dict.fromkeys((*task.columns, *more, *PAGE_NAMES)) if scores.is_scored(name))


def _depths(ks: Iterable[int]) -> tuple[int, ...]:
    if isinstance(ks, str) or not isinstance(ks, Iterable):
        raise EvaluationError(f"ks is {ks!r}, must be numbers such as (1, 5, 20)", is_usage=True)
    return tuple(ks)


def _keys(rank_keys: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(rank_keys, str):
        return RANK_KEYS.get(rank_keys, tuple(rank_keys.split(",")))
    if not isinstance(rank_keys, Iterable):
        raise EvaluationError(f"rank_keys is {rank_keys!r}, must be {', '.join(RANK_KEYS)}, or keys", is_usage=True)
    return tuple(rank_keys)


def _others(compare: AnyRecords | Sequence[AnyPath] | None) -> list[Source]:
    """Return the systems to compare with: none, one, or several files."""
    if compare is None:
        return []
    if isinstance(compare, list | tuple) and compare and all(isinstance(path, str | PathLike) for path in compare):
        return [source_of(path, "compare") for path in dict.fromkeys(map(str, compare))]
    return [source_of(compare, "compare")]  # type: ignore[arg-type]


def _check_queries(scores: Scores, gold: str, predictions: str, by: str) -> None:
    if not scores.ids:
        predicted = f" with a prediction in {predictions}" if scores.rules.missing == "skip" else ""
        raise EvaluationError(f"{gold} holds no record{predicted}: is it the file you mean?")
    if by and set(scores.groups) == {NO_GROUP}:
        raise EvaluationError(f"--by {by}: no query of {gold} has that")
