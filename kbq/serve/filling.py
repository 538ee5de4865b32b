"""Filling: ask slots and fill tables for all routes, a few queries at a time.

The claims are those of `kbq fill`.
"""

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any

from fastapi import Depends, Request

import kbq
from kbq.answers import N_RERANKED, TOP, Answer, SearchOptions
from kbq.kb import KnowledgeBase
from kbq.search.search import BATCH
from kbq.serve.batcher import Batcher
from kbq.serve.guard import ServeSettings
from kbq.serve.knowledge_bases import KnowledgeBases, ServedKb
from kbq.serve.problems import Metrics, OverloadedError
from kbq.tables.claims import Claim, Source
from kbq.tables.deciding import Decider
from kbq.tables.fill import Filling
from kbq.tables.options import MIN_PROBABILITY, FillOptions
from kbq.tables.outputs import fact, views
from kbq.tables.relations import Relation, Slot, relations_of
from kbq.tables.run import AnswerCache
from kbq.tables.tables import Row, Table, subject_of

SEARCH = SearchOptions(N_RERANKED, "phrase")  # as `kbq fill` searches
TOGETHER = 4  # queries of a table that are asked before other requests have their turn
TABLES = 16  # that are filled at once


class SlotFiller:
    """Fills slots from one knowledge base."""

    def __init__(self, served: ServedKb, batcher: Batcher) -> None:
        self.served, self._batcher = served, batcher

    @property
    def min_probability(self) -> float:
        """Below which a value is not accepted, unless told otherwise; 0 where nothing says how likely it is."""
        return 0.0 if self.served.kb.searcher.plan(SEARCH).calibration is None else MIN_PROBABILITY

    async def claims(self, slots: Sequence[Slot], pages: Sequence[str] = ()) -> list[list[Claim]]:
        """Return the accepted claims of each slot or, where there is none, the best guess, if any.

        Slots that the encoder cannot read have no claims. Relations have thresholds of their own, or `min_probability`.
        `pages`: for each slot, the id of the page that alone is listened to; none: all pages are.
        """
        accepts = self.served.kb.model.query_tokenizer.accepts
        queries = await asyncio.to_thread(lambda: [[text for text in slot.queries if accepts(text)] for slot in slots])
        texts = list(chain.from_iterable(queries))
        found: list[list[Answer]] = []
        for first in range(0, len(texts), BATCH):
            found += await self._batcher.ask(self.served, texts[first : first + BATCH], SEARCH)
        left = iter(found)
        answers = [[next(left) for _ in of_slot] for of_slot in queries]
        if pages:
            answers = [
                [[one for one in each if one.page_id == page_id] for each in of_slot]
                for of_slot, page_id in zip(answers, pages, strict=True)
            ]
        return await asyncio.to_thread(self._decided, slots, answers)

    def _decided(self, slots: Sequence[Slot], answers: Sequence[Sequence[list[Answer]]]) -> list[list[Claim]]:
        """Make the claims of each slot from the answers to each of its queries."""
        decider = Decider(self.served.kb.searcher.titles, self.min_probability, TOP, {})
        claims = [decider.claims(slot, of_slot) for slot, of_slot in zip(slots, answers, strict=True)]
        kept = iter(decider.consistent(list(chain.from_iterable(claims)), [slot.relation for slot in slots]))
        return [[next(kept) for _ in of_slot] for of_slot in claims]


class TableFiller:
    """Fills tables, some at once, through the thread that searches."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher, self._tables = batcher, 0  # that are being filled

    async def lines(
        self, kb: KnowledgeBase, rows: Sequence[Row], wanted: Sequence[Relation], options: FillOptions,
        ids: Mapping[str, str],
    ) -> AsyncGenerator[dict[str, Any], None]:  # fmt: skip
        """Yield a line for each empty cell, with its claims, as they are final, and in the end one with the table.

        Cells of rows with one subject are one: its line has the numbers of the rows, and of the relation. `kb`: the
        whole table is filled from it, even if its folder changes meanwhile. `ids`: Q-numbers of names. Raises
        KbqError if nothing can be asked, OverloadedError if too many tables are being filled.
        """
        if self._tables >= TABLES:
            raise OverloadedError(10)
        self._tables += 1
        try:
            places: dict[str, list[int]] = defaultdict(list)
            for number, row in enumerate(rows):
                places[subject_of(row.get(options.subject))].append(number)
            columns = {relation.name: number for number, relation in enumerate(wanted)}
            filling = await self._batcher.call(
                lambda: Filling(kb.searcher, Table.of(rows), relations_of(wanted), options, SEARCH, {})
            )
            batches = filling.batches(AnswerCache(kb.searcher.shards), TOGETHER)
            claims: list[Claim] = []
            source = Source(kbq.__version__, "", "", "kbq serve", datetime.now(UTC).isoformat(timespec="seconds"))
            while (batch := await self._batcher.call(lambda: next(batches, None), costs=2 * TOGETHER)) is not None:
                for slot, found in batch:
                    claims += found
                    empty = [number for number in places[slot.subject] if filling.is_empty(rows[number], slot.relation)]
                    place = {"rows": empty, "column": columns[slot.relation.name]}
                    yield _cell(slot, found, source, ids) | place
            yield _outcome(filling.finished(claims))
        finally:
            self._tables -= 1


def _cell(slot: Slot, claims: Sequence[Claim], source: Source, ids: Mapping[str, str]) -> dict[str, Any]:
    properties = {slot.relation.name: slot.relation.property} if slot.relation.property else {}
    return {
        "subject": slot.subject,
        "relation": slot.relation.name,
        "values": slot.relation.values,
        "claims": [claim.to_dict() for claim in claims],
        "triples": [f"{fact(claim, properties, ids)} ." for claim in claims],
        "views": [views(claim, source, slot.relation) for claim in claims],
    }


def _outcome(table: Table) -> dict[str, Any]:
    """Describe a filled table, and how much of it could be asked for."""
    counts = dataclasses.asdict(table.counts)
    names = ("rows", "cells", "queries", "filled", "unasked")
    return {"columns": table.columns, "rows": table.rows, "counts": {name: counts[name] for name in names}}


@dataclass(frozen=True, slots=True)
class Services:
    """The knowledge bases, the thread that searches them, and the metrics."""

    kbs: KnowledgeBases
    batcher: Batcher
    filler: TableFiller
    settings: ServeSettings
    metrics: Metrics

    def address(self, request: Request) -> str:
        """Return the address of the service, without a slash at the end."""
        return self.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")


async def _of(request: Request) -> Services:  # a plain function would be run in a thread
    services: Services = request.app.state.services
    return services


WithServices = Annotated[Services, Depends(_of)]
