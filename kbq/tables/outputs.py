"""Outputs: a filled table, or the claims that filled it, become a file in the format that its suffix stands for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from kbq.errors import KbqError
from kbq.tables.claim_tables import write_long
from kbq.tables.claims import Source
from kbq.tables.options import Format
from kbq.tables.quickstatements import write_quickstatements
from kbq.tables.rdf import write_ntriples, write_trig
from kbq.tables.relations import Relation
from kbq.tables.review import write_review
from kbq.tables.tables import Table, TableFormat, refuse_unwritable, write_table

LongFormat = Literal["long.csv", "long.tsv", "long.parquet", "long.xlsx"]
ClaimFormat = Literal["nt", "trig", "qs", "html", LongFormat]
WITH_IDS = ("nt", "trig", "qs")  # things have Q-numbers there


def format_of(path: Path, format: str | None, is_check: bool, has_ids: bool) -> Format:
    """The format to write: the one that is asked for, or that of the suffix.

    Raises:
        KbqError: it is unknown, or has no place for what is asked for.
    """
    tables, every = get_args(TableFormat), (*get_args(TableFormat), *get_args(ClaimFormat))
    name = path.name.lower()
    found = format or next((end for end in reversed(every) if name.endswith(f".{end}")), "")
    if found not in every:
        raise KbqError(f"{path} is of no known format: end it in .{', .'.join(every)}, or give --format")
    if is_check and found not in tables:
        raise KbqError(f"a check gives a table, which {found} is not: choose from {', '.join(tables)}")
    if has_ids and found not in WITH_IDS:
        raise KbqError(f"there are no Q-numbers in {found}, so --ids has no effect: leave it out")
    return found  # type: ignore[return-value]


def refuse_unfit(table: Table, format: Format) -> None:
    """Refuse a table that cannot be written in a format, before work is spent on it.

    Raises:
        KbqError: why it cannot.
    """
    if format in get_args(TableFormat):
        refuse_unwritable(table, format)  # type: ignore[arg-type]
    elif format in ("long.parquet", "long.xlsx"):
        refuse_unwritable(replace(table, rows=[]), format.removeprefix("long."))  # type: ignore[arg-type]


def write(
    table: Table, path: Path, format: Format, source: Source, relations: Sequence[Relation], ids: Mapping[str, str]
) -> Table:
    """Replace a file by a filled table; it is returned with the counts of what was written otherwise, or not at all.

    Raises:
        KbqError: the file cannot be written.
    """
    formulas, counts = 0, table.counts
    if format == "nt":
        write_ntriples(path, table.claims, source, relations, ids)
    elif format == "trig":
        write_trig(path, table.claims, source, relations, ids)
    elif format == "qs":
        written = write_quickstatements(path, table.claims, source, relations, ids)
        left_out, lacking = written.left_out, written.lacking
        counts = replace(counts, commands=written.commands, left_out=left_out, lacking=lacking)
    elif format == "html":
        write_review(path, table.claims, source, relations)
    elif format in get_args(LongFormat):
        formulas = write_long(path, table.claims, format.removeprefix("long."))  # type: ignore[arg-type]
    else:
        formulas = write_table(table, path, format)  # type: ignore[arg-type]
    return replace(table, counts=replace(counts, formulas=formulas))
