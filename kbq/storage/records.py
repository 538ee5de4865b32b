"""Records: kbq's JSON files, read as their declared types; seals that reveal damage; runs that resume.

A record's type is its schema: a file that lacks a field, or has one of another type, is damaged. A digest finds other
damage, such as a changed digit. It does not protect from forgery: see docs/explanation/trust.md.

`seal.json`, which is written last, lists the files beside it. The digest of a seal is kept where its folder is named:
one digest stands for everything below.
"""

import json
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self, TypeVar

import msgspec
import xxhash
from msgspec import Meta

from kbq.errors import KbqError, first_line
from kbq.storage.folders import make_folders
from kbq.storage.reading import CANNOT_READ
from kbq.storage.reports import unheard
from kbq.storage.writing import is_left_of, open_to_grow, sync_open, write_json, writing_alone, writing_to

Record = TypeVar("Record")
FORMAT, DIGEST = "format", "digest"
LARGEST = 2**26  # bytes of a JSON file of kbq, or of a model
decoded_json = msgspec.json.Decoder().decode
DEEPEST = 100  # lists and objects in one another, as printing or writing them uses the stack
LINE_ENDS = {ord(letter): f"\\u{ord(letter):04x}" for letter in "\u0085\u2028\u2029"}
TOO_DEEP = f"its lists are nested more than {DEEPEST} deep"

SEAL = "seal.json"
SEAL_FORMAT = 1
CHUNK = 2**22  # bytes read at a time
HEAD = 8 * CHUNK  # part of a large file: an index tells there what lies where
READ_WHEN_OPENED = 2**26  # bytes of all files together: about 10 ms where they are in memory
THREADS = 4
CHANGED = "its content has changed"


def parsed_json(text: str, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON text. `constant` is called for `NaN`, `Infinity` and `-Infinity`, which are numbers by default.

    Raises ValueError if it is not JSON (a `json.JSONDecodeError`), or nested too deep.

    >>> parsed_json('{"year": 1867}')
    {'year': 1867}
    """
    try:
        value = decoded_json(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):  # what it refuses, Python's own may read, or name
        value = _parsed_by_python(text, constant)
    if is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def _parsed_by_python(text: str, constant: Callable[[str], Any] | None) -> Any:
    """Parse a JSON text with NaN, lone surrogates or numbers beyond 64 bits, or say what is wrong with it."""
    try:
        return json.loads(text, parse_constant=constant)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except ValueError as error:
        if "integer string" in str(error):  # Python's own words advise to raise its limit
            raise ValueError("it holds a number of thousands of digits") from None
        raise


def json_line(value: object, default: Callable[[Any], Any] | None = None) -> str:
    r"""Return JSON on one line, also for programs that end lines at U+0085, U+2028 and U+2029. Lone surrogates stay.

    `default` converts values that are not JSON.

    >>> print(json_line({"a": "é\u2028"}))
    {"a": "é\u2028"}
    """
    return json.dumps(value, ensure_ascii=False, default=default).translate(LINE_ENDS)


def json_bytes(value: object) -> bytes:
    """Return `json_line` as UTF-8, with escapes for lone surrogates."""
    return json_line(value).encode("utf-8", "backslashreplace")


def is_too_deep(value: Any) -> bool:
    """Return whether lists and objects are nested more than DEEPEST deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST + 1):
        insides = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [inner for inside in insides for inner in inside if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


class OtherFormatError(ValueError):
    """A file of another format version, `found`."""

    def __init__(self, found: object) -> None:
        super().__init__(f"format version {found}")
        self.found = found


def digest_of_bytes(content: bytes) -> str:
    """Return a digest of 128 bits that finds damage (XXH3), in hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(content)


def digest_of_record(record: object) -> str:
    return _digest(msgspec.to_builtins(record))


def write_record(path: Path, record: object, version: int) -> None:
    """Atomically replace a JSON file with a record, its format version and its digest."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    write_json(path, {FORMAT: version, DIGEST: _digest(fields)} | fields)


def read_record(path: Path, kind: type[Record], version: int) -> Record:
    """Read a record that `write_record` wrote.

    Raises OtherFormatError, OSError, or ValueError if it is not JSON, has other types, or has changed since.
    """
    fields = read_object(path)
    found = fields.pop(FORMAT, None)
    if found != version:
        raise OtherFormatError(found)
    digest = fields.pop(DIGEST, None)
    record = as_record(fields, kind)
    if digest != _digest(fields):
        raise ValueError("it has changed since it was written")
    return record


def as_record(fields: object, kind: type[Record]) -> Record:
    """Convert parsed JSON to a record. Raises ValueError if a field is missing or has another type."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ValueError(first_line(error)) from None


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. Raises OSError, or ValueError if it holds none."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError("it is not a file")
    if facts.st_size > LARGEST:
        raise ValueError(f"it has {facts.st_size:,} bytes, {LARGEST:,} at most are expected")
    fields = parsed_json(path.read_text("utf-8"), _infinity)
    if not isinstance(fields, dict):
        raise ValueError("it does not hold a JSON object")
    return fields


def _infinity(name: str) -> float:
    if name == "NaN":
        raise ValueError("it holds NaN, which is not a number")
    return float(name)


def _digest(fields: Mapping[str, object]) -> str:
    return digest_of_bytes(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class Summed:
    """Counts that `+` adds field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class FileSeal:
    """The size of a file in bytes, and a digest of its content (XXH3, 128 bits)."""

    bytes: Annotated[int, Meta(ge=0)]
    digest: str
    head: str = ""  # digest of the first HEAD bytes of a larger file


@dataclass(frozen=True, slots=True)
class Seal:
    """The files of a folder by name. `of` is the digest of the seal of the folder that it was made from, if any."""

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
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not is_left_of(path.name, SEAL)]
    seal = Seal({path.name: seal_of(path) for path in files if path.name != SEAL}, of)
    write_record(folder / SEAL, seal, SEAL_FORMAT)
    return seal


def read_seal(folder: Path) -> Seal:
    """Read the seal of a folder. Raises OSError, or ValueError if it is damaged."""
    return read_record(folder / SEAL, Seal, SEAL_FORMAT)


def seal_of(path: Path) -> FileSeal:
    digest, size, head = xxhash.xxh3_128(), 0, ""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            head = digest.hexdigest() if size == HEAD else head
            digest.update(chunk)
            size += len(chunk)
    return FileSeal(size, digest.hexdigest(), head)


def first_damage(files: Mapping[Path, FileSeal], at_most: int = READ_WHEN_OPENED) -> Damage | None:
    """Compare the sizes of all files, and the contents of the smallest, `at_most` bytes together."""
    for path, seal in files.items():
        if damage := _other_size(path, seal):
            return damage
    for path in sorted(files, key=lambda path: files[path].bytes):
        at_most -= files[path].bytes
        if at_most < 0:
            break
        if damage := file_damage(path, files[path]):
            return damage
    return None


def all_damage(files: Mapping[Path, FileSeal], report: Callable[[int], None] = unheard) -> Iterator[Damage]:
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
    try:
        found = _other_size(path, seal) or seal_of(path)
    except OSError as error:
        return Damage(path, error)
    if isinstance(found, Damage):
        return found
    return None if found.digest == seal.digest else Damage(path, ValueError(CHANGED))


@contextmanager
def resumed(
    path: Path,
    facts: Path,
    description: Mapping[str, object],
    advice: str,
    undecisive: Collection[str] = (),
    *,
    anew: bool = False,
) -> Iterator[tuple[BinaryIO, dict[str, Any]]]:
    """Yield a file of results to read and to append to, and the description of the run that began it.

    The description is written before the first result, and the file is locked to the end: results never lie beside the
    description of another run.

    Args:
        path: the file of results; an empty one is new.
        facts: the file of the description.
        description: the facts that decide the results of this run.
        advice: on results of another run.
        undecisive: names of facts that may differ.
        anew: begin anew instead of refusing another run's results.

    Raises KbqError if they are another run's, cannot be written, or another process writes them.
    """
    if path.exists() and not path.is_file():
        raise KbqError(f"{path} is {'a folder' if path.is_dir() else 'not a file'}: give --out the name of a file")
    with writing_to(path.parent, KbqError, "choose another --out"):
        make_folders(path.parent)
    with writing_to(path, KbqError, goes_on=True), open_to_grow(path) as file, writing_alone(path):
        begun = None
        if path.stat().st_size:
            try:
                begun = _begun(path, facts, description, advice, undecisive)
            except KbqError:
                if not anew:
                    raise
                file.truncate(0)
        if begun is None:
            write_json(facts, description)
        yield file, dict(description) if begun is None else begun
        sync_open(file)


def _begun(
    path: Path, facts: Path, description: Mapping[str, object], advice: str, undecisive: Collection[str]
) -> dict[str, Any]:
    """Return the written description. Raises KbqError if it is missing, damaged or another run's."""
    if not facts.exists():
        raise KbqError(f"{path} already exists and was not made by kbq: {advice}")
    try:
        written = read_object(facts)
    except (OSError, ValueError) as error:
        raise KbqError(f"{facts} is damaged ({error!r:.80}): {advice}") from None
    names = dict.fromkeys((*description, *written))
    differing = [name for name in names if written.get(name, ...) != description.get(name, ...)]
    if others := [name.removesuffix("_sha256").replace("_", " ") for name in differing if name not in undecisive]:
        raise KbqError(f"{path} was made by a run that differs in {', '.join(others)} (see {facts.name}): {advice}")
    return written
