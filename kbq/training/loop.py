"""Loop: L = L_single + λ2 L_distill + λ L_neg + λ L_neg over all tokens + λ L_filter, with a queue of earlier answers.

Source: arXiv 2012.12624, section 4 (Eq. 9). Differences: the last two terms are added; all questions of a passage
share one encoding of it, near-by passages share a batch, and word embeddings stay frozen.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbq.encoding.devices import autocast
from kbq.encoding.model import Model
from kbq.training.batches import Batch, PreparedPassage, collate
from kbq.training.distillation import ReaderOutputs, taught_logits
from kbq.training.losses import distillation_loss, filter_loss, marginal_losses, negatives_loss, single_passage_loss
from kbq.training.run import Run, RunSettings


@dataclass(frozen=True, slots=True)
class TrainingSettings(RunSettings):
    """Everything that decides the outcome besides the data."""

    max_queries: int = 12  # of one passage
    pre_batches: int = 0  # C: earlier batches whose answers serve as negatives (the paper: 2)
    pre_batches_from: float = 0.3  # share of all steps after which the queue is used
    same_answers: bool = False  # whether another query's answer with the same string is a negative, too
    negatives_weight: float = 1.0  # L_neg: answers of other passages, of this batch and of the queue
    tokens_weight: float = 1.0  # L_neg over all tokens of the batch: what an open search meets (not in the paper)
    filter_weight: float = 0.3
    distill_weight: float = 2.0  # the paper's λ2; L_distill needs a reader
    temperature: float = 1.0  # of the reader's distributions and ours in L_distill
    trust_by_gold: bool = True  # weights L_distill by the chance that the reader gives the gold tokens (the paper: 1)


class Trainer(Run):
    """Trains phrase and query encoders; `taught`: what a reader says about the passages."""

    settings: TrainingSettings

    def __init__(
        self,
        model: Model,
        passages: Sequence[PreparedPassage],
        settings: TrainingSettings,
        taught: ReaderOutputs | None = None,
    ) -> None:
        super().__init__([model.phrases, model.queries], passages, settings)
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

    @property
    def made_with(self) -> str:
        """The digest of the reader's outputs."""
        return "" if self.taught is None else self.taught.digest

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """L_single, L_distill where there is a reader, L_neg, L_neg over all tokens, L_filter."""
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
            losses = {"single": single_passage_loss(scores, gold, own_passage)}
            if taught is not None:
                trust = (
                    marginal_losses(taught[side], gold, own_passage).neg().exp()
                    if self.settings.trust_by_gold
                    else None
                )
                losses["distilled"] = distillation_loss(
                    scores, taught[side], own_passage, self.settings.temperature, trust
                )
            losses["negatives"] = negatives_loss(scores, gold, elsewhere, queries @ queued.T, with_queue)
            losses["tokens"] = negatives_loss(scores, gold, owned, scores[:, :0], same)
            sides.append(losses)
        self._enqueue(vectors, batch)
        labels = torch.stack([gold.any(dim=0) for gold in golds], dim=1).reshape(*logits.shape).float()
        averaged = {name: (sides[0][name] + sides[1][name]) / 2 for name in sides[0]}
        return averaged | {"filter": filter_loss(logits, labels, owned.reshape(logits.shape[:2]))}, batch.size

    def state(self) -> dict[str, Any]:
        """All that later steps depend on, the queue included."""
        return super().state() | {"queue": list(self.queue)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go back to a state, the queue included."""
        super().load_state(state)
        self.queue.extend(state["queue"])

    def _queue(self) -> tuple[Tensor, Tensor, Tensor]:
        """Start vectors, end vectors (queue, dim) and answer numbers (queue,) of the last C batches."""
        if not self.queue or self.descent.done < self.settings.pre_batches_from * self.steps:
            no_vectors = torch.empty((0, self.model.dim), device=self.model.device)
            return no_vectors, no_vectors, torch.empty(0, dtype=torch.long, device=self.model.device)
        starts, ends, answers = zip(*self.queue, strict=True)
        return torch.cat(starts), torch.cat(ends), torch.cat(answers)

    def _enqueue(self, vectors: Tensor, batch: Batch) -> None:
        starts, ends = (vectors[gold.int().argmax(dim=1)].detach() for gold in (batch.gold_starts, batch.gold_ends))
        self.queue.append((starts, ends, batch.answer_of_query))


def _same_answer(gold: Tensor, answers: Tensor) -> Tensor:
    """Tokens that are gold for another query with the same answer string. Shape: (queries, tokens), bool."""
    same = (answers[:, None] == answers).float()
    return same @ gold.float() > 0
