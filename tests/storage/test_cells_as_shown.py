"""Cells of XLSX: a table holds what a spreadsheet shows."""

import csv
import os
import random
import shutil
import subprocess
from datetime import date, time, timedelta
from pathlib import Path

import pytest

from kbq.storage.spreadsheets import read_xlsx

openpyxl = pytest.importorskip("openpyxl", reason="it writes XLSX")


@pytest.mark.parametrize(
    ("value", "format", "shown"),
    [
        (0.075, "0.0%", "7.5%"), (0.07, "0%", "7%"), (2345, "00000", "02345"), (date(1931, 1, 1), "yyyy", 1931),
        (1931, "General", 1931), (0.075, "General", 0.075), (1234.5, "#,##0.00", 1234.5),
        (1234.5, '"$"#,##0.00', "$1,234.50"), (-5, '"$"0_);("$"0)', "($5)"), (12.5, "0.0\\ [$€-407]", "12.5 €"),
        (12, '[Red]0.##" kg"', "12 kg"), (2500, '0.0,"k"', "2.5k"), (123456789, "000-00-0000", "123-45-6789"),
        (timedelta(hours=30), "[h]:mm", "30:00"), (timedelta(minutes=75, seconds=9), "[mm]:ss", "75:09"),
        (time(9, 5), "h:mm", "9:05"), (date(1931, 5, 1), "mmmm yyyy", "1931-05"),
    ],
)  # fmt: skip
def test_a_cell_is_what_its_format_shows(
    value: object, format: str, shown: object, tmp_path: Path
) -> None:
    book = openpyxl.Workbook()
    book.active.append([value])
    book.active["A1"].number_format = format
    book.save(tmp_path / "a.xlsx")
    assert read_xlsx(str(tmp_path / "a.xlsx")) == [(1, [shown])]


DIGITS = ("0", "#,##0", "0.0", "#,##0.00", "00000", "0.##", "#,##0,", "000", "0.0#", "#", "00.0")
FORMS = (
    "{}", "{}%", "{} %", '"$"{}', '{}" kg"', "{}\\ \\m", "[$€-407]{}", "{} [$€-407]", '"No. "{}', '{}" m";-{}" m"',
    '"$"{}_);("$"{})', '[Red]{}" t"', '{}"°"', '{}" kg";"("{}" kg)";"none"', "£{}", "00000-0000", "000-00-0000",
)  # fmt: skip
CLOCKS = ("[h]:mm", "[h]:mm:ss", "[hh]:mm", "[mm]:ss", "[m]:ss", "[s]")


def random_cell(chance: random.Random) -> tuple[object, str]:
    if chance.random() < 0.2:
        return timedelta(seconds=chance.randrange(400_000)), chance.choice(CLOCKS)
    large, small = (
        chance.randrange(10 ** chance.randrange(1, 8)),
        round(chance.uniform(-50, 50), chance.randrange(4)),
    )
    number = chance.choice((large, small, 0, 0.5, 0.075, -large))
    return number, chance.choice(FORMS).replace("{}", chance.choice(DIGITS))


@pytest.mark.slow
def test_formats_show_what_libreoffice_shows(tmp_path: Path) -> None:
    """KBQ_CASES sets how many random cells are shown by both."""
    program = shutil.which("soffice")
    if program is None:
        pytest.skip("LibreOffice is not installed")
    chance = random.Random(7)
    cells = [random_cell(chance) for _ in range(int(os.environ.get("KBQ_CASES", "300")))]
    book = openpyxl.Workbook()
    for number, (value, format) in enumerate(cells, start=1):
        book.active.cell(number, 1, value).number_format = format
        book.active.cell(number, 2, "x")
    book.save(tmp_path / "a.xlsx")
    home = f"-env:UserInstallation={(tmp_path / 'home').as_uri()}"
    written = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true"
    folder, made = str(tmp_path), str(tmp_path / "a.xlsx")
    command = [program, home, "--headless", "--convert-to", written, "--outdir", folder, made]
    subprocess.run(command, capture_output=True, check=True, timeout=300)
    lines = (tmp_path / "a.csv").read_text("utf-8").splitlines()
    theirs = [" ".join(row[0].split()) for row in csv.reader(lines)]
    ours = [row[0] for _, row in read_xlsx(str(tmp_path / "a.xlsx"))]
    told = list(zip(cells, ours, theirs, strict=True))
    assert [one for one in told if isinstance(one[1], str) and one[1] != one[2]] == []
    assert sum(isinstance(one, str) for one in ours) > 0.8 * len(ours)
