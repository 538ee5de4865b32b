"""Fill: fill or check a table by asking for its cells, batch by batch. `kbq fill`."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, get_args

import kbq
from kbq.answers import Answer
from kbq.asking.searcher import Searcher
from kbq.dump.page_directory import Pages
from kbq.errors import KbqError, QueryError
from kbq.model.queries import ReadsQueries
from kbq.search.options import N_RERANKED, SearchOptions
from kbq.search.search import BATCH
from kbq.storage.paths import as_path
from kbq.storage.reports import Note, unheard
from kbq.storage.rows import RowFormat, empty_markers
from kbq.tables.claims import Claim, write_claims, written
from kbq.tables.deciding import (
    AROUND,
    Decided,
    Decider,
    Decision,
    disputed,
    judged_values,
    obeyed,
    obeyed_on_pages,
    read_decisions,
    without_cell,
    without_value,
)
from kbq.tables.lessons import Judged, learned
from kbq.tables.options import SUBJECT, FillOptions
from kbq.tables.outputs import table_format
from kbq.tables.relations import Relation, Slot, known_relations, relations_of
from kbq.tables.run import AnswerCache, FillRun
from kbq.tables.tables import (
    FillCounts,
    Row,
    Table,
    cell_text,
    column_like,
    is_empty,
    is_formula,
    note_guessed,
    read_table,
    refuse_unwritable,
    subject_column,
    subject_of,
    texts_of,
    write_table,
)
from kbq.tables.values import agree, is_same
from kbq.text.normal_forms import normalised
from kbq.text.queries import Query, relation_key

MOST_KEPT = 16 * BATCH  # slots with kept answers that are decided between two reports
# Slots that a dry run asks for before the clock runs, and then.
WARM_UP = 8
TIMED = 64
Verdict = Literal["agrees", "also said", "contradicts", "not found"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
# Columns of a verdict.
EVIDENCE = ("value", "probability", "page_id", "title", "paragraph", "start", "end", "sentence")
# Called with the numbers of slots done, of all, and of filled ones.
FillReport = Callable[[int, int, int], None]
PAGE_ID = "page_id"  # column of a table that names the page of its subject
NAMED = 10  # decisions without effect in notes
# Relations that are checked for typing errors, and columns that each is compared with.
HINTS = 20
COMPARED = 1000
# Least likeness of a relation to a column: one letter differs; "date of birth" is not "place of
# birth".
LIKENESS = 0.9


class Filling:
    """A table that is being filled or checked: its questions, and the table that the claims make of
    it.
    """

    def __init__(
        self,
        kb: Searcher,
        table: Table,
        relations: Sequence[Relation],
        options: FillOptions,
        search: SearchOptions,
        decisions: Decided,
    ) -> None:
        """Raise KbqError if nothing can be asked, or nothing would have a probability."""
        self._kb = kb
        self._table = table
        self._relations = relations
        self._options = options
        self._search = search
        self._decisions = decisions
        self._pages = Pages(kb.shards)
        threshold = options.threshold(kb, search)
        self._decider = Decider(kb.titles, threshold, options.top, decisions)
        self._undecided = Decider(kb.titles, threshold, 0, {})  # decides as if nobody had decided
        for relation in relations:
            if relation.min_probability is not None:
                kb.check(replace(search, min_probability=relation.min_probability))

        self.subject = options.subject or subject_column(
            table, lambda text: bool(kb.titles.pages(text)), [asked.name for asked in relations]
        )
        self._markers = empty_markers(options.empty)
        self._asked_for: dict[str, tuple[int, ...]] = {}  # numbers of relations, by subject
        # Ids of the pages of each subject that has several.
        self.namesakes: dict[str, tuple[str, ...]] = {}
        self.apart: dict[str, tuple[str, ...]] = {}  # pages that rows name, by subject, of these
        unasked = self._find_slots(kb.query_tokenizers(search))
        cells = [row.get(relation.name) for row in table.rows for relation in relations]
        filled = [cell for cell in cells if not is_empty(cell)]
        markers = [cell for cell in filled if is_empty(cell, self._markers)]
        queries = sum(len(slot.relation.query) for slot in self.slots)
        asked = sum(map(len, self._asked_for.values()))
        self.counts = FillCounts(
            len(table.rows), asked, queries, markers=len(markers), unasked=tuple(unasked)
        )
        self._asked = 0  # queries
        # Decisions that change nothing, as far as is known.
        self.useless = without_cell(decisions, self.slots)

    @property
    def slots(self) -> Iterator[Slot]:
        """Each subject, in the order of its first row, with the relations of its cells, each once."""
        return (
            Slot(name, self._relations[number])
            for name, numbers in self._asked_for.items()
            for number in numbers
        )

    def _find_slots(self, tokenizers: Sequence[ReadsQueries]) -> list[str]:
        """Find the cells that the options ask for; return the problems of rows that cannot be asked
        for.
        """
        subject = self.subject
        relations = self._relations
        self._table.refuse_without(subject)
        if any(relation.name == subject for relation in relations):
            raise KbqError(
                f"{subject!r} is the column of subjects, and cannot be filled itself: ask for "
                "other relations"
            )

        count = 0
        unasked = []
        for line, row in enumerate(self._table.rows, start=1):
            name = subject_of(row.get(subject))
            known = self._asked_for.get(name, ())
            more = self._wanted(row, known)
            if self._options.limit:
                more = more[: self._options.limit - count]
            queries: list[str] = []
            if name:
                for number in more:
                    queries += Slot(name, relations[number]).queries
            problems = (_problem(query, tokenizers) for query in queries)
            problem = next(filter(None, problems), "")
            if problem:
                unasked.append(f"row {line}: {problem}")
            elif name and more:
                self._asked_for[name] = tuple(sorted((*known, *more)))
                count += len(more)

            if name in self._asked_for:
                self._find_namesakes(name, row)

        if unasked and not count:
            raise KbqError("no subject can be asked for", unasked)
        if not count:
            raise KbqError(self._without_cells())

        return unasked

    def _wanted(self, row: Row, known: Sequence[int]) -> list[int]:
        """Return the numbers of the relations whose cell in a row is asked for, without known ones."""
        more = []
        for number, relation in enumerate(self._relations):
            if number in known:
                continue
            is_empty = self.is_empty(row, relation)
            if self._options.overwrite or is_empty != self._options.check:
                more.append(number)
        return more

    def _without_cells(self) -> str:
        """Return what to say if there is no cell to ask for."""
        cell = "an empty cell"
        instead = "--overwrite asks for all cells, and --check compares them"
        if self._options.overwrite:
            cell = "a cell"
            instead = "give the table some rows"
        elif self._options.check:
            cell = "a cell with a value"
            instead = "leave out --check"
        columns = ", ".join(repr(relation.name) for relation in self._relations)
        return f"no row has a subject and {cell} in {columns}: {instead}"

    def _find_namesakes(self, name: str, row: Row) -> None:
        """Note the pages of a subject's name, if there are several, and which of them a row names."""
        pages = self.namesakes.get(name, ())
        if not pages:
            pages = tuple(page.page_id for page in self._kb.titles.pages(name))
        if len(pages) < 2:
            return
        self.namesakes[name] = pages
        own = row.get(PAGE_ID)
        if own in pages:
            named = (*self.apart.get(name, ()), str(own))
            self.apart[name] = tuple(dict.fromkeys(named))

    def is_empty(self, row: Row, relation: Relation) -> bool:
        return is_empty(row.get(relation.name), self._markers)

    def claims(self, kept: AnswerCache, report: FillReport) -> list[Claim]:
        """Return the claims of all slots; ask for those without kept answers."""
        claims: list[Claim] = []
        done = filled = 0
        report(done, self.counts.cells, filled)
        for batch in self.batches(kept):
            for _, of_slot in batch:
                claims += of_slot
                filled += any(claim.accepted for claim in of_slot)
            done += len(batch)
            report(done, self.counts.cells, filled)
        return claims

    def batches(
        self, kept: AnswerCache, size: int | None = None
    ) -> Iterator[list[tuple[Slot, list[Claim]]]]:
        """Yield slots, some at a time, with their final claims; about `size` queries are asked at
        once.

        A claim may rule out another one of the same subject, so the slots of a subject come
        together, once all of them have answers.
        """
        size = size or self._kb.batch_size
        self._learn(kept)
        slots: list[Slot] = []
        missing: dict[str, None] = {}
        waiting: list[tuple[Slot, list[Claim]]] = []  # claims of a subject that has more slots
        left = self.counts.cells

        for slot in self.slots:
            slots.append(slot)
            for query in slot.queries:
                if query not in kept:
                    missing[query] = None
            left -= 1
            if left and len(missing) < size and len(slots) < MOST_KEPT:
                continue
            waiting += zip(slots, self._decided(slots, list(missing), kept), strict=True)
            own = sum(waiting_slot.subject == slot.subject for waiting_slot, _ in waiting)
            whole = len(waiting)
            if own < len(self._asked_for[slot.subject]):
                whole -= own
            yield self._final(waiting[:whole])
            slots = []
            missing = {}
            waiting = waiting[whole:]

    def _final(self, cells: Sequence[tuple[Slot, list[Claim]]]) -> list[tuple[Slot, list[Claim]]]:
        """Apply the rules of a row, and people's decisions, to the cells of whole subjects."""
        claims_of_all = [claim for _, claims in cells for claim in claims]
        kept = iter(self._decider.consistent(claims_of_all, self._relations, self.apart))
        normal = self._decider.normal
        final = []
        for slot, claims in cells:
            decided = self._decisions.get(slot.cell, {})
            consistent = list(islice(kept, len(claims)))
            if slot.subject in self.apart:
                obedient = obeyed_on_pages(consistent, slot, decided, normal)
            else:
                obedient = obeyed(consistent, slot, decided, normal)
            final.append((slot, obedient))
        return final

    def seconds(self) -> float:
        """Ask for some slots, and estimate the seconds for all."""
        workers = self._kb.batch_size // BATCH
        warm_up = workers * WARM_UP
        kept = AnswerCache(self._kb.shards)
        first = list(islice(self.slots, warm_up + workers * TIMED))
        timed = first[warm_up:] or first
        begun = 0.0
        for slots in (first[:warm_up], timed):
            begun = time.monotonic()
            queries = [query for slot in slots for query in slot.queries]
            self._decided(slots, queries, kept)
        return (time.monotonic() - begun) / len(timed) * self.counts.cells

    def _learn(self, kept: AnswerCache) -> None:
        """Ask for the cells that people decided on, and learn how likely other values of their
        relations are.
        """
        cells = []
        queries: dict[str, None] = {}
        for slot in self.slots:
            if slot.cell not in self._decisions or slot.subject in self.namesakes:
                continue
            cells.append(slot)
            for query in slot.queries:
                if query not in kept:
                    queries[query] = None
        self._ask(list(queries), kept)
        judged: dict[str, list[Judged]] = defaultdict(list)
        for slot in cells:
            claims = self._undecided.claims(slot, [kept[query] for query in slot.queries])
            takes_many = slot.relation.values == "many"
            judged[slot.relation.name] += judged_values(
                claims, self._decisions[slot.cell], takes_many
            )

        lessons = {}
        for name, values in judged.items():
            lesson = learned(values)
            if lesson is not None:
                lessons[name] = lesson
        self._decider.lessons = lessons
        taught = {name: lesson.decisions for name, lesson in lessons.items()}
        self.counts = replace(self.counts, taught=taught)

    def _ask(self, queries: Sequence[str], kept: AnswerCache) -> None:
        for first in range(0, len(queries), self._kb.batch_size):
            part = queries[first : first + self._kb.batch_size]
            results = self._kb.results(list(map(Query.of, part)), self._search)
            kept.add(part, [result.answers for result in results])
            self._asked += len(part)

    def _decided(
        self, slots: Sequence[Slot], missing: Sequence[str], kept: AnswerCache
    ) -> list[list[Claim]]:
        """Ask for what is missing, and return the claims of each slot."""
        self._ask(missing, kept)
        claims = []
        for slot in slots:
            answers = [kept[query] for query in slot.queries]
            texts = []
            for answer in chain.from_iterable(answers):
                first = max(0, answer.start - AROUND)
                texts.append(answer.context[first : answer.end + AROUND])
            self.useless += without_value(self._decisions.get(slot.cell, {}), texts)
            claims.append(self._claims_of_slot(slot, answers))

        return claims

    def _claims_of_slot(self, slot: Slot, answers: Sequence[Sequence[Answer]]) -> list[Claim]:
        """Return the claims of a slot, of each page that rows name if several have that name."""
        claims = []
        for page_id in self.apart.get(slot.subject, ("",)):
            claims += self._decider.claims(slot, answers, page_id)
        return claims

    def finished(self, claims: Sequence[Claim]) -> Table:
        """Return the table with the accepted values or, of a check, the verdicts.

        `claims`: all, in order.
        """
        table = self._table
        options = self._options
        by_slot: dict[tuple[str, str], list[Claim]] = defaultdict(list)
        for claim in claims:
            by_slot[claim.subject, claim.relation].append(claim)
        counts = replace(self.counts, asked=self._asked)
        if options.check:
            rows = list(self._verdicts(by_slot))
            counts = replace(counts, filled=sum(row["verdict"] == "agrees" for row in rows))
            return Table(
                ("subject", "relation", "present", "verdict", *EVIDENCE),
                rows,
                tuple(claims),
                counts,
            ).all_filled()

        accepted = {}
        for cell, of_cell in by_slot.items():
            said = [claim for claim in of_cell if claim.accepted]
            if said:
                accepted[cell] = said
        new = [relation.name for relation in self._relations if relation.name not in table.columns]
        rows = [self._filled(row, accepted) for row in table.rows]

        return Table(
            (*table.columns, *new),
            rows,
            tuple(claims),
            replace(counts, filled=len(accepted)),
            table,
        )

    def _verdicts(self, claims: Mapping[tuple[str, str], Sequence[Claim]]) -> Iterator[Row]:
        """Yield a row for each value in the table: the verdict on it, and its evidence."""
        for row in self._table.rows:
            subject = subject_of(row.get(self.subject))
            for relation in self._relations:
                claims_of_cell = claims.get((subject, relation.name), ())
                said = self._of_row(row, subject, claims_of_cell)
                if not said:
                    continue
                for present in texts_of(row.get(relation.name), self._markers):
                    verdict, claim = self._verdict(present, relation, said)
                    judged = {
                        "subject": subject,
                        "relation": relation.name,
                        "present": present,
                        "verdict": verdict,
                    }
                    yield judged | {key: getattr(claim, key, None) for key in EVIDENCE}

    def _of_row(self, row: Row, subject: str, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Return the claims of a cell that are of the page which a row names, if several have the
        subject's name.
        """
        if subject not in self.apart:
            return claims
        return [claim for claim in claims if claim.page_id == row.get(PAGE_ID) or claim.by_hand]

    def _verdict(
        self, present: str, relation: Relation, claims: Sequence[Claim]
    ) -> tuple[Verdict, Claim | None]:
        """Return the verdict on a value, and the claim that it rests on.

        A value on the same page as the claim may be as right ("actress and inventor"), so only a
        value that the page lacks is contradicted, and never if several values may be right.
        """
        titles = self._kb.titles
        accepted = [claim for claim in claims if claim.accepted]
        for claim in accepted:
            if is_same(present, claim, titles):
                return "agrees", claim

        for claim in claims:
            is_found = is_same(present, claim, titles)
            for other in claim.alternatives:
                is_found = is_found or agree(present, other.value, relation.name)
            if is_found or (claim.accepted and self._is_on_page(present, claim.page_id)):
                return "also said", claim

        if accepted and relation.values == "one":
            return "contradicts", accepted[0]
        return "not found", None

    def _is_on_page(self, value: str, page_id: str) -> bool:
        page = self._pages.page(page_id)
        if page is None:  # the value was typed
            return False
        words = f" {normalised(value)} "
        texts = (f" {normalised(paragraph.text)} " for paragraph in page.paragraphs)
        return any(words in text for text in texts)

    def _filled(self, row: Row, accepted: Mapping[tuple[str, str], Sequence[Claim]]) -> Row:
        """Return a row with the accepted values in its empty cells, or in all."""
        name = subject_of(row.get(self.subject))
        values: dict[str, Any] = {}
        for relation in self._relations:
            if not self._options.overwrite and not self.is_empty(row, relation):
                continue
            claims = self._of_row(row, name, accepted.get((name, relation.name), ()))
            if not claims:
                continue
            texts = [written(claim, self._options.dates) for claim in claims]
            if relation.values == "many":
                values[relation.name] = texts
            else:
                values[relation.name] = texts[0]
        if values:
            return dict(row) | values
        return row

    def description(self) -> dict[str, object]:
        """Return the facts that decide the answers, by their names in messages about differences."""
        facts = self._kb.facts(self._search)
        return {
            "knowledge base": facts.contents,
            "pages": facts.pages,
            "index": facts.index,
            "query encoder": facts.query_encoder,
            "backend": facts.backend,
            "weights": list(facts.weights),
            "reranker or calibration": facts.reranker,
            "answers": self._search.k,
            "version of kbq": kbq.__version__,
        }


def _problem(text: str, tokenizers: Sequence[ReadsQueries]) -> str:
    """Return why a query cannot be asked, or an empty string."""
    try:
        for tokenizer in tokenizers:
            tokenizer.ids_of(text)
    except QueryError as error:
        return error.typed
    return ""


@dataclass(frozen=True, slots=True)
class FillInputs:
    """What is filled, from which decisions, and where to, read before a knowledge base is opened."""

    table: Table | None  # None: a row for every page
    asked: Iterable[str | Relation]  # names as they were given
    relations: Sequence[Relation]
    decided: Decided
    out: Path | None
    format: RowFormat | None


def read_inputs(
    table: str | Path | Iterable[Row] | None,
    relations: Iterable[str | Relation],
    out: str | Path | None,
    options: FillOptions,
    note: Note = unheard,
) -> FillInputs:
    """Read all that `fill` needs besides a knowledge base; raise KbqError if some is wrong."""
    asked = relations
    if isinstance(relations, Iterable) and not isinstance(relations, str):
        asked = list(relations)
    wanted = relations_of(asked, options.values)
    given = None if table is None else _table(table, options.subject or SUBJECT, note)
    if given is not None and not given.rows:
        name = table if isinstance(table, str | Path) else "the table"
        raise KbqError(f"{name} has no rows: give it one for each subject")
    if given is not None and options.subject is not None:
        given.refuse_without(options.subject)
    if given is not None:
        wanted = _in_their_columns(wanted, given.columns)
    decided: Decided = {}
    if options.decisions is not None:
        decided = read_decisions(options.decisions, note)
    if out is None:
        return FillInputs(given, asked, wanted, decided, None, None)

    path = as_path(out, "out")
    if _is_same_file(path, table):
        raise KbqError(f"{path} is the table itself: choose another --out")
    format = table_format(path)
    if given is not None:
        refuse_unwritable(given, format)
    return FillInputs(given, asked, wanted, decided, path, format)


def fill(
    kb: Searcher,
    inputs: FillInputs,
    options: FillOptions,
    search: SearchOptions,
    *,
    command: str = "",
    note: Note = unheard,
    report: FillReport = unheard,
) -> Table:
    """Fill, or check, the cells of a table; see `KnowledgeBase.fill`."""
    wanted = inputs.relations
    decided = inputs.decided
    path = inputs.out
    format = inputs.format
    before = inputs.table
    if before is None:
        before = _pages_as_table(kb, options.subject or SUBJECT)
        if format is not None:
            refuse_unwritable(before, format)

    filling = Filling(kb, before, wanted, options, search, decided)
    if options.subject is None:
        note_guessed(filling.subject, note)
    _note_relations(kb, before, wanted, inputs.asked, note)
    _note_namesakes(filling, note)
    if filling.counts.markers:
        markers = ", ".join(filter(None, options.empty))
        note(
            f"{filling.counts.markers:,} cells were taken as empty, since they hold one of "
            f"{markers}: see --empty"
        )

    formulas = 0
    if inputs.table is not None:
        for row in before.rows:
            formulas += sum(is_formula(cell_text(cell)) for cell in row.values())
    if formulas and format in ("csv", "tsv"):
        note(
            f"{formulas:,} cells of the table look like formulas of a spreadsheet, and are "
            "written as they were"
        )

    many = [relation.name for relation in wanted if relation.values == "many"]
    _note_disputes(disputed(decided, many), note)
    if options.dry_run:
        seconds = filling.seconds()
        return replace(before, counts=replace(filling.counts, seconds=seconds))
    if path is None or format is None:
        claims = filling.claims(AnswerCache(kb.shards), report)
        _note_useless(filling.useless, note)
        return filling.finished(claims)

    run = FillRun(path, filling.description(), wanted, command, options.force)
    with run.answers(kb.shards, takes_over=options.decisions is not None) as kept:
        filled = filling.finished(filling.claims(kept, report))
        _note_useless(filling.useless, note)
        write_claims(run.claims, filled.claims)
        with run.table():
            formulas = write_table(filled, path, format)

    return replace(filled, counts=replace(filled.counts, formulas=formulas))


def best_known(
    kb: Searcher,
    relations: Sequence[Relation],
    pages: int,
    report: FillReport = unheard,
    expect: Callable[[FillCounts], None] = unheard,
) -> list[tuple[Relation, float, int]]:
    """Ask for relations of some pages from all over a knowledge base; return them, best answered
    first.

    Each comes with the share of the pages that have a likely value, and the number of pages.
    `expect` is called before with the number of queries and their estimated seconds.
    """
    rows = every_page(kb)
    options = FillOptions(top=0)
    search = SearchOptions(N_RERANKED, "phrase", purpose="cell")
    chosen = rows[:: max(1, len(rows) // pages)][:pages]
    inputs = read_inputs(chosen, relations, None, options)
    if expect is not unheard:
        trial = fill(kb, inputs, replace(options, dry_run=True), search)
        expect(trial.counts)
    table = fill(kb, inputs, options, search, report=report)
    likely: dict[str, set[str]] = defaultdict(set)
    chances: dict[str, list[float]] = defaultdict(list)
    for claim in table.claims:
        chances[claim.relation].append(claim.probability or 0)
        if claim.accepted:
            likely[claim.relation].add(claim.subject)

    means = {relation: sum(found) / len(found) for relation, found in chances.items()}

    def rank(relation: Relation) -> tuple[int, float]:
        return len(likely[relation.name]), means.get(relation.name, 0.0)

    known = []
    for relation in sorted(relations, key=rank, reverse=True):
        share = len(likely[relation.name]) / max(1, len(chosen))
        known.append((relation, share, len(chosen)))
    return known


def every_page(kb: Searcher, subject: str = SUBJECT) -> list[Row]:
    """Return a row for each page that may be an answer: its id, and its title as the subject."""
    names = Pages(kb.shards).visible_names()
    return [{PAGE_ID: page_id, subject: title} for page_id, title in names]


def _is_same_file(path: Path, table: object) -> bool:
    """Whether a table was read from the file at a path."""
    if not isinstance(table, str | Path):
        return False
    return path.exists() and Path(table).exists() and path.samefile(table)


def _table(table: str | Path | Iterable[Row], subject: str, note: Note) -> Table:
    """Return the table in a file, a list or a data frame."""
    if isinstance(table, str | Path):
        return read_table(as_path(table, "the table"), note)
    if isinstance(table, Table):
        return table
    return Table.of_frame(table, subject) or Table.of(table)


def _in_their_columns(relations: Sequence[Relation], columns: Sequence[str]) -> list[Relation]:
    """Return relations under the names of their columns, where these have other capitals or blanks."""
    taken = {relation.name for relation in relations}
    named = []
    for relation in relations:
        column = column_like(relation.name, columns)
        if column in taken:
            column = relation.name
        named.append(replace(relation, name=column))
    return named


def _pages_as_table(kb: Searcher, subject: str) -> Table:
    return Table((PAGE_ID, subject), every_page(kb, subject)).all_filled()


def _note_relations(
    kb: Searcher,
    table: Table,
    relations: Sequence[Relation],
    asked: Iterable[str | Relation],
    note: Note,
) -> None:
    """Note relations that may be mistyped, or that the pages and the encoder do not know."""
    columns = {normalised(column): column for column in table.columns[:COMPARED]}
    names = [relation.name for relation in known_relations()]
    for relation in relations[:HINTS]:
        near = get_close_matches(normalised(relation.name), columns, 1, LIKENESS)
        if near and relation.name not in table.columns:
            note(
                f"the table has no column {relation.name!r}, so it is added: did you mean "
                f"{columns[near[0]]!r}?"
            )
        for word in kb.unknown_words(Query.of(" ".join(relation.query))):
            alike = get_close_matches(relation_key(relation.query[0]), names, 1, LIKENESS)
            advice = "".join(f": did you mean {name!r}?" for name in alike if not near)
            note(f"no page has the word {word!r} of {relation.name!r}{advice}")

    untuned = kb.untuned_relations(
        f"x [SEP] {text}" for relation in relations for text in relation.query
    )
    if untuned:
        note(f"the query encoder was not tuned on {', '.join(map(repr, untuned))}")
    known = [named for named in relations if named.name in asked and named.property]
    if known:
        facts = ", ".join(
            f"{named.name!r} is {named.property}, of type {named.type}" for named in known
        )
        note(f"{facts}, as `kbq relations` prints; a file relations.toml may say otherwise")


def _note_namesakes(filling: Filling, note: Note) -> None:
    """Note subjects whose name is the title of several pages, unless rows name one of them."""
    unsure = {name: pages for name, pages in filling.namesakes.items() if name not in filling.apart}
    for name, pages in list(unsure.items())[:NAMED]:
        note(
            f"{len(pages)} pages are called {name!r:.80}, so none of its values is sure: "
            f"name one of them ({', '.join(pages)[:80]}) in a column {PAGE_ID!r}"
        )
    if len(unsure) > NAMED:
        note(f"… and {len(unsure) - NAMED:,} more subjects are called as several pages are")


def _note_disputes(disputes: Sequence[tuple[Decision, Decision]], note: Note) -> None:
    """Note cells on which people disagree: the last one is obeyed, and the others should know."""
    for first, last in disputes[:NAMED]:
        one, other = (
            f"{by.reviewer or 'somebody'} accepted {by.value!r:.80}" for by in (first, last)
        )
        note(
            f"{first.relation!r:.80} of {first.subject!r:.80}: {one}, and then {other}, which "
            "counts"
        )
    if len(disputes) > NAMED:
        note(f"… and {len(disputes) - NAMED:,} more cells with different decisions")


def _note_useless(decisions: Sequence[Decision], note: Note) -> None:
    """Note decisions that change nothing, as they may be mistyped, or of another table."""
    for decision in decisions[:NAMED]:
        cell = f"{decision.relation!r:.80} of {decision.subject!r:.80}"
        if decision.choice == "reject":
            note(
                f"{decision.value!r:.80}, rejected as {cell}, was not found for a cell that is "
                "asked for"
            )
        else:
            note(
                f"{decision.value!r:.80}, accepted as {cell}, is not written: no such cell is "
                "asked for"
            )

    if len(decisions) > NAMED:
        note(f"… and {len(decisions) - NAMED:,} more decisions change nothing")
