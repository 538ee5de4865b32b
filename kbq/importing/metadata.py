"""Metadata: read `meta_compressed.pkl` as documents, one at a time, without running code from the
pickle.

It is a pickled dict {number: {word2char_start, word2char_end, f2o_start, context: compressed bytes;
title: text; dtypes: NumPy's types of the first three}}. Bytes are chunks of C-Blosc 1, compressed
with zlib.

A pickle is a program: it may name any function and call it. Only the few operations that build
texts, numbers, tuples, dicts and NumPy's types are carried out here, one at a time; every other is
refused. So nothing in the file can run, and it is never in memory as a whole.
"""

import pickletools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from kbq.array_types import Rows
from kbq.errors import CorpusError
from kbq.importing.checkpoint import AGAIN
from kbq.importing.dump import ENDS, KEPT, STARTS, OfficialDocument, is_number, load
from kbq.storage.reading import reading_from

CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
VALUES = {
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "BININT", "BININT1", "BININT2", "LONG1",
}  # fmt: skip
IGNORED = {"PROTO", "FRAME"}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
DTYPE = "numpy dtype"  # the only thing that may be named
INTEGERS = "i4", "i8"  # the only arguments that it may be called with
# Marks: a tuple or items begin here; the type's name, which is only to be called.
MARK = object()
DTYPE_NAME = object()
# Bytes to keep of what may be mentioned again, and what a dict counts as.
ROOM = 2**28
DICT = 500

METADATA = "meta_compressed.pkl"
# versions, flags, size of an item; bytes unpacked, of a block, and packed.
HEADER = struct.Struct("<BBBBIII")
LARGEST = 2**26  # bytes of a chunk: a document has far fewer, and 64 kB of zlib may hold as many


class UnsafePickleError(ValueError):
    """A pickle that asks for more than plain values."""


def pickled_items(file: IO[bytes]) -> Iterator[tuple[Any, Any]]:
    """Yield the items of the pickled dict in a file, in order.

    Raises UnsafePickleError if it names or calls something else, ValueError if it is damaged, or
    holds no dict.
    """
    machine = _Machine()
    try:
        for operation, argument, _ in pickletools.genops(file):
            if operation.name == "STOP":
                if len(machine.stack) == 1 and machine.stack[0] is machine.outer:
                    return
                break
            yield from machine.carry_out(operation.name, argument)
    # A value may say that it has exabytes, and warnings may be errors.
    except (
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        MemoryError,
        OverflowError,
        Warning,
    ) as error:
        raise ValueError(f"the pickle is damaged: {error!r}") from None

    raise ValueError("it does not hold a pickled dict")


class _Machine:
    """The stack and the memo of a pickle, in which bytes and dicts are kept as long as there is
    room.
    """

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.memorised = 0  # also what was not kept
        self.room = ROOM
        # The first dict: its items are handed out, not kept.
        self.outer: dict[Any, Any] | None = None

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
            if self.outer is None:
                self.outer = stack[-1]
        elif name in TUPLES:
            count = TUPLES[name]
            stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]
        elif name == "TUPLE":
            stack.append(tuple(self._above_mark()))
        elif name in ("SETITEM", "SETITEMS"):
            return self._set_items(name == "SETITEMS")
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            place = argument
            if place is None:
                place = self.memorised
            self._memorise(place, stack[-1])
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name not in IGNORED:
            self._type(name, argument)

        return []

    def _memorise(self, number: int, value: Any) -> None:
        """Remember a value that the pickle may mention again."""
        self.memorised += 1
        if isinstance(value, bytes | dict):
            if isinstance(value, bytes):
                self.room -= len(value)
            else:
                self.room -= DICT
            if self.room < 0:  # they would keep the whole file in memory
                return
        self.memo[number] = value

    def _set_items(self, several: bool) -> list[tuple[Any, Any]]:
        """Put items into the dictionary below them; return those of the outer one instead."""
        if several:
            values = self._above_mark()
        else:
            values = [self.stack.pop(-2), self.stack.pop()]
        items = list(zip(values[::2], values[1::2], strict=True))
        if not all(isinstance(key, str) for key, _ in items):
            # To compare tuples in tuples, each twice in the next, takes twice as long for every
            # level.
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
            if name == "GLOBAL":
                asked = argument
            else:
                asked = " ".join([stack.pop(-2), stack.pop()])
            if asked != DTYPE:
                raise UnsafePickleError(
                    f"the pickle asks for {asked.replace(' ', '.')}, which could run code"
                )
            stack.append(DTYPE_NAME)
        elif name == "REDUCE":
            description = stack.pop()
            called = stack.pop()
            if called is not DTYPE_NAME or description[0] not in INTEGERS:
                raise UnsafePickleError("the pickle calls something")
            stack.append(np.dtype(description[0]))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], np.dtype) or state[1] not in ("<", "|"):
                raise UnsafePickleError("the pickle changes an object")
        else:
            raise UnsafePickleError(
                f"the pickle has the operation {name}, which plain values do not need"
            )


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
        title = facts["title"]
        text = decompressed(facts["context"]).decode()
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
    """Return the bytes that a chunk holds.

    Raises ValueError if it is not such a chunk, is damaged, or says that it holds more than
    LARGEST.
    """
    if len(chunk) < HEADER.size:
        raise ValueError(f"a compressed chunk has {len(chunk)} bytes")
    *_, size, _, length = HEADER.unpack_from(chunk)
    if length != len(chunk) or size > LARGEST:
        raise ValueError(
            f"a compressed chunk of {len(chunk):,} bytes says that it has {length:,} and holds "
            f"{size:,}"
        )

    try:
        if size:
            return bytes(load("numcodecs.blosc").decompress(chunk))
        return b""
    except RuntimeError as error:
        raise ValueError(f"a compressed chunk is damaged: {error}") from None
