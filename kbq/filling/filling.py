"""Filling: slots are asked for, batch by batch; their claims become the values of the cells, or verdicts on them."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec

import kbq
from kbq.answers import SearchOptions
from kbq.dump.manifest import MANIFEST
from kbq.errors import QueryError
from kbq.filling.checking import COLUMNS, checked
from kbq.filling.claims import Claim
from kbq.filling.deciding import Decider, Decisions
from kbq.filling.options import FillOptions
from kbq.filling.relations import Relation
from kbq.filling.slots import Slot, Slots, Wanted, subject_of
from kbq.filling.tables import Counts, Row, Table, is_empty
from kbq.searching.search import BATCH
from kbq.system.files import file_digest
from kbq.system.records import digest_of_bytes

if TYPE_CHECKING:
    from kbq.encoding.queries import QueryTokenizer
    from kbq.kb import KnowledgeBase

WARM_UP, TIMED = 8, 64  # slots that a dry run asks for: before time is taken, and then


class Filling:
    """A table that is being filled, or checked: what is asked, and what the claims make of it."""

    def __init__(
        self,
        kb: KnowledgeBase,
        table: Table,
        relations: Sequence[Relation],
        options: FillOptions,
        search: SearchOptions,
        decisions: Decisions,
    ) -> None:
        """Raises KbqError where nothing can be asked, or nothing would have a probability."""
        self._kb, self._table, self._relations, self._options, self._search = kb, table, relations, options, search
        self._decisions, self._titles = decisions, kb.titles
        self._threshold = options.threshold(kb, search)
        for relation in relations:
            if relation.min_probability is not None:
                kb.check(replace(search, min_probability=relation.min_probability))
        self._decider = Decider(self._titles, self._threshold, options.top, decisions)
        tokenizers = kb.query_tokenizers(search)
        wanted: Wanted = "present" if options.check else "all" if options.overwrite else "empty"
        self.slots = Slots(
            table, relations, options.subject, wanted, options.limit, lambda text: _problem(text, tokenizers)
        )
        self.counts = Counts(len(table.rows), self.slots.count, self.slots.queries, unasked=tuple(self.slots.unasked))

    def batches(self, done: int, size: int = BATCH) -> Iterator[list[list[Claim]]]:
        """The claims of the slots behind those that are done, by slot; so many slots are asked together."""
        left = islice(self.slots, done, None)
        while batch := list(islice(left, size)):
            yield self._claims(batch)

    def seconds(self) -> float:
        """About how long it takes to ask for everything: some slots are asked."""
        first = list(islice(self.slots, WARM_UP + TIMED))
        self._claims(first[:WARM_UP])
        timed = first[WARM_UP:] or first
        begun = time.monotonic()
        self._claims(timed)
        return (time.monotonic() - begun) / len(timed) * self.slots.count

    def _claims(self, slots: Sequence[Slot]) -> list[list[Claim]]:
        queries = [query for slot in slots for query in slot.queries]
        parts = (queries[first : first + BATCH] for first in range(0, len(queries), BATCH))
        answers = chain.from_iterable(self._kb.search(part, self._search) for part in parts)
        return [self._decider.claims(slot, [next(answers) for _ in slot.queries]) for slot in slots]

    def finished(self, claims: Sequence[Claim]) -> Table:
        """The table with the values that were accepted; of a check, the verdicts."""
        table, options = self._table, self._options
        by_slot: dict[tuple[str, str], list[Claim]] = defaultdict(list)
        for claim in claims:
            by_slot[claim.subject, claim.relation].append(claim)
        if options.check:
            rows = checked(table, options.subject, self._relations, by_slot, self._titles)
            agreeing = sum(row["verdict"] == "agrees" for row in rows)
            return Table(COLUMNS, rows, tuple(claims), replace(self.counts, filled=agreeing))
        accepted = {slot: found for slot, found in by_slot.items() if found[0].accepted}
        new = [relation.name for relation in self._relations if relation.name not in table.columns]
        rows = [self._filled(row, accepted) for row in table.rows]
        counts = replace(self.counts, filled=len(accepted))
        return Table((*table.columns, *new), rows, tuple(claims), counts, table)

    def _filled(self, row: Row, accepted: Mapping[tuple[str, str], Sequence[Claim]]) -> Row:
        name = subject_of(row.get(self._options.subject))
        values: dict[str, Any] = {}
        for relation in self._relations:
            found = accepted.get((name, relation.name))
            if found and (self._options.overwrite or is_empty(row.get(relation.name))):
                texts = [claim.value for claim in found]
                values[relation.name] = texts if relation.values == "many" else texts[0]
        return dict(row) | values if values else row

    def description(self) -> dict[str, object]:
        """What decides the outcome, by the words in which a difference is told."""
        kb, search = self._kb, self._search
        options = {name.replace("_", " "): value for name, value in msgspec.to_builtins(self._options).items()}
        listing = hashlib.sha256()
        for row in (self._table.columns, *self._table.rows):
            listing.update(json.dumps(row, default=str).encode())
        return options | {
            "threshold": self._threshold,
            "table": listing.hexdigest()[:16],
            "relations": msgspec.to_builtins(self._relations),
            "decisions": digest_of_bytes(json.dumps(sorted(map(str, self._decisions.items()))).encode()),
            "knowledge base": file_digest(kb.folder / MANIFEST),
            "pages": kb.pages_digest,
            "index": kb.index.kind,
            "query encoder": kb.model.config.query_fingerprint,
            "backend": kb.chosen(search.backend),
            "weights": list(kb.weights(search)),
            "second look or calibration": kb.judged_by(search),
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
