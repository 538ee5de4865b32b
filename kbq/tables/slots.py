"""Slots: a table and its relations become what is asked: each subject with the relations of its cells, once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from kbq.errors import KbqError
from kbq.storage.rows import empty_markers
from kbq.tables.cells import is_empty, subject_of
from kbq.tables.options import FillOptions
from kbq.tables.relations import Relation
from kbq.tables.tables import Row, Table

if TYPE_CHECKING:
    from kbq.asking import OpenKnowledgeBase


@dataclass(frozen=True, slots=True)
class Slot:
    """A subject and a relation."""

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


class Slots:
    """The slots of a table, subject by subject, in the order of the first row of each."""

    def __init__(
        self, table: Table, relations: Sequence[Relation], options: FillOptions, problem_of: Callable[[str], str]
    ) -> None:
        """Find the slots of the cells that the options ask for.

        Args:
            problem_of: says why a query cannot be asked; empty: it can.

        Raises:
            KbqError: the table has no such column of subjects, or no cell to ask for.
        """
        subject, wants_all, wants_empty = options.subject, options.overwrite, not options.check
        refuse_missing(table, subject)
        if any(relation.name == subject for relation in relations):
            raise KbqError(
                f"{subject!r} is the column of subjects, and cannot be filled itself: ask for other relations"
            )
        self._relations, self.markers = relations, empty_markers(options.empty)
        self._of: dict[str, tuple[int, ...]] = {}  # numbers of relations, by subject
        self.count = 0
        self.unasked: list[str] = []  # why the cells of some rows are not asked for
        for place, row in enumerate(table.rows, start=1):
            name = subject_of(row.get(subject))
            known = self._of.get(name, ())
            more = [
                number
                for number, relation in enumerate(relations)
                if number not in known and (wants_all or self.is_empty(row, relation) == wants_empty)
            ]
            more = more[: options.limit - self.count] if options.limit else more
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
            cell, instead = "an empty cell", "--overwrite asks for all cells, and --check compares them"
            if wants_all:
                cell, instead = "a cell", "give the table some rows"
            elif not wants_empty:
                cell, instead = "a cell with a value", "leave out --check"
            columns = ", ".join(repr(relation.name) for relation in relations)
            raise KbqError(f"no row has a subject and {cell} in {columns}: {instead}")

    def __iter__(self) -> Iterator[Slot]:
        return (Slot(name, self._relations[number]) for name, numbers in self._of.items() for number in numbers)

    def is_empty(self, row: Row, relation: Relation) -> bool:
        """Whether a row has no value of a relation."""
        return is_empty(row.get(relation.name), self.markers)


def refuse_missing(table: Table, subject: str) -> None:
    """Raise KbqError if a table has no such column."""
    if subject in table.columns:
        return
    near = get_close_matches(subject, table.columns[:1000], 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, table.columns[:20]))}"
    raise KbqError(f"the table has no column {subject!r} ({hint}): name the column of subjects with --subject")


def every_page(kb: "OpenKnowledgeBase", subject: str = "subject") -> list[Row]:
    """Return a row for each page that may be answered with: its id, and its title as the subject."""
    rows: list[Row] = []
    for shard in kb.shards:
        found = (
            shard.live_pages()
            if shard.shown is None
            else np.bincount(shard.paragraph_pages, shard.shown, len(shard.ids))
        )
        rows += [{"page_id": shard.ids[page], subject: shard.titles[page]} for page in np.flatnonzero(found).tolist()]
    return rows
