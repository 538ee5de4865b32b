"""Parquet: a file becomes rows, part by part: few bytes may stand for gigabytes, as equal texts are stored once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kbq.errors import KbqError, first_line
from kbq.storage.room import Room

NEEDS_PYARROW = "needs pyarrow: pip install pyarrow, or use CSV"
TEXTS = "STRING", "NONE", "JSON", "ENUM"  # logical types of texts and bytes
TOGETHER, FEW = 2**16, 64  # rows


def read_parquet(path: Path) -> tuple[list[dict[str, Any]], Any]:
    """Read a file: its rows, and the pyarrow.Table that they are in.

    Raises KbqError if it cannot be read, or is too large to be in memory, or pyarrow is missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise KbqError(f"{path} {NEEDS_PYARROW}") from None
    rows: list[dict[str, Any]] = []
    try:
        batches, schema = [], pyarrow.parquet.read_schema(path)
        refuse_repeated(str(path), schema.names)
        for batch in _batches(path):
            rows += batch.to_pylist()
            batches.append(batch)
        table = _cast(pyarrow.Table.from_batches(batches), schema) if batches else schema.empty_table()
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        reason = (isinstance(error, OSError) and error.strerror) or first_line(error)
        raise KbqError(f"{path} cannot be read ({reason}): check that it is a Parquet file") from None
    are_bytes = any("binary" in str(field.type) for field in schema)
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


def _cast(table: Any, schema: Any) -> Any:
    """Return a table with the types that its file names."""
    from pyarrow.types import is_dictionary

    for number, field in enumerate(schema):
        column = table.column(number)
        if is_dictionary(column.type) and not is_dictionary(field.type):
            column = column.cast(column.type.value_type)  # Arrow knows no way from there to every kind of text
        if column.type != field.type:
            column = column.cast(field.type)
        table = table.set_column(number, field.name, column)
    return table


def _batches(path: Path) -> Iterator[Any]:
    """Yield some rows at a time, in which equal texts are still one, so that their size is known before they grow."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        facts, room = file.metadata, Room(str(path))
        groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        # Refuse a file at once by what it says of itself; it may say less than is true.
        Room(str(path)).take(facts.num_rows, sum(one.num_values for one in chunks))
        Room(str(path)).take(characters=sum(one.total_uncompressed_size for one in chunks))
        columns = [file.schema.column(number) for number in range(len(file.schema))]
    # Texts that begin as the one before them, which may each be longer than the file, cannot be read as a dictionary.
    prefixed = {one.path_in_schema for one in chunks if "DELTA_BYTE_ARRAY" in one.encodings}
    texts = [
        one.path
        for one in columns
        if one.physical_type == "BYTE_ARRAY" and one.logical_type.type in TEXTS and one.path not in prefixed
    ]
    with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(FEW if prefixed else TOGETHER):
            room.take(len(batch), sum(map(_values, batch.columns)), sum(map(_characters, batch.columns)))
            yield batch


def _values(array: Any) -> int:
    """Return how many values an array has, those in its lists included."""
    return len(array) + sum(map(_values, _parts(array)))


def _characters(array: Any) -> int:
    """Return how many bytes its values have, written out."""
    import pyarrow
    import pyarrow.compute

    if isinstance(array, pyarrow.DictionaryArray):
        lengths = pyarrow.compute.binary_length(array.dictionary).cast(pyarrow.int64())
        return int(pyarrow.compute.sum(lengths.take(array.indices)).as_py() or 0)
    return sum(map(_characters, _parts(array))) or int(array.nbytes)


def _parts(array: Any) -> list[Any]:
    """Return the arrays within one of lists, maps or structures."""
    import pyarrow.types

    kind = array.type
    if pyarrow.types.is_struct(kind) or pyarrow.types.is_map(kind):
        return list(array.flatten()) if pyarrow.types.is_struct(kind) else [array.keys, array.items]
    return [array.flatten()] if hasattr(kind, "value_type") and hasattr(array, "flatten") else []
