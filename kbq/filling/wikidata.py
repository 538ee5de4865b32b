"""Wikidata: subjects, pages and units have Q-numbers, as a file says, and relations have P-numbers."""

import re
from collections.abc import Mapping
from pathlib import Path

from kbq.errors import KbqError
from kbq.filling.claims import Claim, PageValue
from kbq.system.lines import clean_text
from kbq.system.rows import read_rows

WIKIDATA = "http://www.wikidata.org"
_SITE = r"(?:https?://www\.wikidata\.org/(?:wiki/(?:Property:)?|entity/|prop/(?:direct/)?))?"
_P_NUMBER, _Q_NUMBER = re.compile(_SITE + "(P[1-9][0-9]*)"), re.compile(_SITE + "(Q[1-9][0-9]*)")

_PART = r"(?:[\w.~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_IRI = re.compile(rf"(?!https?:)[A-Za-z][A-Za-z0-9+.-]*:{_PART}(?:#{_PART})?", re.ASCII)  # as a URI, strictly
URL = re.compile(rf"https?://(?:[\w.~-]|%[0-9A-Fa-f]{{2}})+(?::[0-9]*)?(?:[/?]{_PART})?(?:#{_PART})?", re.ASCII)


def p_number(property: str) -> str:
    """The P-number that a property is, as such or in an IRI of Wikidata; "" where it is another one.

    >>> p_number("P19"), p_number("http://www.wikidata.org/entity/P19"), p_number("http://schema.org/birthPlace")
    ('P19', 'P19', '')
    """
    found = _P_NUMBER.fullmatch(property)
    return found[1] if found else ""


def property_iri(property: str) -> str:
    """The IRI of a property, which is one, or has a P-number; "" where it is neither.

    >>> property_iri("P19"), property_iri("http://schema.org/birthPlace"), property_iri("birth place")
    ('http://www.wikidata.org/prop/direct/P19', 'http://schema.org/birthPlace', '')
    """
    if number := p_number(property):
        return f"{WIKIDATA}/prop/direct/{number}"
    return property if URL.fullmatch(property) or _IRI.fullmatch(property) else ""


def subject_number(claim: Claim, ids: Mapping[str, str]) -> str:
    """The Q-number of a claim's subject, by its name or by its page; "" where it has none."""
    return ids.get(claim.subject) or (claim.title == claim.subject and ids.get(claim.page_id)) or ""


def page_number(page: PageValue, ids: Mapping[str, str]) -> str:
    """The Q-number of a page, by its id or by its title; "" where it has none."""
    return ids.get(page.page_id) or ids.get(page.title) or ""


def read_ids(path: Path) -> dict[str, str]:
    """Q-numbers by what has them: rows of a subject, page id, title or unit, and a Q-number.

    A header is left out: a first row whose second column holds no digit.

    Raises:
        KbqError: the file cannot be read, a line has no Q-number, or one name has two.
    """
    ids: dict[str, str] = {}
    problems: list[str] = []
    rows = read_rows(str(path), has_header=False)
    for place, (number, row) in enumerate(rows.numbered):
        name, text, *_ = (*(clean_text(str(value)).strip() for value in row.values()), "", "")
        found, shown = _Q_NUMBER.fullmatch(text), "\t".join(map(str, row.values()))
        if (not name and not text) or (place == 0 and not re.search("[0-9]", text)):
            continue
        if not found or not name:
            problems.append(f"{path}:{number}: {shown!r:.60} is no name, tab and Q-number, such as Q7186")
        elif ids.setdefault(name, found[1]) != found[1]:
            problems.append(f"{path}:{number}: {name!r:.60} is {ids[name]}, and {found[1]}, too: leave one of them out")
    if problems:
        raise KbqError(f"{path} has {len(problems)} lines that cannot be used", problems)
    return ids
