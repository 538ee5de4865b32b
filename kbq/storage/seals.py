"""Seals: reveal damage to the files of a folder.

`seal.json`, which is written last, lists the files beside it. The digest of a seal is kept where
its folder is named: one digest stands for everything below.
"""

import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import xxhash
from msgspec import Meta

from kbq.errors import first_line
from kbq.storage.reading import CANNOT_READ
from kbq.storage.records import digest_of_record, read_record, write_record
from kbq.storage.reports import unheard
from kbq.storage.writing import is_left_of

SEAL = "seal.json"
SEAL_FORMAT = 1
CHUNK = 2**22  # bytes read at a time
HEAD = 8 * CHUNK  # part of a large file: an index tells there what lies where
READ_WHEN_OPENED = 2**26  # bytes of all files together: about 10 ms where they are in memory
THREADS = 4
CHANGED = "its content has changed"


@dataclass(frozen=True, slots=True)
class FileSeal:
    """The size of a file in bytes, and a digest of its content (XXH3, 128 bits)."""

    bytes: Annotated[int, Meta(ge=0)]
    digest: str
    head: str = ""  # digest of the first HEAD bytes of a larger file


@dataclass(frozen=True, slots=True)
class Seal:
    """The files of a folder by name. `of` is the digest of the seal of the folder that it was made
    from, if any.
    """

    files: dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")], FileSeal]
    of: str = ""

    @property
    def digest(self) -> str:
        """It stands for all files that the seal lists."""
        return digest_of_record(self)


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is missing, that cannot be read, or whose content has changed."""

    path: Path
    problem: Exception

    def __str__(self) -> str:
        return f"{self.path}: {first_line(self.problem)}"

    @property
    def is_unread(self) -> bool:
        """Whether the file may be whole, but cannot be read at the moment or by this user."""
        return isinstance(self.problem, OSError) and self.problem.errno in CANNOT_READ


def seal_folder(folder: Path, of: str = "") -> Seal:
    """Seal the files of a folder as they are now. Raises OSError."""
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and not is_left_of(path.name, SEAL)
    ]
    seal = Seal({path.name: seal_of(path) for path in files if path.name != SEAL}, of)
    write_record(folder / SEAL, seal, SEAL_FORMAT)
    return seal


def read_seal(folder: Path) -> Seal:
    """Read the seal of a folder. Raises OSError, or ValueError if it is damaged."""
    return read_record(folder / SEAL, Seal, SEAL_FORMAT)


def seal_of(path: Path) -> FileSeal:
    """Return the size and digest of a file."""
    digest = xxhash.xxh3_128()
    size = 0
    head = ""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            if size == HEAD:
                head = digest.hexdigest()
            digest.update(chunk)
            size += len(chunk)
    return FileSeal(size, digest.hexdigest(), head)


def first_damage(files: Mapping[Path, FileSeal], at_most: int = READ_WHEN_OPENED) -> Damage | None:
    """Compare the sizes of all files, and the contents of the smallest, `at_most` bytes together."""
    for path, seal in files.items():
        damage = _other_size(path, seal)
        if damage:
            return damage
    for path in sorted(files, key=lambda path: files[path].bytes):
        at_most -= files[path].bytes
        if at_most < 0:
            break
        damage = file_damage(path, files[path])
        if damage:
            return damage
    return None


def all_damage(
    files: Mapping[Path, FileSeal], report: Callable[[int], None] = unheard
) -> Iterator[Damage]:
    """Yield all damaged files, and call `report` with the bytes of each file that has been read."""
    with ThreadPoolExecutor(THREADS) as pool:  # digests and reading leave Python to other threads
        checked = pool.map(lambda path: file_damage(path, files[path]), files)
        for path, damage in zip(files, checked, strict=True):
            report(files[path].bytes)
            if damage is not None:
                yield damage


def head_damage(path: Path, seal: FileSeal) -> Damage | None:
    """Compare the first HEAD bytes of a file, and its size."""
    if not seal.head:
        return _other_size(path, seal) or file_damage(path, seal)
    try:
        with path.open("rb") as file:
            head = xxhash.xxh3_128_hexdigest(file.read(HEAD))
    except OSError as error:
        return Damage(path, error)
    return _other_size(path, seal) or (
        None if head == seal.head else Damage(path, ValueError(CHANGED))
    )


def _other_size(path: Path, seal: FileSeal) -> Damage | None:
    """Return the damage of a file that is missing or has another size."""
    try:
        facts = path.stat()
    except OSError as error:
        return Damage(path, error)
    if not stat.S_ISREG(facts.st_mode):
        return Damage(path, ValueError("it is not a file"))
    if facts.st_size != seal.bytes:
        return Damage(path, ValueError(f"it has {facts.st_size:,} of {seal.bytes:,} bytes"))
    return None


def file_damage(path: Path, seal: FileSeal) -> Damage | None:
    """Return the damage of a file that differs from its seal, or None."""
    try:
        present = _other_size(path, seal) or seal_of(path)
    except OSError as error:
        return Damage(path, error)
    if isinstance(present, Damage):
        return present
    if present.digest == seal.digest:
        return None
    return Damage(path, ValueError(CHANGED))
