"""Options: declare an option once, on a field of a record, for every way to ask."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from math import inf
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from kbq.errors import KbqError

LIKE = 0.4  # least likeness of two options' names: topk is as much like k


@dataclass(frozen=True, slots=True)
class Option:
    """The meaning and the range of a field: `Annotated[int, Option("How many answers.", least=1)]`."""

    help: str
    least: float | None = None
    most: float | None = None
    default: str | None = None  # text that the help shows, if the default depends on other things
    flag: str = ""  # name on the command line, if it does not follow from the field's
    metavar: str | None = None
    env: str | None = None  # environment variable that a command reads it from, too


class Declared(NamedTuple):
    """A declared option: its name, its type without None, whether it may be None, and its default."""

    name: str
    type: Any
    is_optional: bool
    default: Any
    option: Option

    @property
    def annotation(self) -> Any:
        """Its type, with None if it may be that."""
        if self.is_optional:
            return self.type | None
        return self.type

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values that it may have, or none if there is no such list."""
        if get_origin(self.type) is Literal:
            return tuple(map(str, get_args(self.type)))
        return ()


@cache
def declared(record: Any) -> tuple[Declared, ...]:
    hints = get_type_hints(record, include_extras=True)
    options = []
    for field in fields(record):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            continue
        whole, *notes = get_args(hint)
        option = next((note for note in notes if isinstance(note, Option)), None)
        if option is not None:
            if get_origin(whole) in (Union, UnionType):
                parts = get_args(whole)
            else:
                parts = (whole,)
            kinds = [part for part in parts if part is not NoneType]
            kind = kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]  # noqa: UP007 - of a list
            options.append(Declared(field.name, kind, NoneType in parts, field.default, option))

    return tuple(options)


def check(record: Any, error: type[KbqError]) -> None:
    """Raise an error that names an option whose value has no meaning, the value, and what it must
    be.
    """
    for option in declared(record.__class__):
        value = getattr(record, option.name)
        if value is None and option.is_optional:
            continue
        if hasattr(value, "dtype") and isinstance(value, Real):  # NumPy's numbers are numbers, too
            value = int(value) if isinstance(value, Integral) else float(value)
            object.__setattr__(record, option.name, value)
        problem = _problem(option, value)
        if problem:
            raise error(f"{option.name} {problem}", is_usage=True)


def refuse_unknown_options(
    given: Iterable[str], known: Iterable[str], error: type[KbqError]
) -> None:
    """Refuse options that a method does not have, and name the one that was perhaps meant.

    >>> refuse_unknown_options(["topk"], ["k", "unit"], KbqError)
    Traceback (most recent call last):
    kbq.errors.KbqError: topk is unknown: did you mean k?
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1, LIKE)
            if near:
                advice = f"did you mean {near[0]}?"
            else:
                advice = f"choose from {', '.join(names)}"
            raise error(f"{name} is unknown: {advice}", is_usage=True)


def _problem(option: Declared, value: object) -> str:
    """Return why an option cannot have this value, or an empty text if it can."""
    least = option.option.least
    most = option.option.most
    if option.choices:
        known = isinstance(value, str) and value in option.choices
        if known:
            return ""
        return f"{value!r} is unknown: choose from {', '.join(option.choices)}"
    if option.type not in (int, float):
        return ""
    kinds = int if option.type is int else int | float
    low = -inf if least is None else least
    high = inf if most is None else most
    if (
        isinstance(value, kinds)
        and not isinstance(value, bool)
        and abs(value) < inf
        and low <= value <= high
    ):
        return ""

    return (
        f"is {value!r}, must be "
        f"{_range('a whole number' if option.type is int else 'a number', least, most)}"
    )


def _range(kind: str, least: float | None, most: float | None) -> str:
    """Say in words what a number must be.

    >>> _range("a number", 0, None), _range("a number", 0, 1), _range("a whole number", 1, None)
    ('a number, 0 or more', 'a number from 0 to 1', 'at least 1')
    """
    if most is not None:
        end = f"{most:g}"
        if most >= 1:
            end = f"{most:,.0f}"
        return f"{kind} from {least or 0:g} to {end}"
    if least is None:
        return kind
    if kind == "a whole number":
        return f"at least {least:g}"
    return f"{kind}, {least:g} or more"


def chosen(keywords: dict[str, Any], record: type) -> dict[str, Any]:
    """Take the options of a record out of keywords, and return them."""
    names = [option.name for option in declared(record) if option.name in keywords]
    return {name: keywords.pop(name) for name in names}
