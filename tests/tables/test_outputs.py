"""Claim tables: pandas, duckdb's protocol and a CSV reader find every claim as it is, and no
formula.
"""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbq.dump.page_directory import PageValue
from kbq.english.dates import DateValue
from kbq.errors import KbqError
from kbq.tables.claims import Claim, QuantityValue, write_claims
from kbq.tables.outputs import COLUMNS, export, long_table, origin_of, to_arrow, write_long

BIRTH = Claim(
    subject="Marie Curie", relation="date of birth", value="7 November 1867", probability=0.93, accepted=True,
    page_id="S1", title="Marie Curie", paragraph=2, start=120, end=135, sentence="She was born on 7 November 1867.",
    sentence_start=104, normal=DateValue("1867-11-07", 11), metadata={"url": "https://example.org/curie"},
)  # fmt: skip
LENGTH = replace(
    BIRTH, relation="length", value="12 km", start=104, end=109, sentence='12 km,\n"long"\t', probability=None,
    accepted=False, normal=QuantityValue("12", "km"),
)  # fmt: skip
PLACE = replace(
    BIRTH,
    relation="place",
    value="Warsaw",
    start=104,
    end=110,
    sentence="Warsaw",
    normal=PageValue("S9", "W"),
)
AWFUL = replace(
    BIRTH,
    subject="=1+1",
    relation="@x",
    title="\tx",
    page_id="-cmd",
    normal=None,
    value="+49 171 1",
)
ROWS: list[list[Any]] = [
    ["Marie Curie", "date of birth", "7 November 1867", 0.93, True, "date", "1867-11-07", None, "S1", "Marie Curie",
     2, 120, 135, "She was born on 7 November 1867.", 1],
    ["Marie Curie", "length", "12 km", None, False, "quantity", "12", "km", "S1", "Marie Curie",
     2, 104, 109, '12 km,\n"long"\t', 1],
    ["Marie Curie", "place", "Warsaw", 0.93, True, "page", "S9", None, "S1", "Marie Curie", 2, 104, 110, "Warsaw", 1],
]  # fmt: skip


def cells(path: Path, **how: Any) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, **how))


def test_a_long_table() -> None:
    table = long_table([BIRTH, LENGTH, PLACE])
    assert list(table.columns) == list(COLUMNS)
    assert [list(row.values()) for row in table.rows] == ROWS


def test_csv(tmp_path: Path) -> None:
    assert write_long(tmp_path / "long.csv", [BIRTH, LENGTH, PLACE], "csv") == 0
    expected = [
        [
            "" if cell is None else str(cell).lower() if cell in (True, False) else str(cell)
            for cell in row
        ]
        for row in ROWS
    ]
    assert cells(tmp_path / "long.csv") == [list(COLUMNS), *expected]


def test_formulas_are_neutralised(tmp_path: Path) -> None:
    assert write_long(tmp_path / "long.csv", [AWFUL], "csv") == 4
    _, row = cells(tmp_path / "long.csv")
    assert row[:3] + row[8:10] == ["'=1+1", "'@x", "+49 171 1", "'-cmd", "'\tx"]


def test_tsv_has_a_line_a_claim(tmp_path: Path) -> None:
    write_long(tmp_path / "long.tsv", [LENGTH], "tsv")
    lines = (tmp_path / "long.tsv").read_text("utf-8").splitlines()
    # In quotation marks, as other programs read it.
    assert lines[1].split("\t")[-2:] == [
        '"12 km, ""long"" "',
        "1",
    ]


def test_parquet_is_read_by_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    pandas: Any = pytest.importorskip("pandas", reason="Parquet is read by pandas")
    write_long(tmp_path / "long.parquet", [BIRTH, LENGTH, PLACE], "parquet")
    frame = pandas.read_parquet(tmp_path / "long.parquet")
    assert list(frame.columns) == list(COLUMNS)
    assert [
        [None if cell is None or cell != cell else cell for cell in row]
        for row in frame.values.tolist()
    ] == ROWS
    assert frame["probability"].mean() == pytest.approx(0.93)
    assert [path.name for path in tmp_path.iterdir()] == ["long.parquet"]


def test_half_a_pair_is_no_character(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="Arrow needs pyarrow")
    claim = replace(BIRTH, subject="half \ud83d of a pair")
    assert to_arrow([claim])["subject"].to_pylist() == ["half \ufffd of a pair"]


@pytest.mark.parametrize("claims", [[], [BIRTH], [LENGTH]])
def test_types_do_not_depend_on_the_claims(claims: list[Claim]) -> None:
    pytest.importorskip("pyarrow", reason="Arrow needs pyarrow")
    arrow = to_arrow(claims)
    assert {field.name: str(field.type) for field in arrow.schema} == COLUMNS
    assert arrow.num_rows == len(claims)
    assert hasattr(arrow, "__arrow_c_stream__")  # what polars and duckdb ask for


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(KbqError, match=r"Parquet needs pyarrow: pip install pyarrow, or use CSV"):
        write_long(tmp_path / "long.parquet", [BIRTH], "parquet")
    assert list(tmp_path.iterdir()) == []


# Exports


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    path = tmp_path / "f.claims.jsonl"
    write_claims(path, [BIRTH, LENGTH])
    return path


def test_claims_alone_are_exported_without_properties(claims: Path, tmp_path: Path) -> None:
    counts = export(claims, "rdf", tmp_path / "f.nt")
    assert (counts.claims, counts.accepted) == (2, 1)
    triple = (
        '<urn:kbq:thing:Marie%20Curie> <urn:kbq:relation:date%20of%20birth> "1867-11-07"^^<{}> .\n'
    )
    assert (tmp_path / "f.nt").read_text("utf-8") == triple.format(
        "http://www.w3.org/2001/XMLSchema#date"
    )
    export(claims, "rdf", tmp_path / "f.nt", relations=["@date of birth"])
    assert "<http://www.wikidata.org/prop/direct/P569>" in (tmp_path / "f.nt").read_text("utf-8")
    assert origin_of(claims)[1] == []


def test_a_long_table_that_a_spreadsheet_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KbqError, match=r"more than 32,767 characters in 'sentence'"):
        write_long(tmp_path / "long.xlsx", [replace(BIRTH, sentence="x" * 40_000)], "xlsx")
    assert not list(tmp_path.iterdir())


def test_a_long_table_has_the_format_of_its_ending(claims: Path, tmp_path: Path) -> None:
    export(claims, "long", tmp_path / "f.TSV")
    assert cells(tmp_path / "f.TSV", delimiter="\t")[1][:3] == [
        "Marie Curie",
        "date of birth",
        "7 November 1867",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"to": "trig"}, "cannot export to 'trig': choose from rdf, quickstatements, long, review"),
        (
            {"to": "long", "ids": "x"},
            "long has no Q-numbers, so ids have no effect: leave them out",
        ),
        ({"to": "long", "out": "f.doc"}, "f.doc ends like no table: end it in .csv, .tsv"),
        (
            {"out": "f.claims.jsonl"},
            "f.claims.jsonl is the file of claims itself: choose another out=…",
        ),
        ({"claims": "no.jsonl"}, "no.jsonl: cannot be read (No such file or directory)"),
        (
            {"claims": "bad.claims.jsonl"},
            "bad.claims.jsonl is no file of claims, as `kbq fill` writes it: 2 lines of",
        ),
        ({"claims": "f.csv"}, "f.csv is the table: its claims are in "),
        ({"claims": "old.claims.jsonl"}, "old.run.json is damaged"),
    ],
)
def test_what_cannot_be_exported(
    words: dict[str, Any], said: str, claims: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.claims.jsonl").write_text('{"subject": "x"}\n[]\n')
    (tmp_path / "old.claims.jsonl").write_bytes(claims.read_bytes())
    (tmp_path / "old.run.json").write_text('{"relations": [{"nam": 1}]}')
    words = {"claims": claims.name, "to": "rdf", "out": "f.nt"} | words
    before = claims.read_bytes()
    with pytest.raises(KbqError) as caught:
        export(
            tmp_path / words["claims"], words["to"], tmp_path / words["out"], ids=words.get("ids")
        )
    assert said in str(caught.value)
    assert claims.read_bytes() == before
    assert not (tmp_path / "f.nt").exists()
