"""Find the subjects of annotated pages, and the relations that such things usually have, stated or
not.

Re-DocRED is annotated exhaustively: what a page does not have of a usual relation of its subject,
it does not state.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

LEAST = 3  # relations that a subject must have, to know what it is
# By kind of subject: relations that alone say what it is, and others that such things usually have.
USUAL = {
    "person": (
        "date of birth|date of death|place of birth|place of "
        "death|spouse|father|mother|child|sibling|educated at|military branch|member of political "
        "party|country of citizenship|member of sports team",
        "employer|award received|notable work|residence|position held|religion|ethnic group|work "
        "location|member of|languages spoken, written or signed|conflict",
    ),
    "work": (
        "performer|publication date|director|author|cast member|composer|record "
        "label|producer|screenwriter|publisher|lyrics by|production company|original "
        "broadcaster|developer|original language of film or TV show|characters",
        "country of origin|genre|part of the series|platform|follows|followed "
        "by|creator|narrative location",
    ),
    "organisation": (
        "founded by|headquarters location|parent organization|subsidiary|chairperson|location of "
        "formation|product or material produced",
        "inception|country|owned by|member of|dissolved, abolished or demolished|operator|"
        "located in the administrative territorial entity|award received|league",
    ),
    "place": (
        "capital|official language|head of government|contains administrative territorial "
        "entity|continent|located in or next to body of water|located on terrain feature|mouth of "
        "the watercourse|basin country|head of state|legislative body|capital of",
        "country|located in the administrative territorial entity|inception|twinned "
        "administrative body|ethnic group",
    ),
    "event": (
        "point in time|participant|start time|end time",
        "location|country|part of|follows|followed by|participant of",
    ),
}
TABLES = ("person", "work", "organisation")  # what people make tables of
ALONE = {kind: frozenset(says.split("|")) for kind, (says, _) in USUAL.items()}
OF_KIND = {kind: [*says.split("|"), *others.split("|")] for kind, (says, others) in USUAL.items()}


@dataclass(frozen=True, slots=True)
class Subject:
    """A thing that a page is annotated for."""

    name: str
    page: str  # its title
    page_id: str
    kind: str
    stated: dict[str, list[str]] = field(default_factory=dict)  # names of all values, by relation

    def unsaid(self) -> list[str]:
        """Return the usual relations that the page does not state."""
        return [relation for relation in OF_KIND[self.kind] if relation not in self.stated]

    def usual(self) -> list[str]:
        """Return the usual relations that the page states."""
        return [relation for relation in OF_KIND[self.kind] if relation in self.stated]


def subjects(records: Iterable[dict[str, Any]], least: int = LEAST) -> Iterator[Subject]:
    """Yield subjects of KILT records of Re-DocRED with so many relations, whose kind these tell.

    A subject that several pages are about, or none, is left out: another page may state what one
    does not.
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    pages: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for one in records:
        name, relation = one["input"].split(" [SEP] ")
        found[name].setdefault(relation, []).extend(output["answer"] for output in one["output"])
        pages[name] |= {
            (place["title"], place["wikipedia_id"])
            for out in one["output"]
            for place in out.get("provenance", [])
        }
    for name, stated in sorted(found.items()):
        kind = kind_of(stated)
        if len(stated) >= least and len(pages[name]) == 1 and kind:
            yield Subject(
                name,
                *pages[name].pop(),
                kind,
                {relation: sorted({*values}) for relation, values in stated.items()},
            )


def kind_of(relations: Iterable[str]) -> str:
    """Return what most of a thing's telling relations say that it is; "" where they do not tell, or
    contradict.

    >>> kind_of(["spouse", "educated at", "performer"])
    'person'
    >>> kind_of(["spouse", "performer"]), kind_of(["country"])
    ('', '')
    """
    names = set(relations)
    votes = sorted(((len(names & says), kind) for kind, says in ALONE.items()), reverse=True)
    return votes[0][1] if votes[0][0] > votes[1][0] else ""
