"""Run: all batches of all epochs, step by step, with checkpoints from which a killed run goes on."""

import hashlib
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kbq.encoding.attention import recompute_attention
from kbq.encoding.weights import fingerprint
from kbq.errors import TrainingError
from kbq.system.machine import give_memory_back
from kbq.training.batches import ReadPassage, batches
from kbq.training.optimizing import CHECKPOINT_SECONDS, Descent, read_checkpoint, write_checkpoint

SEEDS = 1_000_003  # between the seeds of two runs, for steps or for epochs; a CPU's generator reads 32 bits of a seed


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What decides the outcome of every run, besides the data."""

    epochs: float = 3.0
    batch_tokens: int = 4096  # of all windows of a batch, padding included
    learning_rate: float = 2e-4  # the paper's 3e-5 is for SpanBERT-base
    warmup: float = 0.05  # share of all steps
    accumulate: int = 1  # batches of one step: a large batch in the memory of a small one
    dropout: float = 0.0  # of hidden states; on a CPU its random numbers take a sixth of a step
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What every training starts from and where it goes."""

    examples: Sequence[Path]
    out: Path
    checkpoint: str  # a BERT-like encoder: hub name or folder
    settings: RunSettings = field(default_factory=RunSettings)
    device: str = "auto"
    command: str = ""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What is reported of a step: its losses by name, averaged over queries, unweighted."""

    step: int
    steps: int
    losses: Mapping[str, float]
    size: int  # tokens


class Run(ABC):
    """Trains networks in place; every checkpoint holds all that a killed run needs to go on."""

    weights: Mapping[str, float]  # of each loss

    def __init__(self, modules: Sequence[nn.Module], passages: Sequence[ReadPassage], settings: RunSettings) -> None:
        if not settings.epochs > 0:
            raise TrainingError(f"{settings.epochs} epochs are no training: give --epochs a number above 0")
        self.modules = modules
        self.settings = settings
        self._passages = passages
        for module in modules:
            _set_dropout(module, settings.dropout)
        self.per_epoch = sum(1 for _ in self._epoch(0))
        self.steps = max(1, math.ceil(self.per_epoch * settings.epochs / settings.accumulate))
        parameters = dict.fromkeys(p for module in modules for p in module.parameters() if p.requires_grad)
        self.descent = Descent(list(parameters), settings.learning_rate, settings.warmup, self.steps)

    @abstractmethod
    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """The losses of a batch of these passages, by name, averaged over its queries; and its size in tokens."""

    def state(self) -> dict[str, Any]:
        """All that later steps depend on."""
        return self.descent.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.descent.load_state(state)

    def run(self, checkpoint: Path, report: Callable[[StepReport], None]) -> None:
        """Train to the end, from `checkpoint` where there is one.

        Raises:
            TrainingError: the loss is no number any more (the last checkpoint stays), or the checkpoint is of
                another run.
        """
        self._resume(checkpoint)
        for module in self.modules:
            recompute_attention(module.train())
        saved = time.monotonic()
        rest = self._batches_from(self.descent.done * self.settings.accumulate)
        while self.descent.done < self.steps:
            report(self._one_step(list(islice(rest, self.settings.accumulate))))
            if self.descent.done % 10 == 0:
                give_memory_back()
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                self._save(checkpoint)
                saved = time.monotonic()
        self._save(checkpoint)
        for module in self.modules:
            module.eval()

    def _epoch(self, epoch: int) -> Iterator[list[int]]:
        return batches(self._passages, self.settings.batch_tokens, random.Random(SEEDS * self.settings.seed + epoch))

    def _batches_from(self, first: int) -> Iterator[list[int]]:
        """The batches from number `first` on, without end; epochs differ in their number of batches."""
        return islice((members for epoch in count() for members in self._epoch(epoch)), first, None)

    def _one_step(self, step_batches: Sequence[Sequence[int]]) -> StepReport:
        """A step of one batch or several. Every query counts alike, whichever batch it is in."""
        torch.manual_seed((SEEDS * self.settings.seed + self.descent.done) % 2**32)  # same dropout after a kill
        query_counts = [sum(len(self._passages[index].queries) for index in members) for members in step_batches]
        sums: dict[str, Tensor] = {}  # on the device, from which they are read once
        size = 0
        for members, query_count in zip(step_batches, query_counts, strict=True):
            losses, tokens = self.losses(members)
            share = query_count / sum(query_counts)
            weighted = [self.weights[name] * loss for name, loss in losses.items()]
            self.descent.add(share * sum(weighted[1:], weighted[0]))
            for name, loss in losses.items():
                sums[name] = sums.get(name, 0.0) + share * loss.detach()
            size += tokens
        self.descent.step()
        means = dict(zip(sums, torch.stack(list(sums.values())).tolist(), strict=True))
        return StepReport(self.descent.done, self.steps, means, size)

    def _save(self, checkpoint: Path) -> None:
        write_checkpoint(checkpoint, {"settings": asdict(self.settings), "data": self._digest} | self.state())

    def _resume(self, checkpoint: Path) -> None:
        settings, device = asdict(self.settings), self.descent.parameters[0].device
        state = read_checkpoint(checkpoint, device, settings, self._digest, "passages")
        if state is not None:
            self.load_state(state)

    @property
    def made_with(self) -> str:
        """What else decides the outcome, as a digest."""
        return ""

    @cached_property
    def _digest(self) -> str:
        """A digest of initial weights, passages and `made_with`: a checkpoint of another run must not be continued.

        It is cached at its first use, before anything has been trained.
        """
        weights = (parameter.detach().cpu() for module in self.modules for parameter in module.parameters())
        initial = fingerprint({str(number): weight for number, weight in enumerate(weights)})
        return passages_digest(self._passages, repr((initial, self.made_with)))


def passages_digest(passages: Sequence[object], more: str = "") -> str:
    """A digest of prepared passages, and of `more`, what else decides the outcome."""
    digest = hashlib.blake2b(more.encode(), digest_size=16)
    for passage in passages:
        digest.update(repr(passage).encode())
    return digest.hexdigest()


def _set_dropout(module: nn.Module, share: float) -> None:
    """Set the dropout of hidden states alone. Attention gets none on any device, as recomputed attention has none."""
    for name, part in module.named_modules():
        of_attention = "Attention" in type(part).__name__ or name.endswith("attention.self.dropout")
        if isinstance(part, nn.Dropout):
            part.p = 0.0 if of_attention else share
        for attribute in ("dropout", "attention_dropout", "activation_dropout"):  # numbers, as in networks like BART
            if isinstance(getattr(part, attribute, None), float):
                setattr(part, attribute, share if attribute == "dropout" and not of_attention else 0.0)
