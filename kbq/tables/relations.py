"""Relations: names, presets of known relations, or a relations.toml become what is asked of every subject.

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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_args

from kbq.errors import KbqError, first_line
from kbq.storage.files import given
from kbq.storage.limited import LimitedProcess, LimitExceeded
from kbq.storage.lines import read_text
from kbq.tables.claims import ValueType
from kbq.tables.options import Values
from kbq.tables.wikidata import p_number, property_iri
from kbq.text.letters import clean_text
from kbq.text.markers import SEPARATOR, relation_key

KNOWN = Path(__file__).with_name("known.toml")
MARK = "@"  # before the name of a preset, or of a known relation
USUAL = "usual"  # a preset
LONGEST, MOST_NAME = 2**20, 1000  # characters of a file, and of a name that may be one's
WANTED = "write a table for each relation, such as [employer]"
FILE_NAME = re.compile(r"\S+\.(?:ya?ml|json|jsonl|csv|tsv|txt|md|xlsx?|parquet|xml|ini|tml)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Relation:
    """A column to fill, and how. See the module for the file with the same keys."""

    name: str
    query: tuple[str, ...]  # wordings; the best answers to any of them count
    values: Values = "one"
    type: ValueType | None = None  # None: any type that a value certainly has
    min_probability: float | None = None  # None: that of the whole run
    property: str = ""  # P-number of Wikidata, or IRI


@dataclass(frozen=True, slots=True)
class Slot:
    """A subject and a relation: what is asked."""

    subject: str
    relation: Relation

    @property
    def cell(self) -> tuple[str, str]:
        """The names of both."""
        return self.subject, self.relation.name

    @property
    def queries(self) -> list[str]:
        """A query for each wording."""
        return [f"{self.subject} [SEP] {wording}" for wording in self.relation.query]


def relations_of(wanted: Iterable[str | Relation], values: Values = "one") -> list[Relation]:
    """Return relations by name, from files (*.toml), presets (@people), known ones (@employer), or as they are.

    `values`: of relations that are given by name. Raises KbqError if there is none, two have one name, or one cannot be
    asked.
    """
    relations: list[Relation] = []
    for one in given(wanted, KbqError, "the relations are", "a list of names, or of files"):
        if isinstance(one, Relation):
            relations.append(one)
        elif str(one).endswith(".toml") or _is_file(str(one)):
            relations += read_relations(Path(one))
        elif str(one).startswith(MARK):
            relations += [found for found in preset(str(one)) if found not in relations]
        elif FILE_NAME.fullmatch(str(one)):
            raise KbqError(f"{str(one)!r:.80} looks like a file: relations are read from a file that ends in .toml")
        elif _are_several(str(one)):
            raise KbqError(f"{str(one)!r:.80} is several relations: give each by itself")
        else:
            relations.append(relation_named(str(one), values))
    if not relations:
        raise KbqError("no relation is given: name the columns to fill, or a file relations.toml")
    for relation in relations:
        _refuse_unaskable(relation)
    for name, count in Counter(relation.name for relation in relations).items():
        if count > 1:
            raise KbqError(f"relation {name!r} is given {count} times: once is enough")
    return relations


def _is_file(name: str) -> bool:
    """Whether a name is that of a file, or of a pipe such as /dev/fd/63, which a shell makes of <(…)."""
    if len(name) > MOST_NAME or not re.search(r"[/\\.]", name):  # "employer" is a relation, whatever lies here
        return False
    return Path(name).is_file() or Path(name).is_fifo()


def _are_several(name: str) -> bool:
    """Whether a name is those of known relations, with commas between."""
    names = re.split(r" *, *", name)
    return len(names) > 1 and {relation.name for relation in known_relations()}.issuperset(names)


def relation_named(name: str, values: Values = "one") -> Relation:
    """Return the relation of this name; a known one has its type and its property.

    Its wordings and its number of values are those of `@name` only. Raises KbqError if it cannot be asked.

    >>> relation = relation_named("date_of_birth")
    >>> relation.name, relation.query, relation.type, relation.property
    ('date_of_birth', ('date of birth',), 'date', 'P569')
    """
    relation = _from_table(clean_text(name).strip(), {"values": values})
    _refuse_unaskable(relation)
    known = next((one for one in known_relations() if relation_key(one.name) == relation_key(relation.query[0])), None)
    return relation if known is None else replace(relation, type=known.type, property=known.property)


@cache
def known_relations() -> dict[Relation, tuple[str, ...]]:
    """Return the known relations, each with the presets that have it; those of people come first."""
    tables = tomllib.loads(KNOWN.read_text("utf-8"))
    presets = {name: tuple(table.pop("groups")) for name, table in tables.items()}
    return {_from_table(name, table): presets[name] for name, table in tables.items()}


def preset(name: str) -> list[Relation]:
    """Return the relations of a preset, or the known relation of this name, with or without "@"; of "", all.

    Raises KbqError if there is none.

    >>> [relation.property for relation in preset("@place of birth")], len(preset("usual"))
    (['P19'], 29)
    """
    mark, wanted, known = name[: name.startswith(MARK)], name.removeprefix(MARK).strip(), known_relations()
    of_preset = [relation for relation, presets in known.items() if not wanted or wanted in presets]
    found = of_preset or [relation for relation in known if relation.name == wanted]
    if not found:
        names = list(dict.fromkeys(one for presets in known.values() for one in presets))
        near = get_close_matches(wanted, [*names, *(relation.name for relation in known)], 1)
        advice = f"did you mean {mark}{near[0]}?" if near else f"choose from {', '.join(mark + one for one in names)}"
        raise KbqError(f"{name:.60} is neither a preset nor a known relation: {advice}")
    return found


def known_property(property: str) -> Relation | None:
    """Return the known relation with a property of Wikidata."""
    number = p_number(property)
    return next((relation for relation in known_relations() if number and relation.property == number), None)


def as_toml(relations: Iterable[Relation], comments: Sequence[str] = ()) -> str:
    """Return a file relations.toml; `comments`: one for each relation."""
    lines: list[str] = []
    for number, relation in enumerate(relations):
        lines.append(f"[{_quoted(relation.name)}]{f'  # {comments[number]}' if comments else ''}")
        if relation.query != (relation.name,):
            lines.append(f"query = [{', '.join(map(_quoted, relation.query))}]")
        if relation.values != "one":
            lines.append(f'values = "{relation.values}"')
        if relation.type:
            lines.append(f'type = "{relation.type}"')
        if relation.property:
            lines.append(f"property = {_quoted(relation.property)}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def read_relations(path: Path) -> list[Relation]:
    """Return the relations of a file, in its order.

    Raises KbqError if it cannot be read, a key is unknown, or a value has no meaning: file, line and key are named.
    """
    text = re.sub("\r\n?", "\n", read_text(str(path), LONGEST))
    try:
        with LimitedProcess() as process:
            tables = process.call(tomllib.loads, text, seconds=10)
    except RecursionError:
        raise KbqError(f"{path}: its lists are nested too deeply: {WANTED}") from None
    except LimitExceeded as exceeded:
        raise KbqError(f"{path}: {exceeded}: {WANTED}") from None
    except ValueError as error:  # also of a number of thousands of digits, which is not a TOMLDecodeError
        raise KbqError(f"{path}: {first_line(error)}: {WANTED}") from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise KbqError(f"{path}:{_line(text, name)}: {name:.60} is outside of a table: write [relation] above it")
        if problem := _problem(table):
            key, reason = problem
            raise KbqError(f"{path}:{_line(text, name, key)}: {name:.60}: {reason}")
    return [_from_table(name, table) for name, table in tables.items()]


def _from_table(name: str, table: Mapping[str, Any]) -> Relation:
    """Make a relation of a table; without a `query`, the name is asked, `_` standing for a blank."""
    query = table.get("query", name.replace("_", " "))
    return Relation(**dict(table) | {"name": name, "query": (query,) if isinstance(query, str) else tuple(query)})


def _refuse_unaskable(relation: Relation) -> None:
    for wording in relation.query:
        if not wording.strip() or SEPARATOR.search(wording):
            raise KbqError(f"relation {relation.name!r} is asked as {wording!r}: write words, without [SEP]")


def _problem(table: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first key that cannot be used, and why."""
    keys = [field.name for field in fields(Relation)][1:]
    choices = {"values": get_args(Values), "type": get_args(ValueType)}
    for key, value in table.items():
        if key not in keys:
            near = get_close_matches(key[:60], keys, 1)
            advice = f"write {near[0]!r}" if near else f"choose from {', '.join(keys)}"
            return key, f"key {key!r:.60} is unknown: {advice}"
        texts = value if isinstance(value, list) else [value]
        advice = ""
        if key in choices and value not in choices[key]:
            advice = f"choose from {', '.join(choices[key])}"
        elif key == "min_probability" and not (type(value) in (int, float) and 0 <= value <= 1):
            advice = "write a number from 0 to 1"
        elif key == "property" and not (isinstance(value, str) and property_iri(value)):
            advice = "write a P-number of Wikidata, or a whole IRI"
        elif key == "query" and not (texts and all(isinstance(text, str) for text in texts)):
            advice = "write a text, or a list of texts"
        if advice:
            return key, f"{key} is {_beginning(value)}: {advice}"
    return None


def _beginning(value: object) -> str:
    """Return the beginning of a value, for a message."""
    try:
        return f"{value!r:.60}"
    except (ValueError, RecursionError):  # Python writes no number of thousands of digits
        return "far too long"


def _line(text: str, name: str, key: str = "") -> int:
    """Return the line where a table, and then its key, is probably written; the first one if none has these words."""
    lines = text.splitlines()
    header = re.compile(rf"\s*\[\s*[\"']?{re.escape(name)}[\"']?\s*\]")
    first = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if first is None:
        first = next((number for number, line in enumerate(lines) if name in line), 0)
    return next((number for number, line in enumerate(lines[first:], first + 1) if key in line), first + 1)
