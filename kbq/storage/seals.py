"""Seals: the digests of the files of a finished folder, which tell later whether one of them is damaged.

`seal.json` is written last; it lists the files beside it, not those of folders within. Whoever names a folder keeps the
digest of its seal, so that one digest stands for everything below.
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
from kbq.storage.files import CANNOT_READ
from kbq.storage.progress import unheard
from kbq.storage.records import digest_of_record, read_record, write_record
from kbq.storage.writing import is_left_of

SEAL = "seal.json"
FORMAT = 1
CHUNK = 2**22  # bytes read at a time
HEAD = 8 * CHUNK  # of a large file: an index tells there what lies where
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
    """The files of a folder by name. `of`: the digest of the seal of what it was made from, if anything."""

    files: dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")], FileSeal]
    of: str = ""

    @property
    def digest(self) -> str:
        """The digest of this seal, and so of all files that it lists."""
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
        """Whether the file may well be whole, but cannot be read at the moment, or by this user."""
        return isinstance(self.problem, OSError) and self.problem.errno in CANNOT_READ


def seal_folder(folder: Path, of: str = "") -> Seal:
    """Seal the files of a folder as they are now. Raises OSError."""
    files = {path.name: seal_of(path) for path in sorted(folder.iterdir()) if path.is_file() and _is_sealed(path.name)}
    seal = Seal(files, of)
    write_record(folder / SEAL, seal, FORMAT)
    return seal


def _is_sealed(name: str) -> bool:
    return name != SEAL and not is_left_of(name, SEAL)  # the second may be left by a run that was killed


def read_seal(folder: Path) -> Seal:
    """Read the seal of a folder. Raises OSError if it is missing or cannot be read, ValueError if it is damaged."""
    return read_record(folder / SEAL, Seal, FORMAT)


def seal_of(path: Path) -> FileSeal:
    """Return the size and digest of a file. Raises OSError."""
    digest, size, head = xxhash.xxh3_128(), 0, ""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            head = digest.hexdigest() if size == HEAD else head
            digest.update(chunk)
            size += len(chunk)
    return FileSeal(size, digest.hexdigest(), head)


def first_damage(files: Mapping[Path, FileSeal], at_most: int = READ_WHEN_OPENED) -> Damage | None:
    """Return a damaged file, as far as little reading tells; None if there is none.

    All sizes are compared, and the contents of the smallest files, `at_most` bytes together.
    """
    for path, seal in files.items():
        if (damage := _other_size(path, seal)) is not None:
            return damage
    for path in sorted(files, key=lambda path: files[path].bytes):
        at_most -= files[path].bytes
        if at_most < 0:
            break
        if (damage := file_damage(path, files[path])) is not None:
            return damage
    return None


def all_damage(files: Mapping[Path, FileSeal], report: Callable[[int], None] = unheard) -> Iterator[Damage]:
    """Yield every damaged file; `report` is called with the bytes of each file that has been read."""
    with ThreadPoolExecutor(THREADS) as pool:  # digests and reading leave Python to other threads
        checked = pool.map(lambda path: file_damage(path, files[path]), files)
        for path, damage in zip(files, checked, strict=True):
            report(files[path].bytes)
            if damage is not None:
                yield damage


def head_damage(path: Path, seal: FileSeal) -> Damage | None:
    """Return what is wrong with the first HEAD bytes of a file, or its size; None if nothing is."""
    if not seal.head:
        return _other_size(path, seal) or file_damage(path, seal)
    try:
        with path.open("rb") as file:
            head = xxhash.xxh3_128_hexdigest(file.read(HEAD))
    except OSError as error:
        return Damage(path, error)
    return _other_size(path, seal) or (None if head == seal.head else Damage(path, ValueError(CHANGED)))


def _other_size(path: Path, seal: FileSeal) -> Damage | None:
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
    """Read a whole file, and return what is wrong with it; None if nothing is."""
    try:
        found = _other_size(path, seal) or seal_of(path)
    except OSError as error:
        return Damage(path, error)
    if isinstance(found, Damage):
        return found
    return None if found.digest == seal.digest else Damage(path, ValueError(CHANGED))
