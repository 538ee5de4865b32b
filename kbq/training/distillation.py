"""Distillation: the logits of a reader for every question, computed once and kept on disk.

Source: arXiv 2012.12624, Eq. 7.

A file holds float16 logits, passage after passage: the starts for its first query, the starts for its second, …, then
the ends in the same order. Its name is a digest of the reader's weights and of the passages.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.errors import TrainingError
from kbq.reading.reader import Reader
from kbq.storage.files import cache_folder
from kbq.storage.folders import make_folders
from kbq.storage.locks import writing_alone
from kbq.storage.writing import open_to_grow, sync_open, writing_to
from kbq.training.batches import Batch, PreparedPassage, passages_digest

Halves = NDArray[np.float16]
AT_A_TIME = 32  # passages read and written together


class ReaderOutputs:
    """The logits of a reader for all queries of all passages."""

    def __init__(self, logits: Halves, passages: Sequence[PreparedPassage], digest: str = "") -> None:
        """`digest`: of the reader and what it read."""
        self.digest = digest
        self._logits = logits
        self._shapes = [_shape(passage) for passage in passages]
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])

    def of(self, index: int) -> Halves:
        """Return the logits of one passage. Shape: (2, queries, tokens)."""
        shape, end = self._shapes[index], int(self._ends[index])
        return self._logits[end - int(np.prod(shape)) : end].reshape(shape)


def _shape(passage: PreparedPassage) -> tuple[int, int, int]:
    return 2, len(passage.queries), sum(window.count for window in passage.windows)


def read_by(
    name: str,
    tokenizer: Any,
    passages: Sequence[PreparedPassage],
    device: str,
    report: Callable[[int, int], None],
) -> ReaderOutputs:
    """Let a reader, a hub name or folder, read all passages; its logits are kept in the cache for other trainings.

    `tokenizer`: of the network that learns from it. Raises ModelError if there is no such reader, or it has another.
    """
    reader = Reader.open(name, device)
    reader.check_tokenizer(tokenizer)
    return reader_outputs(reader, passages, cache_folder() / "reader", report)


def reader_outputs(
    reader: Reader, passages: Sequence[PreparedPassage], folder: Path, report: Callable[[int, int], None]
) -> ReaderOutputs:
    """Let a reader read all passages into a file of `folder`, resuming where an earlier call was killed.

    `report`: called with the number of passages read, and of all passages. Raises TrainingError if the file cannot be
    written, KbqError if another process writes it.
    """
    digest = passages_digest(passages, f"{reader.fingerprint()} {reader.length} {reader.query_tokenizer.max_tokens}")
    path = folder / f"{digest}.f16"
    ends = np.cumsum([2 * int(np.prod(_shape(passage))) for passage in passages])  # in bytes
    if not path.is_file() or path.stat().st_size != ends[-1]:  # a whole file is shared by any number of trainings
        with writing_to(path, TrainingError, goes_on=True):
            make_folders(folder)
            with open_to_grow(path) as file, writing_alone(path):
                done = int(np.searchsorted(ends, file.seek(0, os.SEEK_END), side="right"))
                file.seek(file.truncate(int(ends[done - 1]) if done else 0))
                for first in range(done, len(passages), AT_A_TIME):
                    report(first, len(passages))
                    for outputs in _read(reader, passages[first : first + AT_A_TIME]):
                        file.write(outputs.tobytes())
                    sync_open(file)
    report(len(passages), len(passages))
    return ReaderOutputs(np.memmap(path, np.float16, "r"), passages, digest)


def _read(reader: Reader, passages: Sequence[PreparedPassage]) -> Iterator[Halves]:
    """Yield the logits for each passage. Shape: (2, queries, tokens)."""
    questions = [(query, passage.text) for passage in passages for query in passage.queries]
    logits = iter(reader.score([reader.windows(query, text) for query, text in questions]))
    for passage in passages:
        yield np.stack([next(logits) for _ in passage.queries], axis=1).astype(np.float16)


def taught_logits(batch: Batch, outputs: Sequence[Halves]) -> Tensor:
    """Put logits of a batch's passages at the places of their tokens, -inf elsewhere. Shape: (2, queries, tokens)."""
    queries, tokens = batch.gold_starts.shape
    counts = [logits.shape[1] for logits in outputs]
    rows = np.split(np.arange(queries), np.cumsum(counts[:-1]))
    places = [(part[:, None] * tokens + columns).ravel() for part, columns in zip(rows, batch.tokens_of, strict=True)]
    reader_logits = np.concatenate([logits.reshape(2, -1) for logits in outputs], axis=1).astype(np.float32)
    device = batch.gold_starts.device
    taught = torch.full((2, queries * tokens), -torch.inf, device=device)
    taught[:, torch.from_numpy(np.concatenate(places)).to(device)] = torch.from_numpy(reader_logits).to(device)
    return taught.view(2, queries, tokens)
