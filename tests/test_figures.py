"""Figures: the numbers that pages show stand in the results that they name.

`<!-- figures: NAME … -->` begins a passage whose numbers come from results/NAME.json, rounded, as
percentages, in thousands, millions or minutes, or as half the width of an interval. Numbers behind
the names are not from there: they come from a paper, or from arithmetic.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PASSAGE = re.compile(
    r"<!-- figures: (?P<named>[^\n]+) -->\n(?P<shown>.*?)<!-- /figures -->", re.DOTALL
)
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?")
SCALES = np.array([1, 100, 1e-3, 1e3, 1e-6, 1 / 60])
SMALL = 12  # whole numbers up to this one count tables and cells, and are not looked for


def numbers(found: object) -> Iterator[float]:
    """Every number in a result, in its names and texts, too; of an interval behind its mean, half
    the width as well.
    """
    if isinstance(found, dict):
        for name, value in found.items():
            yield from numbers(name)
            yield from numbers(value)
    elif isinstance(found, list):
        yield float(len(found))
        for value in found:
            yield from numbers(value)
        if len(found) > 2 and all(isinstance(value, float | int) for value in found):
            yield (found[-1] - found[-2]) / 2
    elif isinstance(found, str):
        yield from (float(number.replace(",", "")) for number in NUMBER.findall(found))
    elif isinstance(found, float | int):
        yield abs(found)


def unknown(named: str, shown: str) -> list[str]:
    """The numbers of a passage that none of the results has."""
    given = set(named.split())
    results = [
        json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))
        for name in given
        if name[0].isalpha()
    ]
    known = np.outer(
        SCALES, [number for result in results for number in numbers(result["figures"])]
    ).ravel()
    wrong = []
    for text in NUMBER.findall(shown):
        value, decimals = float(text.replace(",", "")), len(text.partition(".")[2])
        is_small = decimals == 0 and value <= SMALL
        if not (
            is_small or text in given or np.any(np.abs(known - value) <= 0.501 * 10**-decimals)
        ):
            wrong.append(text)
    return wrong


def passages() -> list[tuple[str, str, str]]:
    found = [
        (page.name, one["named"], one["shown"])
        for page in PAGES
        for one in PASSAGE.finditer(page.read_text("utf-8"))
    ]
    assert len(found) > 40
    return found


@pytest.mark.parametrize(("page", "named", "shown"), passages())
def test_pages_show_what_results_hold(page: str, named: str, shown: str) -> None:
    assert unknown(named, shown) == [], f"{page} shows numbers that results do not have: {named}"


def test_a_wrong_number_is_noticed() -> None:
    assert unknown("reading", "EM 99.123") == ["99.123"]
