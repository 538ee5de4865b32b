"""Model files: the record of a model folder lists its other files with their digests, and tells whether they are whole.

kbq.json      of models, and of query encoders that were tuned
sparta.json   of SPARTA models
seal.json     of readers and question generators, which are checkpoints of transformers otherwise
"""

import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError

from kbq.errors import ModelError
from kbq.storage.files import PACKAGE, reading_from, reading_problem
from kbq.storage.records import OtherFormatError, read_record
from kbq.storage.seals import FORMAT, SEAL, Damage, FileSeal, all_damage, first_damage, seal_of
from kbq.storage.strange_files import is_in_hub_cache, refuse_strange_files

Record = TypeVar("Record")
CONFIG, SPARTA = "kbq.json", "sparta.json"
RECORDS = {CONFIG: 3, SPARTA: 2, SEAL: FORMAT}  # format versions
PARTS = (".json", ".safetensors", ".txt", ".model")  # the endings of a model's files; a README is not one of them


@dataclass(frozen=True, slots=True)
class _Listed:
    """The field that all records have."""

    files: dict[str, FileSeal]


def is_model(folder: Path) -> bool:
    """Whether a folder is a model, a tuned query encoder, or another network that kbq wrote."""
    return record_name(folder) is not None


def record_name(folder: Path) -> str | None:
    """Return the name of a folder's record; None where it has none. Indexes are sealed, too, but have no weights."""
    name = next((name for name in RECORDS if (folder / name).is_file()), None)
    is_network = (folder / "config.json").is_file() or any(folder.glob("*.safetensors"))
    return name if name != SEAL or is_network else None


def sealed_files(folder: Path) -> dict[str, FileSeal]:
    """Seal the files of a model as they are now, for its record. Raises OSError."""
    return {path.name: seal_of(path) for path in _parts(folder)}


def read_model_record(folder: Path, name: str, kind: type[Record]) -> Record:
    """Read the record of a model.

    Raises:
        FileNotFoundError: there is none.
        ModelError: it is damaged, of another format version, or cannot be read.
    """
    try:
        return _record(folder, name, kind)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, MemoryError) as error:
        raise ModelError(reading_problem(folder / name, error, remedy(folder))) from None


def _record(folder: Path, name: str, kind: type[Record]) -> Record:
    """Read a record; raises OSError or ValueError, and ModelError for another format version or links."""
    refuse_links(folder)
    try:
        return read_record(folder / name, kind, RECORDS[name])
    except OtherFormatError as error:
        raise ModelError(
            f"model folder {folder} has format version {error.found}, this kbq reads {RECORDS[name]}: "
            "use the kbq version that wrote it"
        ) from None


def refuse_links(folder: Path) -> None:
    """Refuse a folder in which files are links, other than those of the hub's cache, or devices or pipes.

    Raises:
        ModelError: one is.
    """
    refuse_strange_files(folder, "a model", ModelError, is_in_hub_cache, deep=False)


def refuse_damage(folder: Path) -> None:
    """Read the record of a model, and compare the digests of its files; a folder without a record is not kbq's.

    Raises:
        ModelError: see `refuse_links`, `read_model_record` and `refuse_changes`.
    """
    refuse_links(folder)
    name = record_name(folder)
    if name is not None:
        refuse_changes(folder, read_model_record(folder, name, _Listed).files)


def refuse_changes(folder: Path, files: Mapping[str, FileSeal], apart_from: str = "") -> None:
    """Compare the digests of all files of a model with those that its record lists.

    Args:
        apart_from: the name of a file that is about to be replaced.

    Raises:
        ModelError: a file is damaged, missing, cannot be read, or is not of the model.
    """
    placed = {folder / name: seal for name, seal in files.items() if not apart_from or Path(name).name != apart_from}
    damage = _strange(folder, placed, apart_from) or first_damage(placed, at_most=sys.maxsize)
    if damage is not None:
        what_to_do = remedy(folder) if damage.path in placed else "take it out of the folder, or make the model again"
        raise ModelError(reading_problem(damage.path, damage.problem, what_to_do))


def model_files(folder: Path) -> dict[Path, FileSeal]:
    """Return the files of a model as its record lists them.

    Raises:
        OSError: the record is missing, or cannot be read.
        ValueError: it is damaged.
        ModelError: it is of another format version, or the folder has links.
    """
    listed = _record(folder, record_name(folder) or CONFIG, _Listed)
    return {folder / name: seal for name, seal in listed.files.items()}


def model_damage(folder: Path, report: Callable[[int], None]) -> Iterator[Damage]:
    """Yield everything that is damaged in a folder that `is_model`; of a query encoder, not its base.

    Args:
        report: called with the bytes of each file that has been read.

    Raises:
        ModelError: it is of another format version.
    """
    try:
        files = model_files(folder)
    except (OSError, ValueError) as error:
        yield Damage(folder / (record_name(folder) or CONFIG), error)
        return
    strange = _strange(folder, files)
    if strange is not None:
        yield strange
        files.pop(strange.path, None)
    yield from all_damage(files, report)


@contextmanager
def explained(path: Path, advice: str = "") -> Iterator[None]:
    """Say in one sentence why a file of a model cannot be read: `reading_from`, also for safetensors.

    Args:
        advice: what to do about damage; by default the `remedy` of its folder.

    Raises:
        ModelError: it is missing, damaged, or cannot be read.
    """
    with reading_from(path, ModelError, advice or remedy(path.parent)):
        try:
            yield
        except SafetensorError as error:
            raise ValueError(str(error)) from None


def remedy(folder: Path) -> str:
    """Say what to do about a model that is damaged."""
    if folder.resolve().is_relative_to(PACKAGE.resolve()):
        return "install kbq again"
    if record_name(folder) == SEAL:
        return f"restore it, make the network again, or delete {folder / SEAL} if you changed it yourself"
    return "restore it, or make the model again"


def _parts(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.name.endswith(PARTS) and path.name not in RECORDS)
    return [path for path in found if path.is_file()]


def _strange(folder: Path, files: Mapping[Path, FileSeal], apart_from: str = "") -> Damage | None:
    """Find a listed file that lies elsewhere or is a device, say, or a file that would be read but is not listed."""
    for path in files:
        if path.parent != folder:
            return Damage(folder, ValueError(f"it lists {path}, which is elsewhere"))
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            return Damage(path, ValueError("it is not a file"))
    for path in _parts(folder):
        if path not in files and path.name != apart_from:
            return Damage(path, ValueError("it has come into the folder since the model was written"))
    return None
