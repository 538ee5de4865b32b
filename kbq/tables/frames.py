"""Data frames: pandas, polars and Arrow become rows, and rows become data frames with the types that they had."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kbq.errors import KbqError
from kbq.storage.parquet import NEEDS_PYARROW, refuse_repeated
from kbq.tables.cells import as_arrow, plain

NAME = "the data frame"


class Frame(NamedTuple):
    """The rows of a data frame, and what it was."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    pandas: Any = None  # a pandas.DataFrame
    arrow: Any = None  # a pyarrow.Table


def read_frame(given: Any, subject: str) -> Frame | None:
    """Return the rows of a data frame, or of a series, which is a column of subjects; None for anything else.

    Raises KbqError if a column has no name of its own, or a frame that is not of pandas is given without pyarrow.
    """
    pandas = sys.modules.get("pandas")
    if pandas and isinstance(given, pandas.Series | pandas.Index):
        given = given.to_frame(name=subject)
    if pandas and isinstance(given, pandas.DataFrame):
        _refuse_names(list(given.columns))
        cells = zip(*(map(plain, given[name].astype(object)) for name in given.columns), strict=True)
        return Frame(tuple(given.columns), [dict(zip(given.columns, one, strict=True)) for one in cells], pandas=given)
    given = given.collect() if hasattr(given, "collect_schema") and hasattr(given, "collect") else given  # lazy
    protocols = "__arrow_c_stream__", "__arrow_c_array__", "__dataframe__"
    if not any(hasattr(given, name) for name in protocols):
        return None
    arrow = _arrow_of(given, subject)
    _refuse_names(arrow.column_names)
    rows = [{name: plain(value) for name, value in row.items()} for row in arrow.to_pylist()]
    return Frame(tuple(arrow.column_names), rows, arrow=arrow)


def _refuse_names(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise KbqError(f"{NAME} has a column {name!r:.60}: give it a text as its name")
    refuse_repeated(NAME, [str(name) for name in names])


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


def to_pandas(columns: Mapping[str, Sequence[Any] | None], given: Any) -> Any:
    """Return a data frame of some columns; of one that was given, with its index and its types where values fit.

    `columns`: by name, in order; None: as in the given one.
    """
    import pandas

    old = {} if given is None else {name: given[name] for name in given.columns}
    arrays = {
        name: old[name].array if values is None else _array(values, old.get(name)) for name, values in columns.items()
    }
    index = None if given is None else given.index
    return pandas.DataFrame(arrays, index=index, columns=list(columns)) if arrays else pandas.DataFrame(index=index)


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
