"""Finetuning: triples become a query-encoder folder for a knowledge base. The whole of `kbq finetune`."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from kbq.errors import TrainingError
from kbq.finetuning.dev_scoring import Judge
from kbq.finetuning.labels import Labeller
from kbq.finetuning.loop import Finetuner, FinetuningSettings, FinetuningStep
from kbq.finetuning.preparation import PreparedQuery, Reach, prepare, readable_queries, with_page_ids
from kbq.finetuning.triples import pages_of, read_triples, sample_by_relation, split
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold
from kbq.kilt.scores import NO_GROUP, relation_of
from kbq.kilt.task import Task
from kbq.system.callbacks import Note
from kbq.system.files import file_digest
from kbq.system.machine import available_memory
from kbq.training.output_folder import versions, workshop

MOST_NAMED = 10  # missing pages that a note names


@dataclass(frozen=True, slots=True)
class FinetuningRequest:
    """What a query encoder is tuned on, and where it goes."""

    triples: Path
    out: Path
    task: Task
    dev: Path | None = None  # scored after each epoch; without it a tenth is set aside, with other subjects and pages
    examples: int = 0  # 0: all
    settings: FinetuningSettings = field(default_factory=FinetuningSettings)
    command: str = ""


@dataclass(frozen=True, slots=True)
class FinetuningOutcome:
    """The result of tuning, also written into the folder's `kbq.json`."""

    reach: Reach
    dev_queries: int
    measure: str
    scores: Sequence[float]  # of dev queries, in percent: before tuning, and after each epoch
    found: Sequence[int]  # queries for which the search found a positive, in each epoch
    steps: int
    lexical_factor: float = 1.0  # what the weights of words beside the vectors are multiplied by
    hybrid_score: float | None = None  # of dev queries with words, in percent; None: the knowledge base has no words

    @property
    def is_better(self) -> bool:
        """Whether an epoch scored above the query encoder that tuning began with; if not, that one is kept."""
        return max(self.scores) > self.scores[0]


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
    with workshop(request.out) as folder:
        golds, dev = _data(request, note)
        sources = [None if path is None else _source(path) for path in (request.triples, request.dev)]
        torch.manual_seed(request.settings.seed)
        if request.settings.k > kb.counts.rows:
            note(f"k is {request.settings.k}, the knowledge base holds {kb.counts.rows} phrases: all of them compete")
        labeller = Labeller(kb.shards, {page for gold in [*golds, *dev] for page in pages_of(gold)})
        queries, reach = prepare(request.task, golds, kb, labeller)
        _check_positives(request, queries, reach, note)
        _check_memory(request.settings, len(queries), kb)
        dev_golds = [with_page_ids(gold, labeller) for gold, _ in readable_queries(request.task, dev, kb)]
        if len(dev_golds) < len(dev):
            note(f"{len(dev) - len(dev_golds)} of {len(dev)} dev queries cannot be read: left out")
        judge = Judge(request.task, dev_golds, kb, folder)
        tuner = Finetuner(kb, labeller, queries, request.settings, judge.score, judge.digest)
        tuner.run(folder / "checkpoint.pt", report)
        percent = [round(100 * score, 2) for score in tuner.scores]
        outcome = FinetuningOutcome(reach, len(judge), judge.measure, percent, tuner.found, tuner.descent.done)
        if kb.chosen("auto") == "hybrid":
            factor, hybrid_score = judge.best_factor(kb.model.config.lexical_factor)
            outcome = dataclasses.replace(outcome, lexical_factor=factor, hybrid_score=round(100 * hybrid_score, 2))
        kb.model.config = dataclasses.replace(kb.model.config, lexical_factor=outcome.lexical_factor)
        kb.model.save_query_encoder(folder / "model", _facts(request, sources, kb, golds, outcome))
    return outcome


def _data(request: FinetuningRequest, note: Note) -> tuple[list[Gold], list[Gold]]:
    """Records to tune on, and records to score on."""
    golds = read_triples(request.triples)
    dev = [] if request.dev is None else read_triples(request.dev)
    if not dev:
        golds, dev = split(golds, request.settings.seed)
    if request.examples > len(golds):
        note(f"{request.triples} holds {len(golds)} queries to tune on, fewer than the {request.examples} asked for")
    if request.examples:
        golds = sample_by_relation(golds, request.examples, request.settings.seed)
    unseen = {relation_of(gold) for gold in dev} - {relation_of(gold) for gold in golds}
    if unseen:
        more = " …" if len(unseen) > 5 else ""
        note(f"{len(unseen)} relations of the dev queries are not tuned on: {', '.join(sorted(unseen)[:5])}{more}")
    return golds, dev


def _facts(
    request: FinetuningRequest,
    sources: Sequence[dict[str, str] | None],
    kb: KnowledgeBase,
    golds: Sequence[Gold],
    outcome: FinetuningOutcome,
) -> dict[str, object]:
    """What the folder says about itself; `sources`: triples and dev file as they were read."""
    triples, dev = sources
    earlier = kb.model.config.training.get("finetuning")
    relations = set(earlier["relations"]) if isinstance(earlier, dict) else set()
    if outcome.is_better:  # if not, the query encoder has not changed
        relations |= {relation_of(gold) for gold in golds} - {NO_GROUP}
    return {
        "command": request.command,
        "triples": triples,
        "examples": request.examples,
        "dev": dev,
        "task": request.task.name,
        "relations": sorted(relations),
        "corpora": kb.manifest.corpora,
        "index": kb.index.kind,
        "settings": dataclasses.asdict(request.settings),
        "outcome": dataclasses.asdict(outcome),
        "versions": versions(),
    }


def _check_memory(settings: FinetuningSettings, queries: int, kb: KnowledgeBase) -> None:
    """Refuse what cannot fit: the phrases of a batch are held as float32, with their gradients and copies."""
    batch, phrases = min(settings.batch, queries), min(settings.k, kb.counts.rows)
    need = 3 * 4 * 2 * kb.model.dim * batch * phrases
    if kb.model.device.type == "cpu" and need > (free := available_memory()):
        raise TrainingError(
            f"{phrases:,} phrases for each of {batch:,} queries need {need / 1e9:.1f} GB of memory, "
            f"{free / 1e9:.1f} are free: take a smaller -k or --batch"
        )


def _check_positives(request: FinetuningRequest, queries: Sequence[PreparedQuery], reach: Reach, note: Note) -> None:
    """Refuse to tune where no phrase can be right; name the lines whose pages are not there."""
    missing = sorted((query.gold.line, query.lost_pages[0]) for query in queries if query.lost_pages)
    if missing:
        named = ", ".join(f"{page!r} (line {line})" for line, page in missing[:MOST_NAMED])
        note(f"{request.triples} names pages that are not there: {named}{' …' if len(missing) > MOST_NAMED else ''}")
    objective, no_pages = request.settings.objective, reach.no_page + reach.unnamed == reach.queries
    if objective == "page" and no_pages:
        raise TrainingError(
            f"the knowledge base has no gold page of {request.triples}: use --objective phrase, or another --kb"
        )
    if objective != "page" and not any(query.gold.answers for query in queries):
        raise TrainingError(f"{request.triples} names pages, but no answer: use --objective page")
    if objective != "page" and reach.nowhere == reach.queries:
        raise TrainingError(f"no answer of {request.triples} stands anywhere in the knowledge base: use another --kb")
    if objective == "kilt" and no_pages:
        names_pages = reach.unnamed < reach.queries
        why = "the knowledge base has none of the gold pages" if names_pages else "no pages are named"
        note(f"{why}: only the answers' texts say what is right")


def _source(path: Path) -> dict[str, str]:
    return {"name": path.name, "sha256": file_digest(path)}
