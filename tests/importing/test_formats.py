"""Formats: pickles and compressed chunks become values; nothing runs, and no size is believed."""

import io
import os
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from kbq.errors import CorpusError
from kbq.importing.metadata import (
    UnsafePickleError,
    decompressed,
    metadata_documents,
    pickled_items,
)


def items(content: bytes) -> dict[Any, Any]:
    return dict(pickled_items(io.BytesIO(content)))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("count", [0, 1, 3, 2500])
def test_plain_values(protocol: int, count: int) -> None:
    def value(number: int) -> dict[str, Any]:
        if protocol == 2:  # which has no bytes
            return {
                "text": "ä" * 300,
                "number": -number,
                "nothing": None,
                "pair": (1, (True, False)),
            }
        types = {"a": np.dtype("<i4"), "b": np.dtype("<i8")}
        return {"bytes": b"x" * number, "text": "ä", "types": types, "empty": ()}

    content = {str(number): value(number) for number in range(1000, 1000 + count)}
    assert items(pickle.dumps(content, protocol)) == content


@pytest.mark.parametrize(("room", "fits"), [(2**28, True), (2000, False)])
def test_values_that_are_mentioned_again(
    room: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there is room for: a file of 20 GB is read with little memory."""
    monkeypatch.setattr("kbq.importing.metadata.ROOM", room)
    content = {str(number): {"bytes": b"x" * 300, "number": number} for number in range(1000, 1020)}
    content |= {"again": content["1019"], "first": content["1000"]}
    if fits:
        assert items(pickle.dumps(content, 3)) == content
    else:
        with pytest.raises(ValueError, match=r"the pickle is damaged: KeyError"):
            items(pickle.dumps(content, 3))


class Asks:
    """Pickled as a call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("place", ["whole", "value", "key", "nested"])
def test_a_pickle_that_would_run_code_is_refused(protocol: int, place: str, tmp_path: Path) -> None:
    asks = Asks(os.mkfifo, str(tmp_path / "ran"))
    content = {
        "whole": asks,
        "value": {"0": asks},
        "key": {"0": 1, asks: 2},
        "nested": {"0": {"title": asks}},
    }[place]
    with pytest.raises(UnsafePickleError, match=r"asks for posix.mkfifo|has the operation"):
        items(pickle.dumps(content, protocol))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(a=1),
        np.zeros(3),
        np.float32(1),
        {1, 2},
        [1],
        1.5,
        Path("x"),
        np.dtype("O"),
        complex(1, 2),
    ],
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(UnsafePickleError):
        items(pickle.dumps({"0": value}, 3))


def test_a_call_of_a_type_with_something_else() -> None:
    with pytest.raises(UnsafePickleError, match="the pickle calls something"):
        items(pickle.dumps({"0": Asks(np.dtype, "O", False, True)}, 3))


@pytest.mark.parametrize(
    "start", [struct.pack("<BQ", 0x8E, 2**62), struct.pack("<cI", b"B", 2**31)]
)
def test_a_size_beyond_the_file(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\x80\x04}(" + start + b"abc")
    with (
        (tmp_path / "file").open("rb") as file,
        pytest.raises(ValueError, match=r"is damaged: Mem|only 3 remain"),
    ):
        list(pickled_items(file))


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x03", b"\x80\x03}", b"\x80\x03).", b"no pickle", b"\x80\x03}q\x00(X"]
)
def test_what_is_no_pickled_dict(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        items(content)


@hypothesis.given(st.binary(max_size=300), st.integers(0, 299))
@hypothesis.example(
    b"\x80\x03S'\\ '\n.", 0
)  # Python warns of what it takes for the beginning of an escape sequence
def test_damage_is_a_value_error(noise: bytes, place: int) -> None:
    whole = pickle.dumps(
        {"0": {"title": "t", "dtypes": {"a": np.dtype("<i4")}, "context": b"x" * 99}}, 3
    )
    for content in (noise, whole[:place], whole[:place] + noise[:5] + whole[place + 5 :]):
        try:
            items(content)
        except ValueError:
            continue


@pytest.mark.parametrize("typesize", [1, 4, 8])
@pytest.mark.parametrize("size", [0, 1, 7, 63, 64, 65, 200, 20_000, 2_000_000])
def test_chunks(typesize: int, size: int, chunk: Callable[..., bytes]) -> None:
    data = np.random.default_rng(size).integers(0, 5, size, np.uint8).tobytes()
    assert decompressed(chunk(data, typesize)) == data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda chunk: chunk[:10], r"a compressed chunk has 10 bytes"),
        (lambda chunk: chunk[:-1], r"chunk of \d+ bytes says that it has \d+ and holds 300"),
        (
            lambda chunk: chunk[:4] + struct.pack("<I", 2**31) + chunk[8:],
            r"and holds 2,147,483,648",
        ),
        (
            lambda chunk: chunk[:8] + struct.pack("<I", 0) + chunk[12:],
            r"a compressed chunk is damaged",
        ),
        (
            lambda chunk: chunk[:16] + struct.pack("<i", -5) + chunk[20:],
            r"a compressed chunk is damaged",
        ),
        (lambda chunk: chunk[:-4] + b"xxxx", r"a compressed chunk is damaged"),
    ],
)
def test_chunks_that_are_damaged(
    change: Callable[[bytes], bytes], message: str, chunk: Callable[..., bytes]
) -> None:
    with pytest.raises(ValueError, match=message):
        decompressed(change(chunk(b"abc" * 100, 1)))


@hypothesis.given(st.binary(max_size=9), st.integers(0, 40))
def test_damage_in_a_chunk_is_a_value_error(noise: bytes, place: int) -> None:
    from numcodecs.blosc import compress

    whole = bytes(compress(b"abc" * 100, b"zlib", 5, 1))
    with suppress(ValueError):
        decompressed(whole[:place] + noise + whole[place + len(noise) :])


def document(chunk: Callable[..., bytes], **changes: object) -> dict[str, object]:
    arrays = {"word2char_start": [0, 4], "word2char_end": [3, 9], "f2o_start": [0, 1]}
    types = {"word2char_start": "<i4", "word2char_end": "<i4", "f2o_start": "<i8"}
    facts: dict[str, object] = {
        name: chunk(np.array(values, types[name]).tobytes()) for name, values in arrays.items()
    }
    facts |= {"context": chunk(b"the river"), "title": "River"}
    facts |= {"dtypes": {name: np.dtype(kind) for name, kind in types.items()}}
    return facts | changes


def test_metadata(tmp_path: Path, chunk: Callable[..., bytes]) -> None:
    path = tmp_path / "meta_compressed.pkl"
    path.write_bytes(pickle.dumps({"7": document(chunk)}, 3))
    (found,) = metadata_documents(path)
    assert (found.number, found.title, found.text) == ("7", "River", "the river")
    assert (found.starts.tolist(), found.ends.tolist(), found.kept.tolist()) == (
        [0, 4],
        [3, 9],
        [0, 1],
    )


@pytest.mark.parametrize(
    ("key", "changes", "message"),
    [
        ("seven", {}, r"damaged \('seven' is not the number of a document\): download it again"),
        ("7", {"title": None}, r"damaged \(document 7: its title is not a text\)"),
        ("7", {"context": "text"}, r"damaged \(document 7: .*\)"),
        ("7", {"dtypes": {}}, r"damaged \(document 7 has no word2char_start\)"),
        ("7", {"dtypes": {"word2char_start": np.dtype("<f4")}}, r"a dump \(the pickle calls something\): nothing"),
        ("7", {"title": Asks(os.getcwd)}, r"is not the metadata of a dump \(.*getcwd, which could run code\): nothing"),
    ],
)  # fmt: skip
def test_metadata_that_does_not_fit(
    key: str, changes: dict[str, object], message: str, tmp_path: Path, chunk: Callable[..., bytes]
) -> None:
    path = tmp_path / "meta_compressed.pkl"
    path.write_bytes(pickle.dumps({key: document(chunk, **changes)}, 3))
    with pytest.raises(CorpusError, match=message):
        list(metadata_documents(path))
