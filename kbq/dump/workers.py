"""Workers: processes that encode blocks of pages side by side; their results come in the order of the blocks.

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
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Rows
from kbq.corpus.pages import Page
from kbq.dump.shards import CLOSES, OPENS, EncodedParagraph
from kbq.encoding.model import Model
from kbq.encoding.phrases import EncodedBatch, encode_batches
from kbq.encoding.windows import Window, tokenize, windows
from kbq.errors import KnowledgeBaseError


def encode_pages(model: Model, block: Sequence[Page]) -> list[list[EncodedParagraph]]:
    """Encode all paragraphs of a block of pages, together; one item for each page."""
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
    """Kept tokens. Shapes: (kept, dim), and (kept,) for the others."""

    vectors: NDArray[np.int8]
    positions: NDArray[np.uint32]
    logits: NDArray[np.float32]
    edges: NDArray[np.uint8]

    def part(self, tokens: slice) -> "_Kept":
        return _Kept(self.vectors[tokens], self.positions[tokens], self.logits[tokens], self.edges[tokens])


def _encode_kept(model: Model, cut_paragraphs: list[list[Window]]) -> list[_Kept]:
    """The kept tokens of each paragraph, given as its windows."""
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
    """The kept tokens of all windows of a batch, window after window, and how many of each; chosen on the device.

    Shape of `begins`: (windows,), what must be added to a token's place for its position in the paragraph.
    """
    chances = batch.logits.amax(dim=2).masked_fill_(~batch.own, -torch.inf)
    # A window keeps its best token in any case, as a phrase by itself, so that every paragraph can be found.
    best = (chances == chances.amax(dim=1, keepdim=True)) & batch.own
    kept = (chances > model.config.filter_threshold) | best
    edges = (batch.logits > model.config.edge_threshold) | best[:, :, None]
    window_numbers, places = (numbers.cpu().numpy() for numbers in kept.nonzero(as_tuple=True))
    scale = torch.from_numpy(model.scale).to(chances.device)
    tokens = _Kept(
        quantise(batch.vectors[kept], scale).cpu().numpy(),
        (places + begins[window_numbers]).astype(np.uint32),
        chances[kept].cpu().numpy(),
        edges[kept].cpu().numpy() @ np.array([OPENS, CLOSES], np.uint8),
    )
    return tokens, np.bincount(window_numbers, minlength=len(begins)).tolist()


def quantise(vectors: Tensor, scale: Tensor) -> Tensor:
    """Vectors in int8 steps of `scale`, symmetric per dimension. Shapes: (tokens, dim), (dim,)."""
    return (vectors / scale).round_().clamp_(-127, 127).to(torch.int8)


Block = TypeVar("Block")
Encoded = list[list[EncodedParagraph]]
AHEAD = 1  # blocks that wait for each worker, so that none waits for the disk


def encode_blocks(
    model: Model, blocks: Iterable[Block], pages_of: Callable[[Block], Sequence[Page]], workers: int
) -> Iterator[tuple[Block, Encoded]]:
    """Each block with the encoded paragraphs of its pages, in order; one worker: in this process.

    Raises:
        KnowledgeBaseError: a worker died.
    """
    if workers == 1:
        for block in blocks:
            yield block, encode_pages(model, pages_of(block))
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
            waiting.append((block, pool.submit(_encode, pages_of(block))))
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


def _encode(pages: Sequence[Page]) -> Encoded:
    return encode_pages(_model[0], pages)
