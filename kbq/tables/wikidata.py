"""Wikidata: a file gives subjects, pages and units Q-numbers; relations have P-numbers."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from kbq.dump.page_directory import PageValue
from kbq.errors import KbqError
from kbq.storage.rows import read_rows, text_of
from kbq.tables.claims import Claim
from kbq.text.letters import clean_text, normalised

WIKIDATA = "http://www.wikidata.org"
_SITE = (
    r"(?:https?://www\.wikidata\.org/(?:wiki/(?:Property:)?|entity/|prop/(?:[a-z]+(?:-normalized)?/)?)"
    r"|(?:wdtn?|wd|ps[nv]?|p|pq[nv]?|pr[nv]?|wdno|Property):)?"  # Source: prefixes of query.wikidata.org
)
_P_NUMBER, _Q_NUMBER = re.compile(_SITE + "(P[1-9][0-9]*)"), re.compile(_SITE + "(Q[1-9][0-9]*)")

_PART = r"(?:[\w.~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
# As a URI, strictly; of schemes without "//", those that are registered and name things: another is a prefix.
_IRI = re.compile(
    rf"(?!https?:)(?:[A-Za-z][A-Za-z0-9+.-]*://|(?:urn|tag|info|ark|doi|mailto):){_PART}(?:#{_PART})?", re.ASCII
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
URL = re.compile(rf"https?://(?:[\w.~-]|%[0-9A-Fa-f]{{2}})+(?::[0-9]*)?(?:[/?]{_PART})?(?:#{_PART})?", re.ASCII)


def p_number(property: str) -> str:
    """Return the P-number of a property, given as such, with a prefix or in an IRI of Wikidata; "" if it has none.

    >>> p_number("wdt:P19"), p_number("http://www.wikidata.org/entity/P19"), p_number("http://schema.org/birthPlace")
    ('P19', 'P19', '')
    """
    found = _P_NUMBER.fullmatch(property)
    return found[1] if found else ""


def property_iri(property: str) -> str:
    """Return the IRI of a property, which is one, begins with a known prefix, or has a P-number; "" if it is none.

    >>> property_iri("P19"), property_iri("dbo:birthPlace"), property_iri("x:birthPlace"), property_iri("birth place")
    ('http://www.wikidata.org/prop/direct/P19', 'http://dbpedia.org/ontology/birthPlace', '', '')
    """
    if number := p_number(property):
        return f"{WIKIDATA}/prop/direct/{number}"
    prefix, mark, name = property.partition(":")
    if mark and prefix in PREFIXES:
        property = PREFIXES[prefix] + name
    return property if URL.fullmatch(property) or _IRI.fullmatch(property) else ""


class NoNumberError(KbqError):
    """Something has no Q-number; `name` is what a file of ids would call it."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"{what} has no Q-number: add it to the file of ids")
        self.name = name


def number_of(name: str, ids: Mapping[str, str]) -> str:
    """Return the Q-number of a name as it is written or, if only one name is alike, as values are compared; "": none.

    >>> number_of("vienna", {"Vienna": "Q1741", **_compared({"Vienna": "Q1741"})}), number_of("Rome", {})
    ('Q1741', '')
    """
    return ids.get(name) or ids.get(f"{_COMPARED}{normalised(name)}") or ""


def subject_number(claim: Claim, ids: Mapping[str, str]) -> str:
    """Return the Q-number of a claim's subject, by its name or by its page; "": none."""
    return number_of(claim.subject, ids) or (claim.title == claim.subject and ids.get(claim.page_id)) or ""


def value_number(claim: Claim, ids: Mapping[str, str]) -> str:
    """Return the Q-number of a claim's value, by its page or by its name; "": none."""
    page = claim.normal
    by_page = (ids.get(page.page_id) or number_of(page.title, ids)) if isinstance(page, PageValue) else ""
    return by_page or number_of(claim.value, ids)


def read_ids(path: Path) -> dict[str, str]:
    """Read Q-numbers by what has them: a subject, a value, a page id or title, a unit.

    A column with a Q-number has those of the names to its left or else to its right. So a table with several such
    columns, as OpenRefine exports it, can be read; names that have none yet are left out. Raises KbqError if the file
    cannot be read, has no Q-number, something else in their column, or two for one name.
    """
    rows, problems = list[tuple[int, list[str]]](), list[str]()
    for number, read in read_rows(str(path), has_header=False).numbered:
        given = [clean_text(text_of(value)) for value in read.values()]
        if any(name[:1] == " " and _Q_NUMBER.fullmatch(beside) for name, beside in pairwise(given)):
            advice = "put quotes around a name with a comma"
            problems.append(f"{path}:{number}: {given[0]!r:.60} and the text after its comma are two values: {advice}")
        rows.append((number, [value.strip() for value in given]))
    columns = sorted({place for _, row in rows for place, text in enumerate(row) if _Q_NUMBER.fullmatch(text)})
    if rows and not columns:
        raise KbqError(f"{path} has no Q-number, such as Q7186: write names, and the Q-number of each beside it")
    if rows and not any(re.search("[0-9]", text) for place, text in enumerate(rows[0][1]) if place in columns):
        del rows[0]  # the header
    ids: dict[str, str] = {}
    for number, row in rows:
        for place in columns:
            text = row[place] if place < len(row) else ""
            name = _named_by(row, place, columns)
            found = _Q_NUMBER.fullmatch(text)
            if text and not (found and name):
                problems.append(f"{path}:{number}: {text!r:.60} beside {name!r:.60} is not a Q-number with its name")
            elif found and ids.setdefault(name, found[1]) != found[1]:
                two = f"{name!r:.60} is both {ids[name]} and {found[1]}"
                problems.append(f"{path}:{number}: {two}: leave one of them out")
    if problems:
        raise KbqError(f"{path} has {len(problems)} lines that cannot be used", problems)
    return ids | _compared(ids)


_COMPARED = "\0"  # in front of names as they are compared: no name of a file begins so


def _compared(ids: Mapping[str, str]) -> dict[str, str]:
    """Return Q-numbers by names as values are compared, where all names that are alike have the same."""
    numbers: dict[str, set[str]] = {}
    for name, number in ids.items():
        numbers.setdefault(f"{_COMPARED}{normalised(name)}", set()).add(number)
    return {name: found.pop() for name, found in numbers.items() if len(found) == 1}


def _named_by(row: Sequence[str], place: int, columns: Sequence[int]) -> str:
    """Return the name beside a Q-number: the nearest other text to the left, or else to the right."""
    places = [*range(place - 1, -1, -1), *range(place + 1, len(row))]
    return next((row[other] for other in places if other not in columns), "")
