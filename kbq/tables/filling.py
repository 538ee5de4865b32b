"""Filling: slots are asked for, batch by batch; their claims become the values of the cells, or verdicts on them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from kbq.tables.cells import is_empty, subject_of, texts_of
from kbq.tables.checking import verdict_on
from kbq.tables.claims import Claim, written
from kbq.tables.deciding import Decider
from kbq.tables.decisions import Decided, obeyed, without_cell, without_value
from kbq.tables.options import FillOptions
from kbq.tables.relations import Relation
from kbq.tables.run import Kept
from kbq.tables.slots import Slot, Slots
from kbq.tables.tables import FillCounts, Row, Table

if TYPE_CHECKING:
    from kbq.asking import OpenKnowledgeBase
    from kbq.model.queries import QueryTokenizer

MOST_KEPT = 16 * BATCH  # slots with kept answers that are decided between two reports
WARM_UP, TIMED = 8, 64  # slots that a dry run asks for: before time is taken, and then
EVIDENCE = ("value", "probability", "page_id", "title", "paragraph", "start", "end", "sentence")  # of a verdict
FillReport = Callable[[int, int, int], None]  # called with the slots that are done, all of them, and those filled


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
        """Raise KbqError if nothing can be asked, or nothing would have a probability."""
        self._kb, self._table, self._relations, self._options, self._search = kb, table, relations, options, search
        self._decisions, self._pages = decisions, Pages(kb.shards)
        self._decider = Decider(kb.titles, options.threshold(kb, search), options.top, decisions)
        for relation in relations:
            if relation.min_probability is not None:
                kb.check(replace(search, min_probability=relation.min_probability))
        tokenizers = kb.query_tokenizers(search)
        self.slots = Slots(table, relations, options, lambda text: _problem(text, tokenizers))
        asked = [row.get(relation.name) for row in table.rows for relation in relations]
        self.counts = FillCounts(
            len(table.rows), self.slots.count, sum(len(slot.relation.query) for slot in self.slots),
            markers=sum(not is_empty(cell) and is_empty(cell, self.slots.markers) for cell in asked),
            unasked=tuple(self.slots.unasked),
        )  # fmt: skip
        self._asked = 0  # queries
        self.useless = without_cell(decisions, self.slots)  # decisions that change nothing, as far as is known

    def claims(self, kept: Kept, report: FillReport) -> list[Claim]:
        """Ask for the slots whose answers are not kept; return the claims of all."""
        claims: list[Claim] = []
        done = filled = 0
        report(done, self.slots.count, filled)
        for batch in self.batches(kept):
            claims += chain.from_iterable(batch)
            done += len(batch)
            filled += sum(any(claim.accepted for claim in found) for found in batch)
            report(done, self.slots.count, filled)
        return claims

    def batches(self, kept: Kept, size: int = BATCH) -> Iterator[list[list[Claim]]]:
        """Yield the claims of some slots after another; about `size` queries without kept answers are asked at once."""
        slots: list[Slot] = []
        missing: dict[str, None] = {}
        for slot in self.slots:
            slots.append(slot)
            missing |= dict.fromkeys(query for query in slot.queries if query not in kept)
            if len(missing) >= size or len(slots) >= MOST_KEPT:
                yield self._decided(slots, list(missing), kept)
                slots, missing = [], {}
        if slots:
            yield self._decided(slots, list(missing), kept)

    def seconds(self) -> float:
        """Ask for some slots; return about how long it takes to ask for all."""
        first, kept = list(islice(self.slots, WARM_UP + TIMED)), Kept(self._kb.shards)
        timed = first[WARM_UP:] or first
        begun = 0.0
        for slots in (first[:WARM_UP], timed):
            begun = time.monotonic()
            self._decided(slots, [query for slot in slots for query in slot.queries], kept)
        return (time.monotonic() - begun) / len(timed) * self.slots.count

    def _decided(self, slots: Sequence[Slot], missing: Sequence[str], kept: Kept) -> list[list[Claim]]:
        for first in range(0, len(missing), BATCH):
            queries = missing[first : first + BATCH]
            kept.add(queries, [result.answers for result in self._kb.results(queries, self._search)])
            self._asked += len(queries)
        claims = []
        for slot in slots:
            answers = [kept[query] for query in slot.queries]
            texts = [answer.text for found in answers for answer in found]
            self.useless += without_value(self._decisions.get(slot.cell, {}), texts)
            claims.append(self._decider.claims(slot, answers))
        return claims

    def finished(self, claims: Sequence[Claim]) -> Table:
        """Return the table with the values that were accepted; of a check, the verdicts."""
        table, options = self._table, self._options
        by_slot: dict[tuple[str, str], list[Claim]] = defaultdict(list)
        for claim in self._decider.consistent(claims, self._relations):
            by_slot[claim.subject, claim.relation].append(claim)
        for slot in self.slots:
            if slot.cell in self._decisions:
                decided = self._decisions[slot.cell]
                by_slot[slot.cell] = obeyed(by_slot[slot.cell], slot, decided, self._decider.normal)
        every = tuple(claim for slot in self.slots for claim in by_slot[slot.cell])
        counts = replace(self.counts, asked=self._asked)
        if options.check:
            rows = list(self._verdicts(by_slot))
            counts = replace(counts, filled=sum(row["verdict"] == "agrees" for row in rows))
            return Table(("subject", "relation", "present", "verdict", *EVIDENCE), rows, every, counts).all_filled()
        accepted = {cell: found for cell, found in by_slot.items() if found and found[0].accepted}
        new = [relation.name for relation in self._relations if relation.name not in table.columns]
        rows = [self._filled(row, accepted) for row in table.rows]
        return Table((*table.columns, *new), rows, every, replace(counts, filled=len(accepted)), table)

    def _verdicts(self, claims: Mapping[tuple[str, str], Sequence[Claim]]) -> Iterator[Row]:
        """Yield a row for each value in the table: the verdict on it, and what the text says, with its place."""
        for row in self._table.rows:
            subject = subject_of(row.get(self._options.subject))
            for relation in self._relations:
                said = claims.get((subject, relation.name), ())
                for present in texts_of(row.get(relation.name), self.slots.markers) if said else ():
                    verdict, claim = verdict_on(present, relation, said, self._kb.titles, self._texts)
                    judged = {"subject": subject, "relation": relation.name, "present": present, "verdict": verdict}
                    yield judged | {key: getattr(claim, key, None) for key in EVIDENCE}

    def _texts(self, page_id: str) -> list[str]:
        """Return the paragraphs of a page; none for a value that was typed."""
        place = self._pages.place(page_id)
        return [] if place is None else [one.text for one in self._kb.shards[place.shard].page(place.page).paragraphs]

    def _filled(self, row: Row, accepted: Mapping[tuple[str, str], Sequence[Claim]]) -> Row:
        name = subject_of(row.get(self._options.subject))
        values: dict[str, Any] = {}
        for relation in self._relations:
            found = accepted.get((name, relation.name))
            if found and (self._options.overwrite or self.slots.is_empty(row, relation)):
                texts = [written(claim, self._options.dates) for claim in found]
                values[relation.name] = texts if relation.values == "many" else texts[0]
        return dict(row) | values if values else row

    def description(self) -> dict[str, object]:
        """Return what decides the answers, by the words that name a difference."""
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
    """Return why a query cannot be asked; empty: it can."""
    try:
        for tokenizer in tokenizers:
            tokenizer.ids_of(text)
    except QueryError as error:
        return str(error)
    return ""
