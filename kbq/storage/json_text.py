"""JSON text: what others wrote becomes values, within bounds of memory and depth."""

import json
from collections.abc import Callable
from typing import Any

MOST_VALUES = 10_000_000  # of one text: about a gigabyte in memory
DEEPEST = 100  # lists and objects in one another: what prints or writes them again uses the stack, too
TOO_DEEP = f"its lists are nested more than {DEEPEST} deep"


def parsed_json(text: str, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON text.

    Args:
        constant: called for `NaN`, `Infinity` and `-Infinity`; by default they are numbers.

    Raises:
        ValueError: it is not JSON (then a `json.JSONDecodeError`), is too deep, or holds too much.

    >>> parsed_json('{"year": 1867}')
    {'year': 1867}
    """
    values = values_in(text)
    if values > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    try:
        value = json.loads(text, parse_constant=constant)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except ValueError as error:
        if "integer string" in str(error):  # Python's own words advise to raise its limit
            raise ValueError("it holds a number of thousands of digits") from None
        raise
    if values > DEEPEST and is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def values_in(text: str) -> int:
    """Return how many values a JSON text holds at most.

    >>> values_in('[1, {"a": 2}]')
    5
    """
    return 1 + sum(map(text.count, ",[{:"))


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects are nested more than DEEPEST deep."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
