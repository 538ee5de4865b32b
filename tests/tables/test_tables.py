"""Tables: what is read is written again as it was, and a bad table is one sentence."""

import bz2
import csv
import gzip
import json
import lzma
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.errors import KbqError
from kbq.storage import lines, reading
from kbq.storage import rows as row_reader
from kbq.tables.tables import (
    Table,
    as_arrow,
    is_formula,
    read_table,
    refuse_unwritable,
    subject_of,
    texts_of,
    write_table,
)

CELLS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.lists(
    st.text("abc éß,\"'\t", min_size=1, max_size=4), min_size=1, max_size=3, unique=True
).filter(
    lambda names: any(name.strip() for name in names)  # a blank header is an empty file
)


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("name", "content", "columns", "rows"),
    [
        ("t.csv", b"\xef\xbb\xbfname,born\r\nCurie,\r\n", ("name", "born"), [{"name": "Curie", "born": ""}]),
        ("t.csv", b'a,b\n"x\r\ny",z\r1,2\r\n\n', ("a", "b"), [{"a": "x\r\ny", "b": "z"}, {"a": "1", "b": "2"}]),
        ("t.csv", b'a,b\nshort\n"say ""hi""",2\n', ("a", "b"), [{"a": "short"}, {"a": 'say "hi"', "b": "2"}]),
        ("t.csv", b"a,b\n" + b"x" * 200_000 + b",1\n", ("a", "b"), [{"a": "x" * 200_000, "b": "1"}]),
        ("t.tsv", b'song\tby\n"Heroes"\tBowie\n', ("song", "by"), [{"song": '"Heroes"', "by": "Bowie"}]),
        ("t.tsv", b'a\tb\n"say ""hi"""\t5" disk\n""\t"\n', ("a", "b"),
         [{"a": 'say "hi"', "b": '5" disk'}, {"a": "", "b": '"'}]),
        ("t.csv", b"a,b\r1,2\r3,4\r", ("a", "b"), [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ("t", b"song\tby\nx\ty\n", ("song", "by"), [{"song": "x", "by": "y"}]),
        ("t.csv", b"a;b\r\n1,5;2\r\n", ("a", "b"), [{"a": "1,5", "b": "2"}]),
        ("t.csv", b'a\tb\n"x\ty"\t2\n', ("a", "b"), [{"a": "x\ty", "b": "2"}]),
        ("t.csv", b"\r\na,b\r1,2\r", ("a", "b"), [{"a": "1", "b": "2"}]),
        ("t.json", b'[\n {"s": "x"},\n {"s": "y", "n": [1]}\n]\n', ("s", "n"), [{"s": "x"}, {"s": "y", "n": [1]}]),
        ("t.csv", b'\xef\xbb\xbf[{"s": "x"}]', ("s",), [{"s": "x"}]),
        ("t", b'\n{"s": "x", "n": [1, {"a": null}]}\n\n{"s": "y", "m": 1.5}', ("s", "n", "m"),
         [{"s": "x", "n": [1, {"a": None}]}, {"s": "y", "m": 1.5}]),
    ],
)  # fmt: skip
def test_tables_are_read(
    name: str, content: bytes, columns: tuple[str, ...], rows: object, file: Callable[..., Path]
) -> None:
    table = read_table(file(name, content))
    assert (table.columns, table.rows) == (columns, rows)


def test_a_thousand_columns_and_a_compressed_file(file: Callable[..., Path]) -> None:
    header = ",".join(f"c{number}" for number in range(1000))
    table = read_table(file("t.csv.gz", gzip.compress(f"{header}\n{',' * 999}\n".encode())))
    assert (len(table.columns), table.rows[0]["c999"]) == (1000, "")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "t.csv",
            b"",
            "t.csv is empty: write a header with the names of the columns, and rows below it",
        ),
        ("t.csv", b" \n\n", "t.csv is empty: write a header"),
        ("t.csv", b"a,b,a\n", "t.csv has 2 columns 'a': give each its own name"),
        ("t.csv", b"a,b\n1,2,3\n", "t.csv cannot be used"),
        ("t.csv", b"subject,river\nWashington, D.C.,\n", "t.csv cannot be used"),
        ("t.tsv", b"a\tb\n1\t2\t\n", "t.tsv cannot be used"),
        ("t.json", b'[{"a": 1}, 2]', "t.json:1: 2 is not a JSON object: write an array"),
        ("t.json", b'[{"a": 1}\n{"a": 2}]', "t.json:1: not JSON (',' or ']' is missing)"),
        (
            "t.csv",
            b'a,b\n1,"2\n',
            "t.csv:2: unexpected end of data: is it a CSV or TSV file, and all its quotation",
        ),
        ("t.jsonl", b'{"a": 1}\nx\n', "t.jsonl:2: not JSON"),
        ("t.parquet", b"no", "t.parquet cannot be read"),
        (
            "t.xls",
            b"PK",
            "t.xls is a spreadsheet, which kbq does not read: save it as .xlsx, or as CSV",
        ),
    ],
)
def test_a_bad_table_is_one_sentence(
    name: str, content: bytes, said: str, file: Callable[..., Path]
) -> None:
    with pytest.raises(KbqError) as caught:
        read_table(file(name, content))
    assert said in str(caught.value)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller limit, so that a bomb is made quickly."""
    for module in (lines, reading):
        monkeypatch.setattr(module, "LARGEST", 2**20)


LONG = b"x" * 2**17
TABLES = {
    "one.csv": (
        b'subject\n"' + (LONG + b"\n") * 9 + b'"\n',
        "1,048,576 at most are read: divide it",
    ),
    "line.csv": (
        b"x" * (2**20 + 2),
        ":1: the line has 1,048,577 bytes, 1,048,576 at most are read: divide it",
    ),
    "deep.jsonl": (
        b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}",
        "its lists are nested more than 100 deep",
    ),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_a_table_that_is_too_large_is_one_sentence(
    name: str, compress: Callable[[bytes], bytes], file: Callable[..., Path]
) -> None:
    content, said = TABLES[name]
    with pytest.raises(KbqError, match=re.escape(said)):
        read_table(file(name, compress(content)))


def test_parquet_that_is_too_large_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = pytest.importorskip("pyarrow", reason="Parquet needs it")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs it")
    monkeypatch.setattr(row_reader, "SECONDS", 1.0)
    text = "x" * 2**20
    columns = {
        "equal texts": arrow.DictionaryArray.from_arrays(
            arrow.array([0] * 2000), arrow.array([text])
        ),
        "in lists": arrow.ListArray.from_arrays(
            [0, 2000], arrow.DictionaryArray.from_arrays([0] * 2000, [text])
        ),
        "rows": arrow.nulls(50_000_000),
    }
    for name, column in columns.items():
        parquet.write_table(
            arrow.table({"s": column}), tmp_path / f"{name}.parquet", compression="zstd"
        )
    said = r"at most are read: divide it|to read: divide it into several tables, or save it as CSV"
    for path in sorted(tmp_path.iterdir()):
        assert path.stat().st_size < 200_000
        with pytest.raises(KbqError, match=said):
            read_table(path)


def test_parquet_keeps_all_kinds_of_texts(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs it")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs it")
    kinds = [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(), pyarrow.binary()]
    columns = {str(kind): pyarrow.array(["a", None, "a"], kind) for kind in kinds}
    columns |= {
        "coded": pyarrow.array(["a", None, "a"]).dictionary_encode(),
        "lists": pyarrow.array([["x"], [], None]),
    }
    columns["structures"] = pyarrow.array([{"b": "y"}, None, {"b": None}])
    table = pyarrow.table(columns)
    parquet.write_table(table, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert (read.arrow.to_pylist(), read.arrow.schema) == (table.to_pylist(), table.schema)
    assert read.rows == [row | {"binary": row["string"]} for row in table.to_pylist()]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("no.csv", "no.parquet"):
        with pytest.raises(KbqError, match=rf"{name}.*cannot be read"):
            read_table(tmp_path / name)


@given(names=NAMES, cells=st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=4))
def test_what_is_written_as_csv_is_read_as_it_was(
    names: list[str], cells: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.csv"
    rows = [dict(zip(names, row, strict=False)) for row in cells]
    write_table(Table(tuple(names), rows), path, "csv")
    read = read_table(path)
    assert (read.columns, read.rows) == (tuple(names), rows)


@given(cells=st.lists(st.lists(st.text("ab\" '", max_size=6), min_size=2, max_size=2), max_size=6))
def test_what_is_written_as_tsv_is_read_as_it_was_here_and_elsewhere(
    cells: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.tsv"
    rows = [dict(zip("st", row, strict=True)) for row in cells]
    write_table(Table(("s", "t"), rows), path, "tsv")
    assert read_table(path).rows == rows
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file, delimiter="\t"))[1:] == cells


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "@SUM(A1)",
        "-cmd|x",
        " =1",
        "\t1",
        "\n=1",
        "+a",
        "＝1",
        '=HYPERLINK("http://e.org")',
        "-5+cmd|x",
    ],
)
def test_whatever_comes_from_a_corpus_is_no_formula(text: str, tmp_path: Path) -> None:
    table = Table(("page_id", "subject"), [{"page_id": text, "subject": f"{text}|b"}]).all_filled()
    filled = replace(
        table,
        columns=("page_id", "subject", text),
        rows=[dict(table.rows[0]) | {text: text}],
        before=table,
    )
    for written in (table, filled):
        write_table(written, tmp_path / "t.csv", "csv")
        with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
            header, cells = csv.reader(file)
        assert all(cell.startswith("'") for cell in cells)
        assert not any(map(is_formula, header))


def test_only_what_was_filled_gets_an_apostrophe(tmp_path: Path) -> None:
    before = Table(
        ("s", "own", "new"),
        [{"s": "=1+1", "own": "@x", "new": ""}, {"s": "b", "own": "", "new": ""}],
    )
    rows = [
        dict(before.rows[0]) | {"new": "=cmd|x"},
        dict(before.rows[1]) | {"own": "-5", "new": ["@a", "b"]},
    ]
    table = replace(before, rows=rows, before=before)
    assert write_table(table, tmp_path / "t.csv", "csv") == 2
    assert (tmp_path / "t.csv").read_text() == "s,own,new\n=1+1,@x,'=cmd|x\nb,-5,'@a|b\n"
    assert write_table(table, tmp_path / "t.jsonl", "jsonl") == 0
    assert json.loads((tmp_path / "t.jsonl").read_text().splitlines()[1])["new"] == ["@a", "b"]


def test_tsv_has_no_form_for_tabs_and_line_ends(tmp_path: Path) -> None:
    table = Table(("s",), [{"s": "a"}, {"s": "a\nb"}])
    with pytest.raises(
        KbqError, match="row 2 has a tab or a line end in 's', which TSV cannot hold: write CSV"
    ):
        refuse_unwritable(table, "tsv")
    before = Table(("s",), [{"s": ""}])
    write_table(Table(("s",), [{"s": "a\n b"}], before=before), tmp_path / "t.tsv", "tsv")
    assert (tmp_path / "t.tsv").read_text() == "s\na  b\n"


def test_parquet_keeps_the_types_of_what_was_not_filled(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas reads what was written")
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs it")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs it")
    times = pyarrow.array([1, None], pyarrow.timestamp("ns"))
    arrow = pyarrow.table(
        {"s": ["a", "b"], "year": [1815, None], "at": times, "many": pyarrow.nulls(2)}
    )
    parquet.write_table(arrow, tmp_path / "in.parquet")
    before = read_table(tmp_path / "in.parquet")
    assert before.rows[1] == {"s": "b", "year": None, "at": None, "many": None}
    rows = [
        before.rows[0],
        dict(before.rows[1]) | {"year": "1852", "many": ["x", "y"], "new": "=z"},
    ]
    write_table(
        replace(before, columns=(*before.columns, "new"), rows=rows, before=before),
        tmp_path / "out",
        "parquet",
    )
    schema = parquet.read_schema(tmp_path / "out")
    assert [str(schema.field(name).type) for name in ("at", "year", "new")] == [
        "timestamp[ns]",
        "int64",
        "string",
    ]
    frame = pandas.read_parquet(tmp_path / "out")
    assert frame["year"].tolist() == [1815, 1852]
    assert frame["new"][1] == "=z"
    assert list(frame["many"][1]) == ["x", "y"]


def test_a_table_of_rows() -> None:
    assert Table.of([{"a": 1}, {"b": "x"}]).columns == ("a", "b")
    for rows, said in (
        ([1], "row 1 of the table is 1: give a mapping"),
        ({"a": 1}, "the table is {'a': 1}"),
    ):
        with pytest.raises(KbqError, match=said):
            Table.of(rows)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "texts"), [("|a| b", ["a", "b"]), (1815, ["1815"]), ([None, "x"], ["x"])]
)
def test_the_values_of_a_cell(value: object, texts: list[str]) -> None:
    assert texts_of(value) == texts


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("int64", "1,985", 1985),
        ("float64", "2.5", 2.5),
        ("decimal128(6, 2)", "12.50", Decimal("12.50")),
        ("date32[day]", "7 November 1867", date(1867, 11, 7)),
        ("timestamp[us]", "7 November 1867", datetime(1867, 11, 7)),
        ("list<element: string>", "Warsaw", ["Warsaw"]),
        ("list<element: int64>", ["1", "2"], [1, 2]),
        ("binary", "Łódź", "Łódź".encode()),
        ("int64", "about 5", None),
        ("int64", "5 km", None),
        ("int64", "2.5", None),
        ("date32[day]", "1867", None),
        ("date32[day]", "15 April 1452", None),
        ("bool", "yes", None),
    ],
)
def test_what_is_filled_into_parquet_has_the_type_of_its_column_where_it_can(
    kind: str, value: Any, stored: Any
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs it")
    types = {
        "decimal128(6, 2)": pyarrow.decimal128(6, 2), "date32[day]": pyarrow.date32(), "bool": pyarrow.bool_(),
        "timestamp[us]": pyarrow.timestamp("us"), "list<element: string>": pyarrow.list_(pyarrow.string()),
        "list<element: int64>": pyarrow.list_(pyarrow.int64()),
    }  # fmt: skip
    found = as_arrow([None, value], types.get(kind) or getattr(pyarrow, kind)())
    assert (found and found.to_pylist()) == (None if stored is None else [None, stored])


def test_empty_columns_at_the_end_go_back_as_they_were(
    file: Callable[..., Path], tmp_path: Path
) -> None:
    before = read_table(file("t.csv", b"name,born,,\nAda,,,\n,,,\n"))
    rows = [dict(row) | {"died": "x"} for row in before.rows]
    table = replace(before, columns=(*before.columns, "died"), rows=rows, before=before)
    write_table(table, tmp_path / "out.csv", "csv")
    assert (tmp_path / "out.csv").read_text() == "name,born,died,,\nAda,,x,,\n,,x,,\n"


def test_whole_numbers_are_whole(file: Callable[..., Path], tmp_path: Path) -> None:
    table = read_table(file("t.jsonl", b'{"subject": 1984.0, "n": [1.0, 2.5], "x": 0.5}\n'))
    assert subject_of(table.rows[0]["subject"]) == "1984"
    assert texts_of(table.rows[0]["n"]) == ["1", "2.5"]
    write_table(table, tmp_path / "o.csv", "csv")
    assert (tmp_path / "o.csv").read_text() == 'subject,n,x\n1984,"[1.0, 2.5]",0.5\n'


def test_json_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    text = "a\u0085b\u2028c\u2029d\x0be\x1cf"
    write_table(Table(("t",), [{"t": text}]), tmp_path / "o.jsonl", "jsonl")
    (line,) = (tmp_path / "o.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line) == {"t": text}
