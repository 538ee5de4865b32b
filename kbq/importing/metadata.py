"""Metadata: read `meta_compressed.pkl` as documents, one at a time, without running code from the pickle.

It is a pickled dict {number: {word2char_start, word2char_end, f2o_start, context: compressed bytes; title: text;
dtypes: NumPy's types of the first three}}. Bytes are compressed as a chunk of C-Blosc 1:

header   version 2, codec version 1, flags, typesize; then n, block size and chunk size as u32
flags    bit 0 shuffled, bit 1 stored raw, bit 4 blocks not split, bits 5-7 codec (3: zlib)
starts   i32 [blocks]  where each block begins
block    `typesize` streams, or one if blocks are not split or it is the last, shorter one
stream   i32 length, then zlib data, or raw bytes if that is the length of the stream itself

A pickle is a program: it may name any function and call it. Here the few operations that build texts, numbers, tuples,
dicts and NumPy's types are carried out, one at a time, and every other one is refused. So the file is never in memory
as a whole, and there is nothing in it that could run.
"""

import pickletools
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from kbq.array_types import Rows
from kbq.errors import CorpusError
from kbq.importing.checkpoint import AGAIN
from kbq.importing.dump import ENDS, KEPT, STARTS, OfficialDocument, is_number
from kbq.storage.files import reading_from

CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
VALUES = {
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BININT", "BININT1",
    "BININT2", "LONG1",
}  # fmt: skip
IGNORED = {"PROTO", "FRAME"}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
DTYPE = "numpy dtype"  # the only thing that may be named
INTEGERS = "i4", "i8"  # what it may be called with
MARK, DTYPE_NAME = object(), object()  # where a tuple or items begin; the name of the type, which is only to be called
ROOM, DICT = 2**28, 500  # bytes to keep of what may be mentioned again, and what a dict counts as

METADATA = "meta_compressed.pkl"
HEADER = struct.Struct("<BBBBIII")
SHUFFLED, RAW, WHOLE, ZLIB = 1, 2, 16, 3
LARGEST = 2**26  # bytes of a chunk: a document has far fewer, and 64 kB of zlib may hold as many


class UnsafePickleError(ValueError):
    """A pickle that asks for more than plain values."""


class _Bounded:
    """A file that is read to its end at most: a pickle may say that a text has exabytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._left = file.seek(0, 2)
        file.seek(0)
        self.readline = file.readline
        self._file = file

    def read(self, size: int) -> bytes:
        """Read the next bytes. Raises ValueError if there are fewer."""
        if size > self._left:
            raise ValueError(f"the pickle says that a value has {size:,} bytes, more than the file")
        return self._file.read(size)


def pickled_items(file: IO[bytes]) -> Iterator[tuple[Any, Any]]:
    """Yield the items of the pickled dict in a file, in order.

    Raises UnsafePickleError if it names or calls something else, ValueError if it is damaged, or holds no dict.
    """
    machine, bounded = _Machine(), cast(IO[bytes], _Bounded(file))
    try:
        for operation, argument, _ in pickletools.genops(bounded):
            if operation.name == "STOP":
                if len(machine.stack) == 1 and machine.stack[0] is machine.outer:
                    return
                break
            yield from machine.carry_out(operation.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError, Warning) as error:  # warnings may be errors
        raise ValueError(f"the pickle is damaged: {error!r}") from None
    raise ValueError("it does not hold a pickled dict")


class _Machine:
    """The stack and the memo of a pickle, in which bytes and dicts are kept as long as there is room."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.memorised = 0  # also what was not kept
        self.room = ROOM
        self.outer: dict[Any, Any] | None = None  # the first dict: its items are handed out, not kept

    def carry_out(self, name: str, argument: Any) -> list[tuple[Any, Any]]:
        """Carry out an operation; return the items that it adds to the outer dict."""
        stack = self.stack
        if name in VALUES:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name == "MARK":
            stack.append(MARK)
        elif name == "EMPTY_DICT":
            stack.append({})
            self.outer = stack[-1] if self.outer is None else self.outer
        elif name in TUPLES:
            count = TUPLES[name]
            stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]
        elif name == "TUPLE":
            stack.append(tuple(self._above_mark()))
        elif name in ("SETITEM", "SETITEMS"):
            return self._set_items(name == "SETITEMS")
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memorise(self.memorised if argument is None else argument, stack[-1])
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name not in IGNORED:
            self._type(name, argument)
        return []

    def _memorise(self, number: int, value: Any) -> None:
        """Remember a value that the pickle may mention again."""
        self.memorised += 1
        if isinstance(value, bytes | dict):
            self.room -= len(value) if isinstance(value, bytes) else DICT
            if self.room < 0:  # they would keep the whole file in memory
                return
        self.memo[number] = value

    def _set_items(self, several: bool) -> list[tuple[Any, Any]]:
        values = self._above_mark() if several else [self.stack.pop(-2), self.stack.pop()]
        items = list(zip(values[::2], values[1::2], strict=True))
        if not all(isinstance(key, str) for key, _ in items):
            # To compare tuples in tuples, each twice in the next, takes twice as long for every level.
            raise UnsafePickleError("the pickle has a key that is not a text")
        if self.stack[-1] is self.outer:
            return items
        self.stack[-1].update(items)
        return []

    def _above_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not MARK:
            place -= 1
        values = self.stack[place + 1 :]
        del self.stack[place:]
        return values

    def _type(self, name: str, argument: Any) -> None:
        """Make a NumPy type, for which a pickle calls `numpy.dtype`: the only call that is known."""
        stack = self.stack
        if name == "GLOBAL" or name == "STACK_GLOBAL":
            asked = argument if name == "GLOBAL" else " ".join([stack.pop(-2), stack.pop()])
            if asked != DTYPE:
                raise UnsafePickleError(f"the pickle asks for {asked.replace(' ', '.')}, which could run code")
            stack.append(DTYPE_NAME)
        elif name == "REDUCE":
            description, called = stack.pop(), stack.pop()
            if called is not DTYPE_NAME or description[0] not in INTEGERS:
                raise UnsafePickleError("the pickle calls something")
            stack.append(np.dtype(description[0]))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], np.dtype) or state[1] not in ("<", "|"):
                raise UnsafePickleError("the pickle changes an object")
        else:
            raise UnsafePickleError(f"the pickle has the operation {name}, which plain values do not need")


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
