"""Relations: how to ask for each relation, from names, presets or a relations.toml.

A relations.toml has a table for each relation, a column of the table to fill:

    ["place of birth"]
    query = ["place of birth", "born in"]   # wordings; by default the name
    values = "one"                          # or "many", for all that are likely enough
    type = "page"                           # or "text", "date", "quantity"
    measures = "length"                     # of a quantity: what its unit measures
    min_probability = 0.7                   # its own threshold
    property = "P19"                        # of Wikidata, or an IRI, for RDF and QuickStatements
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from kbq.answers import counted
from kbq.dump.page_directory import PageValue
from kbq.english.countries import country_of, named_country
from kbq.english.quantities import Measure
from kbq.errors import KbqError, first_line
from kbq.storage.limited import LimitedProcess, LimitExceeded
from kbq.storage.lines import read_text
from kbq.storage.paths import as_iterable
from kbq.storage.rows import read_rows, text_of
from kbq.tables.claims import Claim, ValueType
from kbq.tables.options import Values
from kbq.text.normal_forms import clean_text, normalised
from kbq.text.queries import SEPARATOR, relation_key

WIKIDATA = "http://www.wikidata.org"
SECONDS = 10.0  # time of computing, to parse a file
_SITE = (
    r"(?:https?://www\.wikidata\.org/(?:wiki/(?:Property:)?|entity/|prop/(?:[a-z]+(?:-normalized)?/)?)"
    # Source: prefixes of query.wikidata.org.
    r"|(?:wdtn?|wd|ps[nv]?|p|pq[nv]?|pr[nv]?|wdno|Property):)?"
)
_P_NUMBER = re.compile(_SITE + "(P[1-9][0-9]*)")
_Q_NUMBER = re.compile(_SITE + "(Q[1-9][0-9]*)")

_PART = r"(?:[\w.~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
# Strictly a URI; without "//", of a registered scheme that names things, as any other is a prefix.
_IRI = re.compile(
    rf"(?!https?:)(?:[A-Za-z][A-Za-z0-9+.-]*://|(?:urn|tag|info|ark|doi|mailto):){_PART}(?:#{_PART})?",
    re.ASCII,
)
PREFIXES = {  # http://schema.org/ is not there: it is https://schema.org/, too. Source: prefix.cc
    "dbo": "http://dbpedia.org/ontology/",
    "dbp": "http://dbpedia.org/property/",
    "dbr": "http://dbpedia.org/resource/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "dcterms": "http://purl.org/dc/terms/",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
}
URL = re.compile(
    rf"https?://(?:[\w.~-]|%[0-9A-Fa-f]{{2}})+(?::[0-9]*)?(?:[/?]{_PART})?(?:#{_PART})?", re.ASCII
)

_CURIE = re.compile(r"^[A-Za-z][\w.-]*:(?=[A-Za-z]\w*$)", re.ASCII)  # a prefix: dbo:, schema:, per:
_CAMEL = re.compile("[a-z]{2,}(?:[A-Z][a-z0-9]*)+", re.ASCII)  # placeOfBirth
_HUMP = re.compile("(?<=[a-z0-9])(?=[A-Z])")

KNOWN = Path(__file__).with_name("known.toml")
MARK = "@"  # sign before the name of a preset, or of a known relation
USUAL = "usual"  # a preset
# Characters of a file, and of a name that may be one's.
LONGEST = 2**20
MOST_NAME = 1000
WANTED = "write a table for each relation, such as [employer]"
FILE_NAME = re.compile(
    r"\S+\.(?:ya?ml|json|jsonl|csv|tsv|txt|md|xlsx?|parquet|xml|ini|tml)", re.IGNORECASE
)


def p_number(property: str) -> str:
    """Return the P-number of a property, plain, with a prefix or in an IRI of Wikidata, or "" if it
    has none.

    >>> p_number("wdt:P19"), p_number("http://www.wikidata.org/entity/P19"), p_number("http://schema.org/birthPlace")
    ('P19', 'P19', '')
    """
    found = _P_NUMBER.fullmatch(property)
    return found[1] if found else ""


def property_iri(property: str) -> str:
    """Return the IRI of a property, given as such, with a known prefix, or by its P-number, or ""
    if it has none.

    >>> property_iri("P19"), property_iri("dbo:birthPlace"), property_iri("x:birthPlace"), property_iri("birth place")
    ('http://www.wikidata.org/prop/direct/P19', 'http://dbpedia.org/ontology/birthPlace', '', '')
    """
    number = p_number(property)
    if number:
        return f"{WIKIDATA}/prop/direct/{number}"
    prefix, mark, name = property.partition(":")
    if mark and prefix in PREFIXES:
        property = PREFIXES[prefix] + name
    if URL.fullmatch(property) or _IRI.fullmatch(property):
        return property
    return ""


class NoNumberError(KbqError):
    """Something has no Q-number; `name` is its name in a file of ids."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"{what} has no Q-number: add it to the file of ids")
        self.name = name


def number_of(name: str, ids: Mapping[str, str]) -> str:
    """Return the Q-number of a name, as written or else as values are compared, or "" if it has
    none.

    >>> number_of("vienna", {"Vienna": "Q1741", **_compared({"Vienna": "Q1741"})}), number_of("Rome", {})
    ('Q1741', '')
    """
    return ids.get(name) or ids.get(f"{_COMPARED}{normalised(name)}") or ""


def subject_number(claim: Claim, ids: Mapping[str, str]) -> str:
    """Return the Q-number of a claim's subject, by its name or its page, or ""."""
    return (
        number_of(claim.subject, ids)
        or (claim.title == claim.subject and ids.get(claim.page_id))
        or ""
    )


def value_number(claim: Claim, ids: Mapping[str, str]) -> str:
    """Return the Q-number of a claim's value, by its page, its name or the country it stands for,
    or "".
    """
    page = claim.normal
    by_page = (
        (ids.get(page.page_id) or number_of(page.title, ids)) if isinstance(page, PageValue) else ""
    )
    country = country_of(normalised(claim.value), claim.relation)
    return by_page or number_of(claim.value, ids) or ids.get(f"{_COUNTRY}{country}", "")


def read_ids(path: Path) -> dict[str, str]:
    """Read the Q-numbers of names: subjects, values, page ids or titles, units.

    A column of Q-numbers belongs to the names on its left or else on its right, so a table with
    several such columns, as OpenRefine exports it, can be read. Names without one are left out.
    Raises KbqError if the file cannot be read, or has no Q-number, something else in their column,
    or two for one name.
    """
    rows = list[tuple[int, list[str]]]()
    problems = list[str]()
    for number, read in read_rows(str(path), has_header=False).numbered:
        given = [clean_text(text_of(value)) for value in read.values()]
        if any(name[:1] == " " and _Q_NUMBER.fullmatch(beside) for name, beside in pairwise(given)):
            advice = "put quotes around a name with a comma"
            problems.append(
                f"{path}:{number}: {given[0]!r:.60} and the text after its comma are two values: "
                f"{advice}"
            )
        rows.append((number, [value.strip() for value in given]))

    columns = sorted(
        {place for _, row in rows for place, text in enumerate(row) if _Q_NUMBER.fullmatch(text)}
    )
    if rows and not columns:
        raise KbqError(
            f"{path} has no Q-number, such as Q7186: write names, and the Q-number of each beside "
            "it"
        )

    if rows and not any(
        re.search("[0-9]", text) for place, text in enumerate(rows[0][1]) if place in columns
    ):
        del rows[0]  # the header

    ids: dict[str, str] = {}
    for number, row in rows:
        for place in columns:
            text = row[place] if place < len(row) else ""
            # The nearest to the left come first.
            beside = [*range(place - 1, -1, -1), *range(place + 1, len(row))]
            name = next((row[other] for other in beside if other not in columns), "")
            found = _Q_NUMBER.fullmatch(text)
            if text and not (found and name):
                problems.append(
                    f"{path}:{number}: {text!r:.60} beside {name!r:.60} is not a Q-number with "
                    "its name"
                )
            elif found and ids.setdefault(name, found[1]) != found[1]:
                two = f"{name!r:.60} is both {ids[name]} and {found[1]}"
                problems.append(f"{path}:{number}: {two}: leave one of them out")

    if problems:
        raise KbqError(f"{path} has {counted(len(problems), 'line')} that cannot be used", problems)
    return ids | _compared(ids)


_COUNTRY = "\0\0"  # prefix of countries
_COMPARED = "\0"  # prefix of names as they are compared: no name of a file begins so


def _compared(ids: Mapping[str, str]) -> dict[str, str]:
    """Return Q-numbers by compared names and by countries, if all names of that form or country
    have the same.
    """
    numbers: dict[str, set[str]] = {}
    for name, number in ids.items():
        words = normalised(name)
        numbers.setdefault(f"{_COMPARED}{words}", set()).add(number)
        country = named_country(words)
        if country:
            numbers.setdefault(f"{_COUNTRY}{country}", set()).add(number)
    return {name: found.pop() for name, found in numbers.items() if len(found) == 1}


@dataclass(frozen=True, slots=True)
class Relation:
    """A column to fill. See the module for the file with the same keys."""

    name: str
    query: tuple[str, ...]  # wordings; the best answers to any of them count
    values: Values = "one"
    type: ValueType | None = None  # None for any type that a value certainly has
    min_probability: float | None = None  # None for that of the whole run
    property: str = ""  # P-number of Wikidata, or IRI
    measures: tuple[Measure, ...] = ()  # what the unit of a quantity measures, or anything


@dataclass(frozen=True, slots=True)
class Slot:
    """A subject and a relation."""

    subject: str
    relation: Relation

    @property
    def cell(self) -> tuple[str, str]:
        return self.subject, self.relation.name

    @property
    def queries(self) -> list[str]:
        return [f"{self.subject} [SEP] {wording}" for wording in self.relation.query]


def relations_of(wanted: Iterable[str | Relation], values: Values = "one") -> list[Relation]:
    """Return relations given by name, as files (*.toml), presets (@people) or known ones
    (@employer), or as such.

    `values`: of those given by name. Raises KbqError if there is none, two have the same name, or
    one cannot be asked.
    """
    relations = list[Relation]()
    known = {relation.name for relation in known_relations()}
    for one in as_iterable(wanted, KbqError, "the relations are", "a list of names, or of files"):
        if isinstance(one, Relation):
            relations.append(one)
        elif str(one).endswith(".toml") or _is_file_or_pipe(str(one)):
            relations += read_relations(Path(one))
        elif str(one).startswith(MARK):
            for found in preset(str(one)):
                if found not in relations:
                    relations.append(found)
        elif FILE_NAME.fullmatch(str(one)):
            raise KbqError(
                f"{str(one)!r:.80} looks like a file: relations are read from a file that ends in "
                ".toml"
            )
        elif {*re.split(r" *, *", str(one))} <= known and "," in str(one):
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


def _is_file_or_pipe(name: str) -> bool:
    """Whether a name is a file's or a pipe's, such as /dev/fd/63, which a shell makes of <(…)."""
    # "employer" is a relation, whatever lies here.
    if len(name) > MOST_NAME or not re.search(r"[/\\.]", name):
        return False
    return Path(name).is_file() or Path(name).is_fifo()


def relation_named(name: str, values: Values = "one") -> Relation:
    """Return the relation of this name; a known one has its type and its property.

    Only `@name` has its wordings and number of values, too. Raises KbqError if it cannot be asked.

    >>> relation = relation_named("date_of_birth")
    >>> relation.name, relation.query, relation.type, relation.property
    ('date_of_birth', ('date of birth',), 'date', 'P569')
    """
    relation = from_table(clean_text(name).strip(), {"values": values})
    _refuse_unaskable(relation)
    known = _by_any_name().get(relation_key(relation.query[0]))
    return (
        relation
        if known is None
        else replace(relation, type=known.type, property=known.property, measures=known.measures)
    )


def words_of(name: str) -> str:
    """Return the words of a relation's name as programs or the heads of columns write it; a
    P-number is that of a known relation.

    >>> words_of("placeOfBirth"), words_of("schema:birth_date"), words_of("wdt:P19"), words_of("IUCN status")
    ('place of birth', 'birth date', 'place of birth', 'IUCN status')
    >>> words_of("date-of-birth"), words_of("DOB"), words_of("dateofbirth"), words_of("wing-span")
    ('date of birth', 'date of birth', 'date of birth', 'wing-span')
    """
    if re.fullmatch("p[0-9]+", name):
        known = known_property(name.upper())
    else:
        known = known_property(name)
    if known is not None:
        return known.name
    if URL.fullmatch(name):
        last = re.split("[/#]", name)[-1]
    else:
        last = _CURIE.sub("", name)
    words = (last or name).replace("_", " ")
    if relation_key(words) not in _by_any_name():
        words = _by_letters().get(_letters(words), words)
    parted = _HUMP.sub(" ", words).lower()
    is_known = (
        relation_key(parted) in _by_any_name() if words[:1].isupper() else _CAMEL.fullmatch(words)
    )
    return parted if is_known else words


def known_name(relation: Relation) -> str:
    """Return the name by which rules know a relation: that of its property or wording, or else its
    own.
    """
    known = known_property(relation.property) or _by_any_name().get(relation_key(relation.query[0]))
    if known:
        return known.name
    return relation_key(relation.name)


@cache
def _by_any_name() -> dict[str, Relation]:
    """Return the known relations by their names and other names."""
    found: dict[str, Relation] = {}
    for name, table in _known_tables().items():
        names = name, *table.get("also", ())
        found |= dict.fromkeys(map(relation_key, names), _known(name, table))
    return found


@cache
def _by_letters() -> dict[str, str]:
    """Return the words of known names by their letters, and those of relations by their short
    names.
    """
    found: dict[str, str] = {}
    for name, table in _known_tables().items():
        found |= {_letters(other): other for other in (*table.get("also", ()), name)}
        found |= dict.fromkeys(map(_letters, table.get("short", ())), name)
    return found


def _letters(name: str) -> str:
    """Return a name without what parts its words.

    >>> _letters("Date-of-Birth"), _letters("D.O.B.")
    ('dateofbirth', 'dob')
    """
    return re.sub(r"[\s.-]", "", relation_key(name))


@cache
def _known_tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(KNOWN.read_text("utf-8"))


def _known(name: str, table: Mapping[str, Any]) -> Relation:
    """Make a known relation of its table, without the keys that only those have."""
    keys = {key: value for key, value in table.items() if key not in ("groups", "also", "short")}
    return from_table(name, {"query": name} | keys)


@cache
def known_relations() -> dict[Relation, tuple[str, ...]]:
    """Return the known relations, those of people first, each with its presets."""
    return {_known(name, table): tuple(table["groups"]) for name, table in _known_tables().items()}


def preset(name: str) -> list[Relation]:
    """Return the relations of a preset or the known relation of this name, with or without "@", or
    all for "".

    Raises KbqError if there is none.

    >>> [relation.property for relation in preset("@place of birth")], len(preset("usual"))
    (['P19'], 29)
    """
    mark = name[: name.startswith(MARK)]
    wanted = name.removeprefix(MARK).strip()
    known = known_relations()
    of_preset = [relation for relation, presets in known.items() if not wanted or wanted in presets]
    found = of_preset or [relation for relation in known if relation.name == wanted]
    if not found:
        names = list(
            dict.fromkeys(preset_name for presets in known.values() for preset_name in presets)
        )
        near = get_close_matches(wanted, [*names, *(relation.name for relation in known)], 1)
        advice = (
            f"did you mean {mark}{near[0]}?"
            if near
            else f"choose from {', '.join(mark + one for one in names)}"
        )
        raise KbqError(f"{name:.60} is neither a preset nor a known relation: {advice}")

    return found


def known_property(property: str) -> Relation | None:
    number = p_number(property)
    return next(
        (relation for relation in known_relations() if number and relation.property == number), None
    )


def as_toml(relations: Iterable[Relation], comments: Sequence[str] = ()) -> str:
    """Return the text of a relations.toml, perhaps with a comment for each relation."""
    # Texts and lists of them are written so in TOML, too.
    quoted = partial(json.dumps, ensure_ascii=False)
    lines: list[str] = []
    for number, relation in enumerate(relations):
        heading = f"[{quoted(relation.name)}]"
        if comments:
            heading += f"  # {comments[number]}"
        lines.append(heading)
        if relation.query != (words_of(relation.name),):
            lines.append(f"query = {quoted(relation.query)}")
        if relation.values != "one":
            lines.append(f'values = "{relation.values}"')
        if relation.type:
            lines.append(f'type = "{relation.type}"')
        if relation.measures:
            lines.append(f"measures = {quoted(relation.measures)}")
        if relation.property:
            lines.append(f"property = {quoted(relation.property)}")
        lines.append("")

    return "\n".join(lines)


def read_relations(path: Path) -> list[Relation]:
    """Return the relations of a file, in its order.

    Raises KbqError, with file, line and key, if it cannot be read, a key is unknown, or a value has
    no meaning.
    """
    text = re.sub("\r\n?", "\n", read_text(str(path), LONGEST))
    try:
        with LimitedProcess() as process:
            tables = process.call(tomllib.loads, text, seconds=SECONDS)
    except RecursionError:
        raise KbqError(f"{path}: its lists are nested too deeply: {WANTED}") from None
    except LimitExceeded as exceeded:
        raise KbqError(f"{path}: {exceeded}: {WANTED}") from None
    except (
        ValueError
    ) as error:  # also of a number of thousands of digits, which is not a TOMLDecodeError
        raise KbqError(f"{path}: {first_line(error)}: {WANTED}") from None

    for name, table in tables.items():
        if not isinstance(table, dict):
            raise KbqError(
                f"{path}:{_line(text, name)}: {name:.60} is outside of a table: write [relation] "
                "above it"
            )
        problem = _problem(table)
        if problem:
            key, reason = problem
            raise KbqError(f"{path}:{_line(text, name, key)}: {name:.60}: {reason}")

    return [from_table(name, table) for name, table in tables.items()]


def from_table(name: str, table: Mapping[str, Any]) -> Relation:
    """Make a relation of the table of a file. The default of `query` is the name in words."""
    query = table["query"] if "query" in table else words_of(name)
    measures = table.get("measures", ())
    lists = {"query": _as_tuple(query), "measures": _as_tuple(measures)}
    return Relation(**dict(table) | {"name": name} | lists)


def _as_tuple(texts: str | Sequence[str]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _refuse_unaskable(relation: Relation) -> None:
    for wording in relation.query:
        if not wording.strip() or SEPARATOR.search(wording):
            raise KbqError(
                f"relation {relation.name!r} is asked as {wording!r}: write words, without [SEP]"
            )


def _problem(table: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first key that cannot be used, and why."""
    keys = [field.name for field in fields(Relation)][1:]
    choices = {"values": get_args(Values), "type": get_args(ValueType)}
    for key, value in table.items():
        if key not in keys:
            near = get_close_matches(key[:60], keys, 1)
            if near:
                advice = f"write {near[0]!r}"
            else:
                advice = f"choose from {', '.join(keys)}"
            return key, f"key {key!r:.60} is unknown: {advice}"

        texts = value if isinstance(value, list) else [value]
        advice = ""
        if key in choices and value not in choices[key]:
            advice = f"choose from {', '.join(choices[key])}"
        elif key == "measures" and not (texts and all(text in get_args(Measure) for text in texts)):
            advice = f"choose from {', '.join(get_args(Measure))}"
        elif key == "measures" and table.get("type") != "quantity":
            advice = 'write type = "quantity", too'
        elif key == "min_probability" and not (type(value) in (int, float) and 0 <= value <= 1):
            advice = "write a number from 0 to 1"
        elif key == "property" and not (isinstance(value, str) and property_iri(value)):
            advice = "write a P-number of Wikidata, or a whole IRI"
        elif key == "query" and not (texts and all(isinstance(text, str) for text in texts)):
            advice = "write a text, or a list of texts"

        if advice:
            # Python writes no number of thousands of digits.
            with suppress(ValueError, RecursionError):
                return key, f"{key} is {value!r:.60}: {advice}"
            return key, f"{key} is far too long: {advice}"

    return None


def _line(text: str, name: str, key: str = "") -> int:
    """Return the line where a table, and then its key, is probably written, by default the first."""
    lines = text.splitlines()
    header = re.compile(rf"\s*\[\s*[\"']?{re.escape(name)}[\"']?\s*\]")
    first = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if first is None:
        first = next((number for number, line in enumerate(lines) if name in line), 0)
    return next(
        (number for number, line in enumerate(lines[first:], first + 1) if key in line), first + 1
    )
