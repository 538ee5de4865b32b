"""Arrow types: values that were filled in become values of the type that their column has, where they are such."""

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from kbq.tables.claims import QuantityValue
from kbq.tables.dates import date_of_cell
from kbq.tables.values import normal_form


def of_type(values: Sequence[Any], kind: Any) -> Any:
    """The values as an array of a type; None where one of them is none of it."""
    import pyarrow

    if pyarrow.types.is_null(kind):
        return None
    try:
        return pyarrow.array([_cell(value, kind) for value in values], kind)
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError):
        return None


def _cell(value: Any, kind: Any) -> Any:
    """A value as a type has it: a text that was filled in becomes a number, a day, or a list.

    Raises:
        ValueError: it is none of this type.
    """
    from pyarrow import types

    if value is None:
        return None
    if types.is_list(kind) or types.is_large_list(kind):
        return [_cell(one, kind.value_type) for one in (value if isinstance(value, list) else [value])]
    if not isinstance(value, str):
        return value
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        found = normal_form(value, "quantity")
        if not isinstance(found, QuantityValue) or found.unit:
            raise ValueError(value)
        if types.is_integer(kind):
            return int(found.number)  # ValueError where it is none
        return float(found.number) if types.is_floating(kind) else Decimal(found.number)
    if types.is_date(kind) or types.is_timestamp(kind):
        day = date_of_cell(value)
        if day is None or day.julian or not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", day.edtf):
            raise ValueError(value)
        return datetime.fromisoformat(day.edtf) if types.is_timestamp(kind) else date.fromisoformat(day.edtf)
    return value
