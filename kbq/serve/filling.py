"""Filling: fill tables for all routes, a few queries at a time, with the claims of `kbq fill`."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

from fastapi import Depends, Request

from kbq.answers import Answer
from kbq.kb import KnowledgeBase
from kbq.search.options import N_RERANKED, SearchOptions
from kbq.search.search import BATCH
from kbq.serve.batcher import Batcher
from kbq.serve.knowledge_bases import KnowledgeBases, OpenedKb
from kbq.serve.metrics import Metrics
from kbq.serve.problems import OverloadedError
from kbq.serve.settings import ServeSettings
from kbq.tables.claims import Claim
from kbq.tables.deciding import Decider
from kbq.tables.fill import Filling
from kbq.tables.options import MIN_PROBABILITY, TOP, FillOptions
from kbq.tables.outputs import views
from kbq.tables.relations import Relation, Slot, relations_of
from kbq.tables.run import AnswerCache
from kbq.tables.tables import Row, Table, subject_of

SEARCH = SearchOptions(N_RERANKED, "phrase", purpose="cell")  # the search of `kbq fill`
TOGETHER = 4  # queries of a table before other requests have their turn
TABLES = 16  # filled at once


class SlotFiller:
    """Fills slots from one knowledge base."""

    def __init__(self, served: OpenedKb, batcher: Batcher) -> None:
        self.served = served
        self._batcher = batcher

    @property
    def min_probability(self) -> float:
        """The default threshold of values, which is 0 without a calibration."""
        if self.served.kb.searcher.plan(SEARCH).calibration is None:
            return 0.0
        return MIN_PROBABILITY

    async def claims(self, slots: Sequence[Slot], pages: Sequence[str] = ()) -> list[list[Claim]]:
        """Return the accepted claims of each slot or, if there is none, the best guess, if any.

        Slots that the encoder cannot read have no claims. The threshold is the relation's, or else
        `min_probability`. `pages`: for each slot, the id of the only page whose answers count; by
        default all pages count.
        """
        accepts = self.served.kb.model.query_tokenizer.accepts
        queries = await asyncio.to_thread(
            lambda: [[text for text in slot.queries if accepts(text)] for slot in slots]
        )
        texts = list(chain.from_iterable(queries))
        found: list[list[Answer]] = []
        for first in range(0, len(texts), BATCH):
            found += await self._batcher.ask(self.served, texts[first : first + BATCH], SEARCH)
        left = iter(found)
        answers = [[next(left) for _ in of_slot] for of_slot in queries]
        if pages:
            answers = [
                [[answer for answer in each if answer.page_id == page_id] for each in of_slot]
                for of_slot, page_id in zip(answers, pages, strict=True)
            ]

        return await asyncio.to_thread(self._decided, slots, answers, pages or [""] * len(slots))

    def _decided(
        self, slots: Sequence[Slot], answers: Sequence[Sequence[list[Answer]]], pages: Sequence[str]
    ) -> list[list[Claim]]:
        """Return the claims of slots, which the rules of a row have made consistent."""
        decider = Decider(self.served.kb.searcher.titles, self.min_probability, TOP, {})
        claims = [decider.claims(*of_slot) for of_slot in zip(slots, answers, pages, strict=True)]
        kept = iter(
            decider.consistent(list(chain.from_iterable(claims)), [slot.relation for slot in slots])
        )
        return [[next(kept) for _ in of_slot] for of_slot in claims]


class TableFiller:
    """Fills a few tables at once on the thread that searches."""

    def __init__(self, batcher: Batcher) -> None:
        # Tables that are being filled.
        self._batcher = batcher
        self._tables = 0

    async def lines(
        self,
        kb: KnowledgeBase,
        rows: Sequence[Row],
        asked: Sequence[Relation],
        options: FillOptions,
        ids: Mapping[str, str],
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a line for each empty cell with its final claims, and in the end one with the
        table.

        Rows with the same subject share a cell, whose line has their numbers. The whole table is
        filled from `kb`, even if its folder changes meanwhile. `ids`: Q-numbers of names.
        """
        if self._tables >= TABLES:
            raise OverloadedError(10)
        self._tables += 1
        try:
            places: dict[str, list[int]] = defaultdict(list)
            columns = {relation.name: number for number, relation in enumerate(asked)}
            filling = await self._batcher.call(
                lambda: Filling(
                    kb.searcher, Table.of(rows), relations_of(asked), options, SEARCH, {}
                )
            )
            for number, row in enumerate(rows):
                places[subject_of(row.get(filling.subject))].append(number)
            batches = filling.batches(AnswerCache(kb.searcher.shards), TOGETHER)
            claims: list[Claim] = []
            while (
                batch := await self._batcher.call(lambda: next(batches, None), costs=2 * TOGETHER)
            ) is not None:
                for slot, of_slot in batch:
                    claims += of_slot
                    empty = [
                        number
                        for number in places[slot.subject]
                        if filling.is_empty(rows[number], slot.relation)
                    ]
                    cells = {"rows": empty, "column": columns[slot.relation.name]}
                    yield _cell(slot, of_slot, ids) | cells

            table = filling.finished(claims)
            counts = {
                name: getattr(table.counts, name)
                for name in ("rows", "cells", "queries", "filled", "unasked")
            }
            yield {"columns": table.columns, "rows": table.rows, "counts": counts}
        finally:
            self._tables -= 1


def _cell(slot: Slot, claims: Sequence[Claim], ids: Mapping[str, str]) -> dict[str, Any]:
    """Return a cell as the API shows it."""
    written = [views(claim, slot.relation, ids) for claim in claims]
    return {
        "subject": slot.subject,
        "relation": slot.relation.name,
        "type": slot.relation.type,
        "values": slot.relation.values,
        "claims": [claim.to_dict() for claim in claims],
        "triples": [triple[0]["fact"] for triple in written],
        "views": written,
    }


@dataclass(frozen=True, slots=True)
class Services:
    """The knowledge bases, the thread that searches them, and the metrics."""

    kbs: KnowledgeBases
    batcher: Batcher
    filler: TableFiller
    settings: ServeSettings
    metrics: Metrics

    def address(self, request: Request) -> str:
        return self.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")


async def _of(request: Request) -> Services:  # a plain function would be run in a thread
    services: Services = request.app.state.services
    return services


WithServices = Annotated[Services, Depends(_of)]
