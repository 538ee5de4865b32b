"""Fill: a table and relations become a filled or checked table with its claims, in memory or in files. `kbq fill`."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from kbq.answers import LOOKS, SearchOptions
from kbq.dump.page_directory import Pages
from kbq.errors import KbqError
from kbq.storage.files import as_path
from kbq.storage.progress import Note, unheard
from kbq.tables.cells import is_formula, shown
from kbq.tables.claims import write_claims
from kbq.tables.decisions import Decision, disputed, read_decisions
from kbq.tables.filling import Filling, FillReport
from kbq.tables.options import FillingKb, FillOptions
from kbq.tables.outputs import table_format
from kbq.tables.relations import Relation, relations_of
from kbq.tables.run import AnswerCache, FillRun
from kbq.tables.tables import FillCounts, Row, Table, read_table, refuse_unwritable, write_table
from kbq.text.letters import normalised

VIEWS = {".nt": "rdf", ".qs": "quickstatements", ".html": "review"}  # how the names of exports end
VIEWS |= dict.fromkeys((".long.csv", ".long.tsv", ".long.parquet", ".long.xlsx"), "long")
NAMED = 10  # decisions without effect
HINTS, COMPARED = 20, 1000  # relations that are looked at, and columns that each is compared with
LIKENESS = 0.9  # of a relation to a column: one letter differs; "date of birth" is not "place of birth"


def fill(
    kb: FillingKb,
    table: str | Path | Iterable[Row] | None,
    relations: Iterable[str | Relation],
    out: str | Path | None,
    options: FillOptions,
    search: SearchOptions,
    *,
    command: str = "",
    note: Note = unheard,
    report: FillReport = unheard,
) -> Table:
    """Fill, or check, the cells of a table; see `KnowledgeBase.fill`."""
    asked = list(relations) if isinstance(relations, Iterable) and not isinstance(relations, str) else relations
    wanted, before = relations_of(asked, options.values), _table(kb, table, options.subject, note)
    decided = {} if options.decisions is None else read_decisions(options.decisions)
    format, path = None, None if out is None else as_path(out, "out")
    if path is not None:
        if isinstance(table, str | Path) and path.exists() and Path(table).exists() and path.samefile(table):
            raise KbqError(f"{path} is the table itself: choose another --out")
        _refuse_view(path)
        format = table_format(path)
        refuse_unwritable(before, format)
    filling = Filling(kb, before, wanted, options, search, decided)
    _note_mistyped(kb, before, wanted, note)
    _note_known([one for one in wanted if one.name in asked and one.property], note)
    if filling.counts.markers:
        markers = ", ".join(filter(None, options.empty))
        note(f"{filling.counts.markers:,} cells were taken as empty, since they hold one of {markers}: see --empty")
    formulas = 0 if table is None else sum(is_formula(shown(cell)) for row in before.rows for cell in row.values())
    if formulas and format in ("csv", "tsv"):
        note(f"{formulas:,} cells of the table look like formulas of a spreadsheet, and are written as they were")
    _note_disputes(disputed(decided, [one.name for one in wanted if one.values == "many"]), note)
    if options.dry_run:
        return replace(before, counts=replace(filling.counts, seconds=filling.seconds()))
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


def _refuse_view(path: Path) -> None:
    """Raise KbqError if a name ends like that of an export, which earlier versions wrote at once."""
    for ending, to in VIEWS.items():
        if path.name.lower().endswith(ending):
            name = path.name[: -len(ending)]
            view = f"`kbq export {name}.claims.jsonl --to {to} --out {path.name}`"
            raise KbqError(f"{path} is a view of claims: fill a table such as {name}.csv, then run {view}")


def best_known(
    kb: FillingKb, relations: Sequence[Relation], pages: int, report: FillReport = unheard,
    expect: Callable[[FillCounts], None] = unheard,
) -> list[tuple[Relation, float, int]]:  # fmt: skip
    """Ask for relations of some pages from all over a knowledge base; those that are answered best come first.

    Each comes with the share of the pages that have a likely value, and the number of pages asked for. `expect` is
    called before with the number of queries, and about how many seconds they take.
    """
    rows, search, options = every_page(kb), SearchOptions(LOOKS, "phrase"), FillOptions(top=0)
    chosen = rows[:: max(1, len(rows) // pages)][:pages]
    if expect is not unheard:
        expect(fill(kb, chosen, relations, None, replace(options, dry_run=True), search).counts)
    table = fill(kb, chosen, relations, None, options, search, report=report)
    likely: dict[str, set[str]] = defaultdict(set)
    chances: dict[str, list[float]] = defaultdict(list)
    for claim in table.claims:
        chances[claim.relation].append(claim.probability or 0)
        if claim.accepted:
            likely[claim.relation].add(claim.subject)
    means = {relation: sum(found) / len(found) for relation, found in chances.items()}
    ranked = sorted(relations, key=lambda one: (len(likely[one.name]), means.get(one.name, 0.0)), reverse=True)
    return [(one, len(likely[one.name]) / max(1, len(chosen)), len(chosen)) for one in ranked]


def every_page(kb: FillingKb, subject: str = "subject") -> list[Row]:
    """Return a row for each page that may be answered with: its id, and its title as the subject."""
    return [{"page_id": page_id, subject: title} for page_id, title in Pages(kb.shards).shown()]


def _table(kb: FillingKb, table: str | Path | Iterable[Row] | None, subject: str, note: Note) -> Table:
    """Read a table, or take the rows of a list or data frame; without one, take every page's title and id."""
    if isinstance(table, str | Path):
        return read_table(as_path(table, "the table"), note)
    if table is None:
        return Table(("page_id", subject), every_page(kb, subject)).all_filled()
    return table if isinstance(table, Table) else Table.of_frame(table, subject) or Table.of(table)


def _note_mistyped(kb: FillingKb, table: Table, relations: Sequence[Relation], note: Note) -> None:
    """Say which relations may be mistyped."""
    columns = {normalised(column): column for column in table.columns[:COMPARED]}
    for relation in relations[:HINTS]:
        near = get_close_matches(normalised(relation.name), columns, 1, LIKENESS)
        if near and relation.name not in table.columns:
            note(f"the table has no column {relation.name!r}, so it is added: did you mean {columns[near[0]]!r}?")
        for word in kb.unknown_words(" ".join(relation.query)):
            note(f"no page has the word {word!r} of {relation.name!r}")
    untuned = kb.untuned_relations(f"x [SEP] {text}" for relation in relations for text in relation.query)
    if untuned:
        note(f"the query encoder was not tuned on {', '.join(map(repr, untuned))}")


def _note_known(relations: Sequence[Relation], note: Note) -> None:
    """Say which plain names are those of known relations: this gives them a type and a property."""
    if relations:
        facts = ", ".join(f"{one.name!r} is {one.property}, of type {one.type}" for one in relations)
        note(f"{facts}, as `kbq relations` prints; a file relations.toml may say otherwise")


def _note_disputes(disputes: Sequence[tuple[Decision, Decision]], note: Note) -> None:
    """Name cells on which people disagree: the last one is obeyed, and the others should know."""
    for first, last in disputes[:NAMED]:
        one, other = (f"{by.reviewer or 'somebody'} accepted {by.value!r:.80}" for by in (first, last))
        note(f"{first.relation!r:.80} of {first.subject!r:.80}: {one}, and then {other}, which counts")
    if len(disputes) > NAMED:
        note(f"… and {len(disputes) - NAMED:,} more cells with different decisions")


def _note_useless(decisions: Sequence[Decision], note: Note) -> None:
    """Name decisions that change nothing: they may be mistyped, or of another table."""
    for decision in decisions[:NAMED]:
        cell = f"{decision.relation!r:.80} of {decision.subject!r:.80}"
        if decision.choice == "reject":
            note(f"{decision.value!r:.80}, rejected as {cell}, was not found for a cell that is asked for")
        else:
            note(f"{decision.value!r:.80}, accepted as {cell}, is not written: no such cell is asked for")
    if len(decisions) > NAMED:
        note(f"… and {len(decisions) - NAMED:,} more decisions change nothing")
