"""Arrays: `.npy` files that are appended to and survive a kill, and lists of texts in two such files."""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kbq.errors import KnowledgeBaseError, first_line
from kbq.storage.machine import map_file
from kbq.storage.writing import open_to_grow, replacing, sync_open

LOOKED_AT, SOME = 2**26, 2**16  # bytes of a list that is looked at as a whole, and numbers of a part of another
HEADER = 128  # bytes; the length of NumPy's header for every array used here


class GrowingArray:
    """A `.npy` file that is appended to; its header is valid only after `close`."""

    def __init__(self, path: Path, dtype: DTypeLike, columns: int | None = None) -> None:
        """Open or create `path` for rows of `columns` values; None: rows are single values."""
        self.path, self.dtype = path, np.dtype(dtype)
        self.row_shape = () if columns is None else (columns,)
        self.row_bytes = self.dtype.itemsize * (columns or 1)
        self._file = open_to_grow(path)
        self._file.seek(0, os.SEEK_END)
        if self._file.tell() < HEADER:
            self.truncate(0)

    def __len__(self) -> int:
        return (self._file.tell() - HEADER) // self.row_bytes

    def append(self, rows: NDArray[np.generic]) -> None:
        """Add rows. Shape: (rows,) or (rows, columns)."""
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)

    def truncate(self, rows: int) -> None:
        """Keep the first `rows` rows only; the others were written by a run that was killed."""
        self._file.truncate(HEADER + rows * self.row_bytes)
        self._file.seek(0)
        self._file.write(b"\0" * HEADER if rows == 0 else b"")
        self._file.seek(0, os.SEEK_END)

    def sync(self) -> None:
        """Write everything appended so far to the disk."""
        sync_open(self._file)

    def abandon(self) -> None:
        """Close the file without a header, so that nothing is written to it once another run resumes."""
        with contextlib.suppress(OSError):
            self._file.close()

    def close(self) -> None:
        """Write the header and close the file, which `numpy.load` can then read."""
        rows = len(self)
        self._file.seek(0)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (rows, *self.row_shape)}
        np.lib.format.write_array_header_1_0(self._file, header)
        if self._file.tell() != HEADER:
            raise ValueError(f"{self.path}: NumPy wrote a header of {self._file.tell()} bytes, not {HEADER}")
        self.sync()
        self._file.close()


def new_array(path: Path, dtype: DTypeLike, rows: int) -> NDArray[Any]:
    """Make a file for an array that is mapped, and written where it lies. Shape: (rows,), at least one."""
    with open_to_grow(path) as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        return np.memmap(file, dtype, "r+", file.tell(), (rows,))


def save_array(path: Path, array: NDArray[np.generic]) -> None:
    """Replace a file by an array, which `numpy.load` and `open_array` can read."""
    with replacing(path) as partial, partial.open("wb") as file:
        np.lib.format.write_array(file, np.asanyarray(array), version=(1, 0), allow_pickle=False)


class GrowingTexts:
    """A list of texts: `NAME.bin` holds the bytes of all texts in UTF-8, `NAME.npy` the position where each ends."""

    def __init__(self, folder: Path, name: str) -> None:
        self.bytes = GrowingArray(folder / f"{name}.bin", np.uint8)
        self.ends = GrowingArray(folder / f"{name}.npy", np.int64)

    def append(self, texts: list[str]) -> None:
        """Add texts."""
        encoded = [text.encode() for text in texts]
        self.ends.append(np.cumsum([len(text) for text in encoded], dtype=np.int64) + len(self.bytes))
        self.bytes.append(np.frombuffer(b"".join(encoded), np.uint8))


class Texts:
    """A list of texts that `GrowingTexts` wrote, read-only and memory-mapped.

    >>> texts = Texts(np.array([1, 3]), np.frombuffer(b"abc", np.uint8))
    >>> texts[1], list(texts)
    ('bc', ['a', 'bc'])
    """

    def __init__(self, ends: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        self._ends, self._data = ends, data

    @classmethod
    def open(cls, folder: Path, name: str) -> "Texts":
        """Raises OSError or ValueError for a missing or damaged file."""
        ends, data = open_array(folder / f"{name}.npy"), open_array(folder / f"{name}.bin")
        if ends.dtype != np.int64 or data.dtype != np.uint8 or ends.ndim != 1 or data.ndim != 1:
            raise ValueError(f"{name} holds {ends.dtype} {ends.shape} and {data.dtype} {data.shape}, no texts")
        return cls(ends, data)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Where each text ends. Shape: (texts,)."""
        return self._ends

    @property
    def bytes(self) -> int:
        """How long all texts are."""
        return len(self._data)

    @property
    def is_complete(self) -> bool:
        """Whether the last text ends at the last byte."""
        return len(self._data) == (self._ends[-1] if len(self._ends) else 0)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        return self._read(index, int(self._ends[index - 1]) if index else 0, int(self._ends[index]))

    def __iter__(self) -> Iterator[str]:
        begin = 0
        for index, end in enumerate(map(int, self._ends)):
            yield self._read(index, begin, end)
            begin = end

    def _read(self, index: int, begin: int, end: int) -> str:
        if not 0 <= begin <= end <= len(self._data):
            problem = f"text {index} lies at bytes {begin:,} to {end:,} of {len(self._data):,}"
            raise KnowledgeBaseError(f"{problem}: build the knowledge base again")
        try:
            return self._data[begin:end].tobytes().decode()
        except UnicodeDecodeError as error:
            raise KnowledgeBaseError(f"text {index} is damaged ({error}): build the knowledge base again") from None


def refuse_descending(name: str, values: NDArray[Any], most: int) -> None:
    """Refuse a list of places that are not in order, or not within what they are places of.

    Of a long list, its beginning and its end are looked at, as all of it would have to be read from the disk.

    Raises:
        ValueError: it is such a list.
    """
    for part in (values,) if values.nbytes <= LOOKED_AT else (values[:SOME], values[-SOME:]):
        is_in_order = part.dtype.kind in "iu" and part.ndim == 1 and bool((part[1:] >= part[:-1]).all())
        if len(part) and not (is_in_order and part[0] >= 0 and part[-1] <= most):
            raise ValueError(f"{name} is not a list of places from 0 to {most:,}")


def open_array(path: Path) -> NDArray[Any]:
    """A finished array, memory-mapped unless it is empty. Raises OSError or ValueError for a damaged file."""
    size = path.stat().st_size
    if size < HEADER:
        raise ValueError(f"{path.name} has {size} bytes, its header alone {HEADER}")
    try:
        with path.open("rb") as file:
            shape, is_by_column, dtype = _header(file)
            begin = file.tell()
    except OSError:
        raise
    except Exception as error:  # NumPy parses the header as Python, which may fail in many ways
        raise ValueError(f"the header of {path.name} cannot be read: {first_line(error)}") from None
    expected = begin + math.prod(shape) * dtype.itemsize
    if is_by_column or dtype.hasobject or expected != size:
        raise ValueError(f"{path.name} has {size:,} bytes, {expected:,} are expected for {dtype} {shape}")
    if not math.prod(shape):  # an empty array cannot be mapped
        return np.empty(shape, dtype)
    return map_file(path)[begin:].view(dtype).reshape(shape)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape of an array, whether columns are contiguous, and the type of its values."""
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"version {version}")
    shape, is_by_column, dtype = np.lib.format.read_array_header_1_0(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    return shape, is_by_column, dtype
