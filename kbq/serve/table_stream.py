"""Filling: subjects and relations become cells with claims, a few at a time, so that other requests are answered, too.

The claims are those of `KnowledgeBase.fill`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from kbq.answers import LOOKS, SearchOptions
from kbq.serve.problems import OverloadedError
from kbq.serve.turns import CLIENT
from kbq.tables.cells import subject_of
from kbq.tables.filling import Filling
from kbq.tables.rdf import fact
from kbq.tables.relations import Relation, relations_of
from kbq.tables.run import Kept
from kbq.tables.tables import Row, Table

if TYPE_CHECKING:
    from kbq.serve.batcher import Batcher
    from kbq.serve.knowledge_bases import ServedKb
    from kbq.tables.claims import Claim
    from kbq.tables.options import FillOptions

TOGETHER = 4  # queries of a table that are asked before other requests have their turn
TABLES, OF_ONE = 16, 8  # that are filled at once, and of one client


class Filler:
    """Fills tables, some at once, through the thread that searches."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher, self._tables = batcher, Counter[str]()  # that are being filled, by client

    async def lines(
        self, served: ServedKb, rows: Sequence[Row], wanted: Sequence[Relation], options: FillOptions
    ) -> AsyncGenerator[dict[str, Any], None]:
        """A line for each cell that is empty, with its claims and these as N-Triples; last, one with the table.

        Cells of rows with one subject are one: its line has the numbers of the rows, and of the relation.

        Raises:
            KbqError: nothing can be asked.
            OverloadedError: too many tables are being filled.
        """
        kb = served.kb  # the whole table is filled from one, even if it is replaced meanwhile
        search = SearchOptions(LOOKS, "phrase")
        client = CLIENT.get()
        if self._tables.total() >= TABLES or self._tables[client] >= OF_ONE:
            raise OverloadedError(10)
        self._tables[client] += 1
        try:
            places: dict[str, list[int]] = defaultdict(list)
            for number, row in enumerate(rows):
                places[subject_of(row.get(options.subject))].append(number)
            columns = {relation.name: number for number, relation in enumerate(wanted)}
            filling = await self._batcher.call(
                lambda: Filling(kb, Table.of(rows), relations_of(wanted), options, search, {})
            )
            slots, batches = iter(filling.slots), filling.batches(Kept(kb.shards), TOGETHER)
            claims: list[Claim] = []
            while (batch := await self._batcher.call(lambda: next(batches, None), costs=2 * TOGETHER)) is not None:
                for found in batch:
                    slot = next(slots)
                    claims += found
                    place = {"rows": places[slot.subject], "column": columns[slot.relation.name]}
                    yield cell(slot.subject, slot.relation.name, found) | place
            yield outcome(filling.finished(claims))
        finally:
            self._tables[client] -= 1
            self._tables += Counter()  # without those who fill none


def cell(subject: str, relation: str, claims: Sequence[Claim]) -> dict[str, Any]:
    """A cell: the claims that fill it or, where none is accepted, the best guess."""
    return {
        "subject": subject,
        "relation": relation,
        "claims": [claim.to_dict() for claim in claims],
        "triples": [f"{fact(claim, {}, {})} ." for claim in claims],
    }


def outcome(table: Table) -> dict[str, Any]:
    """A filled table, and how much of it could be asked for."""
    counts = dataclasses.asdict(table.counts)
    names = ("rows", "cells", "queries", "filled", "unasked")
    return {"columns": table.columns, "rows": table.rows, "counts": {name: counts[name] for name in names}}
