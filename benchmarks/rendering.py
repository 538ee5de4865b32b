"""Rendering: what benchmarks wrote down, as Markdown."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def figures(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))["figures"]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def interval(value: list[float]) -> str:
    mean, low, high = value
    return f"{mean:.1f} ±{(high - low) / 2:.1f}"
