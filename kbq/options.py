"""Options: each is declared once, on a field of a record, for the command line, the library and HTTP."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from kbq.errors import KbqError

LIKE = 0.4  # of the name of an option to another: topk is as much like k


@dataclass(frozen=True, slots=True)
class Option:
    """The meaning and the range of a field: `Annotated[int, Option("How many answers.", least=1)]`."""

    help: str
    least: float | None = None
    most: float | None = None
    default: str | None = None  # as the help shows it, where it depends on other things
    flag: str = ""  # on the command line, where the name alone does not say it
    metavar: str | None = None


class Declared(NamedTuple):
    """An option by its name, with its type (None apart), whether it may be None, and its default."""

    name: str
    type: Any
    is_optional: bool
    default: Any
    option: Option

    @property
    def annotation(self) -> Any:
        """Its type."""
        return self.type | None if self.is_optional else self.type

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it may have; empty: there is no such list."""
        return _choices(self.type)


@cache
def declared(record: Any) -> tuple[Declared, ...]:
    """Return the options among the fields of a record."""
    hints, found = get_type_hints(record, include_extras=True), []
    for field in fields(record):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            continue
        whole, *notes = get_args(hint)
        option = next((note for note in notes if isinstance(note, Option)), None)
        if option is not None:
            parts = get_args(whole) if get_origin(whole) in (Union, UnionType) else (whole,)
            kinds = [part for part in parts if part is not NoneType]
            kind = kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]  # noqa: UP007 - of a list
            found.append(Declared(field.name, kind, NoneType in parts, field.default, option))
    return tuple(found)


def check(record: Any, error: type[KbqError]) -> None:
    """Refuse values that have no meaning.

    Raises:
        error: says which option it is, its value, and what it must be.
    """
    for one in declared(record.__class__):
        value = getattr(record, one.name)
        if value is None and one.is_optional:
            continue
        if hasattr(value, "dtype") and isinstance(value, Real):  # NumPy's numbers are numbers, too
            value = int(value) if isinstance(value, Integral) else float(value)
            object.__setattr__(record, one.name, value)
        problem = _problem(one, value)
        if problem:
            raise error(f"{one.name} {problem}", is_usage=True)


def refuse_unknown_options(given: Iterable[str], known: Iterable[str], error: type[KbqError]) -> None:
    """Refuse options that a method does not have; the message names the one that was perhaps meant.

    >>> refuse_unknown_options(["topk"], ["k", "unit"], KbqError)
    Traceback (most recent call last):
    kbq.errors.KbqError: topk is unknown: did you mean k?
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1, LIKE)
            advice = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
            raise error(f"{name} is unknown: {advice}", is_usage=True)


def _problem(one: Declared, value: object) -> str:
    """Why an option cannot have this value; empty: it can."""
    least, most = one.option.least, one.option.most
    if one.choices:
        known = isinstance(value, str) and value in one.choices
        return "" if known else f"{value!r} is unknown: choose from {', '.join(one.choices)}"
    if one.type is int:
        if type(value) is int and (least is None or value >= least) and (most is None or value <= most):
            return ""
        return f"is {value!r}, must be {_range('a whole number', least, most)}"
    if one.type is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
        if is_number and (least is None or value >= least) and (most is None or value <= most):  # type: ignore[operator]
            return ""
        return f"is {value!r}, must be {_range('a number', least, most)}"
    return ""


def _range(kind: str, least: float | None, most: float | None) -> str:
    """Say in words what a number must be.

    >>> _range("a number", 0, None), _range("a number", 0, 1), _range("a whole number", 1, None)
    ('a number, 0 or more', 'a number from 0 to 1', 'at least 1')
    """
    if most is not None:
        return f"{kind} from {least or 0:g} to {most:,.0f}" if most >= 1 else f"{kind} from {least or 0:g} to {most:g}"
    if least is None:
        return kind
    return f"at least {least:g}" if kind == "a whole number" else f"{kind}, {least:g} or more"


def chosen(words: dict[str, Any], record: type) -> dict[str, Any]:
    """Take out of the words those that are options of a record."""
    names = [one.name for one in declared(record) if one.name in words]
    return {name: words.pop(name) for name in names}


def _choices(kind: Any) -> tuple[str, ...]:
    """Return the strings of a Literal, also of one made of others."""
    return tuple(str(one) for one in get_args(kind)) if get_origin(kind) is Literal else ()
