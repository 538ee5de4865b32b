"""Fill: the commands of tables, from `kbq fill` to `kbq export`."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kbq.answers import counted, percent
from kbq.commands.options import (
    FILL,
    AskedKb,
    Device,
    Json,
    TunedModel,
    fields_of,
    note_place,
    output_path,
    refuse_given,
    takes,
)
from kbq.commands.terminal import note, print_file, tell, typed_command
from kbq.progress import Bar
from kbq.search.options import RankKwargs, SearchOptions
from kbq.tables.options import FillOptions

if TYPE_CHECKING:
    from kbq.tables.tables import FillCounts, Table

app = typer.Typer()
FILL_OPTIONS = FillOptions()
SEARCH = SearchOptions()
KB = AskedKb()
# Options of a search that a table has, too.
RANKING = ("backend", *RankKwargs.__annotations__, "calibration")
PRINTED = "-"  # instead of the name of a file
NAMED = 10  # rows that cannot be asked for


def spread(words: Sequence[str], option: str) -> list[str]:
    """Return a command line in which the option is repeated before each of its values.

    >>> spread(["t.csv", "--relations", "born", "died", "--out", "o.csv"], "--relations")
    ['t.csv', '--relations', 'born', '--relations', 'died', '--out', 'o.csv']
    """
    spread_words: list[str] = []
    inside = False
    for word in words:
        inside = word == option or (inside and not word.startswith("-"))
        if inside and word != option and spread_words[-1] != option:
            spread_words.append(option)
        spread_words.append(word)
    return spread_words


class FillCommand(TyperCommand):
    """A command whose `--relations` takes all words until the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args, "--relations"))


@app.command(cls=FillCommand, rich_help_panel=FILL)
@takes(FillOptions)
@takes(AskedKb)
@takes(SearchOptions, *RANKING)
def fill(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(
            help="CSV, TSV, JSON lines, Parquet or XLSX; - for standard input.", show_default=False
        ),
    ] = None,
    relations: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME…",
            help=(
                "Columns to fill, a file relations.toml, or known relations such as @people, up "
                "to the next option."
            ),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=lambda path: path if str(path) == PRINTED else output_path(path),
            help="The filled table, in the format of its ending; - prints it and keeps nothing.",
        ),
    ] = None,
    subjects_from_kb: Annotated[
        bool,
        typer.Option(
            "--subjects-from-kb",
            help="Instead of a table, take the title of every page as a subject.",
        ),
    ] = False,
    options: FillOptions = FILL_OPTIONS,
    empty: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT,…",
            show_default="NA,N/A,NaN,null,-,…",
            help=(
                "Texts that stand for no value, separated by commas; '': only empty cells are "
                "empty."
            ),
        ),
    ] = None,
    asked: AskedKb = KB,
    search: SearchOptions = SEARCH,
    as_json: Json = False,
) -> None:
    """Fill the empty cells of a table from the text, if a value is likely enough. A killed run
    resumes.

    Beside filled.csv, filled.claims.jsonl has every value with its probability and its place in the
    text, for `kbq export`. The answers are kept, too: with another threshold, decisions, or one
    more column or row, only missing answers are asked for.
    """
    if (table is None) != subjects_from_kb:
        taken = next((name for name in relations or () if Path(name).suffix), None)
        advice = (
            f": {taken} was taken as a relation, so write it before --relations" if taken else ""
        )
        raise typer.BadParameter(
            f"give either a table or --subjects-from-kb{advice}", param_hint="TABLE"
        )

    if out is None and not options.dry_run:
        raise typer.BadParameter(
            "give the file to write, such as --out filled.csv", param_hint="--out"
        )

    if options.dry_run:
        refuse_given(context, "with --dry-run", ("out",))
    if str(out) == PRINTED:
        refuse_given(context, "with --out -", ("force",))
        if as_json:
            raise typer.BadParameter(
                "has no place beside a printed table: leave it out", param_hint="--json"
            )

    if empty is not None:
        options = replace(
            options, empty=tuple(filter(None, (text.strip() for text in empty.split(","))))
        )

    from tempfile import TemporaryDirectory

    from kbq.storage.rows import SUFFIXES

    asked.note_sample()
    kb = asked.open(lazy=True)  # what is wrong with a table is said before networks are opened
    verb = "checking" if options.check else "filling"
    with TemporaryDirectory() as folder, Bar(f"{verb} {table or kb.folder}") as bar:
        ending = Path(table or "").suffix.lower()
        printed_as = ending if SUFFIXES.get(ending) in ("tsv", "jsonl") else ".csv"
        written = Path(folder, f"table{printed_as}") if str(out) == PRINTED else out
        words = {name: getattr(search, name) for name in RANKING}
        filled = kb.fill(
            table,
            relations or (),
            written,
            command=typed_command(),
            note=note,
            report=bar.cells,
            **fields_of(options),
            **words,
        )
        printed = None
        if written and written != out:
            printed = written.read_bytes()

    note_place(kb)
    _note_left_out(filled.counts.unasked, filled.counts.formulas)
    if printed is None:
        tell(
            _facts(filled, out, options.check),
            as_json,
            *_lines(filled, out, options.check),
        )
    else:
        print_file(printed)


def _note_left_out(unasked: Sequence[str], formulas: int) -> None:
    """Name rows that could not be asked for, and count values that could not be written as they
    are.
    """
    for problem in unasked[:NAMED]:
        note(f"{problem}; its cells stay as they are")
    if len(unasked) > NAMED:
        note(f"… and {len(unasked) - NAMED:,} more rows")
    if formulas:
        note(f"{formulas:,} values look like formulas of a spreadsheet: each gets an apostrophe")


def _lines(filled: "Table", out: Path | None, check: bool) -> list[str]:
    """Say how many cells were filled, or what a check found."""
    counts = filled.counts
    asked = f"{counted(counts.cells, 'cell')} of {counted(counts.rows, 'row')}"
    if counts.seconds is not None:
        return [f"{asked}: {counts.queries:,} queries, about {_duration(counts.seconds)}"]
    if not check:
        known = ""
        if counts.asked < counts.queries:
            known = f"; {counts.queries - counts.asked:,} of {counts.queries:,} answers were there"
        done = f"{counts.filled:,} of {asked} filled ({percent(counts.filled / counts.cells)})"
        return [
            f"{out}: {done}{known}{_taught(counts.taught)}",
            *_relation_lines(_by_relation(filled)),
        ]

    from kbq.tables.fill import VERDICTS

    verdicts = [row["verdict"] for row in filled.rows]
    found = ", ".join(f"{verdict}: {verdicts.count(verdict):,}" for verdict in VERDICTS)
    return [f"{out}: {counted(len(verdicts), 'value')} of {counted(counts.rows, 'row')}: {found}"]


def _taught(decisions: Mapping[str, int]) -> str:
    """Say which relations learned from decisions, and how to undo it."""
    if not decisions:
        return ""
    learned = ", ".join(f"{name} from {count:,}" for name, count in decisions.items())
    return f"; decisions taught how sure to be of {learned} (a run without --decisions undoes it)"


def _by_relation(filled: "Table") -> dict[str, dict[str, Any]]:
    """Count the filled and the empty cells of each relation, and average the probabilities."""
    accepted: dict[str, dict[str, float | None]] = {}
    guesses: Counter[str] = Counter()
    for claim in filled.claims:
        cells = accepted.setdefault(claim.relation, {})
        if claim.accepted:
            cells.setdefault(claim.subject, claim.probability)
        else:
            guesses[claim.relation] += 1

    facts = {}
    for relation, cells in accepted.items():
        chances = [chance for chance in cells.values() if chance is not None]
        mean = sum(chances) / len(chances) if chances else None
        facts[relation] = {"filled": len(cells), "empty": guesses[relation], "probability": mean}
    return facts


def _relation_lines(by_relation: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say the numbers of several relations; those of a single one are in the first line."""
    lines = []
    for relation, facts in by_relation.items() if len(by_relation) > 1 else ():
        mean = facts["probability"]
        likely = "" if mean is None else f", {percent(mean)} likely on average"
        lines.append(
            f"  {relation}: {facts['filled']:,} filled{likely}; {facts['empty']:,} left empty"
        )
    return lines


def _facts(filled: "Table", out: Path | None, check: bool) -> dict[str, object]:
    """Return what --json prints of a table that was filled, checked, or only looked at."""
    from kbq.tables.claims import CLAIMS

    counts = dataclasses.asdict(filled.counts)
    if filled.counts.seconds is not None or out is None:
        return counts | {"out": None}
    del counts["seconds"]
    files = {"out": str(out), "claims": str(out.with_suffix(CLAIMS))}
    return counts | files | ({} if check else {"relations": _by_relation(filled)})


def _duration(seconds: float) -> str:
    """Return a time in words.

    >>> _duration(0.2), _duration(90), _duration(600), _duration(7200)
    ('a second', '90 seconds', '10 minutes', '2.0 hours')
    """
    if seconds < 120:
        if seconds >= 1.5:
            return f"{seconds:.0f} seconds"
        return "a second"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"


@app.command(cls=FillCommand, rich_help_panel=FILL)
def export(
    claims: Annotated[
        Path, typer.Argument(help="The file of claims beside a filled table: filled.claims.jsonl.")
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help=(
                "rdf (N-Triples), quickstatements (for Wikidata), long (a table with a row for "
                "each claim) or review (a page for a browser)."
            ),
        ),
    ],
    out: Annotated[Path, typer.Option(callback=output_path, help="The file to write.")],
    relations: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME…",
            show_default="those that were filled",
            help="A file relations.toml with properties, or known relations.",
        ),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            help=(
                "For rdf and quickstatements: a table of names (subjects, values, pages, units) "
                "with their Q-numbers."
            )
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Export the claims of a filled table as RDF, QuickStatements, a long table, or a page for
    review.

    Nothing is asked again. QuickStatements come with a list of what could not be written, and of
    the names that still need a Q-number.
    """
    from kbq.tables.outputs import export as write

    counts = write(claims, to, out, relations=relations or (), ids=ids)  # type: ignore[arg-type]
    _note_left_out((), counts.formulas)
    files = {"out": str(out)}
    if counts.left_out:
        files["left_out_file"] = f"{out}.left-out.jsonl"
        lacking = ""
        if counts.lacking:
            files["lacking_file"] = f"{out}.ids-todo.tsv"
            names = counted(counts.lacking, "name")
            lacking = f"; {names} without a Q-number: see {files['lacking_file']}"
        written = counted(counts.commands, "command")
        left_out = counted(counts.left_out, "claim")
        note(f"{written} written, {left_out} left out: {files['left_out_file']} says why{lacking}")

    line = f"{out}: {counts.accepted:,} of {counted(counts.claims, 'claim')} accepted"
    tell(dataclasses.asdict(counts) | files, as_json, line)


@app.command("evaluate-table", rich_help_panel=FILL)
def evaluate_table(
    filled: Annotated[Path, typer.Argument(help="A filled table, or a file of claims.")],
    gold: Annotated[Path, typer.Argument(help="A table, triples, or KILT lines.")],
    subject: Annotated[
        str | None,
        typer.Option(
            help="The column of subjects in tables.",
            show_default="subject, or the column that has names",
        ),
    ] = None,
    relations: Annotated[
        list[str] | None,
        typer.Option("--relation", help="A column to score in tables; repeat it. By default all."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the scores as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Score a filled table against a gold table: precision, recall and F1 of the values of each
    cell.
    """
    from kbq.tables.scoring import evaluate_table as evaluate

    scores = evaluate(filled, gold, subject, relations or (), note)
    table = scores.table()
    if as_csv:
        text = table.csv()
    else:
        text = table.markdown()
    tell(scores.to_dict(), as_json, *text.splitlines())


@app.command("relations", rich_help_panel=FILL)
def list_relations(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME…", help="Presets such as @people, or known relations; by default all."
        ),
    ] = None,
    kb: Annotated[
        Path | None,
        typer.Option(
            help="Ask this knowledge base for each relation, and print the best answered first."
        ),
    ] = None,
    pages: Annotated[
        int, typer.Option(min=1, max=1000, help="With --kb: how many pages to ask about.")
    ] = 12,
    model: TunedModel = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Print known relations with wordings, types and P-numbers, as a file relations.toml to select
    from and edit.
    """
    from kbq.tables.relations import as_toml, known_relations, preset

    chosen = []
    for name in names or [""]:
        chosen.extend(preset(name))
    found = list(dict.fromkeys(chosen))
    comments: list[str] = []
    if kb is not None:
        from kbq.tables.fill import best_known

        def expect(counts: "FillCounts") -> None:
            asked = f"{counted(counts.cells, 'cell')} of {counted(counts.rows, 'page')}"
            note(f"{asked}: about {_duration(counts.seconds or 0)}")

        with Bar(f"asking {kb}") as bar:
            ranked = best_known(
                AskedKb(kb, model=model, device=device).open().searcher,
                found,
                pages,
                bar.cells,
                expect,
            )

        found = [relation for relation, _, _ in ranked]
        comments = [
            f"{percent(likely)} of {asked} pages have a likely value" for _, likely, asked in ranked
        ]

    rows = [
        dataclasses.asdict(relation) | {"groups": known_relations()[relation]} for relation in found
    ]
    tell({"relations": rows}, as_json, *as_toml(found, comments).splitlines())
