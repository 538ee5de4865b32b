"""Outputs: a filled table, or the claims that filled it, become a file in the format that its suffix stands for."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from kbq.dump.page_directory import PageValue
from kbq.errors import KbqError
from kbq.storage.parquet import NEEDS_PYARROW
from kbq.storage.writing import replacing, writing_to
from kbq.tables.claims import Claim, DateValue, QuantityValue, Source, write_lines
from kbq.tables.options import Format, LongFormat, TableFormat
from kbq.tables.quickstatements import write_quickstatements
from kbq.tables.rdf import ntriples, trig
from kbq.tables.relations import Relation
from kbq.tables.tables import Table, refuse_unwritable, write_table
from kbq.text.letters import without_surrogates

if TYPE_CHECKING:
    import pyarrow

WITH_IDS = ("nt", "trig", "qs")  # things have Q-numbers there
COLUMNS = {  # of the long table, with Arrow's types
    "subject": "string", "relation": "string", "value": "string", "probability": "double", "accepted": "bool",
    "type": "string", "normal": "string", "unit": "string", "page_id": "string", "title": "string",
    "paragraph": "int64", "start": "int64", "end": "int64", "sentence": "string", "says_the_same": "int64",
}  # fmt: skip
BROWSER = Path(__file__).with_name("browser")
SHARED = ("decisions.js", "evidence.js")  # with the page of `kbq serve` on which tables are filled
_ENDS_A_SCRIPT = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def format_of(path: Path, format: Format | None, is_check: bool, has_ids: bool) -> Format:
    """Return the format to write: the one that is asked for, or that of the suffix.

    Raises KbqError if the suffix is unknown, or the format cannot express what is asked for.
    """
    tables, every = get_args(TableFormat), get_args(Format)
    found: Format | None = format or next((end for end in every[::-1] if path.name.lower().endswith(f".{end}")), None)
    if found is None:
        raise KbqError(f"{path} is of no known format: end it in .{', .'.join(every)}, or give --format")
    if is_check and found not in tables:
        raise KbqError(f"a check gives a table, which {found} is not: choose from {', '.join(tables)}")
    if has_ids and found not in WITH_IDS:
        raise KbqError(f"{found} has no Q-numbers, so --ids has no effect: leave it out")
    return found


def refuse_unfit(table: Table, format: Format) -> None:
    """Refuse a table that cannot be written in a format, before work is spent on it."""
    if format in get_args(TableFormat):
        refuse_unwritable(table, format)  # type: ignore[arg-type]
    elif format in ("long.parquet", "long.xlsx"):
        refuse_unwritable(replace(table, rows=[]), format.removeprefix("long."))  # type: ignore[arg-type]


def write(
    table: Table, path: Path, format: Format, source: Source, relations: Sequence[Relation], ids: Mapping[str, str]
) -> Table:
    """Replace a file by a filled table; return the table with the counts of what could not be written as it is."""
    formulas, counts = 0, table.counts
    if format == "nt":
        write_lines(path, ntriples(table.claims, relations, ids))
    elif format == "trig":
        write_lines(path, trig(table.claims, source, relations, ids))
    elif format == "qs":
        commands, left_out, lacking = write_quickstatements(path, table.claims, source, relations, ids)
        counts = replace(counts, commands=commands, left_out=left_out, lacking=lacking)
    elif format == "html":
        write_review(path, table.claims, source, relations)
    elif format in get_args(LongFormat):
        formulas = write_long(path, table.claims, format.removeprefix("long."))  # type: ignore[arg-type]
    else:
        formulas = write_table(table, path, format)  # type: ignore[arg-type]
    return replace(table, counts=replace(counts, formulas=formulas))


def long_table(claims: Iterable[Claim]) -> Table:
    """Return a row for each claim; all of its cells count as filled, so that none is a formula in a spreadsheet."""
    return Table(tuple(COLUMNS), [_row(claim) for claim in claims]).all_filled()


def write_long(path: Path, claims: Iterable[Claim], format: TableFormat) -> int:
    """Replace a file by the long table; return how many texts got an apostrophe, as `write_table` does.

    Raises KbqError if it cannot be written, or pyarrow is missing.
    """
    if format != "parquet":
        return write_table(long_table(claims), path, format)
    arrow = to_arrow(claims)
    import pyarrow.parquet

    with writing_to(path, KbqError), replacing(path) as partial:
        pyarrow.parquet.write_table(arrow, partial)
    return 0


def to_arrow(claims: Iterable[Claim]) -> pyarrow.Table:
    """Return the long table for pandas, polars and duckdb.

    Raises:
        KbqError: pyarrow is missing.
    """
    try:
        import pyarrow
    except ImportError:
        raise KbqError(f"Arrow {NEEDS_PYARROW}") from None
    schema = pyarrow.schema([(name, pyarrow.type_for_alias(type)) for name, type in COLUMNS.items()])
    rows = [
        {name: without_surrogates(value) if isinstance(value, str) else value for name, value in _row(claim).items()}
        for claim in claims
    ]
    return pyarrow.Table.from_pylist(rows, schema)


def _row(claim: Claim) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(claim, name, None) for name in COLUMNS}
    match claim.normal:
        case PageValue(page_id=page_id):
            return row | {"type": "page", "normal": page_id}
        case DateValue(edtf=edtf):
            return row | {"type": "date", "normal": edtf}
        case QuantityValue(number=number, unit=unit):
            return row | {"type": "quantity", "normal": number, "unit": unit or None}
    return row


def write_review(path: Path, claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()) -> None:
    """Write the page on which people review all claims, and from which they download a file of decisions.

    The claims are data, not HTML, and the page's policy forbids every script but its own, so that no text of a corpus
    can do anything.
    """
    page = (BROWSER / "review.html").read_text("utf-8")
    script = "".join((BROWSER / name).read_text("utf-8") for name in (*SHARED, "review.js"))
    for name, content in (("STYLE", (BROWSER / "review.css").read_text("utf-8")), ("SCRIPT", script)):
        digest = hashlib.sha256(content.encode()).digest()
        page = page.replace(f"{name}-HASH", f"sha256-{base64.b64encode(digest).decode()}")
        page = page.replace(f">{name}<", f">{content}<")
    before, behind = page.split(">DATA<")
    write_lines(path, [f"{before}>{described(claims, source, relations)}<{behind}".removesuffix("\n")])


def described(claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()) -> str:
    """Return the data of the page: JSON without any character that could end it in HTML."""
    content = {
        "source": dataclasses.asdict(source),
        "relations": {one.name: {"values": one.values} for one in relations},
        "claims": [{"id": claim.digest} | claim.to_dict() for claim in claims],
    }
    return json.dumps(content, ensure_ascii=False).translate(_ENDS_A_SCRIPT)
