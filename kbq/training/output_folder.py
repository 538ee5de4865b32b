"""Workshop: OUT.partial, where a result is made before it gets its name, and what a result says about its making."""

import dataclasses
import json
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import kbq
from kbq.encoding.model_folder import FACTS
from kbq.errors import TrainingError
from kbq.system.files import file_digest, writing_alone, writing_to
from kbq.training.engine import RunRequest


@contextmanager
def workshop(out: Path) -> Iterator[Path]:
    """A folder for checkpoints and for `model/`, which becomes `out` at the end; a killed run finds it again.

    Raises:
        TrainingError: `out` is there, or cannot be made; this is checked before hours of training.
    """
    if out.exists():
        raise TrainingError(f"{out} already exists: choose another folder for --out")
    folder = out.with_name(out.name + ".partial")
    with writing_to(out, TrainingError, "choose another --out"):
        folder.mkdir(parents=True, exist_ok=True)
    with writing_alone(folder):
        try:
            yield folder
        except BaseException:
            if not any(folder.iterdir()):
                folder.rmdir()
            raise
        (folder / "model").rename(out)
    shutil.rmtree(folder)


def example_digests(paths: Sequence[Path]) -> dict[str, str]:
    """A digest of each file that something is trained on; taken before training, as files may change meanwhile.

    Raises:
        TrainingError: one cannot be read.
        KbqError: one is a pipe, which cannot be read twice.
    """
    try:
        return {path.name: file_digest(path) for path in paths}
    except OSError as error:
        raise TrainingError(f"{error.filename}: cannot be read ({error.strerror})") from None


def training_facts(request: RunRequest, examples: Mapping[str, str], **more: object) -> dict[str, object]:
    """What a trained folder says about itself: how it was trained, and on files with which digests."""
    return {
        "command": request.command,
        "checkpoint": Path(request.checkpoint).name,
        "examples": dict(examples),
        "settings": dataclasses.asdict(request.settings),
        **more,
        "versions": versions(),
        "machine": machine(),
    }


def write_facts(folder: Path, facts: dict[str, object]) -> None:
    """Write facts beside weights that have no `kbq.json`."""
    (folder / FACTS).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", "utf-8")


def versions() -> dict[str, str]:
    """The versions of what a model depends on."""
    return {"kbq": kbq.__version__} | {library: version(library) for library in ("torch", "transformers")}


def machine() -> str:
    """The kind of processor."""
    return platform.processor() or platform.machine()
