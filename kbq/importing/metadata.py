"""Metadata: `meta_compressed.pkl` becomes the documents of a dump, one at a time, without the vectors.

It is a pickled dict {number: {word2char_start, word2char_end, f2o_start, context: compressed bytes; title: text;
dtypes: NumPy's types of the first three}}. Bytes are compressed as a chunk of C-Blosc 1:

header   version 2, codec version 1, flags, typesize; then n, block size and chunk size as u32
flags    bit 0 shuffled, bit 1 stored raw, bit 4 blocks not split, bits 5-7 codec (3: zlib)
starts   i32 [blocks]  where each block begins
block    `typesize` streams, or one if blocks are not split or it is the last, shorter one
stream   i32 length, then zlib data, or raw bytes if that is the length of the stream itself
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kbq.array_types import Rows
from kbq.errors import CorpusError
from kbq.importing.documents import OfficialDocument
from kbq.importing.hdf5 import ENDS, KEPT, STARTS, is_number
from kbq.importing.official_checkpoint import AGAIN
from kbq.importing.pickles import UnsafePickleError, pickled_items
from kbq.storage.files import reading_from

METADATA = "meta_compressed.pkl"
HEADER = struct.Struct("<BBBBIII")
SHUFFLED, RAW, WHOLE, ZLIB = 1, 2, 16, 3
LARGEST = 2**26  # bytes of a chunk: a document has far fewer, and 64 kB of zlib may hold as many


def metadata_documents(path: Path) -> Iterator[OfficialDocument]:
    """Yield all documents of a file, in its order.

    Raises CorpusError if it is missing or damaged, or asks to run something.
    """
    with reading_from(path, CorpusError, AGAIN), path.open("rb") as file:
        try:
            for number, facts in pickled_items(file):
                yield _document(number, facts, path)
        except UnsafePickleError as error:
            advice = "nothing of it was run; use a file from a source that you know"
            raise CorpusError(f"{path} is not the metadata of a dump ({error}): {advice}") from None


def _document(number: Any, facts: Any, path: Path) -> OfficialDocument:
    """Read a document. Raises ValueError if an item is not one."""
    if not is_number(number) or not isinstance(facts, dict):
        raise ValueError(f"{number[:40]!r} is not the number of a document")
    try:
        title, text = facts["title"], decompressed(facts["context"]).decode()
        if not isinstance(title, str):
            raise ValueError("its title is not a text")
        starts, ends, kept = (_numbers(facts, name) for name in (STARTS, ENDS, KEPT))
        return OfficialDocument(number, title, text, starts, ends, kept, path)
    except KeyError as error:
        raise ValueError(f"document {number} has no {error.args[0]}") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"document {number}: {error}") from None


def _numbers(facts: dict[str, Any], name: str) -> Rows:
    dtype = facts["dtypes"][name]
    if not isinstance(dtype, np.dtype) or dtype not in (np.dtype("<i4"), np.dtype("<i8")):
        raise ValueError(f"{name} does not hold int32 or int64")
    return np.frombuffer(decompressed(facts[name]), dtype).astype(np.int64)


def decompressed(chunk: bytes) -> bytes:
    """Return the bytes that a chunk holds; no size in it is believed before it is compared with the others.

    Raises ValueError if it is not such a chunk, or is damaged.

    >>> decompressed(HEADER.pack(2, 1, RAW, 1, 3, 3, 19) + b"abc")
    b'abc'
    """
    if len(chunk) < HEADER.size:
        raise ValueError(f"a compressed chunk has {len(chunk)} bytes")
    version, _, flags, typesize, size, block, length = HEADER.unpack_from(chunk)
    if version != 2 or length != len(chunk) or size > LARGEST or (size and not 0 < block <= max(size, LARGEST)):
        raise ValueError(f"a compressed chunk of {len(chunk):,} bytes says that it has {length:,} and holds {size:,}")
    if flags & RAW:
        if HEADER.size + size != length:
            raise ValueError(f"a chunk of {length:,} bytes says that it holds {size:,} uncompressed ones")
        return chunk[HEADER.size :]
    if flags >> 5 != ZLIB or typesize < 1:
        raise ValueError(f"a chunk is compressed with codec {flags >> 5}, only {ZLIB} (zlib) is read")
    blocks = -(-size // block) if size else 0
    if HEADER.size + 4 * blocks > length:
        raise ValueError(f"a compressed chunk of {length:,} bytes says that it has {blocks:,} blocks")
    starts = struct.unpack_from(f"<{blocks}i", chunk, HEADER.size)
    parts = []
    for number, start in enumerate(starts):
        raw = min(block, size - number * block)
        streams = typesize if not flags & WHOLE and raw == block else 1
        plain = _streams(chunk, start, raw, streams)
        parts.append(_unshuffled(plain, typesize) if flags & SHUFFLED and typesize > 1 else plain)
    return b"".join(parts)


def _streams(chunk: bytes, place: int, raw: int, count: int) -> bytes:
    """Return the streams of one block, `raw` bytes together."""
    each, parts = raw // count, []
    if each * count != raw:
        raise ValueError(f"a block of {raw:,} bytes cannot be split into {count}")
    for _ in range(count):
        if not HEADER.size <= place <= len(chunk) - 4:
            raise ValueError(f"a block begins at byte {place:,} of {len(chunk):,}")
        (length,) = struct.unpack_from("<i", chunk, place)
        place += 4
        if not 0 <= length <= len(chunk) - place:
            raise ValueError(f"a stream has {length:,} bytes, {len(chunk) - place:,} are left")
        data = chunk[place : place + length]
        place += length
        parts.append(data if length == each else _inflated(data, each))
    return b"".join(parts)


def _inflated(data: bytes, size: int) -> bytes:
    """Return what zlib compressed to `data`, but unpack at most a byte more than `size`."""
    try:
        plain = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(f"a compressed stream is damaged: {error}") from None
    if len(plain) != size:
        raise ValueError(f"a compressed stream holds {len(plain):,} bytes, not {size:,}")
    return plain


def _unshuffled(data: bytes, typesize: int) -> bytes:
    """Put bytes in the order of their items; shuffled, the first bytes of all items come first, then the second."""
    whole = len(data) // typesize * typesize
    matrix = np.frombuffer(data, np.uint8, whole).reshape(typesize, -1)
    return matrix.T.tobytes() + data[whole:]
