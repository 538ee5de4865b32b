"""Relations: names, or a relations.toml, become what is asked of every subject, and what its values are.

A relations.toml has a table for each relation, which is a column of the table to fill:

    ["place of birth"]
    query = ["place of birth", "born in"]   # wordings that are asked; by default the name
    values = "one"                          # or "many": all that are likely enough
    type = "page"                           # or "text", "date", "quantity"
    min_probability = 0.7                   # its own threshold
    property = "P19"                        # of Wikidata, or an IRI, for RDF and QuickStatements
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from kbq.errors import KbqError
from kbq.filling.claims import ValueType
from kbq.filling.wikidata import property_iri
from kbq.special_tokens import SEPARATOR
from kbq.system.lines import clean_text, read_text
from kbq.system.paths import given

Values = Literal["one", "many"]


@dataclass(frozen=True, slots=True)
class Relation:
    """A column to fill, and how. See `read_relations` for the file with the same keys."""

    name: str
    query: tuple[str, ...]  # wordings; the best answers to any of them count
    values: Values = "one"
    type: ValueType | None = None  # None: whatever a value certainly is
    min_probability: float | None = None  # None: that of the whole run
    property: str = ""  # P-number of Wikidata, or IRI


def relations_of(wanted: Iterable[str | Relation], values: Values = "one") -> list[Relation]:
    """Relations by name, those of every file among the names (*.toml), and those that are relations already.

    Args:
        values: of relations that are given by name.

    Raises:
        KbqError: there is none, two have one name, or one cannot be asked.
    """
    relations: list[Relation] = []
    for one in given(wanted, KbqError, "the relations are", "a list of names, or of files"):
        if isinstance(one, Relation):
            relations.append(one)
        elif str(one).endswith(".toml"):
            relations += read_relations(Path(one))
        else:
            relations.append(relation_named(str(one), values))
    if not relations:
        raise KbqError("no relation is given: name those that are wanted, or a file relations.toml")
    for relation in relations:
        _refuse_unaskable(relation)
    for name, count in Counter(relation.name for relation in relations).items():
        if count > 1:
            raise KbqError(f"relation {name!r} is given {count} times: once is enough")
    return relations


def relation_named(name: str, values: Values = "one") -> Relation:
    """The relation of this name; nothing else is known of it.

    Raises:
        KbqError: it cannot be asked.
    """
    relation = _named(clean_text(name).strip(), {"values": values})
    _refuse_unaskable(relation)
    return relation


def read_relations(path: Path) -> list[Relation]:
    """The relations of a file, in its order.

    Raises:
        KbqError: it cannot be read, a key is unknown, or a value has no meaning: file, line and key are named.
    """
    text = read_text(str(path))
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KbqError(f"{path}: {error}: write a table for each relation, such as [employer]") from None
    relations = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise KbqError(f"{path}:{_line(text, name)}: {name} is outside of a table: write [relation] above it")
        problem = _problem(table)
        if problem:
            key, reason = problem
            raise KbqError(f"{path}:{_line(text, name, key)}: {name}: {reason}")
        relations.append(_named(name, table))
    return relations


def _named(name: str, table: Mapping[str, Any]) -> Relation:
    """Without a `query`, the name is asked; `_` in a name of a column stands for a blank."""
    query = table.get("query", name.replace("_", " "))
    return Relation(**dict(table) | {"name": name, "query": (query,) if isinstance(query, str) else tuple(query)})


def _refuse_unaskable(relation: Relation) -> None:
    for wording in relation.query:
        if not wording.strip() or SEPARATOR.search(wording):
            raise KbqError(f"relation {relation.name!r} is asked as {wording!r}: write words, without [SEP]")


def _problem(table: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first key that cannot be used, and why."""
    keys = [field.name for field in fields(Relation)][1:]
    choices = {"values": get_args(Values), "type": get_args(ValueType)}
    for key, value in table.items():
        if key not in keys:
            near = get_close_matches(key, keys, 1)
            return key, f"key {key!r} is unknown: " + (
                f"write {near[0]!r}" if near else f"choose from {', '.join(keys)}"
            )
        if key in choices and value not in choices[key]:
            return key, f"{key} is {value!r}: choose from {', '.join(choices[key])}"
        if key == "min_probability" and not (type(value) in (int, float) and 0 <= value <= 1):
            return key, f"{key} is {value!r}: write a number from 0 to 1"
        if key == "property" and not (isinstance(value, str) and property_iri(value)):
            return key, f"{key} is {value!r}: write a P-number of Wikidata, or an IRI"
        texts = value if isinstance(value, list) else [value]
        if key == "query" and not (texts and all(isinstance(text, str) for text in texts)):
            return key, f"{key} is {value!r}: write a text, or a list of texts"
    return None


def _line(text: str, *keys: str) -> int:
    """The line with which a key is there: the first lines, up to it, are TOML that has the key."""
    lines = text.splitlines()
    for count in range(1, len(lines) + 1):
        try:
            found: Any = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None:
            return count
    return len(lines)
