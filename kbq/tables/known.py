"""Known relations: those that are often asked for, with wordings, types and P-numbers; and presets of them.

What a person names as relations is found here.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kbq.errors import KbqError
from kbq.storage.paths import given
from kbq.storage.progress import unheard
from kbq.tables.options import Values
from kbq.tables.relations import FILE_NAME, Relation, read_relations, refuse_unaskable, relation_named
from kbq.tables.slots import every_page
from kbq.tables.wikidata import p_number

if TYPE_CHECKING:
    from kbq.asking import OpenKnowledgeBase
    from kbq.tables.claims import Claim
    from kbq.tables.tables import Table

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
    kb: OpenKnowledgeBase,
    fill: Callable[..., Table],
    relations: Sequence[Relation],
    pages: int,
    report: Report = unheard,
) -> list[tuple[Relation, Share]]:
    """Ask for relations of some pages from all over a knowledge base; those that are answered best come first.

    Args:
        fill: that of the knowledge base.

    Raises:
        KbqError: answers have no probability here.
    """
    rows = every_page(kb)
    chosen = rows[:: max(1, len(rows) // pages)][:pages]
    table = fill(chosen, relations, top=0, report=report)
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


def relations_of(wanted: Iterable[str | Relation], values: Values = "one") -> list[Relation]:
    """Relations by name, of files (*.toml), of presets (@people), known ones (@employer), and those that are relations.

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
        elif str(one).startswith("@"):
            relations += [found for found in preset(str(one)[1:].strip()) if found not in relations]
        elif FILE_NAME.fullmatch(str(one)):
            raise KbqError(f"{str(one)!r:.80} looks like a file: relations are read from a file that ends in .toml")
        else:
            relations.append(relation_named(str(one), values))
    if not relations:
        raise KbqError("no relation is given: name those that are wanted, or a file relations.toml")
    for relation in relations:
        refuse_unaskable(relation)
    for name, count in Counter(relation.name for relation in relations).items():
        if count > 1:
            raise KbqError(f"relation {name!r} is given {count} times: once is enough")
    return relations
