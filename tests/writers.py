"""Writers: while tests run, whatever kbq makes, moves or removes goes through storage/writing.py or
folders.py.
"""

import builtins
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import kbq

PACKAGE, TESTS = str(Path(kbq.__file__).parent) + os.sep, str(Path(__file__).parent) + os.sep
OWN = {f"{PACKAGE}storage{os.sep}{name}.py" for name in ("writing", "folders")}
# Made by `replacing`, or in a folder made by `files_for`.
PARTIAL = re.compile(r"[./][0-9a-f]{12}\.tmp(/[^/]*)?$")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = (
    "mkdir", "rename", "replace", "unlink", "remove", "rmdir", "link", "symlink", "truncate",
    "chmod",
)  # fmt: skip
TEMPORARY = tempfile.__file__

seen: set[str] = set()  # the functions of kbq that have written
TRITON = f"{os.sep}triton{os.sep}"  # which compiles kernels for a GPU, in files of its own
private: set[str] = set()  # folders that `tempfile` has made


def _check(path: object, what: str) -> None:
    """Raises AssertionError where kbq writes another way."""
    if isinstance(path, int):  # it is open already
        return
    frame: Any = sys._getframe(2)
    by_tempfile = by_triton = False
    while frame is not None and not frame.f_code.co_filename.startswith((PACKAGE, TESTS)):
        by_tempfile |= frame.f_code.co_filename == TEMPORARY
        by_triton |= TRITON in frame.f_code.co_filename
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(TESTS):
        return
    place = os.fsdecode(path)  # type: ignore[arg-type]
    in_tests = Path(place).is_relative_to(tempfile.gettempdir())
    if (
        not in_tests
        or by_triton
        or any(name in place for name in ("torchinductor", "triton", "openpyxl."))
    ):  # of libraries
        return
    if by_tempfile:
        if not Path(place).is_dir():  # it makes a folder or a file, neither of which was there
            private.add(place)
        return
    in_own = frame.f_code.co_filename in OWN
    while (
        frame is not None and not frame.f_code.co_filename.startswith((PACKAGE, TESTS))
    ) or _is_storage(frame):
        frame = frame.f_back
    if frame is not None and not frame.f_code.co_filename.startswith(TESTS):
        seen.add(f"{frame.f_code.co_filename.removeprefix(PACKAGE)}: {frame.f_code.co_qualname}")
    is_private = any(Path(place).is_relative_to(folder) for folder in private)
    if in_own or is_private or PARTIAL.search(place) or place == os.devnull:
        return
    raise AssertionError(
        f"{what} of {place} goes through neither kbq/storage/writing.py nor folders.py"
    )


def _is_storage(frame: Any) -> bool:
    """Whether a function writes for another one, which is the writer."""
    return frame is not None and frame.f_code.co_filename.startswith(f"{PACKAGE}storage{os.sep}")


def _opening(real: Callable[..., Any]) -> Callable[..., Any]:
    def opened(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if not isinstance(mode, str) or set(mode) & set("wax+"):
            _check(file, f"open with mode {mode!r}")
        return real(file, mode, *rest, **named)

    return opened


def _opening_descriptor(real: Callable[..., int]) -> Callable[..., int]:
    def opened(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & WRITING:
            _check(path, "os.open")
        return real(path, flags, *rest, **named)

    return opened


def _changing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def changed(path: Any, *rest: Any, **named: Any) -> Any:
        _check(path, f"os.{name}")
        return real(path, *rest, **named)

    return changed


@contextmanager
def watched() -> Iterator[None]:
    """Have every write of Python's own checked; those of libraries in C and Rust are seen by
    `test_system_calls.py`.
    """
    patches = [patch.object(module, "open", _opening(io.open)) for module in (io, builtins)]
    patches.append(patch.object(os, "open", _opening_descriptor(os.open)))
    patches += [patch.object(os, name, _changing(name, getattr(os, name))) for name in CHANGES]
    for one in patches:
        one.start()
    # `os` compares functions with its own to tell which take handles of folders.
    groups = os.supports_dir_fd, os.supports_follow_symlinks
    changed = [(group, getattr(os, real.__name__)) for group in groups for real in group]
    for group, wrapped in changed:
        group.add(wrapped)
    try:
        yield
    finally:
        for one in patches:
            one.stop()
