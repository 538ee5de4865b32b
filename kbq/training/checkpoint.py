"""Checkpoint: the state of a training, from which a killed run resumes."""

import errno
from pathlib import Path
from typing import Any

import torch

from kbq.errors import TrainingError, first_line
from kbq.storage.folders import make_folders
from kbq.storage.writing import replacing, writing_to


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Replace a checkpoint in one step. Raises TrainingError if the disk is full."""
    with writing_to(path, TrainingError, goes_on=True):
        make_folders(path.parent)
        with replacing(path) as partial:
            try:
                torch.save(state, partial)
            except RuntimeError as error:  # all that torch says of a full disk
                raise OSError(errno.ENOSPC, f"no room, most likely: {first_line(error)}") from None


def read_checkpoint(
    path: Path, device: torch.device, run: dict[str, Any], trained_on: str
) -> dict[str, Any] | None:
    """Return the state in a checkpoint, or None. Raises TrainingError if it is damaged, or of
    another run.

    `run`: the settings and a digest of the data of this run. `trained_on`: a word for the data, in
    messages.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        before = state["settings"]
        now = run["settings"]
    except MemoryError:
        raise
    except Exception as error:  # torch raises many kinds of errors for a damaged file, or one with more than tensors
        raise TrainingError(
            f"{path} is damaged ({first_line(error)}): delete it to start again"
        ) from None

    if before != now:
        changed: list[str] = []
        for name in {**before, **now}:
            old = before.get(name)
            new = now.get(name)
            if old != new:
                changed.append(f"{name} {old} then, {new} now")
        raise TrainingError(
            f"{path} was written with other settings ({'; '.join(changed)}): use these again, or "
            "delete it to start again"
        )

    if state["data"] != run["data"]:
        raise TrainingError(f"{path} was written with other {trained_on}: delete it to start again")
    return state
