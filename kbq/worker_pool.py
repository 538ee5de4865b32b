"""Worker pool: processes that do tasks, one for each device; one that dies is started again."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, Generic, TypeVar

import torch

from kbq.errors import KnowledgeBaseError
from kbq.storage.writing import RESUMES

Task = TypeVar("Task")
Done = TypeVar("Done")
# Given the equipment and a device, returns what does a task.
Equip = Callable[[bytes, str], Callable[[Task], Done]]
ADVICE = f"use fewer --workers; {RESUMES}"


def device_of(number: int, device: torch.device, gpus: int) -> str:
    """Return the device of a worker: each GPU in turn, beginning with the model's, or the model's
    CPU.
    """
    if device.type == "cuda":
        return f"cuda:{((device.index or 0) + number) % gpus}"
    return str(device)


class _Process(SpawnProcess):
    """A process that does not run the caller's script again, which may lack a main guard."""

    _lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            main = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                super().start()
            finally:
                sys.modules["__main__"] = main


class _Context(SpawnContext):  # forked processes cannot use the threads and GPUs of their parent
    Process = _Process


class WorkerPool(Generic[Task, Done]):
    """Worker processes, one for each device, that start with the first task, and again after one
    has died.
    """

    def __init__(
        self,
        equip: Equip[Task, Done],
        equipment: bytes,
        devices: Sequence[str],
        advice: str = ADVICE,
    ) -> None:
        """`equip` is an importable function, called once in each process; errors end with the
        advice.
        """
        self.count = len(devices)
        self._advice = advice
        self._equip = equip
        self._equipment = equipment
        self._devices = devices
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, task: Task) -> Future[Done]:
        """Queue a task. Raises KnowledgeBaseError if no process can be started, or one has died."""
        try:
            if self._pool is None:
                context = _Context()
                devices = context.SimpleQueue()
                for device in self._devices:
                    devices.put(device)
                self._pool = ProcessPoolExecutor(
                    self.count, context, _begin, (self._equip, self._equipment, devices)
                )
            return self._pool.submit(_done, task)
        except BrokenProcessPool:
            raise self._died() from None
        except OSError as error:
            self.dismiss()
            raise KnowledgeBaseError(
                f"no worker can be started ({error.strerror}): {self._advice}"
            ) from None

    def result(self, future: Future[Done]) -> Done:
        """Wait for the result of a task. Raises KnowledgeBaseError if a process has died."""
        try:
            return future.result()
        except BrokenProcessPool:
            raise self._died() from None

    def dismiss(self) -> None:
        pool = self._pool
        self._pool = None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(cancel_futures=True)

    def _died(self) -> KnowledgeBaseError:
        self.dismiss()
        return KnowledgeBaseError(f"a worker died, perhaps for lack of memory: {self._advice}")


_WORK: list[Any] = []  # a worker's state: how to equip it, then the function that does tasks


def _begin(equip: Equip[Any, Any], equipment: bytes, devices: Any) -> None:
    """Begin a worker. The first task equips it, so that an error in this is raised from that task."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # only the parent prints a message on Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _WORK[:] = equip, equipment, devices.get()


def _done(task: Any) -> Any:
    if len(_WORK) > 1:
        equip, equipment, device = _WORK
        _WORK[:] = [equip(equipment, device)]
    return _WORK[0](task)


def _end_with_parent() -> None:
    """Exit when the parent does: a parent that is killed cannot end its workers."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
