"""Cells: the values of a table's cells as texts and as Arrow's types, and whether a spreadsheet would compute them."""

import json
import math
import re
from collections.abc import Collection, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from kbq.storage.rows import text_of
from kbq.tables.claims import QuantityValue
from kbq.tables.dates import date_of_cell
from kbq.tables.values import normal_form
from kbq.text.letters import clean_text

SEPARATOR = "|"  # between the values of a cell
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")  # how a cell begins that a spreadsheet computes. Source: OWASP
PLAIN = (str, int, float, bool, type(None))
NUMBER = re.compile(r" *[+-]?\d[\d.,\s]*%?")


def plain(value: Any) -> Any:
    """Return a cell's value without NumPy's and pandas' own types; their missing values are None."""
    if type(value) in PLAIN:
        return None if value != value else value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = (value.astype("datetime64[us]") if value.dtype.kind == "M" else value).tolist()
        return plain(value) if type(value) in PLAIN else value
    return value


def is_empty(value: object, markers: Collection[str] = ()) -> bool:
    """Whether a cell has no value; `markers` stand for none, too.

    >>> [is_empty(value) for value in (None, "", " ", [], math.nan, 0, False, "x")]
    [True, True, True, True, True, False, False, False]
    >>> is_empty("n/a", ["n/a"])
    True
    """
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or value == [] or (isinstance(value, str) and (not value.strip() or value.strip() in markers))


def texts_of(value: object, markers: Collection[str] = ()) -> list[str]:
    """Return the values of a cell as texts.

    >>> texts_of("Paris | Rome"), texts_of(["Paris", 1815]), texts_of(None)
    (['Paris', 'Rome'], ['Paris', '1815'], [])
    """
    parts = [] if is_empty(value) else value if isinstance(value, list) else text_of(value).split(SEPARATOR)
    return [text for text in (text_of(part).strip() for part in parts) if not is_empty(text, markers)]


def shown(value: object) -> str:
    """Return a cell as one text.

    >>> shown(None), shown(["Paris", "Rome"]), shown(1815.0), shown({"a": 1})
    ('', 'Paris|Rome', '1815', '{"a": 1}')
    """
    if isinstance(value, str) or is_empty(value):
        return value if isinstance(value, str) else ""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return SEPARATOR.join(value)
    return json.dumps(value, ensure_ascii=False, default=text_of) if isinstance(value, list | dict) else text_of(value)


def subject_of(value: object) -> str:
    r"""Return the text of a subject's cell on one line.

    >>> subject_of("Marie\n Curie "), subject_of(None)
    ('Marie Curie', '')
    """
    return " ".join(clean_text(shown(value)).split())


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may compute a text.

    >>> [is_formula(text) for text in ("=1+1", "@SUM(A1)", "-5", "+49 171 1", "- 5 km", "Paris")]
    [True, True, False, False, True, False]
    """
    return FORMULA.match(text) is not None and not NUMBER.fullmatch(text)


def guarded(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet may compute.

    >>> guarded("=1+1"), guarded("Paris")
    ("'=1+1", 'Paris')
    """
    return f"'{text}" if is_formula(text) else text


def for_spreadsheet(value: object) -> object:
    """Return a number, a truth value, a date or a time as it is, anything else as text."""
    is_kept = isinstance(value, int | float | date | time | timedelta) and not is_empty(value)
    has_zone = isinstance(value, datetime | time) and value.tzinfo is not None  # which XLSX has no cells for
    is_early = isinstance(value, date) and value.year < 1900  # whose numbers Excel does not know
    return value if is_kept and not has_zone and not is_early else shown(value) or None


def as_arrow(values: Sequence[Any], kind: Any) -> Any:
    """Return values as an Arrow array of a type; None if one of them does not fit it."""
    import pyarrow

    if pyarrow.types.is_null(kind):
        return None
    try:
        return pyarrow.array([_of_type(value, kind) for value in values], kind)
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError):
        return None


def _of_type(value: Any, kind: Any) -> Any:
    """Return a value as an Arrow type has it: a text that was filled in becomes a number, a day, or a list.

    Raises ValueError if it does not fit the type.
    """
    from pyarrow import types

    if value is None:
        return None
    if types.is_list(kind) or types.is_large_list(kind):
        return [_of_type(one, kind.value_type) for one in (value if isinstance(value, list) else [value])]
    if not isinstance(value, str):
        return value
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        found = normal_form(value, "quantity")
        if not isinstance(found, QuantityValue) or found.unit:
            raise ValueError(value)
        if types.is_integer(kind):
            return int(found.number)
        return float(found.number) if types.is_floating(kind) else Decimal(found.number)
    if types.is_date(kind) or types.is_timestamp(kind):
        day = date_of_cell(value)
        if day is None or day.julian or not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", day.edtf):
            raise ValueError(value)
        return datetime.fromisoformat(day.edtf) if types.is_timestamp(kind) else date.fromisoformat(day.edtf)
    return value
