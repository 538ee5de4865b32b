"""Workers: blocks of pages become the kept tokens of their paragraphs, in this process or in several others.

Each worker has its own copy of the model and computes with one thread, on the CPU or on one of the GPUs. Results are in
the order of the blocks, and workers write no files: so the bytes of a build do not depend on the number of workers, nor
on how many of them die.
"""

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

import torch

from kbq.corpus.pages import Page
from kbq.dump.page_encoder import PageEncoder
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.worker_pool import WorkerPool
from kbq.model.model import Model

Block = TypeVar("Block")
Started = TypeVar("Started")
AHEAD = 1  # blocks that are queued for each worker, or for the GPU of this process, so that none waits for the disk


class Workers(Protocol):
    """Workers that encode pages: a `WorkerPool` of this machine, or tasks on several (`kbq/cluster/tasks.py`)."""

    @property
    def count(self) -> int:
        """How many blocks are encoded at a time."""

    def submit(self, task: Sequence[Page], /) -> Future[EncodedParagraphs]:
        """Have the pages of a block encoded."""

    def result(self, future: Future[EncodedParagraphs], /) -> EncodedParagraphs:
        """Wait for the pages of a block. Raises KnowledgeBaseError if workers died again and again."""

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

    Raises KnowledgeBaseError if workers died again and again.
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
