"""Parquet: a file becomes the rows of a table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbq.errors import KbqError, first_line
from kbq.storage.files import refuse_large

NEEDS_PYARROW = "needs pyarrow: pip install pyarrow, or use CSV"


def read_parquet(path: Path) -> tuple[list[dict[str, Any]], Any]:
    """Read a file: its rows, and the pyarrow.Table that they are in.

    Raises KbqError if it cannot be read, its footer says that it is too large, or pyarrow is missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise KbqError(f"{path} {NEEDS_PYARROW}") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            refuse_large(str(path), sum(group.total_byte_size for group in groups))
            refuse_repeated(str(path), file.schema_arrow.names)
            table = file.read()
        rows = table.to_pylist()
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        reason = (isinstance(error, OSError) and error.strerror) or first_line(error)
        raise KbqError(f"{path} cannot be read ({reason}): check that it is a Parquet file") from None
    are_bytes = any("binary" in str(field.type) for field in table.schema)
    return [{name: _as_text(value) for name, value in row.items()} for row in rows] if are_bytes else rows, table


def _as_text(value: Any) -> Any:
    """Return a value in which bytes are text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return list(map(_as_text, value)) if isinstance(value, list) else value


def refuse_repeated(name: str, columns: Sequence[str], error: type[KbqError] = KbqError) -> None:
    """Raise an error of this class if two columns have one name."""
    for column, count in Counter(columns).items():
        if count > 1:
            raise error(f"{name} has {count} columns {column!r}: give each its own name")
