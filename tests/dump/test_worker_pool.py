"""Crew: whatever happens to its processes, at whatever moment, what they were given is done or an error is said."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from kbq.dump import worker_pool as pool
from kbq.dump.worker_pool import WorkerPool
from kbq.errors import KnowledgeBaseError, QueryError

EQUIPMENT = bytes(2**22)  # more than any pipe holds
TASK = [1.0] * 2**17  # the same
SIGNALS = [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes import this file, are looked at often, and none is left."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    monkeypatch.setattr(pool, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(pool, "LAST_WORDS_SECONDS", 0.5)
    yield
    assert multiprocessing.active_children() == []


def adding(equipment: bytes, device: str) -> Callable[[Sequence[float]], list[float]]:
    assert equipment == EQUIPMENT
    return lambda task: [sum(task), *task]


def results(equip: Callable[[bytes, str], Callable[[Sequence[float]], object]], tasks: int = 4) -> list[object]:
    """What comes of some tasks."""
    several: WorkerPool[list[float], object] = WorkerPool(equip, EQUIPMENT, ["cpu", "cpu"])
    try:
        return [several.result(done) for done in [several.submit([float(task), *TASK]) for task in range(tasks)]]
    finally:
        several.dismiss()


WANTED = [[task + 2.0**17, task, *TASK] for task in range(4)]


def test_what_is_done_comes_in_the_order_asked_for() -> None:
    assert results(adding) == WANTED


def test_more_workers_than_tasks() -> None:
    assert results(adding, tasks=0) == []
    assert results(adding, tasks=1) == WANTED[:1]


def strike(moment: str) -> None:
    """In a process: get the signal, if this is the moment and it has not been sent twice."""
    wanted, number, marks = os.environ["KBQ_TEST_STRIKE"].split(" ", 2)
    for mark in ("first", "second"):
        if moment == wanted and not Path(marks, mark).exists():
            Path(marks, mark).touch()
            os.kill(os.getpid(), int(number))
            return


def struck(equipment: bytes, device: str) -> Callable[[Sequence[float]], list[float]]:
    strike("loading")
    add = adding(equipment, device)

    def encode(task: Sequence[float]) -> list[float]:
        done = add(task)
        strike("working")
        return done

    return encode


@pytest.mark.parametrize("moment", ["loading", "working"])
@pytest.mark.parametrize("sent", SIGNALS)
def test_two_deaths_are_survived(
    moment: str, sent: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBQ_TEST_STRIKE", f"{moment} {int(sent)} {tmp_path}")
    several: WorkerPool[list[float], list[float]] = WorkerPool(struck, EQUIPMENT, ["cpu"])
    try:
        assert [several.result(several.submit([float(task), *TASK])) for task in range(4)] == WANTED
    finally:
        several.dismiss()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]


@pytest.mark.parametrize("sent", SIGNALS)
@pytest.mark.parametrize("after", [0.0, 0.02, 0.1])  # seconds: while Python starts, while it imports
def test_two_may_die_while_they_start(after: float, sent: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = pool._CONTEXT.Process.start

    def start_and_strike(process: BaseProcess) -> None:
        start(process)
        assert process.pid is not None
        started.append(process.pid)
        if len(started) <= 2:
            threading.Timer(after, os.kill, [process.pid, sent]).start()

    monkeypatch.setattr(pool._CONTEXT.Process, "start", start_and_strike)
    assert results(adding) == WANTED
    assert len(started) == 4


@pytest.mark.parametrize("sent", SIGNALS)
def test_two_may_die_while_they_wait(sent: signal.Signals) -> None:
    several: WorkerPool[list[float], list[float]] = WorkerPool(adding, EQUIPMENT, ["cpu", "cpu"])
    try:
        assert [several.result(done) for done in [several.submit([1.0]), several.submit([2.0])]] == [[1, 1], [2, 2]]
        before = {process.pid for process in multiprocessing.active_children()}
        for pid in before:
            assert pid is not None
            os.kill(pid, sent)
        assert [several.result(done) for done in [several.submit([3.0]), several.submit([4.0])]] == [[3, 3], [4, 4]]
        assert before.isdisjoint(process.pid for process in multiprocessing.active_children())
    finally:
        several.dismiss()


def dying(equipment: bytes, device: str) -> Callable[[Sequence[float]], object]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_the_third_death_ends_the_work() -> None:
    with pytest.raises(KnowledgeBaseError, match=r"^workers died 3 times, perhaps for lack of memory: use fewer --wor"):
        results(dying)


def exiting(equipment: bytes, device: str) -> Callable[[Sequence[float]], object]:
    raise SystemExit("last words")


def test_a_process_that_ends_by_itself_has_died_and_may_say_why(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KnowledgeBaseError, match="workers died 3 times"):
        results(exiting)
    assert "last words" in capfd.readouterr().err


def without_memory(equipment: bytes, device: str) -> Callable[[Sequence[float]], object]:
    raise MemoryError("no room for the model")


def refusing(equipment: bytes, device: str) -> Callable[[Sequence[float]], object]:
    def refuse(task: Sequence[float]) -> object:
        raise QueryError("refused", ["why"], is_usage=True)

    return refuse


def test_errors_are_those_of_the_parent() -> None:
    with pytest.raises(MemoryError, match="no room for the model") as caught:
        results(without_memory)
    assert "in without_memory" in caught.value.__notes__[0]
    with pytest.raises(QueryError, match="refused") as refused:
        results(refusing)
    assert (refused.value.problems, refused.value.is_usage) == (("why",), True)


def test_a_process_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(process: BaseProcess) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(pool._CONTEXT.Process, "start", start)
    with pytest.raises(KnowledgeBaseError, match=r"no worker can be started \(Resource temporarily unavailable\): use"):
        results(adding)


def sleeping(equipment: bytes, device: str) -> Callable[[Sequence[float]], object]:
    return lambda task: time.sleep(3600)


@pytest.mark.parametrize("sent", [None, signal.SIGSTOP])
def test_the_dismissed_end_at_once(sent: signal.Signals | None) -> None:
    several: WorkerPool[list[float], object] = WorkerPool(sleeping, EQUIPMENT, ["cpu", "cpu"])
    waiting = [several.submit([1.0]) for _ in range(5)]
    while len(processes := multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    for process in processes:
        if sent is not None and process.pid is not None:
            os.kill(process.pid, sent)
    several.dismiss()
    assert all(future.done() for future in waiting)
