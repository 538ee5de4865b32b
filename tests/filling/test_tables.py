"""Tables: what is read is written again as it was, and a bad table is one sentence."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.errors import KbqError
from kbq.filling.tables import Table, read_table, refuse_unwritable, texts_of, write_table

CELLS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.lists(st.text("abc éß,\"'\t", min_size=1, max_size=4), min_size=1, max_size=3, unique=True).filter(
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
        ("t.csv", b'a,b\nshort\n"say ""hi""",2,\n', ("a", "b"), [{"a": "short"}, {"a": 'say "hi"', "b": "2"}]),
        ("t.csv", b"a,b\n" + b"x" * 200_000 + b",1\n", ("a", "b"), [{"a": "x" * 200_000, "b": "1"}]),
        ("t.tsv", b'song\tby\n"Heroes"\tBowie\n', ("song", "by"), [{"song": '"Heroes"', "by": "Bowie"}]),
        ("t", b"song\tby\nx\ty\n", ("song", "by"), [{"song": "x", "by": "y"}]),
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
    import gzip

    header = ",".join(f"c{number}" for number in range(1000))
    table = read_table(file("t.csv.gz", gzip.compress(f"{header}\n{',' * 999}\n".encode())))
    assert (len(table.columns), table.rows[0]["c999"]) == (1000, "")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"", "t.csv is empty: write a header with the names of the columns, and a row for each subject"),
        ("t.csv", b" \n\n", "t.csv is empty: write a header"),
        ("t.csv", b"a,b,a\n", "t.csv has 2 columns 'a': give each its own name"),
        ("t.csv", b"a,b\n1,2,3\n", "t.csv has 1 rows that cannot be used"),
        ("t.csv", b'a,b\n1,"2\n', "t.csv:2: unexpected end of data: is it a CSV or TSV file, and all its quotation"),
        ("t.csv", b"a\n\xff\n", "t.csv:2: not UTF-8 (byte 1 is 0xff): convert the file to UTF-8"),
        ("t.jsonl", b'{"a": 1}\nx\n', "t.jsonl:2: not JSON"),
        ("t.parquet", b"no", "t.parquet cannot be read"),
        ("t.xlsx", b"PK", "t.xlsx is a spreadsheet, which kbq does not read: save it as CSV in UTF-8"),
    ],
)
def test_a_bad_table_is_one_sentence(name: str, content: bytes, said: str, file: Callable[..., Path]) -> None:
    with pytest.raises(KbqError) as caught:
        read_table(file(name, content))
    assert said in str(caught.value)


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


def test_only_what_was_filled_gets_an_apostrophe(tmp_path: Path) -> None:
    before = Table(("s", "own", "new"), [{"s": "=1+1", "own": "@x", "new": ""}, {"s": "b", "own": "", "new": ""}])
    rows = [before.rows[0] | {"new": "=cmd|x"}, dict(before.rows[1]) | {"own": "-5", "new": ["@a", "b"]}]  # type: ignore[operator]
    table = replace(before, rows=rows, before=before)
    assert write_table(table, tmp_path / "t.csv", "csv") == 2
    assert (tmp_path / "t.csv").read_text() == "s,own,new\n=1+1,@x,'=cmd|x\nb,-5,'@a|b\n"
    assert write_table(table, tmp_path / "t.jsonl", "jsonl") == 0
    assert json.loads((tmp_path / "t.jsonl").read_text().splitlines()[1])["new"] == ["@a", "b"]


def test_tsv_has_no_form_for_tabs_and_line_ends(tmp_path: Path) -> None:
    table = Table(("s",), [{"s": "a"}, {"s": "a\nb"}])
    with pytest.raises(KbqError, match="row 2 has a tab or a line end in 's', which TSV cannot hold: write CSV"):
        refuse_unwritable(table, "tsv")
    before = Table(("s",), [{"s": ""}])
    write_table(Table(("s",), [{"s": "a\n b"}], before=before), tmp_path / "t.tsv", "tsv")
    assert (tmp_path / "t.tsv").read_text() == "s\na  b\n"


def test_parquet_keeps_the_types_of_what_was_not_filled(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas reads what was written")
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs it")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs it")
    times = pyarrow.array([1, None], pyarrow.timestamp("ns"))
    arrow = pyarrow.table({"s": ["a", "b"], "year": [1815, None], "at": times, "many": pyarrow.nulls(2)})
    parquet.write_table(arrow, tmp_path / "in.parquet")
    before = read_table(tmp_path / "in.parquet")
    assert before.rows[1] == {"s": "b", "year": None, "at": None, "many": None}
    rows = [before.rows[0], dict(before.rows[1]) | {"year": "1852", "many": ["x", "y"], "new": "=z"}]
    write_table(
        replace(before, columns=(*before.columns, "new"), rows=rows, before=before), tmp_path / "out", "parquet"
    )
    schema = parquet.read_schema(tmp_path / "out")
    assert [str(schema.field(name).type) for name in ("at", "year", "new")] == ["timestamp[ns]", "string", "string"]
    frame = pandas.read_parquet(tmp_path / "out")
    assert frame["year"].tolist() == ["1815", "1852"]
    assert frame["new"][1] == "=z"
    assert list(frame["many"][1]) == ["x", "y"]


def test_a_table_of_rows() -> None:
    assert Table.of([{"a": 1}, {"b": "x"}]).columns == ("a", "b")
    for rows, said in (([1], "row 1 of the table is 1: give a mapping"), ({"a": 1}, "the table is {'a': 1}")):
        with pytest.raises(KbqError, match=said):
            Table.of(rows)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "texts"), [("|a| b", ["a", "b"]), (1815, ["1815"]), ([None, "x"], ["None", "x"])])
def test_the_values_of_a_cell(value: object, texts: list[str]) -> None:
    assert texts_of(value) == texts
