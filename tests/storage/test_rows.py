"""Rows: every dialect is read, and written back as it was; what does not fit is refused with its
line.
"""

import csv
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.errors import KbqError
from kbq.storage.rows import Dialect, read_rows
from kbq.tables.relations import read_ids, read_relations
from kbq.tables.tables import Table, read_table, write_table

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
NAMES = ["s", "né", "c 3"]


def zstd(content: bytes) -> bytes:
    from backports import zstd  # type: ignore[import-not-found,unused-ignore]

    return bytes(zstd.compress(content))


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._t.csv", "x")
        archive.writestr("t.csv", content)
    return buffer.getvalue()


@given(
    cells=st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=4),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.sampled_from(["", "\ufeff"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_what_is_read_is_written_again_in_the_same_dialect(
    cells: list[list[str]],
    delimiter: str,
    end: str,
    mark: str,
    quoting: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # The csv module quotes a lone CR or LF only where it is part of the line end.
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\r\n", quoting=quoting)  # type: ignore[arg-type]
    lines = []
    for row in [NAMES, *cells]:
        buffer.truncate(0)
        buffer.seek(0)
        writer.writerow(row)
        lines.append(buffer.getvalue().removesuffix("\r\n") + end)
    folder = tmp_path_factory.getbasetemp()
    (folder / "in.csv").write_bytes((mark + "".join(lines)).encode())
    table = read_table(folder / "in.csv")
    assert table.rows == [dict(zip(NAMES, row, strict=True)) for row in cells]
    write_table(table, folder / "out.csv", "csv")
    assert (folder / "out.csv").read_bytes() == (folder / "in.csv").read_bytes()


@pytest.mark.parametrize("pack", [zstd, zipped])
def test_compressed_rows(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "t.csv.zst"
    path.write_bytes(pack(b"a,b\n1,2\n"))
    assert read_table(path).rows == [{"a": "1", "b": "2"}]
    path.write_bytes(pack(b"a,b\n" + bytes(range(256)) * 99)[:-30])
    with pytest.raises(KbqError, match=r"compressed data is damaged|not UTF-8"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("a,b\n", Dialect("csv")),
        ("\ufeffa;b\r\n", Dialect("csv", ";", "\r\n", has_mark=True)),
        ('"a","b"\r', Dialect("csv", ",", "\r", quotes_all=True)),
        ("a\tb\n", Dialect("tsv", "\t")),
        ('\ufeff[{"a": 1}]', Dialect("jsonl", has_mark=True)),
        ("a|b\n", Dialect("csv", "|")),
        ("a, b, c\r\n", Dialect("csv", ",", "\r\n", has_blanks=True)),
        ("sep=;\r\na;b\r\n", Dialect("csv", ";", "\r\n")),
    ],
)
def test_dialects(text: str, dialect: Dialect, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(text.encode())
    assert read_rows(str(tmp_path / "t")).dialect == dialect


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('subject, born\n"Aal, Ann", 1\n', [{"subject": "Aal, Ann", "born": "1"}]),
        ("sep=|\nsubject|born\nAal, Ann|1\n", [{"subject": "Aal, Ann", "born": "1"}]),
        ("sep=\\\nsubject\\born\nAal, Ann\\1\n", [{"subject": "Aal, Ann", "born": "1"}]),
        ("sep=\r\nAal\r\n", [{"sep=": "Aal"}]),
    ],
)
def test_blanks_behind_delimiters_and_what_excel_writes_above(
    text: str, rows: object, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    assert read_table(tmp_path / "t.csv").rows == rows


@given(st.lists(st.lists(CELLS.map(str.lstrip), min_size=3, max_size=3), max_size=4))
def test_blanks_behind_delimiters_are_written_again(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    rows = [dict(zip("abc", row, strict=True)) for row in cells]
    table = Table(("a", "b", "c"), rows, dialect=Dialect("csv", has_blanks=True))
    write_table(table, folder / "out.csv", "csv")
    assert (folder / "out.csv").read_bytes().startswith(b"a, b, c\n")
    again = read_table(folder / "out.csv")
    assert again.rows == table.rows
    write_table(again, folder / "again.csv", "csv")
    assert (folder / "again.csv").read_bytes() == (folder / "out.csv").read_bytes()


def test_rows_that_do_not_fit_are_named_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        'subject,river\n"x\ny",1\nWashington, D.C.,\n\nshort\na,b,c,d\n'
    )
    with pytest.raises(KbqError, match=r"2 of the rows of .*t.csv cannot be used") as refused:
        list(read_rows(str(tmp_path / "t.csv")).numbered)
    assert [
        problem.removeprefix(str(tmp_path)).split(": ")[0] for problem in refused.value.problems
    ] == [
        "/t.csv:4",
        "/t.csv:7",
    ]


@pytest.mark.parametrize(
    "text",
    ["S1\tQ7\nS2\tQ8\n", "S1,Q7\r\nS2,Q8", '[{"name": "S1", "id": "Q7"}, {"n": "S2", "i": "Q8"}]'],
)
def test_ids_are_rows(text: str, tmp_path: Path) -> None:
    (tmp_path / "ids").write_text(text)
    ids = read_ids(tmp_path / "ids")
    assert (ids["S1"], ids["S2"], {*ids.values()}) == ("Q7", "Q8", {"Q7", "Q8"})


def test_a_name_with_a_comma_that_has_no_quotes_has_no_number(tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("Washington, D.C.,Q61\n")
    with pytest.raises(KbqError) as refused:
        read_ids(tmp_path / "ids.csv")
    assert "'Washington' and the text after its comma are two values" in refused.value.problems[0]
    (tmp_path / "ids.csv").write_text("Washington, Q61\nBern, Q70\n")
    assert read_ids(tmp_path / "ids.csv")["Bern"] == "Q70"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_relations_have_lines_of_any_end(end: str, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_bytes(
        end.join(["\ufeff[born]", 'type = "date"', "[died]", ""]).encode()
    )
    assert [(one.name, one.type) for one in read_relations(tmp_path / "r.toml")] == [
        ("born", "date"),
        ("died", None),
    ]


def test_parquet_has_texts_and_says_which_name_is_twice(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs it")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs it")
    parquet.write_table(
        pyarrow.table({"s": [b"Marie Curie"], "l": [[b"a", b"b"]]}), tmp_path / "t.parquet"
    )
    assert read_table(tmp_path / "t.parquet").rows == [{"s": "Marie Curie", "l": ["a", "b"]}]
    twice = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["s", "s"])
    parquet.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(KbqError, match=r"t.parquet has 2 columns 's': give each its own name"):
        read_table(tmp_path / "t.parquet")


def test_a_quotation_mark_that_is_not_closed_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.storage.reading.LARGEST", 100)
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 50 + '3,"' + "x\n" * 100)
    with pytest.raises(
        KbqError,
        match=r"t\.csv:52: the row, whose quotation marks may not all be closed, has 101 byt",
    ):
        list(read_rows(str(tmp_path / "t.csv")).numbered)


@pytest.mark.parametrize(
    "text", ["a" * 200_000, ",".join(f"c{number}" for number in range(40_000))]
)
def test_a_header_of_any_length_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{text}\n1\n")
    assert [row for _, row in read_rows(str(tmp_path / "t.csv")).numbered] == [
        {text.partition(",")[0]: "1"}
    ]


@pytest.mark.parametrize("skipped", [b"\x50\x2a\x4d\x18", b"\x5f\x2a\x4d\x18"])
def test_a_zstandard_file_may_begin_with_what_is_skipped(skipped: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.csv.zst"
    path.write_bytes(skipped + b"\x04\x00\x00\x00abcd" + zstd(b"a,b\n1,2\n"))
    assert [row for _, row in read_rows(str(path)).numbered] == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(("window", "is_read"), [(27, True), (28, True), (31, False)])
def test_a_zstandard_file_that_looks_too_far_back_is_named(
    window: int, is_read: bool, tmp_path: Path
) -> None:
    from backports import zstd  # type: ignore[import-not-found,unused-ignore]

    options = (
        zstd.CompressionParameter.window_log,
        zstd.CompressionParameter.enable_long_distance_matching,
    )
    packed = zstd.ZstdCompressor(options=dict(zip(options, (window, 1), strict=True)))
    path = tmp_path / "t.csv.zst"
    path.write_bytes(packed.compress(b"a,b\n1,2\n") + packed.flush())
    if is_read:
        assert [row for _, row in read_rows(str(path)).numbered] == [{"a": "1", "b": "2"}]
        return
    with pytest.raises(
        KbqError, match=r"t\.csv\.zst: it needs a window of more than 256 MB: unpack it with zstd"
    ):
        list(read_rows(str(path)).numbered)


@pytest.mark.parametrize(
    ("content", "columns", "rows"),
    [
        (
            "name,born,,\nAda,1815,,\n,,,\n",
            ("name", "born"),
            [{"name": "Ada", "born": "1815"}, {"name": "", "born": ""}],
        ),
        ('"name";"";" "\n"Ada";"";""\n', ("name",), [{"name": "Ada"}]),
        ("name\tborn\t\t\nAda\t1815\n", ("name", "born"), [{"name": "Ada", "born": "1815"}]),
        ("name,\nAda,7\n", ("name", ""), [{"name": "Ada", "": "7"}]),  # one without a name
    ],
)
def test_columns_at_the_end_without_names_and_values_are_none(
    content: str, columns: tuple[str, ...], rows: list[dict[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "t").write_text(content)
    found = read_rows(str(tmp_path / "t"))
    assert (found.columns, [row for _, row in found.numbered]) == (columns, rows)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "name,born,,\nAda,,,x\n",
            "t:2: a value is right of the last column that has a name, 'born': name its column",
        ),
        ("name,,,born\nAda,,,x\n", "t has 2 columns '': give each its own name"),
        (
            "name,born\nAda,,,x\n",
            "t:2: 4 values for 2 columns, ',' between them: put quotes around",
        ),
    ],
)
def test_a_value_without_a_name_is_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(content)
    with pytest.raises(KbqError) as caught:
        list(read_rows(str(tmp_path / "t")).numbered)
    assert said in "\n".join([str(caught.value), *caught.value.problems])
