"""Fill: a table and relations become claims, batch by batch, and these the values of its empty cells."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import kbq
from kbq.answers import TOP, SearchOptions
from kbq.dump.manifest import MANIFEST
from kbq.errors import KbqError, QueryError
from kbq.filling.checking import COLUMNS, checked
from kbq.filling.claims import Claim
from kbq.filling.deciding import Decider, Decisions, read_decisions
from kbq.filling.outputs import Format, format_of, refuse_unfit, write
from kbq.filling.relations import Relation, Values, relations_of
from kbq.filling.run import Progress, Run
from kbq.filling.slots import Slot, Slots, Wanted, subject_of
from kbq.filling.tables import Counts, Row, Table, is_empty, read_table
from kbq.filling.titles import Titles
from kbq.filling.values import normalised
from kbq.filling.wikidata import read_ids
from kbq.searching.search import BATCH
from kbq.system.callbacks import Note, unheard
from kbq.system.files import file_digest
from kbq.system.paths import as_path
from kbq.system.records import digest_of_bytes

if TYPE_CHECKING:
    from kbq.encoding.queries import QueryTokenizer
    from kbq.kb import KnowledgeBase

MIN_PROBABILITY = 0.5
LIKENESS = 0.9  # of a relation to a column: one letter differs; "date of birth" is not "place of birth"
WARM_UP, TIMED = 8, 64  # slots that a dry run asks for: before time is taken, and then
Report = Callable[[int, int, int], None]  # called with the slots that are done, all of them, and those filled


@dataclass(frozen=True, slots=True)
class FillOptions:
    """What may be asked for beside the search; see `kbq fill --help`.

    Raises:
        KbqError: a value that has no meaning, or two that exclude each other.
    """

    subject: str = "subject"  # the column
    values: Values = "one"  # of relations that are given by name
    min_probability: float | None = None  # None: MIN_PROBABILITY
    precision: float | None = None  # instead of it: the threshold is what the calibration promises this for
    top: int = TOP  # alternatives of a cell
    limit: int = 0  # cells that are asked for; 0: all
    overwrite: bool = False
    check: bool = False

    def __post_init__(self) -> None:
        if self.values not in ("one", "many"):
            raise KbqError(f"values is {self.values!r}: choose from one, many", is_usage=True)
        for name, count in (("top", self.top), ("limit", self.limit)):
            if type(count) is not int or count < 0:
                raise KbqError(f"{name} is {count!r}, must be 0 or more", is_usage=True)
        if self.min_probability is not None and self.precision is not None:
            raise KbqError("min_probability and precision are two thresholds: leave one of them out", is_usage=True)
        if self.overwrite and self.check:
            raise KbqError("check changes no cell, so overwrite has no effect: leave one of them out", is_usage=True)

    def threshold(self, kb: KnowledgeBase, search: SearchOptions) -> float:
        """The probability above which an answer fills a cell.

        Raises:
            QueryError: answers have no probability here, or the precision cannot be promised.
        """
        if self.precision is None:
            least = MIN_PROBABILITY if self.min_probability is None else self.min_probability
            kb.check(replace(search, min_probability=least))
            return least
        calibration = kb.calibration(replace(search, min_probability=MIN_PROBABILITY))
        thresholds = calibration.thresholds.items() if calibration else ()
        promised = {float(precision): threshold for precision, threshold in thresholds}
        if self.precision not in promised:
            known = ", ".join(map(str, sorted(promised)))
            raise QueryError(f"precision is {self.precision}, the calibration knows thresholds for {known}: choose one")
        threshold = promised[self.precision]
        if threshold is None:
            raise QueryError(
                f"no threshold of the calibration promises a precision of {self.precision}: calibrate with more "
                "triples (`kbq calibrate`), or choose a lower one"
            )
        return threshold


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
        self._decisions, self._titles = decisions, Titles(kb.shards)
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

    def batches(self, done: int) -> Iterator[list[list[Claim]]]:
        """The claims of the slots behind those that are done, by slot."""
        left = islice(self.slots, done, None)
        while batch := list(islice(left, BATCH)):
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
            "second look or calibration": kb.judging(search),
            "version of kbq": kbq.__version__,
        }


def fill(
    kb: KnowledgeBase,
    table: str | Path | Iterable[Row] | None,
    relations: Iterable[str | Relation],
    out: str | Path | None,
    options: FillOptions,
    search: SearchOptions,
    *,
    decisions: str | Path | None = None,
    format: Format | None = None,
    ids: str | Path | None = None,
    dry_run: bool = False,
    command: str = "",
    note: Note = unheard,
    report: Report = unheard,
) -> Table:
    """Fill, or check, the cells of a table; see `KnowledgeBase.fill`."""
    wanted, before = relations_of(relations, options.values), _table(kb, table, options.subject)
    decided = {} if decisions is None else read_decisions(as_path(decisions, "decisions"))
    numbers = {} if ids is None else read_ids(as_path(ids, "ids"))
    path = None if out is None else as_path(out, "out")
    if path is not None:
        format = format_of(path, format, options.check, ids is not None)
        refuse_unfit(before, format)
    filling = Filling(kb, before, wanted, options, search, decided)
    _hint(kb, before, wanted, note)
    if dry_run:
        return replace(before, counts=replace(filling.counts, seconds=filling.seconds()))
    if path is None or format is None:
        progress = Progress()
        _ask(filling, progress, report)
        return filling.finished(progress.claims)
    run = Run(path, filling.description(), {"format": format, "ids": sorted(numbers.items())}, command)
    claims = run.claims()
    if claims is None:
        with run.going_on() as progress:
            _ask(filling, progress, report)
        claims = progress.claims
    filled = filling.finished(claims)
    if path.exists():
        return filled
    run.begin_output()
    return write(filled, path, format, run.source, wanted, numbers)


def _ask(filling: Filling, progress: Progress, report: Report) -> None:
    filled = len({(claim.subject, claim.relation) for claim in progress.claims if claim.accepted})
    report(progress.slots, filling.slots.count, filled)
    for batch in filling.batches(progress.slots):
        progress.add(batch)
        filled += sum(bool(claims) and claims[0].accepted for claims in batch)
        report(progress.slots, filling.slots.count, filled)


def _table(kb: KnowledgeBase, table: str | Path | Iterable[Row] | None, subject: str) -> Table:
    """A table that is read, or given; where there is none, every page's title with its id."""
    if isinstance(table, str | Path):
        return read_table(as_path(table, "the table"))
    if table is not None:
        return Table.of(table)
    rows: list[Row] = []
    for shard in kb.shards:
        found = (
            shard.live_pages()
            if shard.shown is None
            else np.bincount(shard.paragraph_pages, shard.shown, len(shard.ids))
        )
        rows += [{"page_id": shard.ids[page], subject: shard.titles[page]} for page in np.flatnonzero(found).tolist()]
    return Table(("page_id", subject), rows)


def _problem(text: str, tokenizers: Sequence[QueryTokenizer]) -> str:
    """Why a query cannot be asked; empty: it can."""
    try:
        for tokenizer in tokenizers:
            tokenizer.ids_of(text)
    except QueryError as error:
        return str(error)
    return ""


def _hint(kb: KnowledgeBase, table: Table, relations: Sequence[Relation], note: Note) -> None:
    """Say which relations may be mistyped."""
    columns = {normalised(column): column for column in table.columns}
    for relation in relations:
        near = get_close_matches(normalised(relation.name), columns, 1, LIKENESS)
        if near and relation.name not in table.columns:
            note(f"the table has no column {relation.name!r}, so it is added: is {columns[near[0]]!r} meant?")
        for word, meant in kb.unknown_words(" ".join(relation.query)).items():
            note(f"no page has the word {word!r} of {relation.name!r}" + (f": is {meant!r} meant?" if meant else ""))
    untuned = kb.model.config.untuned_relations(f"x [SEP] {text}" for relation in relations for text in relation.query)
    if untuned:
        note(f"the query encoder was not tuned on {', '.join(map(repr, untuned))}")
