"""Tables: pages show the figures of results/, as benchmarks/tables.toml says."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def rendering() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("rendering")
    for name in ("rendering", "reporting", "computed"):
        sys.modules.pop(name, None)


def test_pages_show_what_results_hold(rendering: ModuleType) -> None:
    spec = importlib.util.spec_from_file_location("tables_of_results", BENCHMARKS / "tables.py")
    assert spec
    assert spec.loader
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    stale = [page.name for page, text in tables.pages().items() if page.read_text("utf-8") != text]
    assert not stale, "run python benchmarks/tables.py"


@pytest.mark.parametrize(
    ("value", "form", "written"),
    [
        (0.14, ".1 %", "14.0 %"),
        ([67.16, 65.0, 69.2], "±", "67.2 ±2.1"),
        ([6.0, 4.5, 7.5], "gain", "+6.0 ±1.5"),
        ([81.7, 11.9, 9.7, 14.1], "mean and gain", "81.7 (+11.9 ±2.2)"),
        ([0.47, 0.42, 0.52], "share", "47 % (42–52)"),
        (1_329_550, "1e-6*.1f", "1.3"),
        (20763, ",", "20,763"),
        (None, ".1f", "–"),
    ],
)
def test_forms_of_figures(value: object, form: str, written: str, rendering: ModuleType) -> None:
    assert f"{rendering.Figure(value):{form}}" == written


def test_a_table(rendering: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"a": {"n": 3, "one": {"ms": 1.25}, "two": {"ms": 2}}, "b": {"n": 4, "one": {"ms": 3}}}
    monkeypatch.setattr(rendering, "figures", lambda name: {"trips": found}[name])
    part = {
        "rows": "trips[*SET][*WAY]",
        "SET": [["a", "A ({n})"], ["b", "B ({n})"]],
        "columns": [["set", "{1}"], ["way", "{2}"], ["ms, of {trips[a][n]}", "{ms:.1f}"]],
    }
    assert rendering.render("place", {"place": [part]}).splitlines() == [
        "| set | way | ms, of 3 |",
        "| --- | --- | --- |",
        "| A (3) | one | 1.2 |",
        "|  | two | 2.0 |",
        "| B (4) | one | 3.0 |",
    ]
    columns = [["way", "{1}"], ["ms", "{ms:g}"]]
    other = {"like": "place", "rows": "trips[a][*WAY]", "columns": columns, "transposed": True}
    assert rendering.render("other", {"place": [part], "other": [other]}).splitlines()[2:] == ["| ms | 1.25 | 2 |"]
