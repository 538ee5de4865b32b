"""Worker pool: processes that do what they are given; one that dies is replaced, and what it had is done again."""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import LifoQueue
from typing import Any, Generic, TypeVar

from kbq.errors import KnowledgeBaseError
from kbq.storage.writing import RESUMES

Task = TypeVar("Task")
Done = TypeVar("Done")
Equip = Callable[[bytes, str], Callable[[Task], Done]]  # takes the equipment and a device; gives what does a task

ADVICE = f"use fewer --workers; {RESUMES}"
DEATHS = 3  # of workers, over one task: so many end the work, as the next would die of the same
LOOK_SECONDS = 1.0  # between two looks for workers that somebody has stopped
LAST_WORDS_SECONDS = 5.0  # for a process whose connection has ended, to say why
LOOKS = 5  # that find a worker stopped, one after another, before it is given up
_CONTEXT = get_context("spawn")  # forked processes cannot use the threads and GPUs of their parent


class WorkerPool(Generic[Task, Done]):
    """Processes, one for each device, that do tasks in any order.

    Each has a thread here, which alone writes to it and reads from it. Nothing can make that thread wait for ever: what
    a dead process does not read is an error at once, and a stopped process is killed.
    """

    def __init__(
        self, equip: Equip[Task, Done], equipment: bytes, devices: Sequence[str], advice: str = ADVICE
    ) -> None:
        """Make a pool, whose processes start when they are needed.

        Args:
            equip: called once in each process; it must be a function that can be imported there.
            advice: what to do where processes die, or none can be started.
        """
        self.count, self._advice = len(devices), advice
        self._workers = [_Worker(equip, equipment, device, advice) for device in devices]
        self._threads = ThreadPoolExecutor(len(devices))
        self._free: LifoQueue[_Worker] = LifoQueue()  # one that has started goes before others
        for worker in self._workers:
            self._free.put(worker)

    def submit(self, task: Task) -> Future[Done]:
        """Have a task done."""
        return self._threads.submit(self._do, task)

    def result(self, future: Future[Done]) -> Done:
        """Wait for the result of a task. Raises KnowledgeBaseError if workers died, or none can be started."""
        while not wait([future], LOOK_SECONDS).done:
            for worker in self._workers:
                worker.end_if_stopped()
        return future.result()

    def dismiss(self) -> None:
        """End all processes, whatever they do."""
        for worker in self._workers:
            worker.dismiss()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.clear()

    def _do(self, task: Task) -> Done:
        worker, deaths = self._free.get(), 0
        try:
            while True:
                worker.start()
                with suppress(EOFError, OSError):  # it has died
                    outcome = worker.ask(task)
                    break
                worker.clear(LAST_WORDS_SECONDS)
                deaths += 1
                if deaths == DEATHS:
                    raise KnowledgeBaseError(f"workers died {DEATHS} times, perhaps for lack of memory: {self._advice}")
        finally:
            self._free.put(worker)
        if isinstance(outcome, Exception):
            raise outcome
        done: Done = outcome
        return done


class _Worker:
    """One process, and those that replace it; one thread uses it at a time, another may look at it and end it."""

    def __init__(self, equip: Equip[Any, Any], equipment: bytes, device: str, advice: str) -> None:
        self._equip, self._equipment, self._device, self._advice = equip, equipment, device, advice
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._is_dismissed = False
        self._stopped_looks = 0

    def start(self) -> None:
        """Start a process, if there is none. Raises KnowledgeBaseError if it cannot be started, or is dismissed."""
        with self._lock:
            if self._is_dismissed:
                raise KnowledgeBaseError("the workers have been dismissed")
            if self._process is not None:
                return
            try:
                ours, theirs = _CONTEXT.Pipe()
                # What a process is given at its start must be little: it is written while nobody may be there to read.
                process = _CONTEXT.Process(target=_serve, args=(theirs, self._equip, self._device), daemon=True)
                with theirs:  # so that its end is the end of the connection
                    process.start()
            except OSError as error:
                raise KnowledgeBaseError(f"no worker can be started ({error.strerror}): {self._advice}") from None
            self._process, self._connection, self._stopped_looks = process, ours, 0
        with suppress(OSError):  # it has died; asking it says so
            ours.send_bytes(self._equipment)

    def ask(self, task: Any) -> Any:
        """Return the result of a task, or its exception. Raises EOFError or OSError if the process dies."""
        if self._connection is None:
            raise EOFError
        self._connection.send(task)
        return self._connection.recv()

    def end_if_stopped(self) -> None:
        """Kill a process that stays stopped: nobody can say whether it will ever go on."""
        with self._lock:
            is_stopped = self._process is not None and _is_stopped(self._process)
            self._stopped_looks = self._stopped_looks + 1 if is_stopped else 0
            if self._stopped_looks >= LOOKS:
                self._kill()

    def dismiss(self) -> None:
        """Kill the process, and start no other one."""
        with self._lock:
            self._is_dismissed = True
            self._kill()

    def clear(self, patience: float = 0.0) -> None:
        """Forget the process; if it does not end by itself in `patience` seconds, it is killed."""
        if self._process is not None:
            self._process.join(patience)
        with self._lock:
            self._kill()
            if self._process is not None:
                self._process.join()
            if self._connection is not None:
                self._connection.close()
            self._process = self._connection = None

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()


def _is_stopped(process: BaseProcess) -> bool:
    if process.pid is None or not hasattr(os, "waitid"):  # the system may not tell
        return False
    try:
        return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _serve(connection: Connection, equip: Equip[Any, Any], device: str) -> None:
    """Serve as the main function of a process: receive the equipment and then tasks, and send the result of each."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # on Ctrl-C, only the parent prints a message
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent has ended
        do = _equipped(equip, connection.recv_bytes(), device)
        while True:
            connection.send(_outcome(do, connection.recv()))


def _equipped(equip: Equip[Any, Any], equipment: bytes, device: str) -> Callable[[Any], Any]:
    """Return what does a task; if the equipment fails, that is the result of every task."""
    do = _outcome(lambda one: equip(one, device), equipment)
    return (lambda task: do) if isinstance(do, Exception) else do


def _outcome(do: Callable[[Any], Any], task: Any) -> Any:
    try:
        return do(task)
    except Exception as error:  # the parent raises it
        error.add_note(traceback.format_exc())
        return error


def _end_with_parent() -> None:
    """Exit when the parent does: a parent that is killed cannot end its workers."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
