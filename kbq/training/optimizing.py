"""Optimizing: AdamW with linear warm-up and decay, and checkpoints from which a killed run goes on."""

import errno
import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kbq.errors import TrainingError, first_line
from kbq.system.files import replacing, writing_to

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
