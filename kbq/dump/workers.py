"""Workers: blocks of pages become the kept tokens of their paragraphs, in this process or in several others.

Each worker has its own copy of the model and computes with one thread, on the CPU or on one of the GPUs. Results are in
the order of the blocks, and workers write no files, so the bytes of a build do not depend on the number of workers.
"""

import io
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

import torch

from kbq.corpus.pages import Page
from kbq.dump.page_encoder import PageEncoder
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.errors import KnowledgeBaseError
from kbq.model.model import Model
from kbq.storage.writing import RESUMES

Block = TypeVar("Block")
Started = TypeVar("Started")
Task = TypeVar("Task")
Done = TypeVar("Done")
Equip = Callable[[bytes, str], Callable[[Task], Done]]  # takes the equipment and a device; gives what does a task
ADVICE = f"use fewer --workers; {RESUMES}"
AHEAD = 1  # blocks that are queued for each worker, or for the GPU of this process, so that none waits for the disk


class Workers(Protocol):
    """Workers that encode pages: a `WorkerPool` of this machine, or tasks on several (`kbq/cluster/tasks.py`)."""

    @property
    def count(self) -> int:
        """How many blocks are encoded at a time."""

    def submit(self, task: Sequence[Page], /) -> Future[EncodedParagraphs]:
        """Have the pages of a block encoded."""

    def result(self, future: Future[EncodedParagraphs], /) -> EncodedParagraphs:
        """Wait for the pages of a block. Raises KnowledgeBaseError if a worker died."""

    def dismiss(self) -> None:
        """End all work."""


StartEncoders = Callable[[Model], Workers]  # gives workers that encode with this model


def encode_blocks(
    model: Model,
    blocks: Iterable[Block],
    pages_of: Callable[[Block], Sequence[Page]],
    start_encoders: StartEncoders | None = None,
) -> Iterator[tuple[Block, EncodedParagraphs]]:
    """Yield each block with the encoded paragraphs of its pages, in order; without workers, encode in this process.

    Raises KnowledgeBaseError if a worker died.
    """
    if start_encoders is None:
        encode, ahead = PageEncoder(model), AHEAD if model.device.type == "cuda" else 0
        for block, finish in _ahead(blocks, lambda block: encode.start(pages_of(block)), ahead):
            yield block, finish()
        return
    workers = start_encoders(model)
    try:
        started = _ahead(blocks, lambda block: workers.submit(pages_of(block)), workers.count * (1 + AHEAD))
        for block, future in started:
            yield block, workers.result(future)
    finally:
        workers.dismiss()


def _ahead(blocks: Iterable[Block], start: Callable[[Block], Started], count: int) -> Iterator[tuple[Block, Started]]:
    """Yield each block with what starting it gave, once `count` blocks after it have been started."""
    waiting: deque[tuple[Block, Started]] = deque()
    for block in blocks:
        waiting.append((block, start(block)))
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


def processes(count: int) -> StartEncoders | None:
    """Return what encodes in this number of processes; None for one: this process encodes."""

    def start_encoders(model: Model) -> Workers:
        gpus = torch.cuda.device_count()
        devices = [device_of(number, model.device, gpus) for number in range(count)]
        return WorkerPool(encoder, packed(model), devices)

    return None if count == 1 else start_encoders


def packed(model: Model) -> bytes:
    """Return a model as bytes, for `encoder`."""
    pickled = io.BytesIO()
    model.phrases.eval()  # it is read when it is first needed
    torch.save(model, pickled)  # pickle would always load it to the GPU that it comes from
    return pickled.getvalue()


def device_of(number: int, device: torch.device, gpus: int) -> str:
    """Return the device of a worker: the GPUs in turn, from the model's on, or the CPU if the model is there.

    >>> [device_of(number, torch.device("cuda:1"), gpus=2) for number in range(3)]
    ['cuda:1', 'cuda:0', 'cuda:1']
    """
    return f"cuda:{((device.index or 0) + number) % gpus}" if device.type == "cuda" else str(device)


def encoder(packed: bytes, device: str) -> Callable[[Sequence[Page]], EncodedParagraphs]:
    """In a worker process: return what encodes the pages of a block."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    model: Model = torch.load(io.BytesIO(packed), "cpu", weights_only=False)
    model.phrases.to(device)
    return PageEncoder(model)


class _Process(SpawnProcess):
    """A process that does not run the caller's script again, which may lack a main guard."""

    _lock = threading.Lock()

    def start(self) -> None:
        """Start it, while nothing says which script is the main one."""
        with self._lock:
            main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
            try:
                super().start()
            finally:
                sys.modules["__main__"] = main


class _Context(SpawnContext):  # forked processes cannot use the threads and GPUs of their parent
    Process = _Process


class WorkerPool(Generic[Task, Done]):
    """Processes that do tasks, one for each device; they start with the first task, and again after one has died."""

    def __init__(
        self, equip: Equip[Task, Done], equipment: bytes, devices: Sequence[str], advice: str = ADVICE
    ) -> None:
        """Make a pool.

        Args:
            equip: called once in each process; it must be a function that can be imported there.
            advice: what to do where a process dies, or none can be started.
        """
        self.count, self._advice = len(devices), advice
        self._equip, self._equipment, self._devices = equip, equipment, devices
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, task: Task) -> Future[Done]:
        """Have a task done. Raises KnowledgeBaseError if no process can be started, or one has died."""
        try:
            self._pool = self._pool or self._started()
            return self._pool.submit(_done, task)
        except BrokenProcessPool:
            raise self._died() from None
        except OSError as error:
            self.dismiss()
            raise KnowledgeBaseError(f"no worker can be started ({error.strerror}): {self._advice}") from None

    def result(self, future: Future[Done]) -> Done:
        """Wait for the result of a task. Raises KnowledgeBaseError if a process has died."""
        try:
            return future.result()
        except BrokenProcessPool:
            raise self._died() from None

    def dismiss(self) -> None:
        """End all processes, whatever they do."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(cancel_futures=True)

    def _started(self) -> ProcessPoolExecutor:
        context = _Context()
        devices = context.SimpleQueue()
        for device in self._devices:
            devices.put(device)
        return ProcessPoolExecutor(self.count, context, _begin, (self._equip, self._equipment, devices))

    def _died(self) -> KnowledgeBaseError:
        self.dismiss()
        return KnowledgeBaseError(f"a worker died, perhaps for lack of memory: {self._advice}")


_WORK: list[Any] = []  # in a worker: how it is equipped, and then what does a task


def _begin(equip: Equip[Any, Any], equipment: bytes, devices: Any) -> None:
    """Begin a worker; the first task equips it, so that an error in this is that task's."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # on Ctrl-C, only the parent prints a message
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
