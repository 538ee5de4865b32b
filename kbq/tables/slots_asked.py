"""Filling: slots are asked for, batch by batch; their claims become the values of the cells, or verdicts on them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import kbq
from kbq.answers import SearchOptions
from kbq.dump.manifest import MANIFEST
from kbq.dump.page_directory import Pages
from kbq.errors import QueryError
from kbq.search.search import BATCH
from kbq.storage.files import file_digest
from kbq.storage.rows import empty_markers
from kbq.tables.checking import COLUMNS, checked
from kbq.tables.claims import Claim, written
from kbq.tables.consistency import consistent
from kbq.tables.deciding import Decider
from kbq.tables.decisions import Decided, obeyed, without_cell, without_value
from kbq.tables.kept import Kept
from kbq.tables.options import FillOptions
from kbq.tables.relations import Relation
from kbq.tables.slots import Slot, Slots, Wanted, subject_of
from kbq.tables.tables import FillCounts, Row, Table, is_empty

if TYPE_CHECKING:
    from kbq.asking import OpenKnowledgeBase
    from kbq.model.queries import QueryTokenizer

MOST_KEPT = 16 * BATCH  # slots whose answers are there that are decided between two reports
WARM_UP, TIMED = 8, 64  # slots that a dry run asks for: before time is taken, and then


class Filling:
    """A table that is being filled, or checked: what is asked, and what the claims make of it."""

    def __init__(
        self,
        kb: OpenKnowledgeBase,
        table: Table,
        relations: Sequence[Relation],
        options: FillOptions,
        search: SearchOptions,
        decisions: Decided,
    ) -> None:
        """Raises KbqError where nothing can be asked, or nothing would have a probability."""
        self._kb, self._table, self._relations, self._options, self._search = kb, table, relations, options, search
        self._decisions, self._titles, self._pages = decisions, kb.titles, Pages(kb.shards)
        self._threshold, self._markers = options.threshold(kb, search), empty_markers(options.empty)
        for relation in relations:
            if relation.min_probability is not None:
                kb.check(replace(search, min_probability=relation.min_probability))
        self._decider = Decider(self._titles, self._threshold, options.top, decisions)
        tokenizers = kb.query_tokenizers(search)
        wanted: Wanted = "present" if options.check else "all" if options.overwrite else "empty"
        self.slots = Slots(
            table, relations, options.subject, wanted, options.limit, lambda text: _problem(text, tokenizers),
            self._markers,
        )  # fmt: skip
        asked = [row.get(relation.name) for row in table.rows for relation in relations]
        self.counts = FillCounts(
            len(table.rows), self.slots.count, self.slots.queries, unasked=tuple(self.slots.unasked),
            markers=sum(not is_empty(cell) and is_empty(cell, self._markers) for cell in asked),
        )  # fmt: skip
        self.asked = 0  # queries
        self.useless = without_cell(decisions, self.slots)  # decisions that change nothing, as far as is known

    def batches(self, kept: Kept, size: int = BATCH) -> Iterator[list[list[Claim]]]:
        """The claims of each slot, some slots at a time; so many queries without kept answers are asked together."""
        slots: list[Slot] = []
        missing: dict[str, None] = {}
        for slot in self.slots:
            slots.append(slot)
            missing |= dict.fromkeys(query for query in slot.queries if query not in kept)
            if len(missing) >= size or len(slots) >= MOST_KEPT:
                yield self._claims(slots, list(missing), kept)
                slots, missing = [], {}
        if slots:
            yield self._claims(slots, list(missing), kept)

    def seconds(self) -> float:
        """About how long it takes to ask for everything: some slots are asked."""
        first, kept = list(islice(self.slots, WARM_UP + TIMED)), Kept(self._kb.shards)
        timed = first[WARM_UP:] or first
        begun = 0.0
        for slots in (first[:WARM_UP], timed):
            begun = time.monotonic()
            self._claims(slots, [query for slot in slots for query in slot.queries], kept)
        return (time.monotonic() - begun) / len(timed) * self.slots.count

    def _claims(self, slots: Sequence[Slot], missing: Sequence[str], kept: Kept) -> list[list[Claim]]:
        for first in range(0, len(missing), BATCH):
            queries = missing[first : first + BATCH]
            kept.add(queries, [result.answers for result in self._kb.results(queries, self._search)])
            self.asked += len(queries)
        claims = []
        for slot in slots:
            answers = [kept[query] for query in slot.queries]
            rejected = self._decisions.get((slot.subject, slot.relation.name), {})
            self.useless += without_value(rejected, [answer.text for found in answers for answer in found])
            claims.append(self._decider.claims(slot, answers))
        return claims

    def finished(self, claims: Sequence[Claim]) -> Table:
        """The table with the values that were accepted; of a check, the verdicts."""
        table, options = self._table, self._options
        claims = consistent(claims, self._accepts)
        by_slot: dict[tuple[str, str], list[Claim]] = defaultdict(list)
        for claim in claims:
            by_slot[claim.subject, claim.relation].append(claim)
        claims = list(chain.from_iterable(self._obeyed(slot, by_slot) for slot in self.slots))
        if options.check:
            rows = checked(table, options.subject, self._relations, by_slot, self._titles, self._texts, self._markers)
            agreeing = sum(row["verdict"] == "agrees" for row in rows)
            verdicts = Table(COLUMNS, rows, tuple(claims), replace(self.counts, asked=self.asked, filled=agreeing))
            return verdicts.all_filled()
        accepted = {slot: found for slot, found in by_slot.items() if found and found[0].accepted}
        new = [relation.name for relation in self._relations if relation.name not in table.columns]
        rows = [self._filled(row, accepted) for row in table.rows]
        counts = replace(self.counts, asked=self.asked, filled=len(accepted))
        return Table((*table.columns, *new), rows, tuple(claims), counts, table)

    def _texts(self, page_id: str) -> list[str]:
        """The paragraphs of a page; none of a value by hand."""
        place = self._pages.place(page_id)
        return [] if place is None else [one.text for one in self._kb.shards[place.shard].page(place.page).paragraphs]

    def _obeyed(self, slot: Slot, claims: dict[tuple[str, str], list[Claim]]) -> list[Claim]:
        """The claims of a slot with what people decided on it, in their place."""
        cell = slot.subject, slot.relation.name
        if cell in self._decisions:
            claims[cell] = obeyed(claims[cell], slot, self._decisions[cell], self._decider.normal)
        return claims[cell]

    def _accepts(self, claim: Claim) -> bool:
        relation = next(one for one in self._relations if one.name == claim.relation)
        return self._decider.accepts(claim, relation)

    def _filled(self, row: Row, accepted: Mapping[tuple[str, str], Sequence[Claim]]) -> Row:
        name = subject_of(row.get(self._options.subject))
        values: dict[str, Any] = {}
        for relation in self._relations:
            found = accepted.get((name, relation.name))
            if found and (self._options.overwrite or is_empty(row.get(relation.name), self._markers)):
                texts = [written(claim, self._options.dates) for claim in found]
                values[relation.name] = texts if relation.values == "many" else texts[0]
        return dict(row) | values if values else row

    def description(self) -> dict[str, object]:
        """What decides the answers, by the words in which a difference is told."""
        kb, search = self._kb, self._search
        return {
            "knowledge base": file_digest(kb.folder / MANIFEST),
            "pages": kb.pages_digest,
            "index": kb.index.kind,
            "query encoder": kb.model.config.query_fingerprint,
            "backend": kb.chosen(search.backend),
            "weights": list(kb.weights(search)),
            "reranker or calibration": kb.judged_by(search),
            "answers": search.k,
            "version of kbq": kbq.__version__,
        }


def _problem(text: str, tokenizers: Sequence[QueryTokenizer]) -> str:
    """Why a query cannot be asked; empty: it can."""
    try:
        for tokenizer in tokenizers:
            tokenizer.ids_of(text)
    except QueryError as error:
        return str(error)
    return ""
