"""Candidates: the name of a cell, and what other cells of its row say, become the pages that may be meant.

Other cells are compared with what each page says about their relation. Source of the weights: Wikidata's service.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbq.dump.page_directory import PageValue, Titles
from kbq.serve.bounds import LONGEST, MOST_ANSWERS, MOST_ASKED, refuse_more
from kbq.serve.filling import SlotFiller
from kbq.serve.knowledge_bases import unescaped_id
from kbq.serve.titles import NamedPage, TitleWords
from kbq.tables.cells import is_empty, shown, subject_of
from kbq.tables.claims import Claim
from kbq.tables.relations import Slot, relation_named
from kbq.tables.values import is_same

LIMIT, MOST = 5, 100  # candidates of a name, by default and at most
CHECKED = 3  # of them, whose pages are compared with other cells
OF_NAME, OF_PROPERTY = 100, 40  # weights of a name, and of a property that the page has


@dataclass(frozen=True, slots=True)
class Property:
    """Another cell of the row."""

    pid: str  # the name of a relation
    v: Any  # a text, number or truth value, a page as {"id": …, "name": …}, or a list of these


@dataclass(frozen=True, slots=True)
class Name:
    """A query of the protocol: a cell that names something."""

    query: str = ""
    limit: float = 0  # candidates; 0: LIMIT
    properties: list[Property] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A page that may be meant."""

    page: NamedPage
    agrees: Mapping[str, bool]  # whether the page agrees with other cells; those that it does not mention are left out

    @property
    def score(self) -> float:
        """From 0 to 100."""
        weight = OF_NAME + OF_PROPERTY * len(self.agrees)
        return round(100 * (OF_NAME * self.page.likeness + OF_PROPERTY * sum(self.agrees.values())) / weight, 1)

    @property
    def rank(self) -> tuple[float, int]:
        """Orders candidates: of pages with the same score, the one that more cells agree with is better."""
        return self.score, sum(self.agrees.values())


def name_of(query: object) -> Name:
    """Read a query as a client sent it. One that cannot be asked has no candidates, and others still have theirs.

    >>> name_of({"query": "Emma", "limit": None}), name_of({"query": 1984}).query, name_of(7).query
    (Name(query='Emma', limit=0, properties=[]), '', '')
    """
    given = dict(query) if isinstance(query, dict) else {}
    text, limit, properties = (given.get(name) for name in ("query", "limit", "properties"))
    others = [one for one in properties if isinstance(one, dict)] if isinstance(properties, list) else []
    try:
        most = float(limit) if limit else 0
    except (TypeError, ValueError, OverflowError):
        most = 0
    return Name(
        text if isinstance(text, str) else "",
        most,
        [Property(one["pid"], one.get("v")) for one in others if isinstance(one.get("pid"), str)],
    )


async def candidates(names: Sequence[Name], filler: SlotFiller) -> list[list[Candidate]]:
    """Find the candidates of each name, best first.

    Raises KbqError if a property is not a relation that can be asked for, or there are too many.
    """
    refuse_more("properties of candidates", CHECKED * sum(len(name.properties) for name in names), MOST_ASKED)
    values = (len(one.v) for name in names for one in name.properties if isinstance(one.v, list))
    refuse_more("values of one property", max(values, default=0), MOST_ANSWERS)
    longest = max((len(one.pid) for name in names for one in name.properties), default=0)
    refuse_more("letters in the name of a property", longest, LONGEST)
    pages = await asyncio.to_thread(_pages, names, filler.served.words)
    asked = [
        (number, page, other, relation_named(other.pid, "many"))
        for number, name in enumerate(names)
        for page in pages[number][:CHECKED]
        for other in name.properties
        if not is_empty(other.v)
    ]
    slots = [Slot(subject_of(page.title), relation) for _, page, _, relation in asked]
    claims = await filler.claims(slots, [page.page_id for _, page, _, _ in asked])
    agrees: dict[tuple[int, str], dict[str, bool]] = {}
    for (number, page, other, _), said in zip(asked, claims, strict=True):
        if any(claim.accepted for claim in said):
            agrees.setdefault((number, page.page_id), {})[other.pid] = _is_said(other.v, said, filler.served.kb.titles)
    found = [
        [Candidate(page, agrees.get((number, page.page_id), {})) for page in each] for number, each in enumerate(pages)
    ]
    return [sorted(each, key=lambda one: one.rank, reverse=True) for each in found]


def _pages(names: Sequence[Name], words: TitleWords) -> list[list[NamedPage]]:
    return [words.pages(name.query, int(max(0, min(name.limit, MOST))) or LIMIT) for name in names]


def is_match(found: Sequence[Candidate]) -> bool:
    """Whether the first candidate is certainly meant: it alone has the name, and contradicts no other cell."""
    best, *others = found
    return best.page.has_name and all(best.agrees.values()) and all(one.rank < best.rank for one in others[:1])


def _is_said(value: Any, claims: Sequence[Claim], titles: Titles) -> bool:
    """Whether one of these claims has the value, or one of the values."""
    values = value if isinstance(value, list) else [value]
    return any(claim.accepted and _is_value(one, claim, titles) for one in values for claim in claims)


def _is_value(value: Any, claim: Claim, titles: Titles) -> bool:
    if not isinstance(value, dict):
        return is_same(shown(value), claim, titles)
    ids = value.get("id"), unescaped_id(str(value.get("id")))
    is_page = isinstance(claim.normal, PageValue) and claim.normal.page_id in ids
    return is_page or ("name" in value and is_same(shown(value["name"]), claim, titles))
