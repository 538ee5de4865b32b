"""Workers: processes that encode blocks of documents side by side; their results come in the order of the blocks.

Each has the model to itself and computes with one thread, on the CPU or on one of several GPUs. None of them writes:
the files are the same whether or not a build is killed, and with however many workers it goes on.
"""

import io
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.queues import SimpleQueue
from typing import TypeVar

import torch

from kbq.dump.blocks import encode_documents
from kbq.dump.shards import EncodedParagraph
from kbq.encoding.model import Model
from kbq.errors import KnowledgeBaseError
from kbq.records import Document

Block = TypeVar("Block")
Encoded = list[list[EncodedParagraph]]
AHEAD = 1  # blocks that wait for each worker, so that none waits for the disk


def encode_blocks(
    model: Model, blocks: Iterable[Block], documents_of: Callable[[Block], Sequence[Document]], workers: int
) -> Iterator[tuple[Block, Encoded]]:
    """Each block with the encoded paragraphs of its documents, in order; one worker: in this process.

    Raises:
        KnowledgeBaseError: a worker died.
    """
    if workers == 1:
        for block in blocks:
            yield block, encode_documents(model, documents_of(block))
        return
    context = get_context("spawn")  # a forked process cannot use the threads and GPUs of its parent
    devices: SimpleQueue[str] = context.SimpleQueue()
    for number in range(workers):
        devices.put(device_of(number, model.device, torch.cuda.device_count()))
    pickled = io.BytesIO()
    torch.save(model, pickled)  # pickle alone would open it on the GPU that it comes from
    pool = ProcessPoolExecutor(workers, context, _begin, (pickled.getvalue(), devices))
    waiting: deque[tuple[Block, Future[Encoded]]] = deque()
    try:
        for block in blocks:
            waiting.append((block, pool.submit(_encode, documents_of(block))))
            if len(waiting) > workers * (1 + AHEAD):
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())
    except BrokenProcessPool:
        raise KnowledgeBaseError(
            f"one of {workers} workers died, of too little memory perhaps: use fewer --workers; "
            "the same command goes on where it stopped"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def device_of(number: int, device: torch.device, gpus: int) -> str:
    """Where a worker computes: on the GPUs by turns, from that of the model on; or on the CPU like the model.

    >>> [device_of(number, torch.device("cuda:1"), gpus=2) for number in range(3)]
    ['cuda:1', 'cuda:0', 'cuda:1']
    """
    return f"cuda:{((device.index or 0) + number) % gpus}" if device.type == "cuda" else str(device)


def _finished(block: Block, encoded: "Future[Encoded]") -> tuple[Block, Encoded]:
    return block, encoded.result()


_model: list[Model] = []  # in a worker: the model that it was given


def _begin(pickled: bytes, devices: "SimpleQueue[str]") -> None:
    """What a worker does before its first block."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: only the parent has something to say
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    model: Model = torch.load(io.BytesIO(pickled), "cpu", weights_only=False)
    model.phrases.to(devices.get())
    _model.append(model)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers: they would wait for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(documents: Sequence[Document]) -> Encoded:
    return encode_documents(_model[0], documents)
