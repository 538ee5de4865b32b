"""The command line, run in this process."""

import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import pytest

from kbq.__main__ import main


class Outcome(NamedTuple):
    """What a command did."""

    status: object
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def documents(self) -> list[dict[str, object]]:
        """Standard output, read as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Run: TypeAlias = Callable[..., Outcome]


class Terminal(io.TextIOWrapper):
    """Where a person types."""

    def isatty(self) -> bool:
        return True


def running(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line; `stdin` is what it may read, `typed` what a person types."""

    def run_once(*words: object, stdin: bytes = b"", typed: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["kbq", *map(str, words)])
        kind = Terminal if typed else io.TextIOWrapper
        monkeypatch.setattr(sys, "stdin", kind(io.BufferedReader(io.BytesIO(typed or stdin))))
        capsys.readouterr()
        status: object = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        return Outcome(status, *capsys.readouterr())

    return run_once
