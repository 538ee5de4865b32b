"""Data frames: pandas, polars and Arrow become tables, and tables become data frames with the types that they had."""

import sys
from collections.abc import Sequence
from typing import Any

from kbq.errors import KbqError
from kbq.storage.parquet import NEEDS_PYARROW, refuse_repeated
from kbq.tables.cells import as_arrow
from kbq.tables.tables import Table, plain

NAME = "the data frame"


def table_of(given: Any, subject: str) -> Table | None:
    """Return the table of a data frame, or of a series, which is a column of subjects; None for rows.

    Raises KbqError if a column has no name of its own, or a frame that is not of pandas is given without pyarrow.
    """
    if isinstance(given, Table):
        return given
    pandas = sys.modules.get("pandas")
    if pandas and isinstance(given, pandas.Series | pandas.Index):
        given = given.to_frame(name=subject)
    if pandas and isinstance(given, pandas.DataFrame):
        _refuse_names(list(given.columns))
        columns = [map(plain, given[name].astype(object)) for name in given.columns]
        rows = [dict(zip(given.columns, cells, strict=True)) for cells in zip(*columns, strict=True)]
        return Table(tuple(given.columns), rows, frame=given)
    given = given.collect() if hasattr(given, "collect_schema") and hasattr(given, "collect") else given  # lazy
    protocols = "__arrow_c_stream__", "__arrow_c_array__", "__dataframe__"
    if not any(hasattr(given, name) for name in protocols):
        return None
    arrow = _arrow_of(given, subject)
    _refuse_names(arrow.column_names)
    return Table(tuple(arrow.column_names), [*map(_plain_row, arrow.to_pylist())], arrow=arrow)


def _refuse_names(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise KbqError(f"{NAME} has a column {name!r:.60}: give it a text as its name")
    refuse_repeated(NAME, [str(name) for name in names])


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in row.items()}


def _arrow_of(given: Any, subject: str) -> Any:
    try:
        import pyarrow
        import pyarrow.interchange
    except ImportError:
        raise KbqError(f"{NAME} {NEEDS_PYARROW}") from None
    try:
        if not hasattr(given, "__arrow_c_stream__") and hasattr(given, "__dataframe__"):
            return pyarrow.interchange.from_dataframe(given)
        if hasattr(given, "columns") or hasattr(given, "column_names"):
            return pyarrow.table(given)
        column = pyarrow.chunked_array(given if hasattr(given, "__arrow_c_stream__") else [pyarrow.array(given)])
        return pyarrow.table({subject: column})
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise KbqError(f"{NAME} cannot be read ({error!s:.80}): give rows, or a data frame of pandas") from None


def to_pandas(table: Table) -> Any:
    """Return a data frame: of one that was given, with its index, and its types wherever a value fits them."""
    import pandas

    given = (table.before or table).frame
    frame = pandas.DataFrame(index=range(len(table.rows))) if given is None else given.copy()
    columns = {}
    for name in table.columns:
        old = None if given is None or name not in given.columns else given[name]
        if old is None or any(table.is_filled(row, name) for row in range(len(table.rows))):
            columns[name] = _array([row.get(name) for row in table.rows], old)
    known = [name for name in table.columns if given is not None and name in given.columns]
    for name in known:
        if name in columns:
            frame[name] = columns.pop(name)
    added = pandas.DataFrame(columns, index=frame.index, columns=list(columns))
    return added if given is None else pandas.concat([frame, added], axis=1)


def _array(values: Sequence[Any], old: Any) -> Any:
    """Return a column's array: of the type of an old one if its values fit, whole numbers and truth values as such."""
    import pandas

    if isinstance(old, pandas.Series) and isinstance(old.dtype, pandas.CategoricalDtype):
        known = old.dtype.categories
        new = [value for value in dict.fromkeys(values) if value is not None and value not in known]
        return pandas.Categorical(values, known.append(pandas.Index(new)), ordered=old.dtype.ordered)
    if old is not None and (kept := _of_type(values, old)) is not None:
        return kept
    kinds = {type(value) for value in values}
    if type(None) in kinds and kinds <= {int, type(None)}:
        return pandas.array(values, dtype="Int64")
    if type(None) in kinds and kinds <= {bool, type(None)}:
        return pandas.array(values, dtype="boolean")
    return pandas.Series(values).array


def _of_type(values: Sequence[Any], old: Any) -> Any:
    """Return values as an array of a series' type; None if one does not fit."""
    import pandas

    try:
        import pyarrow

        kind = pyarrow.Array.from_pandas(old).type
        fitting = as_arrow(values, kind)
        return None if fitting is None else pandas.Series(fitting.to_pylist(), dtype=old.dtype).array
    except (ImportError, ValueError, TypeError, OverflowError, NotImplementedError):
        return None
