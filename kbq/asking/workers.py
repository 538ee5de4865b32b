"""Workers: processes that answer queries, each with all of a knowledge base open."""

from __future__ import annotations

import os
import pickle
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from kbq.errors import KnowledgeBaseError
from kbq.model.model import Model
from kbq.search.options import SearchOptions
from kbq.search.search import BATCH
from kbq.worker_pool import WorkerPool, device_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbq.answers import Answer
    from kbq.text.queries import Query

    Request = tuple[Sequence[Query], SearchOptions]


class Searching(Protocol):
    """An open knowledge base."""

    def search(self, queries: Sequence[Query], options: SearchOptions) -> list[list[Answer]]:
        """Find the best answers to each query."""


class Answerers:
    """Processes that answer batches of queries, each with all of the knowledge base open; they take
    turns on GPUs.

    They start when they are first asked. Most of the cost of a query is Python, of which a process
    runs one line at a time: a GPU that answers for one process waits for it.
    """

    def __init__(self, open_with: Callable[[Model], Searching], model: Model, count: int) -> None:
        """`open_with`: opens the knowledge base with a model, in any process; `model`: the one that
        is open here.
        """
        devices = [
            device_of(number, model.device, torch.cuda.device_count()) for number in range(count)
        ]
        if not model.source:
            raise KnowledgeBaseError(
                "workers cannot open a model that is in no folder: save it first"
            )

        equipment = pickle.dumps((open_with, model.source))
        self._pool: WorkerPool[Request, list[list[Answer]]] = WorkerPool(
            answerer, equipment, devices, "use fewer workers"
        )
        # The processes end with this object.
        self._dismiss = weakref.finalize(self, self._pool.dismiss)

    def search(self, queries: Sequence[Query], options: SearchOptions) -> list[list[Answer]]:
        """`Searcher.search`, shared out among the processes.

        Raises:
            KnowledgeBaseError: a process died; the next search starts new ones.
        """
        size = min(BATCH, -(-len(queries) // self._pool.count))
        parts = (queries[first : first + size] for first in range(0, len(queries), size))
        started = [self._pool.submit((part, options)) for part in parts]
        try:
            return [answers for future in started for answers in self._pool.result(future)]
        except KeyboardInterrupt:  # this has ended the processes, and others would start
            self._pool.dismiss()
            raise


def answerer(packed: bytes, device: str) -> Callable[[Request], list[list[Answer]]]:
    """In a process: open the knowledge base, and return what answers."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    open_with, model = pickle.loads(packed)
    searcher = open_with(Model.open(model, device))
    return lambda asked: searcher.search(*asked)
