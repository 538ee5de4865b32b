"""Slots: a table and its relations become what is asked: each subject with the relations of its cells, once."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

import numpy as np

from kbq.errors import KbqError
from kbq.storage.lines import clean_text
from kbq.tables.relations import Relation
from kbq.tables.tables import Row, Table, is_empty, shown

if TYPE_CHECKING:
    from kbq.asking import OpenKnowledgeBase

Wanted = Literal["empty", "present", "all"]  # the cells that are asked for


@dataclass(frozen=True, slots=True)
class Slot:
    """A subject and a relation."""

    subject: str
    relation: Relation

    @property
    def queries(self) -> list[str]:
        """What is asked, a query for each wording."""
        return [f"{self.subject} [SEP] {wording}" for wording in self.relation.query]


def subject_of(row: object) -> str:
    """The text of a subject's cell on one line.

    >>> subject_of("Marie\\n Curie "), subject_of(None)
    ('Marie Curie', '')
    """
    return " ".join(clean_text(shown(row)).split())


class Slots:
    """The slots of a table, subject by subject, in the order of the first row of each."""

    def __init__(
        self,
        table: Table,
        relations: Sequence[Relation],
        subject: str,
        wanted: Wanted,
        limit: int,
        problem_of: Callable[[str], str],
        markers: Collection[str] = (),
    ) -> None:
        """The slots of the cells wanted.

        Args:
            subject: the column of subjects.
            limit: how many slots at most; 0: all.
            problem_of: says why a query cannot be asked; empty: it can.
            markers: that stand for an empty cell.

        Raises:
            KbqError: the table has no such column of subjects, or no cell to ask for.
        """
        refuse_missing(table, subject)
        if any(relation.name == subject for relation in relations):
            raise KbqError(
                f"{subject!r} is the column of subjects, and cannot be filled itself: ask for other relations"
            )
        self._relations = relations
        self._of: dict[str, tuple[int, ...]] = {}  # numbers of relations, by subject
        self.count = 0
        self.unasked: list[str] = []  # why the cells of some rows are not asked for
        for place, row in enumerate(table.rows, start=1):
            name = subject_of(row.get(subject))
            known = self._of.get(name, ())
            more = [
                number
                for number, relation in enumerate(relations)
                if number not in known
                and (wanted == "all" or is_empty(row.get(relation.name), markers) == (wanted == "empty"))
            ]
            more = more[: limit - self.count] if limit else more
            queries = (query for number in more if name for query in Slot(name, relations[number]).queries)
            problem = next(filter(None, map(problem_of, queries)), "")
            if problem:
                self.unasked.append(f"row {place}: {problem}")
            elif name and more:
                self._of[name] = tuple(sorted((*known, *more)))
                self.count += len(more)
        if self.unasked and not self.count:
            raise KbqError("no subject can be asked for", self.unasked)
        if not self.count:
            cell, instead = {
                "empty": ("an empty cell", "--overwrite asks for all cells, and --check compares them"),
                "present": ("a cell with a value", "leave out --check"),
                "all": ("a cell", "give the table some rows"),
            }[wanted]
            columns = ", ".join(repr(relation.name) for relation in relations)
            raise KbqError(f"no row has a subject and {cell} in {columns}: {instead}")

    def __iter__(self) -> Iterator[Slot]:
        return (Slot(name, self._relations[number]) for name, numbers in self._of.items() for number in numbers)

    @property
    def queries(self) -> int:
        """How many queries are asked."""
        return sum(len(self._relations[number].query) for numbers in self._of.values() for number in numbers)


def refuse_missing(table: Table, subject: str) -> None:
    """Raises KbqError if a table has no such column."""
    if subject in table.columns:
        return
    near = get_close_matches(subject, table.columns[:1000], 1, 0.5)
    hint = f"is it {near[0]!r}?" if near else f"it has {', '.join(map(repr, table.columns[:20]))}"
    raise KbqError(f"the table has no column {subject!r}, {hint}: name the column of subjects with --subject")


def every_page(kb: "OpenKnowledgeBase", subject: str = "subject") -> list[Row]:
    """A row for each page that may be answered with: its id, and its title as the subject."""
    rows: list[Row] = []
    for shard in kb.shards:
        found = (
            shard.live_pages()
            if shard.shown is None
            else np.bincount(shard.paragraph_pages, shard.shown, len(shard.ids))
        )
        rows += [{"page_id": shard.ids[page], subject: shard.titles[page]} for page in np.flatnonzero(found).tolist()]
    return rows
