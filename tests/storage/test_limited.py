"""Limits: a call that takes too much, or crashes, costs its process and nothing else."""

import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbq.errors import CorpusError
from kbq.storage import limited
from kbq.storage.limited import LimitedProcess, LimitExceeded


@pytest.fixture
def process() -> Iterator[LimitedProcess]:
    with LimitedProcess() as process:
        yield process


def refused() -> None:
    raise CorpusError("a line is bad", ["a", "b"])


def odd() -> None:
    class OddError(Exception):
        pass

    raise OddError("it cannot be sent")


def hidden_shortage() -> None:
    try:
        bytearray(2**40)
    except MemoryError:
        raise CorpusError("it cannot be read") from None


def noisy() -> str:
    sys.stdout.write("a parser's own words")
    sys.stdout.flush()
    os.write(1, b"and those of its native code")
    return "an answer"


def killed() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_one_process_takes_many_calls(process: LimitedProcess) -> None:
    first = process.call(os.getpid)
    assert first != os.getpid()
    assert [process.call(math.factorial, 5), process.call(os.getpid)] == [120, first]


def test_errors_arrive_as_they_are(process: LimitedProcess) -> None:
    with pytest.raises(CorpusError, match="a line is bad") as error:
        process.call(refused)
    assert error.value.problems == ("a", "b")
    with pytest.raises(RuntimeError, match="OddError: it cannot be sent"):
        process.call(odd)
    assert process.call(noisy) == "an answer"


@pytest.mark.parametrize(
    ("call", "limit", "message"),
    [
        (
            (re.match, "(a+)+$", "a" * 40 + "b"),
            "seconds",
            "more than 1 seconds",
        ),  # native code, which keeps the GIL
        ((time.sleep, 60), "seconds", "more than 1 seconds"),
        ((bytearray, 2**29), "memory", "more than 256 MB of memory"),
        ((hidden_shortage,), "memory", "more than 256 MB of memory"),
        ((os.abort,), "process", "Abort"),
        ((os._exit, 3), "process", "status 3"),
        ((killed,), "process", "Terminated"),
    ],
    ids=["native", "waiting", "memory", "hidden", "abort", "exit", "killed"],
)
def test_what_exceeds_a_limit_is_named_and_the_next_call_works(
    process: LimitedProcess,
    call: tuple[object, ...],
    limit: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limited, "PATIENCE", 2)
    with pytest.raises(LimitExceeded, match=message) as error:
        process.call(*call, seconds=1, memory=2**28)  # type: ignore[arg-type]
    assert error.value.limit == limit
    assert process.call(math.sqrt, 4) == 2


def test_an_idle_process_that_was_killed_is_replaced(process: LimitedProcess) -> None:
    first = process.call(os.getpid)
    os.kill(first, signal.SIGKILL)
    assert process.call(os.getpid) != first
    assert not Path(f"/proc/{first}").exists()  # nor does a zombie


def test_no_process_is_left(process: LimitedProcess) -> None:
    number = process.call(os.getpid)
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def starting(mark: Path) -> None:
    program = subprocess.Popen(["sleep", "3600"])
    mark.write_text(str(program.pid))
    program.wait()


def test_programs_that_a_call_started_end_with_it(
    process: LimitedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "PATIENCE", 1)
    with pytest.raises(LimitExceeded, match="more than 6 seconds"):
        process.call(starting, tmp_path / "mark", seconds=6)
    program = Path("/proc", (tmp_path / "mark").read_text(), "stat")
    for _ in range(1000):
        if (
            not program.exists() or program.read_text().rpartition(")")[2].split()[0] == "Z"
        ):  # ended
            return
        time.sleep(0.1)
    pytest.fail("it goes on")


def test_time_of_the_clock_counts_where_there_are_no_limits(
    process: LimitedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "resource", None)
    with pytest.raises(LimitExceeded, match="more than 2 seconds"):
        process.call(time.sleep, 60, seconds=2)
    assert process.call(math.sqrt, 9) == 3


def test_a_child_has_no_network(process: LimitedProcess) -> None:
    for call in (
        (socket.create_connection, ("127.0.0.1", 9)),
        (socket.getaddrinfo, "localhost", 80),
    ):
        with pytest.raises(PermissionError, match="has no network"):
            process.call(*call)


def test_a_child_runs_neither_the_script_nor_the_current_folder_and_loads_no_torch(
    tmp_path: Path,
) -> None:
    script = (
        "print('once')\n"
        "from kbq.storage.limited import LimitedProcess\n"
        "open('pickle.py', 'w').write('raise SystemExit(1)')\n"
        "with LimitedProcess() as process:\n"
        '    print(process.call(eval, \'"torch" in __import__("sys").modules\'))\n'
    )
    run = subprocess.run(
        [sys.executable, "-"],
        input=script,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "once\nFalse\n"
