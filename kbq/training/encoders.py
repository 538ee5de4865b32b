"""Encoders: reading-comprehension files become a model, a phrase encoder and a query encoder. `kbq train encoders`."""

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kbq.answers import WeightType
from kbq.errors import TrainingError
from kbq.model.devices import autocast, choose_device
from kbq.model.model import Model
from kbq.model.model_folder import CONFIG, ModelConfig, local_folder
from kbq.model.tokenizer import Forms, is_cased, usual_forms
from kbq.training.batches import Batch, PassageRun, PreparedPassage, collate, prepare, refuse_unreadable
from kbq.training.distillation import ReaderOutputs, read_by, taught_logits
from kbq.training.engine import StepReport
from kbq.training.evaluation import ReadingScores, evaluate_reading
from kbq.training.examples import Files, Passage, Repairs, read_examples, set_aside
from kbq.training.losses import distillation_loss, filter_loss, marginal_losses, negatives_loss, trust_in
from kbq.training.output_folder import example_digests, output_folder, training_facts
from kbq.training.quantisation import FilterPoint, quantisation_of
from kbq.training.settings import TrainingSettings


class EncoderRun(PassageRun):
    """Trains phrase and query encoders."""

    settings: TrainingSettings

    def __init__(
        self,
        model: Model,
        passages: Sequence[PreparedPassage],
        settings: TrainingSettings,
        taught: ReaderOutputs | None = None,
    ) -> None:
        """`taught`: what a reader says about the passages."""
        super().__init__([model.phrases, model.queries], passages, settings, taught.digest if taught else "")
        self.model, self.passages = model, passages
        self.taught = taught
        self.weights = {
            "single": 1.0,
            "distilled": settings.distill_weight,
            "negatives": settings.negatives_weight,
            "tokens": settings.tokens_weight,
            "filter": settings.filter_weight,
        }
        self.queue: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=settings.pre_batches)

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return L_single, L_distill where there is a reader, L_neg, L_neg over all tokens, and L_filter."""
        batch = collate(self.model, [self.passages[index] for index in members])
        taught = None if self.taught is None else taught_logits(batch, [self.taught.of(index) for index in members])
        with autocast(self.model.device):
            vectors, logits = self.model.phrases(*batch.windows)
            query_vectors = self.model.queries(*batch.queries)
        vectors, logits = vectors.float().flatten(0, 1), logits.float()
        owned = batch.passage_of_token >= 0
        own_passage = batch.passage_of_token == batch.passage_of_query[:, None]
        *queue, queued_answers = self._queue()
        spares_same = not self.settings.same_answers
        queued_same = (batch.answer_of_query[:, None] == queued_answers) & spares_same
        golds = (batch.gold_starts, batch.gold_ends)
        sides: list[dict[str, Tensor]] = []
        for side, (queries, gold, queued) in enumerate(zip(query_vectors, golds, queue, strict=True)):
            scores = queries @ vectors.T
            same = _same_answer(gold, batch.answer_of_query) & spares_same
            elsewhere = gold.any(dim=0) & ~own_passage  # answers of other passages
            with_queue = torch.cat([same, queued_same], dim=1)
            losses = {"single": marginal_losses(scores, gold, own_passage).mean()}
            if taught is not None:
                trust = trust_in(taught[side], gold, own_passage) if self.settings.trust_by_gold else None
                temperature = self.settings.temperature
                losses["distilled"] = distillation_loss(scores, taught[side], own_passage, temperature, trust)
            losses["negatives"] = negatives_loss(scores, gold, elsewhere, queries @ queued.T, with_queue)
            losses["tokens"] = negatives_loss(scores, gold, owned, scores[:, :0], same)
            sides.append(losses)
        self._enqueue(vectors, batch)
        labels = torch.stack([gold.any(dim=0) for gold in golds], dim=1).reshape(*logits.shape).float()
        averaged = {name: (sides[0][name] + sides[1][name]) / 2 for name in sides[0]}
        return averaged | {"filter": filter_loss(logits, labels, owned.reshape(logits.shape[:2]))}, batch.size

    def state(self) -> dict[str, Any]:
        """Return all that later steps depend on, the queue included."""
        return super().state() | {"queue": list(self.queue)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go back to a state, the queue included."""
        super().load_state(state)
        self.queue.extend(state["queue"])

    def _queue(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return start vectors, end vectors (queue, dim) and answer numbers (queue,) of the last C batches."""
        if not self.queue or self.optimizer.done < self.settings.pre_batches_from * self.steps:
            no_vectors = torch.empty((0, self.model.dim), device=self.model.device)
            return no_vectors, no_vectors, torch.empty(0, dtype=torch.long, device=self.model.device)
        starts, ends, answers = zip(*self.queue, strict=True)
        return torch.cat(starts), torch.cat(ends), torch.cat(answers)

    def _enqueue(self, vectors: Tensor, batch: Batch) -> None:
        starts, ends = (vectors[gold.int().argmax(dim=1)].detach() for gold in (batch.gold_starts, batch.gold_ends))
        self.queue.append((starts, ends, batch.answer_of_query))


def _same_answer(gold: Tensor, answers: Tensor) -> Tensor:
    """Mark the tokens that are gold for a query with the same answer string. Shape: (queries, tokens), bool."""
    same = (answers[:, None] == answers).float()
    return same @ gold.float() > 0


CALIBRATION_PASSAGES = 500


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """The result of training."""

    passages: int
    queries: int
    repairs: Repairs
    too_long: int  # queries left out
    surplus: int  # queries left out: beyond the `max_queries` of their passage
    steps: int
    filter: tuple[FilterPoint, ...]  # what it costs to drop tokens; the threshold is one of these
    scores: ReadingScores


def train_encoders(
    examples: Files,
    out: str | Path,
    init: str | Path,
    *,
    dev: str | Path | None = None,
    distill: str = "",
    settings: TrainingSettings | None = None,
    config: ModelConfig | None = None,
    truecase: bool = False,
    weights: WeightType = "float32",
    device: str = "auto",
    command: str = "",
    on_step: Callable[[StepReport], None] = lambda step: None,
    on_reading: Callable[[int, int], None] = lambda done, passages: None,
) -> TrainingOutcome:
    """Train and score a model, and save it in a new folder. A killed run resumes from `OUT.partial/checkpoint.pt`.

    Args:
        init: a BERT-like encoder (hub name or folder), or a kbq model.
        dev: examples to score on; without them a twentieth of the passages is set aside.
        distill: a reader to learn from, too: hub name or folder.
        config: of a new model.
        truecase: read queries without capital letters as the training passages write their words.
        weights: how they are stored.
        command: kept in the model's `kbq.json`.
        on_reading: called with the number of passages that the reader has read, and of all passages.

    Raises:
        TrainingError: `out` exists, there is no usable example, a loss is not a number, or the checkpoint is of another
            run.
        ModelError: the encoder to start from is missing or not BERT-like, or the reader does not fit it.
    """
    settings = settings or TrainingSettings()
    with output_folder(Path(out)) as folder:
        digests = example_digests(examples)
        torch.manual_seed(settings.seed)
        model = _initial_model(str(init), config or ModelConfig())
        for module in (model.phrases, model.queries):
            module.to(choose_device(device))
        passages, repairs = read_examples(examples)
        passages, dev_passages = set_aside(passages, dev, settings.seed)
        if truecase:
            model.query_tokenizer.casing = _casing(model, passages)
        prepared, left_out = prepare(model.query_tokenizer, model.config.window, passages, settings.max_queries)
        refuse_unreadable(prepared, dev_passages, model.query_tokenizer)
        taught = None if not distill else read_by(distill, model.tokenizer, prepared, device, on_reading)
        run = EncoderRun(model, prepared, settings, taught)
        run.run(folder / "checkpoint.pt", on_step)
        points = quantisation_of(model, dev_passages[:CALIBRATION_PASSAGES])
        queries = sum(len(passage.queries) for passage in prepared)
        earlier = {"begun": model.config.training} if model.source else {}
        facts = training_facts(
            command,
            init,
            digests,
            settings,
            reader=Path(distill).name,
            passages=len(prepared),
            queries=queries,
            filter=[dataclasses.asdict(point) for point in points],
        )
        model.config = dataclasses.replace(model.config, training=earlier | facts)
        model.save(folder / "model", weights)
        saved = Model.open(folder / "model", device)  # scored as it was written
        scores = evaluate_reading(saved, dev_passages)
    return TrainingOutcome(len(prepared), queries, repairs, *left_out, run.steps, points, scores)


def _initial_model(init: str, config: ModelConfig) -> Model:
    """Make a new model or, where `init` is a kbq model, open it with all its weights."""
    if not (local_folder(init) / CONFIG).exists():
        return Model.new(init, config)
    model = Model.open(init, "cpu")
    if model.config.shared_query_encoder > config.shared_query_encoder:
        raise TrainingError(f"{init} has one query encoder with two heads: leave out --two-query-encoders")
    model.config = dataclasses.replace(model.config, base="")
    return model


def _casing(model: Model, passages: Sequence[Passage]) -> Forms:
    if not is_cased(model.tokenizer):
        raise TrainingError("the encoder does not distinguish capital letters: leave out --truecase")
    return usual_forms(passage.text for passage in passages)
