"""Finetuning: triples become a query-encoder folder for a knowledge base. The whole of `kbq finetune`."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers

import kbq
from kbq.errors import QueryError, TrainingError
from kbq.finetuning.labels import Labeller
from kbq.finetuning.loop import Finetuner, FinetuningSettings, FinetuningStep, PreparedQuery
from kbq.finetuning.triples import (
    kilt_record,
    pages_of,
    read_triples,
    sample_by_relation,
    split_by_subject,
)
from kbq.kb import KnowledgeBase
from kbq.kilt.evaluation import score_downstream
from kbq.kilt.reading.lines import write_lines
from kbq.kilt.reading.records import Gold, GoldOutput
from kbq.kilt.scoring.deviations import Deviations
from kbq.kilt.scoring.grouping import NO_GROUP, relation_of
from kbq.prediction import PredictionSettings, kilt_line, predict
from kbq.records import Query
from kbq.task import Task

Note = Callable[[str], None]  # takes a line for the person who waits


@dataclass(frozen=True, slots=True)
class FinetuningRequest:
    """What to tune on what."""

    triples: Path
    out: Path
    task: Task
    dev: Path | None = None  # scored after each epoch; without it a tenth of the subjects is set aside
    examples: int = 0  # 0: all
    settings: FinetuningSettings = field(default_factory=FinetuningSettings)
    command: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """How many queries can be answered from the knowledge base at all."""

    queries: int = 0
    unreadable: int = 0  # too long for the encoder, or malformed: left out
    on_page: int = 0  # an answer is a phrase of a gold page
    dropped: int = 0  # an answer stands on a gold page, but as no phrase: the filter dropped its words
    elsewhere: int = 0  # no answer stands on the gold pages that the knowledge base has
    no_page: int = 0  # the knowledge base has no gold page, or none is named


@dataclass(frozen=True, slots=True)
class FinetuningOutcome:
    """What came of it; also written into the folder's `kbq.json`."""

    reach: Reach
    dev_queries: int
    measure: str
    scores: Sequence[float]  # of dev queries, in percent: before tuning, and after each epoch
    found: Sequence[int]  # queries for which the search found a positive, in each epoch
    steps: int


def finetune(
    request: FinetuningRequest,
    kb: KnowledgeBase,
    note: Note,
    report: Callable[[FinetuningStep], None] = lambda step: None,
) -> FinetuningOutcome:
    """Tune the query encoder of `kb` and save it. A killed run goes on from `OUT.partial/checkpoint.pt`.

    Raises:
        TrainingError: no usable triple, a loss that is no number, or a checkpoint of another run.
        EvaluationError: KILT lines that cannot be read.
    """
    if request.out.exists():
        raise TrainingError(f"{request.out} already exists: choose another folder for --out")
    golds, dev = _data(request, note)
    workshop = request.out.with_name(request.out.name + ".partial")
    try:  # now, not after hours of tuning
        workshop.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(f"{request.out} cannot be written ({error.strerror}): choose another --out") from error
    torch.manual_seed(request.settings.seed)
    if request.settings.k > kb.counts.rows:
        note(f"k is {request.settings.k}, the knowledge base holds {kb.counts.rows} phrases: all of them compete")
    labeller = Labeller(kb.shards, {page for gold in [*golds, *dev] for page in pages_of(gold)})
    queries, reach = _prepare(request.task, golds, kb, labeller)
    _check_positives(request, queries, reach, note)
    judged = [_with_page_ids(gold, labeller) for gold in dev if _token_ids(request.task, gold, kb) is not None]
    if len(judged) < len(dev):
        note(f"{len(dev) - len(judged)} of {len(dev)} dev queries cannot be read: left out")
    judge = Judge(request.task, judged, kb, workshop)
    tuner = Finetuner(kb, labeller, queries, request.settings, judge.score, judge.digest)
    tuner.run(workshop / "checkpoint.pt", report)
    percent = [round(100 * score, 2) for score in tuner.scores]
    outcome = FinetuningOutcome(reach, len(judge), judge.measure, percent, tuner.found, tuner.descent.done)
    facts: dict[str, object] = {
        "command": request.command,
        "triples": {"name": request.triples.name, "sha256": _sha256(request.triples)},
        "examples": request.examples,
        "dev": None if request.dev is None else {"name": request.dev.name, "sha256": _sha256(request.dev)},
        "task": request.task.name,
        "relations": sorted({relation_of(gold) for gold in golds} - {NO_GROUP}),
        "corpora": kb.manifest.corpora,
        "index": kb.manifest.index.kind,
        "settings": dataclasses.asdict(request.settings),
        "outcome": dataclasses.asdict(outcome),
        "versions": {"kbq": kbq.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
    }
    kb.model.save_query_encoder(workshop / "model", facts)
    (workshop / "model").rename(request.out)
    shutil.rmtree(workshop)
    return outcome


class Judge:
    """Scores dev queries with the live query encoder, as KILT does."""

    def __init__(self, task: Task, golds: Sequence[Gold], kb: KnowledgeBase, folder: Path) -> None:
        self._task, self._kb = task, kb
        self._gold, self._guess = folder / "dev.jsonl", folder / "dev-predictions.jsonl"
        if not golds:
            raise TrainingError(
                f"no dev query can be read: the encoder reads {kb.model.config.max_query_tokens} tokens"
            )
        texts = [task.query_of(gold.input or "", kb.model.reader.fits, gold.id) for gold in golds]
        self._queries = [(Query(gold.id, text), gold.input or "") for gold, text in zip(golds, texts, strict=True)]
        write_lines(self._gold, (json.dumps(kilt_record(gold), ensure_ascii=False) for gold in golds))
        plain = "em" if task.ranked == "KILT-em" else "accuracy"
        has_answers, has_pages = any(gold.answers for gold in golds), any(map(pages_of, golds))
        self.measure = "Rprec" if not has_answers or task.answer == "none" else f"KILT-{plain}" if has_pages else plain

    def __len__(self) -> int:
        return len(self._queries)

    @property
    def digest(self) -> str:
        """Of the dev queries and their answers."""
        return _sha256(self._gold)

    def score(self) -> float:
        """The mean of the measure, from 0 to 1."""
        predictions = predict(self._task, self._queries, self._kb, PredictionSettings(top_pages=5))
        lines = (kilt_line(prediction) for prediction in predictions)
        with_answers = ({**line, "output": [{"answer": "", **line["output"][0]}]} for line in lines)
        write_lines(self._guess, (json.dumps(line, ensure_ascii=False) for line in with_answers))
        column = score_downstream(self._gold, self._guess, Deviations(rouge=False)).column(self.measure)
        return float(column.mean())


def _data(request: FinetuningRequest, note: Note) -> tuple[list[Gold], list[Gold]]:
    """Records to tune on, and records to score on."""
    golds = read_triples(request.triples)
    dev = [] if request.dev is None else read_triples(request.dev)
    if not dev:
        golds, dev = split_by_subject(golds, request.settings.seed)
    if request.examples > len(golds):
        note(f"{request.triples} holds {len(golds)} queries to tune on, fewer than the {request.examples} asked for")
    if request.examples:
        golds = sample_by_relation(golds, request.examples, request.settings.seed)
    unseen = {relation_of(gold) for gold in dev} - {relation_of(gold) for gold in golds}
    if unseen:
        more = " …" if len(unseen) > 5 else ""
        note(f"{len(unseen)} relations of the dev queries are not tuned on: {', '.join(sorted(unseen)[:5])}{more}")
    return golds, dev


def _prepare(
    task: Task, golds: Sequence[Gold], kb: KnowledgeBase, labeller: Labeller
) -> tuple[list[PreparedQuery], Reach]:
    prepared, counts = [], dict.fromkeys((field.name for field in dataclasses.fields(Reach)), 0)
    for gold in golds:
        ids = _token_ids(task, gold, kb)
        if ids is None:
            counts["unreadable"] += 1
            continue
        found = labeller.find(gold)
        prepared.append(PreparedQuery(tuple(ids), gold, found.phrases))
        counts[found.kind] += 1
    if not prepared:
        raise TrainingError(f"no query can be read: the encoder reads {kb.model.config.max_query_tokens} tokens")
    return prepared, Reach(**counts | {"queries": len(prepared)})


def _check_positives(request: FinetuningRequest, queries: Sequence[PreparedQuery], reach: Reach, note: Note) -> None:
    """Refuse to tune where nothing can be right."""
    objective, no_pages = request.settings.objective, reach.no_page == reach.queries
    if objective == "page" and no_pages:
        raise TrainingError(
            f"the knowledge base has no gold page of {request.triples}: use --objective phrase, or another --kb"
        )
    if objective != "page" and not any(query.gold.answers for query in queries):
        raise TrainingError(f"{request.triples} names pages, but no answer: use --objective page")
    if objective == "kilt" and no_pages:
        note("the knowledge base has none of the gold pages: only the answers' texts say what is right")


def _token_ids(task: Task, gold: Gold, kb: KnowledgeBase) -> list[int] | None:
    """None where the encoder cannot read the query."""
    text = task.query_of(gold.input or "", kb.model.reader.fits, gold.id)
    try:
        return kb.model.reader.token_ids([text])[0]
    except QueryError:
        return None


def _with_page_ids(gold: Gold, labeller: Labeller) -> Gold:
    """Pages that are named by their titles get their ids: predictions name ids."""

    def of(output: GoldOutput) -> GoldOutput:
        pages = tuple(name for page in output.pages for name in labeller.page_ids(page) or [page])
        evidence = None if output.evidence is None else frozenset(pages)
        return dataclasses.replace(output, pages=pages, evidence=evidence)

    return dataclasses.replace(gold, outputs=tuple(map(of, gold.outputs)))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
