"""Cells of XLSX: a table holds what a spreadsheet shows."""

from datetime import date
from pathlib import Path

import pytest

from kbq.storage.rows import read_xlsx

openpyxl = pytest.importorskip("openpyxl", reason="it writes XLSX")


@pytest.mark.parametrize(
    ("value", "format", "shown"),
    [
        (0.075, "0.0%", "7.5%"), (0.07, "0%", "7%"), (2345, "00000", "02345"), (date(1931, 1, 1), "yyyy", 1931),
        (1931, "General", 1931), (0.075, "General", 0.075),
    ],
)  # fmt: skip
def test_a_cell_is_what_its_format_shows(value: object, format: str, shown: object, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append([value])
    book.active["A1"].number_format = format
    book.save(tmp_path / "a.xlsx")
    assert read_xlsx(str(tmp_path / "a.xlsx")) == [(1, [shown])]
