"""Rendering: the parts of a place in a page, from `tables.toml`, become Markdown."""

import fnmatch
import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reporting import RESULTS, default_model

MAKEFILE = Path(__file__).with_name("Makefile")
TODAY = (("an approximate", "a disk"), ("approximate", "disk"), ('"sparse"', '"sparta"'))  # older results say the first
Part = Mapping[str, Any]
read: dict[str, None] = {}  # the results that were looked at, in this order


def record(name: str) -> Any:
    """Return a whole result, in today's words."""
    read[name] = None
    text = (RESULTS / f"{name}.json").read_text("utf-8")
    for before, now in TODAY:
        text = text.replace(before, now)
    return json.loads(text)


def figures(name: str) -> Any:
    """Return the figures of a result."""
    return record(name)["figures"]


def earlier(name: str) -> str:
    """Return the mark of figures that were measured with an earlier default model, "" for others."""
    return "" if record(name).get("default model") == default_model() else " (earlier model)"


def made_by() -> str:
    """Name the commands that make the results read since the last call."""
    names = list(read)
    makefile = MAKEFILE.read_text("utf-8")
    by_make = [name for name in names if re.search(rf"^(?:[\w ]+ )?{re.escape(name)}(?: [\w ]+)?:", makefile, re.M)]
    commands = {name: str(record(name)["command"]).split() for name in names if name not in by_make}
    recipe = "make -f recipes/Makefile"  # what has no script in benchmarks/
    others = [words[1] if words[0] == "python" else f"{recipe} {name}" for name, words in commands.items()]
    read.clear()
    made = [f"`make -f benchmarks/Makefile {' '.join(by_make)}`"] if by_make else []
    return " and ".join([*made, *(f"`{other}`" for other in dict.fromkeys(others))])


class Figure:
    """A figure, or some by name, as templates name and write them: `{trex[0.9][answered]:.1 %}`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, key: int | str) -> "Figure":
        key = str(key) if isinstance(self.value, dict) else key
        try:
            return Figure(self.value[key])
        except (KeyError, IndexError, TypeError):
            raise SystemExit(f"{key!r} is not in the results: there is {list(self.value)!s:.200}") from None

    def __format__(self, form: str) -> str:
        value = self.value
        if value is None:
            return "–"
        if isinstance(value, str):
            return value.rstrip()
        if form == "±":  # a mean and the ends of its interval
            return f"{value[0]:.1f} ±{(value[2] - value[1]) / 2:.1f}"
        if form == "gain":  # the same of a difference
            return f"{value[0]:+.1f} ±{(value[2] - value[1]) / 2:.1f}"
        if form == "mean and gain":
            return f"{value[0]:.1f} ({value[1]:+.1f} ±{(value[3] - value[2]) / 2:.1f})"
        if form == "share":  # a share and the ends of its interval
            return f"{100 * value[0]:.0f} % ({100 * value[1]:.0f}–{100 * value[2]:.0f})"
        if form.endswith(" %"):
            return f"{100 * value:{form[:-2]}f} %"
        factor, times, rest = form.partition("*")
        return format(float(factor) * value, rest) if times else format(value, form)


class Names(dict[str, Any]):
    """The names that a template may use: the fields of its row, then computed figures, then results."""

    def __missing__(self, name: str) -> Figure:
        import computed  # which reads results with this module

        return Figure(getattr(computed, name)() if hasattr(computed, name) else figures(name))


def fill(template: str, names: Mapping[str, Any] | None = None, labels: Sequence[str] = ()) -> str:
    """Fill in a template, whose numbers are labels, from 1."""
    return string.Formatter().vformat(template, ["", *labels], Names(names or {}))


def render(place: str, places: Mapping[str, Sequence[Part]]) -> str:
    """Return the texts and tables of one place; a part that is `like` another place begins as its first part."""
    parts = [{**places[part["like"]][0], **part} if "like" in part else part for part in places[place]]
    return "\n\n".join(fill(part["text"]).strip("\n") if "text" in part else _table(part) for part in parts)


def _table(part: Part) -> str:
    if "cells" in part:
        grid = [[fill(cell) for cell in line] for line in part["cells"]]
    else:
        rows = list(_rows(part))
        labels = _without_repetition([[fill(label, names) for label in labels] for labels, names in rows])
        grid = [[fill(head) for head, _ in part["columns"]]]
        for shown, (_, names) in zip(labels, rows, strict=True):
            grid.append([fill(cell, names, shown) for _, cell in part["columns"]])
    head, *lines = zip(*grid, strict=True) if part.get("transposed") else grid
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def _without_repetition(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Leave out labels that repeat the row above, from the left, but never the last."""
    shown: list[list[str]] = []
    above: Sequence[str] = ()
    for labels in rows:
        same = 0
        while above and same < len(labels) - 1 and labels[same] == above[same]:
            same += 1
        shown.append([*[""] * same, *labels[same:]])
        above = labels
    return shown


Row = tuple[list[str], dict[str, Any]]  # labels, and what its templates may name


def _rows(part: Part) -> Iterator[Row]:
    """Walk along the path of the rows, or along each of several, whose labels stand before it."""
    paths = [[part["rows"]]] if isinstance(part["rows"], str) else part["rows"]
    for *labels, path in paths:
        root, *keys = path.replace("]", "").split("[")
        names = {"earlier": earlier(root)} if (RESULTS / f"{root}.json").exists() else {}
        yield from _below(Names()[root], keys, part, labels, names)


def _below(found: Figure, keys: Sequence[str], part: Part, labels: list[str], names: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows below some figures, which see the fields of all that is above them, too."""
    own = {name: found[name] for name in found.value} if isinstance(found.value, dict) else {}
    names = names | own | {"row": found}
    if not keys:
        yield labels, names
        return
    key, *rest = keys
    if not key.startswith("*"):
        yield from _below(found[key], rest, part, labels, names)
        return
    for name, label in _choices(found.value, part.get(key[1:])):
        yield from _below(found[name], rest, part, [*labels, label], names)


def _choices(value: Any, wanted: Any) -> Iterator[tuple[Any, str]]:
    """Yield names and labels at a star of a path: those that are wanted, or all that are not single figures."""
    if isinstance(value, list):
        yield from ((number, str(number)) for number in range(len(value)))
    elif isinstance(wanted, list):
        yield from ((one, one) if isinstance(one, str) else (one[0], one[1]) for one in wanted)
    else:
        names = fnmatch.filter(value, wanted or "*")
        yield from ((name, name) for name in names if isinstance(value[name], dict | list))
