"""Loop: L = L_single + λ L_neg + λ L_neg over all tokens + λ L_filter, with a queue of earlier batches' answers.

Source: arXiv 2012.12624, section 4 (Eq. 9 without distillation). Differences: L_neg once more over all tokens, all
questions of a passage share one encoding of it, near-by passages share a batch, and word embeddings stay frozen.
"""

import hashlib
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count
from pathlib import Path

import torch
from torch import Tensor

from kbq.encoding.backbone import autocast
from kbq.encoding.model import Model
from kbq.training.batches import Batch, PreparedPassage, batches, collate
from kbq.training.losses import filter_loss, negatives_loss, single_passage_loss
from kbq.training.optimizing import CHECKPOINT_SECONDS, Descent, read_checkpoint, write_checkpoint


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Everything that decides the outcome besides the data."""

    epochs: float = 3.0
    batch_tokens: int = 4096  # of all windows of a batch, padding included
    learning_rate: float = 2e-4  # the paper's 3e-5 is for SpanBERT-base
    warmup: float = 0.05  # share of all steps
    pre_batches: int = 2  # C: earlier batches whose answers serve as negatives; 0 = in-batch only
    pre_batches_from: float = 0.3  # share of all steps after which the queue is used
    negatives_weight: float = 1.0  # L_neg: answers of other passages, of this batch and of the queue
    tokens_weight: float = 1.0  # L_neg over all tokens of the batch: what an open search meets (not in the paper)
    filter_weight: float = 0.3
    max_queries: int = 12  # of one passage
    seed: int = 0


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step says: losses, averaged over start and end."""

    step: int
    steps: int
    single: float
    negatives: float
    tokens: float
    filter: float
    size: int  # tokens of all windows and queries

    @property
    def losses(self) -> tuple[float, ...]:
        return self.single, self.negatives, self.tokens, self.filter


class Trainer:
    """Trains a model in place; every checkpoint holds all that a killed run needs to go on."""

    def __init__(self, model: Model, passages: Sequence[PreparedPassage], settings: TrainingSettings) -> None:
        self.model = model
        self.passages = passages
        self.settings = settings
        self.per_epoch = sum(1 for _ in batches(passages, settings.batch_tokens, random.Random(settings.seed)))
        self.steps = max(1, math.ceil(self.per_epoch * settings.epochs))
        trainable = [p for p in {*model.phrases.parameters(), *model.queries.parameters()} if p.requires_grad]
        order = {p: i for i, p in enumerate([*model.phrases.parameters(), *model.queries.parameters()])}
        parameters = sorted(trainable, key=lambda p: order[p])
        self.descent = Descent(parameters, settings.learning_rate, settings.warmup, self.steps)
        self.queue: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=max(1, settings.pre_batches))

    def run(self, checkpoint: Path, report: Callable[[StepReport], None]) -> None:
        """Train to the end, from `checkpoint` where there is one.

        Raises:
            TrainingError: the loss is no number any more (the last checkpoint stays), or the checkpoint is of
                another run.
        """
        self._resume(checkpoint)
        for encoder in (self.model.phrases, self.model.queries):
            encoder.train()
        saved = time.monotonic()
        for members in self._batches_from(self.descent.done):
            report(self._one_step(collate(self.model, [self.passages[i] for i in members])))
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                self._save(checkpoint)
                saved = time.monotonic()
        self._save(checkpoint)

    def _batches_from(self, step: int) -> Iterator[list[int]]:
        """The batches of the rest of the run; epochs differ in their number of batches."""
        done = 0
        for epoch in count():
            for members in batches(
                self.passages, self.settings.batch_tokens, random.Random(self.settings.seed + epoch)
            ):
                if done == self.steps:
                    return
                done += 1
                if done > step:
                    yield members

    def _one_step(self, batch: Batch) -> StepReport:
        weights = (
            1.0,
            self.settings.negatives_weight,
            self.settings.tokens_weight,
            self.settings.filter_weight,
        )
        losses = self._losses(batch)
        loss = torch.stack([weight * part for weight, part in zip(weights, losses, strict=True)]).sum()
        self.descent.add(loss)
        self.descent.step()
        size = batch.windows[0].numel() + batch.queries[0].numel()
        single, negatives, tokens, filtered = (float(part.detach()) for part in losses)
        return StepReport(self.descent.done, self.steps, single, negatives, tokens, filtered, size)

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """L_single, L_neg, L_neg over all tokens, L_filter."""
        with autocast(self.model.device):
            vectors, logits = self.model.phrases(*batch.windows)
            query_vectors = self.model.queries(*batch.queries)
        vectors, logits = vectors.float().flatten(0, 1), logits.float()
        owned = batch.passage_of_token >= 0
        own_passage = batch.passage_of_token == batch.passage_of_query[:, None]
        *queue, queued_answers = self._queue()
        queued_same = batch.answer_of_query[:, None] == queued_answers
        golds = (batch.gold_starts, batch.gold_ends)
        losses = []
        for queries, gold, queued in zip(query_vectors, golds, queue, strict=True):
            scores = queries @ vectors.T
            same = _same_answer(gold, batch.answer_of_query)
            with_queue = torch.cat([same, queued_same], dim=1)
            losses.append(
                torch.stack(
                    [
                        single_passage_loss(scores, gold, own_passage),
                        negatives_loss(scores, gold, gold.any(dim=0), queries @ queued.T, with_queue),
                        negatives_loss(scores, gold, owned, scores[:, :0], same),
                    ]
                )
            )
        self._enqueue(vectors, batch)
        labels = torch.stack([gold.any(dim=0) for gold in golds], dim=1).reshape(*logits.shape).float()
        filtered = filter_loss(logits, labels, owned.reshape(logits.shape[:2]))
        single, negatives, tokens = torch.stack(losses).mean(dim=0)
        return single, negatives, tokens, filtered

    def _queue(self) -> tuple[Tensor, Tensor, Tensor]:
        """Start vectors, end vectors (queue, dim) and answer numbers (queue,) of the last C batches."""
        ready = self.settings.pre_batches > 0 and self.descent.done >= self.settings.pre_batches_from * self.steps
        if not ready or not self.queue:
            none = torch.empty((0, self.model.dim), device=self.model.device)
            return none, none, torch.empty(0, dtype=torch.long, device=self.model.device)
        starts, ends, answers = zip(*self.queue, strict=True)
        return torch.cat(starts), torch.cat(ends), torch.cat(answers)

    def _enqueue(self, vectors: Tensor, batch: Batch) -> None:
        starts, ends = (vectors[gold.int().argmax(dim=1)].detach() for gold in (batch.gold_starts, batch.gold_ends))
        self.queue.append((starts, ends, batch.answer_of_query))

    def _save(self, checkpoint: Path) -> None:
        state = {"settings": asdict(self.settings), "data": self._digest, "queue": list(self.queue)}
        write_checkpoint(checkpoint, state | self.descent.state())

    @cached_property
    def _digest(self) -> str:
        """Of what is trained on and with: a checkpoint of another run must not be continued."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr([tuple(parameter.shape) for parameter in self.descent.parameters]).encode())
        for passage in self.passages:
            digest.update(repr(passage).encode())
        return digest.hexdigest()

    def _resume(self, checkpoint: Path) -> None:
        state = read_checkpoint(checkpoint, self.model.device, asdict(self.settings), self._digest, "passages")
        if state is not None:
            self.descent.load_state(state)
            self.queue.extend(state["queue"])


def _same_answer(gold: Tensor, answers: Tensor) -> Tensor:
    """Tokens that are gold for another query with the same answer string. Shape: (queries, tokens), bool."""
    same = (answers[:, None] == answers).float()
    return same @ gold.float() > 0
