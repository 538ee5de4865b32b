"""Relations: names, or a relations.toml, become what is asked of every subject, and what its values are.

A relations.toml has a table for each relation, which is a column of the table to fill:

    ["place of birth"]
    query = ["place of birth", "born in"]   # wordings that are asked; by default the name
    values = "one"                          # or "many": all that are likely enough
    type = "page"                           # or "text", "date", "quantity"
    min_probability = 0.7                   # its own threshold
    property = "P19"                        # of Wikidata, or an IRI, for RDF and QuickStatements
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from kbq.errors import KbqError, first_line
from kbq.storage.lines import clean_text, read_text
from kbq.tables.claims import ValueType
from kbq.tables.options import Values
from kbq.tables.wikidata import property_iri
from kbq.text.markers import SEPARATOR

LONGEST = 2**20  # characters of a file
WANTED = "write a table for each relation, such as [employer]"
MOST_DOTS = 10  # in a line, beside those in texts: the library takes quadratic memory for a key of many parts
FILE_NAME = re.compile(r"\S+\.(?:ya?ml|json|jsonl|csv|tsv|txt|md|xlsx?|parquet|xml|ini|tml)", re.IGNORECASE)
_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*')


@dataclass(frozen=True, slots=True)
class Relation:
    """A column to fill, and how. See `read_relations` for the file with the same keys."""

    name: str
    query: tuple[str, ...]  # wordings; the best answers to any of them count
    values: Values = "one"
    type: ValueType | None = None  # None: whatever a value certainly is
    min_probability: float | None = None  # None: that of the whole run
    property: str = ""  # P-number of Wikidata, or IRI


def relation_named(name: str, values: Values = "one") -> Relation:
    """The relation of this name; nothing else is known of it.

    Raises:
        KbqError: it cannot be asked.
    """
    relation = _named(clean_text(name).strip(), {"values": values})
    refuse_unaskable(relation)
    return relation


def read_relations(path: Path) -> list[Relation]:
    """The relations of a file, in its order.

    Raises:
        KbqError: it cannot be read, a key is unknown, or a value has no meaning: file, line and key are named.
    """
    text = re.sub("\r\n?", "\n", read_text(str(path), LONGEST))
    try:
        if any(line.count(".") > MOST_DOTS for line in _TEXT.sub("", text).splitlines()):
            raise ValueError(f"a key has more than {MOST_DOTS} parts")
        tables = tomllib.loads(text)
    except RecursionError:
        raise KbqError(f"{path}: its lists are nested too deeply: {WANTED}") from None
    except ValueError as error:  # also of a number of thousands of digits, which is no TOMLDecodeError
        raise KbqError(f"{path}: {first_line(error)}: {WANTED}") from None
    relations = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise KbqError(f"{path}:{_line(text, name)}: {name:.60} is outside of a table: write [relation] above it")
        problem = _problem(table)
        if problem:
            key, reason = problem
            raise KbqError(f"{path}:{_line(text, name, key)}: {name:.60}: {reason}")
        relations.append(_named(name, table))
    return relations


def _named(name: str, table: Mapping[str, Any]) -> Relation:
    """Without a `query`, the name is asked; `_` in a name of a column stands for a blank."""
    query = table.get("query", name.replace("_", " "))
    return Relation(**dict(table) | {"name": name, "query": (query,) if isinstance(query, str) else tuple(query)})


def refuse_unaskable(relation: Relation) -> None:
    for wording in relation.query:
        if not wording.strip() or SEPARATOR.search(wording):
            raise KbqError(f"relation {relation.name!r} is asked as {wording!r}: write words, without [SEP]")


def _problem(table: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first key that cannot be used, and why."""
    keys = [field.name for field in fields(Relation)][1:]
    choices = {"values": get_args(Values), "type": get_args(ValueType)}
    for key, value in table.items():
        if key not in keys:
            near = get_close_matches(key[:60], keys, 1)
            return key, f"key {key!r:.60} is unknown: " + (
                f"write {near[0]!r}" if near else f"choose from {', '.join(keys)}"
            )
        if key in choices and value not in choices[key]:
            return key, f"{key} is {_shown(value)}: choose from {', '.join(choices[key])}"
        if key == "min_probability" and not (type(value) in (int, float) and 0 <= value <= 1):
            return key, f"{key} is {_shown(value)}: write a number from 0 to 1"
        if key == "property" and not (isinstance(value, str) and property_iri(value)):
            return key, f"{key} is {_shown(value)}: write a P-number of Wikidata, or an IRI"
        texts = value if isinstance(value, list) else [value]
        if key == "query" and not (texts and all(isinstance(text, str) for text in texts)):
            return key, f"{key} is {_shown(value)}: write a text, or a list of texts"
    return None


def _shown(value: object) -> str:
    """The beginning of a value, for a message."""
    try:
        return f"{value!r:.60}"
    except (ValueError, RecursionError):  # Python writes no number of thousands of digits
        return "far too long"


def _line(text: str, name: str, key: str = "") -> int:
    """The line where a table, and then its key, is probably written; the first one if none has these words."""
    lines = text.splitlines()
    header = re.compile(rf"\s*\[\s*[\"']?{re.escape(name)}[\"']?\s*\]")
    first = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if first is None:
        first = next((number for number, line in enumerate(lines) if name in line), 0)
    return next((number for number, line in enumerate(lines[first:], first + 1) if key in line), first + 1)
