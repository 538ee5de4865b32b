"""Faiss file: an `index.faiss` of DensePhrases becomes the places of its parts; no size in it is believed unchecked.

    IxPT    a transform before an index: LTra, a rotation without a bias
    IwPQ    inverted lists of product codes, for inner products: IxFI, the means of lists; a direct map, which is
            skipped; whether codes are of residuals; the centroids; ilar, sizes and contents of the lists

faiss itself would believe the sizes, and hold the direct map, of 16 bytes a vector, in memory.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from kbq.array_types import Rows
from kbq.importing.codes import CENTROIDS, CodesLayout

INNER_PRODUCT, HASH_TABLE = 0, 2
ID_BYTES = 8
KINDS = {
    b"IxPT": "a transform", b"LTra": "a rotation", b"IwPQ": "an inverted file of product codes",
    b"IxFI": "the means of lists", b"ilar": "its lists",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FaissFile:
    """Where the parts of a file are. `lists`: first byte and number of codes of each. Shape: (lists, 2)."""

    layout: CodesLayout
    lists: Rows


def read_layout(path: Path) -> FaissFile:
    """Find the parts of an official index.

    Raises OSError if it cannot be read, ValueError if it is of another type, or too short for what it says.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        return _Reader(file, size).index()


class _Reader:
    """Reads numbers and skips arrays, as long as they fit in the file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size = file, size

    def index(self) -> FaissFile:
        """Read the whole file, from its first byte to its last."""
        self._expect(b"IxPT")
        dim, vectors = self._header()
        (transforms,) = self._numbers("<i")
        if transforms != 1:
            raise ValueError(f"it has {transforms} transforms before its codes, an official index has one")
        rotation = self._rotation(dim)
        self._expect(b"IwPQ")
        self._same("dimensions or vectors", self._header(), (dim, vectors))
        lists, _ = self._numbers("<QQ")  # and how many are probed
        self._expect(b"IxFI")
        self._same("dimensions or lists", self._header(), (dim, lists))
        means = self._array(4, lists * dim)
        self._direct_map(vectors)
        is_residual, code_bytes, pq_dim, parts, bits = self._numbers("<?QQQQ")
        self._same("code bytes, bits or dimensions", (is_residual, pq_dim, parts, bits), (True, dim, code_bytes, 8))
        if not code_bytes or dim % code_bytes:
            raise ValueError(f"its codes of {code_bytes} bytes do not divide {dim} dimensions")
        centroids = self._array(4, CENTROIDS * dim)
        contents, codes = self._lists(lists, code_bytes, vectors)
        layout = CodesLayout(dim, code_bytes, lists, vectors, rotation, means, centroids, codes, self._size)
        return FaissFile(layout, contents)

    def _header(self) -> tuple[int, int]:
        """Read dimensions and vectors of an index for inner products."""
        dim, vectors, _, _, _, metric = self._numbers("<iqqq?i")
        if metric != INNER_PRODUCT:
            raise ValueError(f"it has the metric {metric}, an official index has inner products ({INNER_PRODUCT})")
        if dim < 1 or vectors < 0:
            raise ValueError(f"it says that it has {vectors} vectors of {dim} dimensions")
        return dim, vectors

    def _rotation(self, dim: int) -> int:
        self._expect(b"LTra")
        (has_bias,) = self._numbers("<?")
        rotation = self._array(4, dim * dim)
        (biases,) = self._numbers("<Q")
        if has_bias or biases:
            raise ValueError("its rotation has a bias, that of an official index has none")
        self._same("dimensions", self._numbers("<ii?")[:2], (dim, dim))
        return rotation

    def _direct_map(self, vectors: int) -> None:
        kind, listed = self._numbers("<bQ")
        self._skip(ID_BYTES * listed)
        if kind == HASH_TABLE:
            self._array(2 * ID_BYTES, vectors)

    def _lists(self, lists: int, code_bytes: int, vectors: int) -> tuple[Rows, int]:
        """Return first byte and number of codes of each list, and where the first one begins."""
        self._expect(b"ilar")
        self._same("lists or code bytes", self._numbers("<QQ"), (lists, code_bytes))
        kind, count = self._read(4), self._numbers("<Q")[0]
        if kind not in (b"full", b"sprs"):
            raise ValueError("the sizes of its lists are not in it")
        self._same("sizes of lists", (kind == b"sprs" or count == lists, count <= 2 * lists), (True, True))
        written = np.frombuffer(self._read(8 * count), np.int64)
        sizes = np.zeros(lists, np.int64)
        if kind == b"full":
            sizes[:] = written
        else:
            if count % 2 or (count and not 0 <= written[::2].min() <= written[::2].max() < lists):
                raise ValueError("it gives sizes of lists that it does not have")
            sizes[written[::2]] = written[1::2]
        begin = self._file.tell()
        total = sum(sizes.tolist())  # in numbers that do not wrap
        if (sizes < 0).any() or total != vectors:
            raise ValueError(f"its lists hold {total:,} vectors, it says {vectors:,}")
        end = begin + total * (code_bytes + ID_BYTES)
        if end != self._size:
            raise ValueError(f"it has {self._size:,} of {end:,} bytes")
        begins = begin + np.cumsum([0, *sizes[:-1]]) * (code_bytes + ID_BYTES)
        return np.stack([begins, sizes], axis=1), begin

    def _expect(self, kind: bytes) -> None:
        found = self._read(4)
        if found != kind:
            raise ValueError(
                f"it has {found.decode('ascii', 'replace')!r} where an official index has {kind.decode()!r}, "
                f"{KINDS[kind]}: only OPQ indexes of DensePhrases are read"
            )

    def _same(self, what: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if found != expected:
            raise ValueError(f"its {what} are {found} in one place and {expected} in another")

    def _array(self, item: int, expected: int) -> int:
        """Skip an array of this many items; return where the first one is."""
        (count,) = self._numbers("<Q")
        self._same("sizes of arrays", (count,), (expected,))
        begin = self._file.tell()
        self._skip(item * count)
        return begin

    def _numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._read(struct.calcsize(form)))

    def _read(self, count: int) -> bytes:
        if self._file.tell() + count > self._size:
            raise ValueError(f"it ends after {self._size:,} bytes, in the middle of a part")
        return self._file.read(count)

    def _skip(self, count: int) -> None:
        if self._file.tell() + count > self._size:
            raise ValueError(f"it ends after {self._size:,} bytes, in the middle of a part")
        self._file.seek(count, 1)
