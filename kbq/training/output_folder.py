"""Output folder: make a result in OUT.partial, which is renamed when it is whole."""

import dataclasses
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import kbq
from kbq.errors import TrainingError
from kbq.model.model_folder import FACTS, local_folder
from kbq.storage.folders import (
    make_folder,
    refuse_strange_files,
    remove_empty_folder,
    remove_folder,
)
from kbq.storage.reading import file_digest, unreadable
from kbq.storage.seals import seal_folder
from kbq.storage.writing import move, write_json, writing_alone, writing_to
from kbq.training.batches import Files, as_paths
from kbq.training.settings import StepSettings


@contextmanager
def output_folder(out: Path) -> Iterator[Path]:
    """Yield a folder for checkpoints and for `model/`, which becomes `out` at the end; a killed run
    finds it again.

    Raises TrainingError, before hours of training, if `out` exists or cannot be made, or there is a
    link or a pipe.
    """
    _refuse_existing(out)
    folder = out.with_name(out.name + ".partial")
    with writing_to(out, TrainingError, "choose another --out"):
        make_folder(folder)
    with writing_alone(folder):
        refuse_strange_files(
            folder, "an unfinished run", TrainingError, lambda path: False, deep=False
        )
        try:
            _refuse_existing(out)  # another process may have finished since
            remove_folder(folder / "model")  # left by a run that was killed while it wrote this
            yield folder
        except BaseException:
            remove_empty_folder(folder)
            raise

        move(folder / "model", out)
        remove_folder(folder)


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise TrainingError(f"{out} already exists: choose another folder for --out")


def initial_checkpoint(init: str | Path) -> str:
    """Return the checkpoint to start from; `default` is the model that ships with kbq."""
    if init == "default":
        return str(local_folder(init))
    return str(init)


def example_digests(files: Files) -> dict[str, str]:
    """Return a digest of each file to train on, before training, as files may change meanwhile.

    Raises TrainingError if a file cannot be read, and KbqError if it is a pipe, which cannot be
    read twice.
    """
    try:
        return {path.name: file_digest(path) for path in as_paths(files)}
    except OSError as error:
        raise TrainingError(unreadable(error.filename, error)) from None


def training_facts(
    command: str, init: str | Path, examples: dict[str, str], settings: StepSettings, **more: object
) -> dict[str, object]:
    return {
        "command": command,
        "init": Path(init).name,
        "examples": examples,
        "settings": dataclasses.asdict(settings),
        **more,
        "versions": versions(),
        "machine": platform.processor() or platform.machine(),
    }


def write_facts(folder: Path, facts: dict[str, object]) -> None:
    """Write facts beside weights that have no `kbq.json`, and seal the folder with them."""
    write_json(folder / FACTS, facts)
    seal_folder(folder)


def versions() -> dict[str, str]:
    return {"kbq": kbq.__version__} | {
        library: version(library) for library in ("torch", "transformers")
    }
