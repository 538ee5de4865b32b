"""Pickles: a pickled dict becomes its items, one after another, without running anything that the file asks for.

A pickle is a program: it may name any function and call it. Here the few operations that build texts, numbers, tuples,
dicts and NumPy's types are carried out, one at a time, and every other one is refused. So the file is never in memory
as a whole, and there is nothing in it that could run.
"""

import pickletools
from collections.abc import Iterator
from typing import IO, Any, cast

import numpy as np

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
