"""Known relations: those that are often asked for, with wordings, types and P-numbers; and presets of them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kbq.errors import KbqError
from kbq.storage.progress import unheard
from kbq.tables.relations import Relation
from kbq.tables.wikidata import p_number

if TYPE_CHECKING:
    from kbq.kb import KnowledgeBase
    from kbq.tables.claims import Claim

FILE = Path(__file__).with_name("known.toml")
MARK = "@"  # in front of the name of a preset, or of a known relation
USUAL = "usual"
Report = Callable[[int, int, int], None]  # called with the cells that are done, all of them, and those filled


@dataclass(frozen=True, slots=True)
class KnownRelation:
    """A relation and the presets that have it."""

    relation: Relation
    groups: tuple[str, ...]


@cache
def known_relations() -> tuple[KnownRelation, ...]:
    """All of them, those of people first."""
    tables = tomllib.loads(FILE.read_text("utf-8"))
    known = []
    for name, table in tables.items():
        groups, query = tuple(table.pop("groups")), tuple(table.pop("query", [name]))
        known.append(KnownRelation(Relation(name, query, **table), groups))
    return tuple(known)


def preset(name: str) -> list[Relation]:
    """The relations of a preset, or the known relation of this name; of "", all that are known.

    >>> [relation.property for relation in preset("place of birth")], len(preset("usual"))
    (['P19'], 29)

    Raises:
        KbqError: there is none.
    """
    known = known_relations()
    found = [one.relation for one in known if not name or name in one.groups] or [
        one.relation for one in known if one.relation.name == name
    ]
    if not found:
        groups = list(dict.fromkeys(group for one in known for group in one.groups))
        near = get_close_matches(name, [*groups, *(one.relation.name for one in known)], 1)
        advice = f"is @{near[0]} meant?" if near else f"choose from @{', @'.join(groups)}"
        raise KbqError(f"@{name:.60} is no preset and no known relation: {advice}")
    return found


def known_property(property: str) -> Relation | None:
    """The known relation with a property of Wikidata."""
    number = p_number(property)
    return next((one.relation for one in known_relations() if number and one.relation.property == number), None)


@dataclass(frozen=True, slots=True)
class Share:
    """How well a relation is answered."""

    pages: int  # that were asked for
    likely: float  # the share of them whose best answer is likely enough to fill a cell
    mean: float  # probability of the best answers


def probed(
    kb: KnowledgeBase, relations: Sequence[Relation], pages: int, report: Report = unheard
) -> list[tuple[Relation, Share]]:
    """Ask for relations of some pages from all over a knowledge base; those that are answered best come first.

    Raises:
        KbqError: answers have no probability here.
    """
    from kbq.tables.fill import every_page  # which asks for relations itself

    rows = every_page(kb)
    chosen = rows[:: max(1, len(rows) // pages)][:pages]
    table = kb.fill(chosen, relations, top=0, report=report)
    best: dict[str, list[Claim]] = {relation.name: [] for relation in relations}
    for claim in table.claims:
        best[claim.relation].append(claim)
    shares = []
    for relation in relations:
        found = best[relation.name]
        accepted = len({claim.subject for claim in found if claim.accepted})
        mean = sum(claim.probability or 0 for claim in found) / max(1, len(found))
        shares.append((relation, Share(len(chosen), accepted / max(1, len(chosen)), mean)))
    return sorted(shares, key=lambda pair: (-pair[1].likely, -pair[1].mean))


def as_toml(relations: Iterable[Relation], comments: Sequence[str] = ()) -> str:
    """A file relations.toml.

    Args:
        comments: one for each relation.
    """
    lines: list[str] = []
    for number, relation in enumerate(relations):
        comment = f"  # {comments[number]}" if comments else ""
        lines += [f"[{_text(relation.name)}]{comment}"]
        if relation.query != (relation.name,):
            lines.append(f"query = [{', '.join(map(_text, relation.query))}]")
        lines += [f'values = "{relation.values}"'] if relation.values != "one" else []
        lines += [f'type = "{relation.type}"'] if relation.type else []
        lines += [f"property = {_text(relation.property)}", ""] if relation.property else [""]
    return "\n".join(lines)


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
