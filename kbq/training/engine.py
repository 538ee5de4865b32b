"""Run: all batches of all epochs, step by step, with checkpoints from which a killed run goes on."""

import errno
import hashlib
import math
import pickle
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

from kbq.encoding.model_folder import fingerprint
from kbq.errors import TrainingError, first_line
from kbq.system.files import replacing, writing_to
from kbq.system.machine import give_memory_back
from kbq.training.attention import recompute_attention
from kbq.training.batches import ReadPassage, batches

CHECKPOINT_SECONDS = 180.0


class Descent:
    """Moves parameters downhill, `steps` times in all, `done` times so far."""

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rate: float, warmup: float, steps: int) -> None:
        """`warmup`: share of the steps in which the learning rate rises; it falls to 0 in the others."""
        self.parameters = list(parameters)
        self.steps = steps
        self.done = 0
        self._loss = torch.zeros(())  # since the last step
        self._learning_rate, self._warm = learning_rate, max(1, int(warmup * steps))
        self._optimizer = torch.optim.AdamW(self.parameters, lr=learning_rate, weight_decay=0.01, fused=True)

    def add(self, loss: Tensor) -> None:
        """Add the gradients of one loss to those since the last step."""
        self._loss = self._loss + loss.detach()
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        """Move the parameters, and forget the gradients.

        Raises:
            TrainingError: a loss or a gradient is no number; nothing has moved.
        """
        share = min((self.done + 1) / self._warm, (self.steps - self.done) / max(1, self.steps - self._warm))
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate * share
        norm = nn.utils.clip_grad_norm_(self.parameters, 1.0)
        values = torch.stack([self._loss.double(), norm.double()]).tolist()  # read from a GPU in one go
        for what, value in zip(("loss", "gradient"), values, strict=True):
            self._check(what, value)
        self._loss = torch.zeros(())
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.done += 1

    def _check(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise TrainingError(
                f"the {what} is {value} at step {self.done}: delete the checkpoint in OUT.partial, if "
                f"there is one, and begin again with a lower --learning-rate than {self._learning_rate:g}"
            )

    def state(self) -> dict[str, Any]:
        """All that a checkpoint must hold."""
        return {"step": self.done, "parameters": self.values(), "optimizer": self._optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        self.set_values(state["parameters"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.done = state["step"]

    def values(self) -> list[Tensor]:
        """The parameters as they are now; not a copy."""
        return [parameter.detach() for parameter in self.parameters]

    def set_values(self, values: Sequence[Tensor]) -> None:
        """Give the parameters other values."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters, values, strict=True):
                parameter.copy_(value)


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Replace a checkpoint in one step.

    Raises:
        TrainingError: the disk is full.
    """
    with writing_to(path, TrainingError, goes_on=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            try:
                torch.save(state, partial)
            except RuntimeError as error:  # all that torch says of a full disk
                raise OSError(errno.ENOSPC, f"no room, most likely: {first_line(error)}") from None


def read_checkpoint(
    path: Path, device: torch.device, settings: dict[str, Any], data: str, what: str
) -> dict[str, Any] | None:
    """The state in a checkpoint, None where there is none.

    Args:
        settings, data: of this run; a checkpoint of another one must not be continued.
        what: the data in a word, for the message.

    Raises:
        TrainingError: it is damaged, or of another run.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise TrainingError(f"{path} is damaged ({first_line(error)}): delete it to start anew") from None
    if state["settings"] != settings:
        before = state["settings"]
        changed = [
            f"{name} {before.get(name)} then, {settings.get(name)} now"
            for name in {**before, **settings}
            if before.get(name) != settings.get(name)
        ]
        raise TrainingError(
            f"{path} was written with other settings ({'; '.join(changed)}): give these again, or delete it to start "
            "anew"
        )
    if state["data"] != data:
        raise TrainingError(f"{path} was written with other {what}: delete it to start anew")
    return state


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
