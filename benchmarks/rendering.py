"""Rendering: what benchmarks wrote down, as Markdown."""

import json
import re
from pathlib import Path
from typing import Any

from reporting import default_model

ROOT = Path(__file__).parents[1]
read: dict[str, None] = {}  # the results that were looked at, in this order


def figures(name: str) -> Any:
    return record(name)["figures"]


def record(name: str) -> Any:
    """A result, in today's words: it may have been written when kbq called these otherwise."""
    read[name] = None
    text = (ROOT / "results" / f"{name}.json").read_text("utf-8")
    for before, now in (("an approximate", "a disk"), ("approximate", "disk"), ('"sparse"', '"sparta"')):
        text = text.replace(before, now)
    return json.loads(text)


def made_by() -> str:
    """What makes the results that have been read since this was called."""
    names = list(read)
    read.clear()
    makefile = (ROOT / "benchmarks" / "Makefile").read_text("utf-8")
    by_make = [name for name in names if re.search(rf"^(?:[\w ]+ )?{re.escape(name)}(?: [\w ]+)?:", makefile, re.M)]
    commands = {name: str(record(name)["command"]).split() for name in names if name not in by_make}
    recipe = "make -f recipes/Makefile"  # what has no script in benchmarks/
    others = [words[1] if words[0] == "python" else f"{recipe} {name}" for name, words in commands.items()]
    read.clear()
    made = [f"`make -f benchmarks/Makefile {' '.join(by_make)}`"] if by_make else []
    return " and ".join([*made, *(f"`{other}`" for other in dict.fromkeys(others))])


def earlier(name: str) -> str:
    """What a label says of figures that were measured with a default model before the present one."""
    return "" if record(name).get("default model") == default_model() else " (earlier model)"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def interval(value: list[float]) -> str:
    mean, low, high = value
    return f"{mean:.1f} ±{(high - low) / 2:.1f}"
