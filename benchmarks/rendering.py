"""Rendering: what benchmarks wrote down, as Markdown."""

import json
from pathlib import Path
from typing import Any

from reporting import default_model

ROOT = Path(__file__).parents[1]


def figures(name: str) -> Any:
    return record(name)["figures"]


def record(name: str) -> Any:
    """A result, in today's words: it may have been written when kbq called these otherwise."""
    text = (ROOT / "results" / f"{name}.json").read_text("utf-8")
    for before, now in (("an approximate", "a disk"), ("approximate", "disk"), ('"sparse"', '"sparta"')):
        text = text.replace(before, now)
    return json.loads(text)


def earlier(name: str) -> str:
    """What a label says of figures that were measured with a default model before the present one."""
    return "" if record(name).get("default model") == default_model() else " (earlier model)"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def interval(value: list[float]) -> str:
    mean, low, high = value
    return f"{mean:.1f} ±{(high - low) / 2:.1f}"
