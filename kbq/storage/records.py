"""Records: kbq's JSON files, read as their declared types.

A record's type is its schema: a file that lacks a field, or has one of another type, is damaged. A
digest finds other damage, such as a changed digit. It does not protect from forgery: see
docs/explanation/trust.md.
"""

import json
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import xxhash

from kbq.errors import first_line
from kbq.storage.writing import write_json

Record = TypeVar("Record")
FORMAT = "format"
DIGEST = "digest"
LARGEST = 2**26  # bytes of a JSON file of kbq, or of a model
decoded_json = msgspec.json.Decoder().decode
DEEPEST = 100  # lists and objects in one another, as printing or writing them uses the stack
LINE_ENDS = {ord(letter): f"\\u{ord(letter):04x}" for letter in "\u0085\u2028\u2029"}
TOO_DEEP = f"its lists are nested more than {DEEPEST} deep"


def parsed_json(text: str, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON text. `constant` is called for `NaN`, `Infinity` and `-Infinity`, which are
    numbers by default.

    Raises ValueError if it is not JSON (a `json.JSONDecodeError`), or nested too deep.

    >>> parsed_json('{"year": 1867}')
    {'year': 1867}
    """
    try:
        value = decoded_json(text)
    except (
        msgspec.DecodeError,
        RecursionError,
        UnicodeEncodeError,
    ):  # what it refuses, Python's own may read, or name
        value = _parsed_by_python(text, constant)
    if is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def _parsed_by_python(text: str, constant: Callable[[str], Any] | None) -> Any:
    """Parse a JSON text with NaN, lone surrogates or numbers beyond 64 bits, or say what is wrong
    with it.
    """
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
    r"""Return JSON on one line, also for programs that end lines at U+0085, U+2028 and U+2029. Lone
    surrogates stay.

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
        insides: list[Any] = []
        for outer in level:
            if isinstance(outer, dict):
                insides += outer.values()
            else:
                insides += outer
        level = [inner for inner in insides if isinstance(inner, dict | list)]
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

    Raises OtherFormatError, OSError, or ValueError if it is not JSON, has other types, or has
    changed since.
    """
    fields = read_object(path)
    stored = fields.pop(FORMAT, None)
    if stored != version:
        raise OtherFormatError(stored)
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
    """Return the digest of fields, whatever their order."""
    return digest_of_bytes(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class Summed:
    """Counts that `+` adds field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )
