"""Claim tables: claims become a long table, one row a claim, as CSV, TSV, Parquet or Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbq.dump.page_directory import PageValue
from kbq.errors import KbqError
from kbq.storage.lines import without_surrogates
from kbq.storage.parquet import NEEDS_PYARROW
from kbq.storage.writing import replacing, writing_to
from kbq.tables.claims import Claim, DateValue, QuantityValue
from kbq.tables.tables import Table, write_table

if TYPE_CHECKING:
    import pyarrow

COLUMNS = {  # with Arrow's types
    "subject": "string", "relation": "string", "value": "string", "probability": "double", "accepted": "bool",
    "type": "string", "normal": "string", "unit": "string", "page_id": "string", "title": "string",
    "paragraph": "int64", "start": "int64", "end": "int64", "sentence": "string", "says_the_same": "int64",
}  # fmt: skip


def long_table(claims: Iterable[Claim]) -> Table:
    """A row for each claim; all of its cells count as filled, so that none is a formula in a spreadsheet."""
    columns = tuple(COLUMNS)
    rows = [_row(claim) for claim in claims]
    return Table(columns, rows).all_filled()


def write_long(path: Path, claims: Iterable[Claim], format: Literal["csv", "tsv", "parquet", "xlsx"]) -> int:
    """Write the long table; how many of its texts a spreadsheet would compute: they get an apostrophe.

    Raises:
        KbqError: it cannot be written, or pyarrow is missing.
    """
    if format != "parquet":
        return write_table(long_table(claims), path, format)
    arrow = to_arrow(claims)
    import pyarrow.parquet

    with writing_to(path, KbqError), replacing(path) as partial:
        pyarrow.parquet.write_table(arrow, partial)
    return 0


def to_arrow(claims: Iterable[Claim]) -> pyarrow.Table:
    """The long table, as pandas, polars and duckdb take it.

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
