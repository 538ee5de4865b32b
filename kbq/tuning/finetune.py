"""Fine-tuning: tune the query encoder of a knowledge base on triples. `kbq finetune`."""

import copy
import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple, Self

import torch

from kbq.asking.searcher import Searcher
from kbq.errors import TrainingError
from kbq.kilt.records import Gold
from kbq.kilt.scores import NO_GROUP, relation_of
from kbq.kilt.task import Task
from kbq.model.model_folder import write_config
from kbq.reading.probability import CALIBRATION, CALIBRATION_OF_CELLS
from kbq.search.options import SearchOptions
from kbq.storage.paths import as_path
from kbq.storage.reading import file_digest
from kbq.storage.reports import Note, Report, silent
from kbq.training.engine import StepReport, best_round
from kbq.training.output_folder import output_folder, versions
from kbq.tuning.calibrate import (
    JudgedAnswer,
    judge,
    teaches,
    write_calibration,
)
from kbq.tuning.labels import (
    Labeller,
    PreparedQuery,
    Reach,
    golds_with_ids,
    prepare,
    with_page_ids,
)
from kbq.tuning.query_side import DevScorer, Distillation, Finetuner, hybrid
from kbq.tuning.relation_judge import percent_right, teach_judge
from kbq.tuning.settings import FinetuningSettings, Objective
from kbq.tuning.triples import (
    GoldQuery,
    other_queries,
    pages_of,
    read_triples,
    sample_at_random,
    sample_by_relation,
    split,
)

MOST_NAMED = 10  # missing pages that a note names
# Queries of an epoch: few triples are passed over several times, but not more often.
ENOUGH = 1000
MOST_PASSES = 7
STEP = 4  # searches that take as long as a step for one query, as measured on the sample
# Other queries: to learn from so that nothing is forgotten, and to test whether it is.
LEARNED = 2000
WATCHED = 500


@dataclass(frozen=True, slots=True)
class FinetuningOutcome:
    """The result of tuning, also written into the folder's `kbq.json`; usable as the path of that
    folder.
    """

    out: Path
    reach: Reach
    dev_queries: int
    measure: str
    scores: Sequence[float]  # percent of dev queries: before tuning, and after each epoch
    # Percent of other queries answered as before tuning: before it, and after each epoch.
    agreements: Sequence[float]
    # Percent of the queries for which the search found a positive, in each epoch.
    found: Sequence[float]
    passes: int  # passes over the triples in each epoch
    steps: int
    # Factor of the weights of words that are added to the vectors' scores.
    lexical_factor: float = 1.0
    hybrid_score: float | None = None  # percent of dev queries with words; None: there are no words
    hybrid_before: float | None = None  # the same, before tuning
    # Percent of dev queries answered rightly before and after it learned; or none.
    reranker: Sequence[float] = ()
    # Answers to dev queries, from which the probabilities of its answers were learned; 0: none.
    calibrated_on: int = 0
    # Percent of each of several tasks, before and after tuning.
    tasks: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def is_better(self) -> bool:
        """Whether an epoch scored above the query encoder that tuning began with; if not, that one
        is kept.
        """
        return max(self.scores) > self.scores[0]

    @property
    def best(self) -> int:
        """The number of the epoch that was kept; 0: the query encoder stays as it was."""
        return best_round(self.scores)

    def facts(self) -> dict[str, object]:
        """Return everything but the folder, which may move."""
        facts = dataclasses.asdict(self)
        del facts["out"]
        return facts

    def __fspath__(self) -> str:
        return str(self.out)


@dataclass(frozen=True, slots=True)
class Taught:
    """A file of triples, and the task that says how its queries are asked and what is right."""

    path: Path
    task: Task
    objective: Objective

    @classmethod
    def of(cls, item: str | Path, usual: Task, settings: FinetuningSettings) -> Self:
        """Read `FILE` or `FILE:TASK`; a file without a task has the usual one."""
        path = as_path(item, "a file of triples")
        task = usual
        text = str(item)
        for colon in [] if path.exists() else reversed(list(re.finditer(":", text))):
            if (before := Path(text[: colon.start()])).exists():
                path = before
                task = Task.load(text[colon.end() :])
                break
        return cls(path, task, settings.chosen_objective(task.answer))


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is tuned on, and scored on, from one file."""

    taught: Taught
    golds: Sequence[Gold]
    dev_golds: Sequence[Gold]


def finetune(
    kb: Searcher,
    triples: str | Path | Sequence[str | Path],
    out: str | Path,
    settings: FinetuningSettings | None = None,
    *,
    task: str | Task = "slot_filling",
    dev: str | Path | None = None,
    examples: int = 0,
    command: str = "",
    note: Note = lambda line: None,
    report: Callable[[StepReport], None] = lambda step: None,
    report_stage: Report = silent,
) -> FinetuningOutcome:
    """Tune a copy of the query encoder of `kb` and save it; see `KnowledgeBase.finetune`.

    A killed run resumes from `OUT.partial/checkpoint.pt`. `command` is kept in the folder's
    `kbq.json`. Raises TrainingError if there is no usable triple, a loss is not a number, or the
    checkpoint is of another run.
    """
    out = as_path(out, "out")
    dev = None if dev is None else as_path(dev, "a file of dev triples")
    if type(examples) is not int or examples < 0:
        raise TrainingError(f"examples is {examples!r}, must be a number, 0 or more", is_usage=True)
    settings = settings or FinetuningSettings()
    taught = _taught(triples, Task.load(task), settings)
    if dev is not None and len(taught) > 1:
        raise TrainingError(
            "a tenth of each of several files is set aside to score on: leave dev=… out",
            is_usage=True,
        )

    with output_folder(out) as folder:
        untuned = kb
        kb = _with_own_query_encoder(kb)
        lessons = [
            Lesson(taught_task, *_records(taught_task.path, dev, examples, settings, note))
            for taught_task in taught
        ]
        _refuse_contradictions(lessons)
        facts: dict[str, object] = {
            "command": command,
            "begun_with": kb.model.config.query_fingerprint,
            **_facts_of_files(taught, dev, examples),
        }
        torch.manual_seed(settings.seed)
        _note_few_phrases(kb, settings, note)
        labeller = Labeller(kb.shards, _gold_pages(lessons))
        parts, reach = _prepared(lessons, kb, labeller, note)
        scorer = _dev_scorer(lessons, kb, labeller, note)
        before = _before_tuning(kb, scorer, lessons, report_stage)

        tuner = _finetuner(kb, labeller, parts, settings, scorer, before, report_stage)
        tuner.run(folder / "checkpoint.pt", report)
        factor, hybrid_score = _weigh_words(kb, scorer, report_stage)
        learned = _phrase_golds(lessons, parts)
        reranker = _teach_reranker(kb, untuned, learned, scorer, settings, report_stage)
        answered = _answered(kb, scorer.asked("phrase"), report_stage)
        after = scorer.by_task() if before.by_task else {}
        by_task = {name: _percent([share, after[name]]) for name, share in before.by_task.items()}
        scores = _percent(tuner.scores)
        agreements = _percent(tuner.agreements)
        found = _percent([count / len(tuner.queries) for count in tuner.found])
        passes = _passes(parts)
        steps = tuner.optimizer.done
        measure = scorer.measure
        outcome = FinetuningOutcome(
            out, reach, len(scorer), measure, scores, agreements, found, passes, steps,
            lexical_factor=factor,
            hybrid_score=hybrid_score,
            hybrid_before=before.with_words,
            reranker=reranker,
            calibrated_on=len(answered),
            tasks=by_task,
        )  # fmt: skip
        facts |= {
            "relations": _tuned_relations(kb, lessons, outcome),
            "corpora": kb.manifest.corpora,
            "index": kb.index.kind,
            "settings": dataclasses.asdict(settings),
            "outcome": outcome.facts(),
            "versions": versions(),
        }
        _save(kb, folder / "model", facts, answered)

    return outcome


def _taught(
    triples: str | Path | Sequence[str | Path], task: Task, settings: FinetuningSettings
) -> list[Taught]:
    """Return one or several files of triples with their tasks; `task`: of those that name none."""
    if isinstance(triples, str | Path) or not isinstance(triples, Sequence):
        triples = [triples]
    return [Taught.of(item, task, settings) for item in triples]


def _gold_pages(lessons: Sequence[Lesson]) -> set[str]:
    """Return the pages that answer the queries to tune on and those to score on."""
    pages: set[str] = set()
    for lesson in lessons:
        for gold in [*lesson.golds, *lesson.dev_golds]:
            pages.update(pages_of(gold))
    return pages


def _facts_of_files(taught: Sequence[Taught], dev: Path | None, examples: int) -> dict[str, object]:
    """Return what `kbq.json` says of the triples: names and digests as they are before tuning."""
    digests = [_named_digest(item.path) for item in taught]
    return {
        "triples": digests if digests[1:] else digests[0],
        "examples": examples,
        "dev": None if dev is None else _named_digest(dev),
        "task": ", ".join(item.task.name for item in taught),
    }


def _note_few_phrases(kb: Searcher, settings: FinetuningSettings, note: Note) -> None:
    rows = kb.manifest.counts.rows
    if settings.k > rows:
        note(f"k is {settings.k}, the knowledge base holds {rows} phrases: all of them compete")


def _named_digest(path: Path) -> dict[str, str]:
    return {"name": path.name, "sha256": file_digest(path)}


def _with_own_query_encoder(kb: Searcher) -> Searcher:
    """Return the knowledge base with a copy of its query encoder; word embeddings, which stay
    frozen, are shared.
    """
    kb, model, reranking = copy.copy(kb), copy.copy(kb.model), copy.copy(kb.reranking)
    words = model.queries.start.get_input_embeddings()
    model.queries = copy.deepcopy(model.queries, {id(words): words})
    reranking.model = model
    # Other processes know the untuned encoder alone.
    kb.model = model
    kb.reranking = reranking
    kb.answerers = None
    return kb


def _refuse_contradictions(lessons: Sequence[Lesson]) -> None:
    """Raise TrainingError if a query is to be answered in one file, and to find its page alone in
    another.
    """
    first: dict[str, Lesson] = {}
    for lesson in lessons:
        for gold in lesson.golds:
            other = first.setdefault(" ".join((gold.input or "").split()), lesson)
            if other.taught.objective != lesson.taught.objective:
                raise TrainingError(
                    f"{gold.input!r:.60} is in {other.taught.path} with the objective "
                    f"{other.taught.objective}, and in {lesson.taught.path} with "
                    f"{lesson.taught.objective}: leave one of them out, or give --objective"
                )


def _prepared(
    lessons: Sequence[Lesson], kb: Searcher, labeller: Labeller, note: Note
) -> tuple[list[list[PreparedQuery]], Reach]:
    """Prepare the queries of each file."""
    parts = []
    total = Reach()
    for lesson in lessons:
        objective = lesson.taught.objective
        queries, reach = prepare(lesson.taught.task, lesson.golds, kb, labeller)
        _check_positives(lesson.taught.path, objective, queries, reach, note)
        parts.append([dataclasses.replace(query, objective=objective) for query in queries])
        total += reach
    return parts, total


def _dev_scorer(
    lessons: Sequence[Lesson], kb: Searcher, labeller: Labeller, note: Note
) -> DevScorer:
    asked: list[tuple[Task, Gold]] = []
    for lesson in lessons:
        task = lesson.taught.task
        golds = lesson.dev_golds
        readable = golds_with_ids(task, golds, kb)
        if len(readable) < len(golds):
            note(
                f"{len(golds) - len(readable)} of {len(golds)} dev queries cannot be read: left out"
            )
        for gold, _ in readable:
            asked.append((task, with_page_ids(gold, labeller)))
    return DevScorer(asked, kb)


class _Before(NamedTuple):
    """The scores of the dev queries before tuning."""

    with_words: float | None  # percent; None: there are no words
    by_task: Mapping[str, float]  # shares of several tasks; of one alone: none
    seconds: float


def _before_tuning(
    kb: Searcher, scorer: DevScorer, lessons: Sequence[Lesson], report: Report
) -> _Before:
    by_task = scorer.by_task() if len(lessons) > 1 else {}
    begun = time.monotonic()
    report("dev queries before tuning", 0, len(scorer))
    with_words = None
    if kb.words:
        share = scorer.values(hybrid(kb.model.config.lexical_factor)).mean()
        with_words = round(100 * float(share), 2)
    return _Before(with_words, by_task, time.monotonic() - begun)


def _finetuner(
    kb: Searcher,
    labeller: Labeller,
    parts: Sequence[Sequence[PreparedQuery]],
    settings: FinetuningSettings,
    scorer: DevScorer,
    before: _Before,
    report: Report,
) -> Finetuner:
    """Return what tunes on as many queries of each part, and report about how long it takes."""
    most = max(map(len, parts))  # queries of smaller parts come several times
    queries = [query for part in parts for query in islice(cycle(part), most)]
    begun = time.monotonic()
    distillation = _distillation(kb, queries, settings, report)
    tuner = Finetuner(
        kb,
        labeller,
        _passes(parts) * queries,
        settings,
        scorer.score,
        distillation,
        scorer.digest,
    )
    seconds = time.monotonic() - begun
    _report_estimate(tuner, settings, distillation, before.seconds, seconds, report)
    return tuner


def _passes(parts: Sequence[Sequence[PreparedQuery]]) -> int:
    """Return how often an epoch passes over the triples."""
    queries = len(parts) * max(map(len, parts))
    return max(1, min(MOST_PASSES, ENOUGH // queries))


def _phrase_golds(
    lessons: Sequence[Lesson], parts: Sequence[Sequence[PreparedQuery]]
) -> list[Gold]:
    """Return the queries to tune on whose answers are phrases."""
    return [
        query.gold
        for lesson, part in zip(lessons, parts, strict=True)
        if lesson.taught.task.answer == "phrase"
        for query in part
    ]


def _report_estimate(
    tuner: Finetuner,
    settings: FinetuningSettings,
    distillation: Distillation,
    dev_seconds: float,
    other_seconds: float,
    report: Report,
) -> None:
    """Report about how long tuning takes, given the seconds that the dev queries and the other
    queries took.
    """
    a_query = other_seconds / max(1, distillation.queries)
    an_epoch = dev_seconds + a_query * (STEP * len(tuner.queries) + WATCHED)
    minutes = max(1, round(settings.epochs * an_epoch / 60))
    report(f"{tuner.steps:,} steps at most, about {minutes:,} min", 0, tuner.steps)


def _weigh_words(kb: Searcher, scorer: DevScorer, report: Report) -> tuple[float, float | None]:
    """Give words the best weight for the tuned vectors; return the factor, and the score in
    percent.
    """
    factor = 1.0
    percent = None
    if kb.words:
        report("weights of words", 0, len(scorer))
        factor, score = scorer.best_factor(kb.model.config.lexical_factor)
        percent = round(100 * score, 2)
    kb.model.config = dataclasses.replace(kb.model.config, lexical_factor=factor)
    return factor, percent


def _save(
    kb: Searcher, folder: Path, facts: dict[str, object], answered: Sequence[JudgedAnswer]
) -> None:
    kb.model.save_query_encoder(folder, facts)
    if kb.reranking.relation_judge:
        kb.reranking.relation_judge.save(folder)
    if answered:
        source_facts = {"command": facts["command"]}
        write_calibration(kb, answered, folder / CALIBRATION, SearchOptions(), source_facts)
        cell, of_cells = SearchOptions(purpose="cell"), folder / CALIBRATION_OF_CELLS
        # Most of these queries have an answer, so they promise no precision of cells.
        of_queries = [dataclasses.replace(answer, promises=False) for answer in answered]
        write_calibration(kb, of_queries, of_cells, cell, source_facts)
    write_config(folder, kb.model.config)  # it names all files


def _distillation(
    kb: Searcher, queries: Sequence[PreparedQuery], settings: FinetuningSettings, report: Report
) -> Distillation:
    """Remember the untuned query encoder's answers to other queries than these."""
    tuned = [query.gold.input or "" for query in queries]
    count = 0
    if settings.keep:
        count = min(LEARNED, settings.epochs * len(queries))
    learned = other_queries(kb.shards, kb.model.query_tokenizer, tuned, count, settings.seed)
    watched = other_queries(
        kb.shards, kb.model.query_tokenizer, tuned, WATCHED, settings.seed, watched=True
    )
    return Distillation(kb, learned, watched, settings.k, report)


def _teach_reranker(
    kb: Searcher,
    untuned: Searcher,
    golds: Sequence[Gold],
    scorer: DevScorer,
    settings: FinetuningSettings,
    report: Report,
) -> Sequence[float]:
    """Teach the judge of `kb`, where that helps; return the percentage of dev queries it answers,
    before and after, or nothing if it was not taught.
    """
    if not golds or settings.keep == 1 or not kb.reranking.n_reranked(SearchOptions()):
        return ()
    report("judge of relations", 0, len(golds))
    before = kb.reranking.relation_judge
    after = teach_judge(untuned, golds, settings.seed)
    if after is None:
        return ()
    kb.reranking.relation_judge = after
    judged = [asked for asked in scorer.asked("phrase") if after.is_for(asked.query)]
    return percent_right(
        kb, judged, [before.judge if before else kb.reranking.reader.phrase_judge, after.judge]
    )


def _answered(kb: Searcher, dev: Sequence[GoldQuery], report: Report) -> list[JudgedAnswer]:
    """Judge answers to dev queries, to learn probabilities from them; return none where nothing can
    be learned.
    """
    if not dev or not kb.reranking.n_reranked(SearchOptions()):
        return []
    answered = judge(kb, dev, SearchOptions(), report=partial(report, "probabilities"))
    if teaches(kb, answered):
        return answered
    return []


def _percent(shares: Sequence[float]) -> list[float]:
    return [round(100 * share, 2) for share in shares]


def _records(
    triples: Path, dev: Path | None, examples: int, settings: FinetuningSettings, note: Note
) -> tuple[list[Gold], list[Gold]]:
    seed = settings.seed
    at_random = settings.random_sample
    golds = read_triples(triples, note=note)
    if dev is None:
        dev_golds = []
    else:
        dev_golds = read_triples(dev, note=note)
    if not dev_golds:
        golds, dev_golds = split(golds, seed)
    if examples > len(golds):
        note(
            f"{triples} holds {len(golds)} queries to tune on, fewer than the {examples} asked for"
        )

    if examples:
        draw = sample_at_random if at_random else sample_by_relation
        golds = draw(golds, examples, seed)

    tuned = {relation_of(gold) for gold in golds}
    unseen = {relation_of(gold) for gold in dev_golds} - tuned
    if unseen:
        more = " …" if len(unseen) > 5 else ""
        note(
            f"{len(unseen)} relations of the dev queries are not tuned on: "
            f"{', '.join(sorted(unseen)[:5])}{more}"
        )

    return golds, dev_golds


def _tuned_relations(
    kb: Searcher, lessons: Sequence[Lesson], outcome: FinetuningOutcome
) -> list[str]:
    """Return the relations that the query encoder has been tuned on, now or before."""
    earlier = kb.model.config.training.get("finetuning")
    relations = set()
    if isinstance(earlier, dict):
        relations = set(earlier["relations"])
    if outcome.is_better:  # otherwise the query encoder has not changed
        relations |= {relation_of(gold) for lesson in lessons for gold in lesson.golds} - {NO_GROUP}
    return sorted(relations)


def _check_positives(
    triples: Path, objective: Objective, queries: Sequence[PreparedQuery], reach: Reach, note: Note
) -> None:
    """Raise TrainingError if no phrase can be right; name the lines whose pages are missing."""
    missing = sorted(
        (query.gold.line, query.lost_pages[0]) for query in queries if query.lost_pages
    )
    if missing:
        named = ", ".join(f"{page!r} (line {line})" for line, page in missing[:MOST_NAMED])
        more = " …" if len(missing) > MOST_NAMED else ""
        note(f"{triples} names pages that the knowledge base does not have: {named}{more}")

    no_pages = reach.no_page + reach.unnamed == reach.queries
    if objective == "page" and no_pages:
        raise TrainingError(
            f"the knowledge base has no gold page of {triples}: use --objective=phrase, or "
            "another --kb"
        )

    if objective != "page" and not any(query.gold.answers for query in queries):
        raise TrainingError(f"{triples} names pages, but no answer: use --objective=page")
    if objective != "page" and reach.nowhere == reach.queries:
        raise TrainingError(
            f"no answer of {triples} occurs in the knowledge base: use another --kb"
        )

    if objective == "kilt" and no_pages:
        names_pages = reach.unnamed < reach.queries
        why = (
            "the knowledge base has none of the gold pages" if names_pages else "no pages are named"
        )
        note(f"{why}: only the answers' texts say what is right")
