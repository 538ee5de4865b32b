"""Data frames: what is filled has the index and the types of what was given, in pandas, Arrow and
by the protocols.
"""

from typing import Any

import numpy as np
import pytest

from kbq.errors import KbqError, QueryError
from kbq.search.options import SearchOptions
from kbq.tables.tables import Table

pandas: Any = pytest.importorskip("pandas")
pyarrow: Any = pytest.importorskip("pyarrow")


def filled(table: Table, values: list[Any], column: str = "new") -> Table:
    """As `kb.fill` does it: a row without a value stays the same object."""
    rows = [
        row if value is None else {**row, column: value}
        for row, value in zip(table.rows, values, strict=True)
    ]
    columns = table.columns if column in table.columns else (*table.columns, column)
    return Table(columns, rows, before=table)


FRAME = pandas.DataFrame(
    {
        "subject": ["Marie", "Zork", None],
        "year": pandas.array([1867, None, 3], dtype="Int64"),
        "ok": pandas.array([True, None, False], dtype="boolean"),
        "group": pandas.Categorical(["a", None, "b"]),
        "day": pandas.to_datetime(["1934-07-04", None, "2000-01-01"]),
        "small": np.array([1, 2, 3], np.int8),
        "share": [0.5, None, 1.0],
        "list": [np.array([1, 2]), None, ["x"]],
    },
    index=[7, 7, "x"],
)


def test_cells_are_pythons_own() -> None:
    table = Table.of_frame(FRAME, "subject")
    assert table is not None
    assert [list(row.values()) for row in table.rows] == [
        ["Marie", 1867, True, "a", pandas.Timestamp("1934-07-04"), 1, 0.5, [1, 2]],
        ["Zork", None, None, None, None, 2, None, None],
        [None, 3, False, "b", pandas.Timestamp("2000-01-01"), 3, 1.0, ["x"]],
    ]
    assert [type(value) for value in table.rows[0].values()][1:6:4] == [int, int]


@pytest.mark.parametrize(
    ("column", "value", "dtype"),
    [
        ("new", "Warsaw", "str"), ("year", "1870", "Int64"), ("year", "1870?", "object"), ("ok", "yes", "object"),
        ("group", "c", "category"), ("day", "4 July 1934", "datetime64[us]"), ("share", "0.25", "float64"),
        ("subject", "Ann", "str"), ("new", ["a", "b"], "object"),
    ],
)  # fmt: skip
def test_index_and_types_are_those_of_the_frame(column: str, value: Any, dtype: str) -> None:
    table = Table.of_frame(FRAME, "subject")
    assert table is not None
    frame = filled(table, [None, value, None], column).to_pandas()
    assert frame.index.tolist() == [7, 7, "x"]
    assert str(frame[column].dtype).startswith(dtype.partition("[")[0])
    others = [name for name in FRAME.columns if name != column]
    pandas.testing.assert_frame_equal(frame[others], FRAME[others])
    assert FRAME.columns.tolist() == [name for name in frame.columns if name != "new"]


def test_a_filtered_frame_gets_the_values_of_its_rows() -> None:
    frame = pandas.DataFrame({"subject": ["A", "B", "C"], "n": [1, 2, 3]})
    people = frame[frame.n > 1].sort_values("n", ascending=False)
    table = Table.of_frame(people, "subject")
    assert table is not None
    people["new"] = filled(table, ["c", "b"]).to_pandas()["new"]
    assert people["new"].to_dict() == {2: "c", 1: "b"}


def test_rows_become_columns_of_whole_numbers_and_truth_values() -> None:
    rows: list[dict[str, Any]] = [{"n": 1, "b": True, "t": "x"}, {"n": None, "b": None, "t": None}]
    assert Table.of(rows).to_pandas().dtypes.astype(str).to_dict() == {
        "n": "Int64",
        "b": "boolean",
        "t": "str",
    }


@pytest.mark.parametrize(
    "series",
    [
        pandas.Series(["A", "B"], index=[5, 6], name="n"),
        pandas.Index(["A", "B"]),
        pyarrow.array(["A", "B"]),
        pyarrow.chunked_array([["A"], ["B"]]),
    ],
)
def test_a_series_is_a_column_of_subjects(series: Any) -> None:
    table = Table.of_frame(series, "name")
    assert table is not None
    assert (table.columns, table.rows) == (("name",), [{"name": "A"}, {"name": "B"}])


class Interchanged:
    """A data frame that only knows one of the protocols."""

    def __init__(self, arrow: Any, name: str) -> None:
        self._arrow, self._name = arrow, name

    def __getattr__(self, name: str) -> Any:
        if name != self._name and name not in ("column_names",):
            raise AttributeError(name)
        return getattr(self._arrow, name)


@pytest.mark.parametrize("protocol", ["__arrow_c_stream__", "__dataframe__"])
def test_frames_of_other_libraries(protocol: str) -> None:
    arrow = pyarrow.table({"subject": ["A", None], "n": pyarrow.array([1, None], pyarrow.int8())})
    table = Table.of_frame(Interchanged(arrow, protocol), "subject")
    assert table is not None
    assert table.rows == [{"subject": "A", "n": 1}, {"subject": None, "n": None}]
    again = pyarrow.table(filled(table, ["x", None]))
    assert [str(field.type) for field in again.schema] == ["string", "int8", "string"]
    assert again.to_pylist() == [
        {"subject": "A", "n": 1, "new": "x"},
        {"subject": None, "n": None, "new": None},
    ]


def test_polars() -> None:
    polars: Any = pytest.importorskip(
        "polars", reason="polars is not installed: pip install polars"
    )
    frame = polars.DataFrame({"subject": ["A"], "n": [1]})
    for given in (frame, frame.lazy()):
        table = Table.of_frame(given, "subject")
        assert table is not None
        assert polars.DataFrame(filled(table, ["x"])).to_dicts() == [
            {"subject": "A", "n": 1, "new": "x"}
        ]
    table = Table.of_frame(frame["subject"], "subject")
    assert table is not None
    assert table.rows == [{"subject": "A"}]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (
            pandas.DataFrame([["A", 1, 2]], columns=["subject", "n", "n"]),
            "the data frame has 2 columns 'n': give each",
        ),
        (pandas.DataFrame([["A"]]), "the data frame has a column 0: give it a text as its name"),
        (
            pandas.DataFrame([["A"]], columns=[("a", "b")]),
            "the data frame has a column ('a', 'b'): give it a text",
        ),
    ],
)
def test_columns_need_names_of_their_own(frame: Any, said: str) -> None:
    with pytest.raises(KbqError) as caught:
        Table.of_frame(frame, "subject")
    assert said in str(caught.value)


def test_rows_of_numpys_numbers() -> None:
    row = {
        "a": np.int64(3),
        "b": np.float32(0.5),
        "c": np.bool_(True),
        "d": np.nan,
        "e": np.datetime64("2000-01-02"),
    }
    (found,) = Table.of([row]).rows
    assert [type(value).__name__ for value in found.values()] == [
        "int",
        "float",
        "bool",
        "NoneType",
        "datetime",
    ]


@pytest.mark.parametrize("k", [np.int64(3), np.uint8(3), np.int32(3)])
def test_numpys_integers_are_integers(k: Any) -> None:
    options = SearchOptions(k, min_probability=np.float32(0.5))  # type: ignore[arg-type]
    assert (type(options.k), options.k, options.min_probability) == (int, 3, 0.5)
    with pytest.raises(QueryError, match=r"k is True, must be"):
        SearchOptions(np.bool_(True).item())
