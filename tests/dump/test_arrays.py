"""Arrays: NumPy reads what was appended, whatever a killed run left behind."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.dump.shards import HEADER, GrowingArray, GrowingTexts, Texts, open_array


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.uint8])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_a_closed_array_is_a_numpy_file(tmp_path: Path, dtype: type[np.generic], rows: int) -> None:
    grown, plain = tmp_path / "grown.npy", tmp_path / "plain.npy"
    array = GrowingArray(grown, dtype)
    values = np.arange(rows).astype(dtype)
    for part in np.array_split(values, 3):
        array.append(part)
    assert len(array) == rows
    array.close()
    np.save(plain, values)
    assert grown.read_bytes() == plain.read_bytes()
    assert open_array(grown).tolist() == values.tolist()


def test_rows_of_columns(tmp_path: Path) -> None:
    array = GrowingArray(tmp_path / "a.npy", np.int8, columns=3)
    array.append(np.array([[1, 2, 3], [-4, 5, -127]]))
    array.append(np.empty((0, 3), np.int8))
    assert len(array) == 2
    array.close()
    assert open_array(tmp_path / "a.npy").tolist() == [[1, 2, 3], [-4, 5, -127]]


def test_an_empty_array_keeps_its_columns(tmp_path: Path) -> None:
    GrowingArray(tmp_path / "a.npy", np.int8, columns=3).close()
    assert open_array(tmp_path / "a.npy").shape == (0, 3)


@pytest.mark.parametrize("garbage", [b"", b"x", b"garbage" * 40])
@pytest.mark.parametrize("kept", [0, 1, 4])
def test_what_follows_the_kept_rows_is_dropped(tmp_path: Path, kept: int, garbage: bytes) -> None:
    path = tmp_path / "a.npy"
    array = GrowingArray(path, np.uint32)
    array.append(np.arange(4))
    array.close()
    path.write_bytes(path.read_bytes() + garbage)
    array = GrowingArray(path, np.uint32)
    array.truncate(kept)
    assert len(array) == kept
    array.append(np.array([7, 8]))
    array.close()
    np.save(tmp_path / "plain.npy", np.array([*range(kept), 7, 8], np.uint32))
    assert path.read_bytes() == (tmp_path / "plain.npy").read_bytes()


def test_a_file_without_a_whole_header_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\0" * (HEADER - 1))
    array = GrowingArray(tmp_path / "a.npy", np.int64)
    array.append(np.array([-5]))
    array.close()
    assert open_array(tmp_path / "a.npy").tolist() == [-5]


@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=4),
        max_size=4,
    )
)
def test_texts(tmp_path_factory: pytest.TempPathFactory, parts: list[list[str]]) -> None:
    folder = tmp_path_factory.mktemp("texts")
    growing = GrowingTexts(folder, "texts")
    for part in parts:
        growing.append(part)
    growing.bytes.close()
    growing.ends.close()
    texts = Texts.open(folder, "texts")
    assert [texts[index] for index in range(len(texts))] == [
        text for part in parts for text in part
    ]


def whole_array() -> bytes:
    np.save(file := io.BytesIO(), np.arange(10))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"\0" * HEADER,
        b"no array" * 40,
        whole_array()[:-1],
        whole_array().replace(b"<i8", b"<f1"),
    ],
)
def test_a_damaged_array_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises((OSError, ValueError)):
        open_array(tmp_path / "a.npy")


@given(
    st.sampled_from(["i1", "u1", "b1", "i2", "u4", "i8", "f2", "f4", "f8"]),
    st.lists(st.integers(0, 5) | st.integers(1000, 1005), max_size=3),
)
def test_numpy_opens_the_same_array(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int]
) -> None:
    path = tmp_path_factory.mktemp("arrays") / "a.npy"
    shape = shape[: 2 if max(shape, default=0) < 1000 else 1]
    np.save(path, np.arange(math.prod(shape)).reshape(shape).astype(dtype))
    opened, expected = open_array(path, dimensions=len(shape)), np.load(path)
    assert (opened.dtype, opened.shape) == (expected.dtype, expected.shape)
    assert opened.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "array", [np.asfortranarray(np.ones((3, 4))), np.array([None]), np.zeros(2, [("a", "i1")])]
)
def test_an_array_that_is_none_of_ours_is_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=r"the header of a\.npy is not that of an array of kbq"):
        open_array(tmp_path / "a.npy")
