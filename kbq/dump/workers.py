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
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Rows
from kbq.corpus.pages import Page
from kbq.dump.shard_writer import EncodedParagraph
from kbq.dump.shards import CLOSES, OPENS
from kbq.dump.worker_pool import WorkerPool
from kbq.errors import KnowledgeBaseError
from kbq.model.model import Model
from kbq.model.phrases import EncodedBatch, encode_batches
from kbq.model.windows import Window, tokenize, windows

Block = TypeVar("Block")
Encoded = list[list[EncodedParagraph]]
AHEAD = 1  # blocks that are queued for each worker, so that none waits for the disk


class Workers(Protocol):
    """What encodes the pages of blocks: a `Crew` of this machine, or tasks on several (`kbq/cluster/encoding.py`)."""

    @property
    def count(self) -> int:
        """How many blocks are encoded at a time."""

    def submit(self, task: Sequence[Page], /) -> Future[Encoded]:
        """Have the pages of a block encoded."""

    def result(self, future: Future[Encoded], /) -> Encoded:
        """Wait for the pages of a block. Raises KnowledgeBaseError: workers died, again and again."""

    def dismiss(self) -> None:
        """End all work."""


StartEncoders = Callable[[Model], Workers]  # gives workers that encode with this model


def encode_blocks(
    model: Model,
    blocks: Iterable[Block],
    pages_of: Callable[[Block], Sequence[Page]],
    start_encoders: StartEncoders | None = None,
) -> Iterator[tuple[Block, Encoded]]:
    """Yield each block with the encoded paragraphs of its pages, in order; without workers, encode in this process.

    Raises:
        KnowledgeBaseError: workers died, again and again.
    """
    if start_encoders is None:
        for block in blocks:
            yield block, encode_pages(model, pages_of(block))
        return
    workers = start_encoders(model)
    waiting: deque[tuple[Block, Future[Encoded]]] = deque()
    try:
        for block in blocks:
            waiting.append((block, workers.submit(pages_of(block))))
            if len(waiting) > workers.count * (1 + AHEAD):
                done, encoded = waiting.popleft()
                yield done, workers.result(encoded)
        for done, encoded in waiting:
            yield done, workers.result(encoded)
    finally:
        workers.dismiss()


def processes(count: int) -> StartEncoders | None:
    """What encodes in this number of processes; None for one: this process encodes.

    Raises:
        KnowledgeBaseError: the number is below 1.
    """
    if type(count) is not int or count < 1:
        raise KnowledgeBaseError(f"workers is {count!r}, must be at least 1", is_usage=True)

    def start_encoders(model: Model) -> Workers:
        gpus = torch.cuda.device_count()
        devices = [device_of(number, model.device, gpus) for number in range(count)]
        return WorkerPool(encoder, packed(model), devices)

    return None if count == 1 else start_encoders


def packed(model: Model) -> bytes:
    """A model as bytes, for `encoder`."""
    pickled = io.BytesIO()
    torch.save(model, pickled)  # pickle would always load it to the GPU that it comes from
    return pickled.getvalue()


def device_of(number: int, device: torch.device, gpus: int) -> str:
    """The device of a worker: the GPUs in turn, starting with the model's, or the CPU if the model is there.

    >>> [device_of(number, torch.device("cuda:1"), gpus=2) for number in range(3)]
    ['cuda:1', 'cuda:0', 'cuda:1']
    """
    return f"cuda:{((device.index or 0) + number) % gpus}" if device.type == "cuda" else str(device)


def encoder(packed: bytes, device: str) -> Callable[[Sequence[Page]], Encoded]:
    """In a worker process: what encodes the pages of a block."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    model: Model = torch.load(io.BytesIO(packed), "cpu", weights_only=False)
    model.phrases.to(device)
    return partial(encode_pages, model)


def encode_pages(model: Model, block: Sequence[Page]) -> Encoded:
    """Encode all paragraphs of a block of pages together; one item per page."""
    titles = tokenize(model.tokenizer, [page.title for page in block])
    paragraphs = [paragraph for page in block for paragraph in page.paragraphs]
    texts = tokenize(model.tokenizer, [paragraph.text[paragraph.begin :] for paragraph in paragraphs])
    title_ids = [title.ids for page, title in zip(block, titles, strict=True) for _ in page.paragraphs]
    cut_paragraphs = [
        windows(model.tokenizer, title, text, model.config.window) for title, text in zip(title_ids, texts, strict=True)
    ]
    kept = _encode_kept(model, cut_paragraphs)
    encoded = iter(
        EncodedParagraph(
            paragraph.number,
            paragraph.text,
            len(text.ids),
            vectors,
            logits,
            edges,
            positions,
            text.starts[positions] + np.uint32(paragraph.begin),
            text.ends[positions] + np.uint32(paragraph.begin),
        )
        for paragraph, text, (vectors, positions, logits, edges) in zip(paragraphs, texts, kept, strict=True)
    )
    return [[next(encoded) for _ in page.paragraphs] for page in block]


class _Kept(NamedTuple):
    """Kept tokens. Shapes: vectors (kept, dim), others (kept,)."""

    vectors: NDArray[np.int8]
    positions: NDArray[np.uint32]
    logits: NDArray[np.float32]
    edges: NDArray[np.uint8]

    def part(self, tokens: slice) -> "_Kept":
        return _Kept(self.vectors[tokens], self.positions[tokens], self.logits[tokens], self.edges[tokens])


def _encode_kept(model: Model, cut_paragraphs: list[list[Window]]) -> list[_Kept]:
    """The kept tokens of each paragraph, which is given by its windows."""
    all_windows = [window for paragraph in cut_paragraphs for window in paragraph]
    columns = np.empty(0, np.uint32), np.empty(0, np.float32), np.empty(0, np.uint8)
    no_tokens = _Kept(np.empty((0, model.dim), np.int8), *columns)
    of_windows = [no_tokens] * len(all_windows)
    for batch in encode_batches(model.phrases, all_windows, model.tokenizer.pad_token_id, model.uses_segments):
        begins = np.array([all_windows[index].position - all_windows[index].first for index in batch.members])
        kept, counts = _kept_tokens(model, batch, begins)
        bounds = np.cumsum([0, *counts]).tolist()
        for index, begin, stop in zip(batch.members, bounds, bounds[1:], strict=False):
            of_windows[index] = kept.part(slice(begin, stop))
    remaining = iter(of_windows)
    return [
        _Kept(*map(np.concatenate, zip(no_tokens, *(next(remaining) for _ in paragraph), strict=True)))
        for paragraph in cut_paragraphs
    ]


@torch.inference_mode()
def _kept_tokens(model: Model, batch: EncodedBatch, begins: Rows) -> tuple[_Kept, list[int]]:
    """The kept tokens of a batch, window by window, and their number in each window; the device selects them.

    `begins`: what to add to a token's index in its window for its position in the paragraph. Shape: (windows,).
    """
    logits = batch.logits.amax(dim=2).masked_fill_(~batch.own, -torch.inf)
    # The best token of a window is always kept, as a phrase by itself, so that every paragraph can be found.
    best = (logits == logits.amax(dim=1, keepdim=True)) & batch.own
    kept = (logits > model.config.filter_threshold) | best
    edges = (batch.logits > model.config.edge_threshold) | best[:, :, None]
    window_numbers, token_numbers = (numbers.cpu().numpy() for numbers in kept.nonzero(as_tuple=True))
    scale = torch.from_numpy(model.scale).to(logits.device)
    tokens = _Kept(
        quantise(batch.vectors[kept], scale, model.config.value_offset).cpu().numpy(),
        (token_numbers + begins[window_numbers]).astype(np.uint32),
        logits[kept].cpu().numpy(),
        edges[kept].cpu().numpy() @ np.array([OPENS, CLOSES], np.uint8),
    )
    return tokens, np.bincount(window_numbers, minlength=len(begins)).tolist()


def quantise(vectors: Tensor, scale: Tensor, offset: float = 0.0) -> Tensor:
    """Quantise vectors to int8 in steps of `scale`, of which 0 stands for `offset`. Shapes: (tokens, dim), (dim,)."""
    return ((vectors - offset) / scale).round_().clamp_(-127, 127).to(torch.int8)
