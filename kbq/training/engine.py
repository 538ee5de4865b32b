"""Engine: train networks in place, step by step.

Phrase and query encoders, reader, SPARTA and query-side fine-tuning share it: each adds its
examples and its losses.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kbq.errors import TrainingError
from kbq.storage.machine import give_memory_back
from kbq.training.attention import recompute_attention
from kbq.training.checkpoint import read_checkpoint, write_checkpoint
from kbq.training.settings import StepSettings

CHECKPOINT_SECONDS = 180.0


class Optimizer:
    """AdamW with clipped gradients, `steps` times in all, `done` times so far."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], learning_rate: float, warmup: float, steps: int
    ) -> None:
        """`warmup`: share of the steps in which the learning rate rises; it falls to 0 in the
        others.
        """
        self.parameters = list(parameters)
        self.steps = steps
        self.done = 0
        self._loss = torch.zeros(())  # sum since the last step
        self._learning_rate = learning_rate
        self._warm = max(1, int(warmup * steps))
        groups = [{"params": self.parameters, "initial_lr": learning_rate}]
        self.adam = torch.optim.AdamW(groups, lr=learning_rate, weight_decay=0.01, fused=True)

    def add(self, loss: Tensor) -> None:
        self._loss = self._loss + loss.detach()
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        """Move the parameters, and forget the gradients. Raises TrainingError before, if one is not
        finite.
        """
        share = min(
            (self.done + 1) / self._warm, (self.steps - self.done) / max(1, self.steps - self._warm)
        )
        for group in self.adam.param_groups:
            group["lr"] = group["initial_lr"] * share
        norm = nn.utils.clip_grad_norm_(self.parameters, 1.0)
        # Read from a GPU in one go.
        values = torch.stack([self._loss.double(), norm.double()]).tolist()
        for what, value in zip(("loss", "gradient"), values, strict=True):
            if not math.isfinite(value):
                raise _diverged(what, value, self.done, self._learning_rate)

        self._loss = torch.zeros(())
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        self.done += 1

    def state(self) -> dict[str, Any]:
        return {"step": self.done, "parameters": self.values(), "optimizer": self.adam.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.set_values(state["parameters"])
        self.adam.load_state_dict(state["optimizer"])
        self.done = state["step"]

    def values(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self.parameters]

    def set_values(self, values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self.parameters, values, strict=True):
                parameter.copy_(value)


def _diverged(what: str, value: float, step: int, learning_rate: float) -> TrainingError:
    """Return the error of a number that is not finite."""
    return TrainingError(
        f"the {what} is {value} at step {step}: delete the checkpoint in OUT.partial, if there is "
        f"one, and start again with a --learning-rate below {learning_rate:g}"
    )


def best_round(scores: Sequence[float]) -> int:
    """Return the round with the best dev score, of equals the last, which has settled, or 0 if none
    beats the score before training.

    >>> best_round([70.0, 73.4, 73.4]), best_round([70.0, 69.0, 70.0])
    (2, 0)
    """
    best = max(scores)
    if best == scores[0]:
        return 0
    return max(number for number, score in enumerate(scores) if score == best)


SEEDS = 1_000_003  # distance of the seeds of two runs; a CPU's generator reads 32 bits of a seed


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step that has been taken."""

    step: int
    steps: int
    # Losses by name, averaged over queries, unweighted; and other shares.
    means: Mapping[str, float]
    size: int  # tokens
    dev: float | None = None  # the latest score of dev data, if these are scored during training


class Run(ABC):
    """Takes steps in rounds, mostly a single one; a checkpoint holds all that a killed run needs to
    resume.
    """

    weights: Mapping[str, float]  # weight of each loss; a loss without one is only reported
    trained_on = "passages"  # word for messages

    def __init__(
        self, modules: Sequence[nn.Module], settings: StepSettings, steps: int, dropout: float = 0.0
    ) -> None:
        self.modules = modules
        self.settings = settings
        self.steps = steps
        # Scores of dev data, if there are any: before training, and after each round.
        self.scores: list[float] = []
        self._best: list[Tensor] = []  # the parameters with the best score
        for module in modules:
            _set_dropout(module, dropout)
        parameters = dict.fromkeys(
            p for module in modules for p in module.parameters() if p.requires_grad
        )
        self.optimizer = Optimizer(list(parameters), settings.learning_rate, settings.warmup, steps)

    @abstractmethod
    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return the losses of a batch by name, of each query or averaged over them, and its size
        in tokens.
        """

    @abstractmethod
    def batches(self) -> Iterator[Sequence[int]]:
        """Yield the batches of this round from its beginning; there may be more than are trained
        on.
        """

    @abstractmethod
    def digest(self) -> str:
        """Return a digest of all but the settings that decides the outcome, before anything has
        been trained.
        """

    def query_count(self, members: Sequence[int]) -> int:
        """Return how many queries a batch has: each member is one, unless a run says otherwise."""
        return len(members)

    @property
    def begun(self) -> int:
        """Steps before this round."""
        return 0

    @property
    def is_finished(self) -> bool:
        return self.optimizer.done >= self.steps

    def between_rounds(self) -> None:  # noqa: B027 - most runs have a single round
        """Called before the first round, and after every round."""

    def keep_best(self, score: float) -> None:
        """Keep the parameters if their dev score is the best so far; after the last round, go back
        to the best. Raises TrainingError if the score is not a number.
        """
        if not math.isfinite(score):
            raise _diverged(
                "score of dev data", score, self.optimizer.done, self.settings.learning_rate
            )
        self.scores.append(score)
        if best_round(self.scores) == len(self.scores) - 1:
            self._best = [value.clone() for value in self.optimizer.values()]
        if self.is_finished:
            self.optimizer.set_values(self._best)

    def state(self) -> dict[str, Any]:
        return self.optimizer.state() | {"scores": self.scores, "best": self._best}

    def load_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state(state)
        self.scores = state.get("scores", [])
        self._best = state.get("best", [])

    def run(self, checkpoint: Path, report: Callable[[StepReport], None]) -> None:
        """Train to the end, from `checkpoint` if it exists.

        Raises TrainingError if a loss is not a number (the last checkpoint stays), or the
        checkpoint is of another run.
        """
        for module in self.modules:
            recompute_attention(module.train())
        identity = {"settings": asdict(self.settings), "data": self.digest()}
        state = read_checkpoint(
            checkpoint, self.optimizer.parameters[0].device, identity, self.trained_on
        )
        if state is None:
            self.between_rounds()
        else:
            self.load_state(state)

        saved = time.monotonic()
        while not self.is_finished:
            for step_batches in self._steps_left():
                report(self._one_step(step_batches))
                if self.optimizer.done % 10 == 0:
                    give_memory_back()
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    write_checkpoint(checkpoint, identity | self.state())
                    saved = time.monotonic()
            self.between_rounds()
            write_checkpoint(checkpoint, identity | self.state())
            saved = time.monotonic()

        for module in self.modules:
            module.eval()

    def _steps_left(self) -> Iterator[Sequence[Sequence[int]]]:
        """Yield the batches of each step that is left in this round."""
        size = self.settings.accumulate
        steps = self.optimizer.done - self.begun
        left = islice(self.batches(), steps * size, (self.steps - self.begun) * size)
        while step_batches := list(islice(left, size)):
            yield step_batches

    def _one_step(self, step_batches: Sequence[Sequence[int]]) -> StepReport:
        """Take a step of one batch or several. Every query counts alike, whichever batch it is in."""
        # Same dropout after a kill.
        torch.manual_seed((SEEDS * self.settings.seed + self.optimizer.done) % 2**32)
        counts = [self.query_count(members) for members in step_batches]
        sums: dict[str, Tensor] = {}  # kept on the device, and read once
        size = 0

        for members, queries in zip(step_batches, counts, strict=True):
            losses, tokens = self.losses(members)
            weighted = [
                self.weights[name] * loss for name, loss in losses.items() if name in self.weights
            ]
            self.optimizer.add(_part(sum(weighted[1:], weighted[0]), queries, sum(counts)))
            for name, loss in losses.items():
                sums[name] = sums.get(name, 0.0) + _part(loss.detach(), queries, sum(counts))
            size += tokens

        self.optimizer.step()
        means = dict(zip(sums, torch.stack(list(sums.values())).tolist(), strict=True))
        latest = None
        if self.scores:
            latest = self.scores[-1]
        return StepReport(self.optimizer.done, self.steps, means, size, latest)


def _part(losses: Tensor, queries: int, total: int) -> Tensor:
    """Return the share of a batch's losses, of each query or their mean, in the mean over a step's
    queries.
    """
    if losses.ndim:
        return losses.sum() / total
    return queries / total * losses


def _set_dropout(module: nn.Module, share: float) -> None:
    """Set the dropout of hidden states alone. Attention gets none on any device, as recomputed
    attention has none.
    """
    for name, part in module.named_modules():
        of_attention = "Attention" in type(part).__name__ or name.endswith("attention.self.dropout")
        if isinstance(part, nn.Dropout):
            part.p = 0.0 if of_attention else share
        # Numbers in some networks.
        for attribute in ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(part, attribute, None), float):
                setattr(
                    part, attribute, share if attribute == "dropout" and not of_attention else 0.0
                )
