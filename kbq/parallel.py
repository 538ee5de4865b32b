"""Parallel: batches of queries become answers in several processes, each with the whole knowledge base open.

Most of what a query costs is Python, of which a process runs one line at a time: a GPU that answers for one process
waits for it.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kbq.asking import OpenKnowledgeBase
from kbq.dump.worker_pool import WorkerPool
from kbq.dump.workers import device_of
from kbq.model.model import Model
from kbq.search.search import BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kbq.answers import Answer, IndexKind, SearchOptions
    from kbq.dump.manifest import Manifest

    Asked = tuple[Sequence[str], SearchOptions]


@dataclass(frozen=True, slots=True)
class Opening:
    """What a process needs to open the same knowledge base."""

    folder: Path
    manifest: Manifest
    model: str
    index: IndexKind
    may_leave_gpu: bool
    pages: Sequence[str]


class Answerers:
    """Processes that answer, which start when they are first asked; they take turns on GPUs."""

    def __init__(self, opening: Opening, count: int, device: torch.device) -> None:
        devices = [device_of(number, device, torch.cuda.device_count()) for number in range(count)]
        self._pool: WorkerPool[Asked, list[list[Answer]]] = WorkerPool(answerer, pickle.dumps(opening), devices)

    def search(self, texts: Sequence[str], options: SearchOptions) -> list[list[Answer]]:
        """`OpenKnowledgeBase.search`, shared out among the processes.

        Raises:
            KnowledgeBaseError: processes died again and again.
        """
        size = min(BATCH, -(-len(texts) // self._pool.count))
        parts = (texts[first : first + size] for first in range(0, len(texts), size))
        started = [self._pool.submit((part, options)) for part in parts]
        return [answers for future in started for answers in self._pool.result(future)]

    def dismiss(self) -> None:
        """End all processes."""
        self._pool.dismiss()


def answerer(packed: bytes, device: str) -> Callable[[Asked], list[list[Answer]]]:
    """In a process: open the knowledge base, and return what answers."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    opening: Opening = pickle.loads(packed)
    model = Model.open(opening.model, device)
    kb = OpenKnowledgeBase(
        opening.folder, opening.manifest, model, opening.index, opening.may_leave_gpu, pages=opening.pages
    )
    return lambda asked: kb.search(*asked)
