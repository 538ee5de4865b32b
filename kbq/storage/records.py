"""Records: JSON becomes values, within bounds, and kbq's own JSON files become records of their declared types.

A record's type is its schema: a file that lacks a field, or has one of another type, is damaged. The digest finds the
rest, for instance a digit that has changed. It does not protect from forgery: see docs/explanation/trust.md.
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
FORMAT, DIGEST = "format", "digest"
LARGEST = 2**26  # bytes of a JSON file of kbq, or of a model
DEEPEST = 100  # lists and objects in one another: what prints or writes them again uses the stack, too
LINE_ENDS = {ord(letter): f"\\u{ord(letter):04x}" for letter in "\u0085\u2028\u2029"}
TOO_DEEP = f"its lists are nested more than {DEEPEST} deep"


def parsed_json(text: str, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON text.

    Args:
        constant: called for `NaN`, `Infinity` and `-Infinity`; by default they are numbers.

    Raises:
        ValueError: it is not JSON (then a `json.JSONDecodeError`), or is too deep.

    >>> parsed_json('{"year": 1867}')
    {'year': 1867}
    """
    try:
        value = json.loads(text, parse_constant=constant)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except ValueError as error:
        if "integer string" in str(error):  # Python's own words advise to raise its limit
            raise ValueError("it holds a number of thousands of digits") from None
        raise
    if is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def json_line(value: object, default: Callable[[Any], Any] | None = None) -> str:
    r"""Return JSON on one line, wherever a line may end: Python's `splitlines` also ends one at U+0085, U+2028, U+2029.

    `default`: makes JSON of a value that it does not have. Lone surrogates stay.

    >>> print(json_line({"a": "é\u2028"}))
    {"a": "é\u2028"}
    """
    return json.dumps(value, ensure_ascii=False, default=default).translate(LINE_ENDS)


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects are nested more than DEEPEST deep."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


class OtherFormatError(ValueError):
    """A file of another format version."""

    def __init__(self, found: object) -> None:
        super().__init__(f"format version {found}")
        self.found = found


def digest_of_bytes(content: bytes) -> str:
    """Return a digest of 128 bits that finds damage (XXH3), in hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(content)


def digest_of_record(record: object) -> str:
    """Return the digest that `write_record` writes with a record."""
    return _digest(msgspec.to_builtins(record))


def write_record(path: Path, record: object, version: int) -> None:
    """Replace a JSON file atomically by a record, with its format version and its digest."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    write_json(path, {FORMAT: version, DIGEST: _digest(fields)} | fields)


def read_record(path: Path, kind: type[Record], version: int) -> Record:
    """Read a record that `write_record` wrote.

    Raises:
        OtherFormatError: it has another format version.
        OSError: it cannot be read.
        ValueError: it is damaged: not JSON, of other types, or changed since.
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
    """Make a record of parsed JSON. Raises ValueError if a field is missing or has another type."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ValueError(first_line(error)) from None


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raises OSError if it cannot be read, ValueError if it holds no such object."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError("it is not a file")
    if facts.st_size > LARGEST:
        raise ValueError(f"it has {facts.st_size:,} bytes, {LARGEST:,} at most are expected")
    fields = parsed_json(path.read_text("utf-8"), _infinite)
    if not isinstance(fields, dict):
        raise ValueError("it does not hold a JSON object")
    return fields


def _infinite(name: str) -> float:
    if name == "NaN":
        raise ValueError("it holds NaN, which is not a number")
    return float(name)


def _digest(fields: Mapping[str, object]) -> str:
    return digest_of_bytes(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class Summed:
    """Counts; `+` adds them field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))
