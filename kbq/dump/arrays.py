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
        """`ends`: where each text ends in `data`. Shape: (texts,)."""
        self._ends, self._data = ends.data, data.data  # which give a single number sooner than arrays do

    @classmethod
    def open(cls, folder: Path, name: str) -> "Texts":
        """Raise OSError or ValueError if a file is missing or damaged."""
        ends = open_array(folder / f"{name}.npy", np.int64)
        data = open_array(folder / f"{name}.bin", np.uint8)
        if len(data) != (ends[-1] if len(ends) else 0):
            raise ValueError("its files differ in length")
        refuse_descending(name, ends, len(data))
        return cls(ends, data)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        return self._read(index, self._ends[index - 1] if index else 0, self._ends[index])

    def __iter__(self) -> Iterator[str]:
        begin = 0
        for index, end in enumerate(self._ends):
            yield self._read(index, begin, end)
            begin = end

    def _read(self, index: int, begin: int, end: int) -> str:
        if not 0 <= begin <= end <= len(self._data):
            problem = f"text {index} lies at bytes {begin:,} to {end:,} of {len(self._data):,}"
            raise KnowledgeBaseError(f"{problem}: build the knowledge base again")
        try:
            return str(self._data[begin:end], "utf-8")
        except UnicodeDecodeError as error:
            raise KnowledgeBaseError(f"text {index} is damaged ({error}): build the knowledge base again") from None


def refuse_descending(name: str, values: NDArray[Any], most: int) -> None:
    """Refuse a list of places that are not in order, or not from 0 to `most`; look only at both ends of a long list.

    Raises ValueError.
    """
    for part in (values,) if values.nbytes <= LOOKED_AT else (values[:SOME], values[-SOME:]):
        is_in_order = part.dtype.kind in "iu" and part.ndim == 1 and bool((part[1:] >= part[:-1]).all())
        if len(part) and not (is_in_order and part[0] >= 0 and part[-1] <= most):
            raise ValueError(f"{name} is not a list of places from 0 to {most:,}")


def open_array(path: Path, dtype: type[np.generic] | None = None, dimensions: int = 1) -> NDArray[Any]:
    """Map a finished array to be read, of the type `dtype` if that is given.

    Raises OSError if the file cannot be read, ValueError if it is damaged, or of another type or number of dimensions.
    """
    size = path.stat().st_size
    if size < HEADER:
        raise ValueError(f"{path.name} has {size} bytes, its header alone {HEADER}")
    try:
        with path.open("rb") as file:
            shape, is_by_column, found = _header(file)
            begin = file.tell()
    except OSError:
        raise
    except Exception as error:  # NumPy parses the header as Python, which may fail in many ways
        raise ValueError(f"the header of {path.name} cannot be read: {first_line(error)}") from None
    expected = begin + math.prod(shape) * found.itemsize
    if is_by_column or found.hasobject or expected != size:
        raise ValueError(f"{path.name} has {size:,} bytes, {expected:,} are expected for {found} {shape}")
    if dtype is not None and (found != dtype or len(shape) != dimensions):
        raise ValueError(f"{path.name} holds {found} {shape}, not {np.dtype(dtype)} in {dimensions} dimensions")
    if not math.prod(shape):  # an empty array cannot be mapped
        return np.empty(shape, found)
    return map_file(path)[begin:].view(found).reshape(shape)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape of an array, whether columns are contiguous, and the type of its values."""
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"version {version}")
    shape, is_by_column, dtype = np.lib.format.read_array_header_1_0(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    return shape, is_by_column, dtype
