"""Page encoder: encode blocks of pages as the kept tokens of their paragraphs, in one process or
several.

A GPU computes a block while the host prepares the next one; the tokens of each batch of windows
come back in one transfer. Each worker has its own copy of the model and computes with one thread,
on the CPU or on one of the GPUs. Results are in the order of the blocks, and workers write no
files, so the bytes of a build do not depend on their number.
"""

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Rows
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.shards import CLOSES, OPENS
from kbq.model.devices import fast_copy
from kbq.model.model import EncodedBatch, Model, encode_batches
from kbq.model.tokenizer import Tokens, Window, tokenize, windows
from kbq.worker_pool import WorkerPool, device_of

KEPT = 4  # further tokens, next to OPENS and CLOSES
EXTRA = 5  # bytes of a token behind its vector: a logit, and these three flags

Block = TypeVar("Block")
Started = TypeVar("Started")

# Blocks queued for each worker, or for the GPU of this process, so that none waits for the disk.
AHEAD = 1


class PageEncoder:
    """Encodes pages with a copy of a model's network, in the type that the device multiplies fast."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._network = fast_copy(model.phrases.backbone, model.device)
        # A GPU would wait to learn how many tokens are kept.
        self._chooses_first = model.device.type == "cpu"
        self._scale = torch.from_numpy(model.scale).to(model.device)

    def __call__(self, block: Sequence[Page]) -> EncodedParagraphs:
        return self.start(block)()

    def start(self, block: Sequence[Page]) -> Callable[[], EncodedParagraphs]:
        """Begin to encode a block, and return a function that waits for the result."""
        model = self._model
        titles = tokenize(model.tokenizer, [page.title for page in block])
        paragraphs = [paragraph for page in block for paragraph in page.paragraphs]
        texts = tokenize(
            model.tokenizer, [paragraph.text[paragraph.begin :] for paragraph in paragraphs]
        )
        title_ids = [
            title.ids for page, title in zip(block, titles, strict=True) for _ in page.paragraphs
        ]
        cut = [
            windows(model.tokenizer, title, text, model.config.window)
            for title, text in zip(title_ids, texts, strict=True)
        ]
        flat = [window for of_paragraph in cut for window in of_paragraph]
        pad_id = model.tokenizer.pad_token_id
        batches = encode_batches(model.phrases, flat, pad_id, model.uses_segments, self._network)
        parts = [self._asked_for(batch) for batch in batches]
        done = torch.cuda.Event() if model.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if done is not None:
            done.record(torch.cuda.current_stream(model.device))

        def finish() -> EncodedParagraphs:
            if done is not None:
                done.synchronize()
            return _in_order(parts, cut, paragraphs, texts, model.dim)

        return finish

    @torch.inference_mode()
    def _asked_for(self, batch: EncodedBatch) -> "_Batch":
        """Request the tokens of a batch, which the device selects. A CPU quantises only the kept
        ones.
        """
        config = self._model.config
        logits = batch.logits.amax(dim=2).masked_fill_(~batch.own, -torch.inf)
        # The best token of a window is always kept, as a phrase by itself, so that every paragraph
        # can be found.
        best = (logits == logits.amax(dim=1, keepdim=True)) & batch.own
        kept = (logits > config.filter_threshold) | best
        opens, closes = ((batch.logits > config.edge_threshold) | best[:, :, None]).unbind(dim=2)
        flags = kept * KEPT + opens * OPENS + closes * CLOSES
        places = None
        if self._chooses_first:
            places = kept.flatten().nonzero()[:, 0]
        flat = [part.flatten(0, 1) for part in (batch.vectors, logits[..., None], flags[..., None])]
        if places is not None:
            flat = [part[places] for part in flat]
        vectors, logits, flags = flat
        columns = (
            quantise(vectors, self._scale, config.value_offset),
            logits.view(torch.int8),
            flags.to(torch.int8),
        )
        on_host = torch.cat(columns, dim=1).to("cpu", non_blocking=True)

        return _Batch(np.array(batch.members), batch.own.shape[1], places, on_host)


class _Batch(NamedTuple):
    """Tokens of windows that were encoded together."""

    members: Rows  # the numbers of the windows
    width: int  # tokens of a window, padding included
    places: Tensor | None  # positions of the kept tokens among all, or None if `tokens` holds all
    tokens: Tensor  # a vector, and EXTRA bytes behind it. Shape: (tokens, dim + EXTRA), int8

    def kept(self) -> tuple[Rows, Rows, NDArray[np.int8]]:
        """Return the window, the place in it and the bytes of each kept token, window by window."""
        tokens = self.tokens.numpy()
        places = (
            np.flatnonzero(tokens[:, -1] & KEPT) if self.places is None else self.places.numpy()
        )
        window, token = np.divmod(places, self.width)
        if self.places is None:
            tokens = tokens[places]
        return self.members[window], token, tokens


def _in_order(
    parts: Sequence[_Batch],
    cut: Sequence[Sequence[Window]],
    paragraphs: Sequence[Paragraph],
    texts: Sequence[Tokens],
    dim: int,
) -> EncodedParagraphs:
    """Return paragraphs with the kept tokens of their windows. `cut` holds the windows of each,
    `texts` its tokens.
    """
    flat = [window for of_paragraph in cut for window in of_paragraph]
    found = [part.kept() for part in parts]
    owners = np.concatenate([np.empty(0, np.int64), *(members for members, _, _ in found)])
    order = np.argsort(owners, kind="stable")  # the tokens of a window are in order already
    rows = np.empty(len(order), np.int64)
    rows[order] = np.arange(len(order))
    vectors = np.empty((len(order), dim), np.int8)
    rest = np.empty((len(order), EXTRA), np.int8)
    positions = np.empty(len(order), np.uint32)
    before = np.array([window.position - window.first for window in flat], np.int64)
    first = 0

    for members, place, tokens in found:
        own = rows[first : first + len(members)]
        vectors[own] = tokens[:, :dim]
        rest[own] = tokens[:, dim:]
        positions[own] = place + before[members]
        first += len(members)

    paragraph = np.repeat(np.arange(len(cut)), [len(of_paragraph) for of_paragraph in cut])[
        owners[order]
    ]
    sizes = np.array([len(text.ids) for text in texts], np.int64)
    places = (np.cumsum(sizes) - sizes)[paragraph] + positions
    begins = np.array([each.begin for each in paragraphs], np.uint32)[paragraph]
    nothing = np.empty(0, np.uint32)
    all_starts = np.concatenate([nothing, *(text.starts for text in texts)])
    all_ends = np.concatenate([nothing, *(text.ends for text in texts)])
    starts = all_starts[places] + begins
    ends = all_ends[places] + begins
    logits = np.ascontiguousarray(rest[:, :4]).view(np.float32)[:, 0]
    edges = (rest[:, -1] & (OPENS | CLOSES)).view(np.uint8)
    kept = np.bincount(paragraph, minlength=len(cut))

    return EncodedParagraphs(sizes, kept, vectors, logits, edges, positions, starts, ends)


def quantise(vectors: Tensor, scale: Tensor, offset: float = 0.0) -> Tensor:
    """Quantise vectors to int8 in steps of `scale`, from `offset`. Shapes: (tokens, dim), (dim,)."""
    return ((vectors - offset) / scale).round_().clamp_(-127, 127).to(torch.int8)


class Workers(Protocol):
    """Workers that encode blocks of pages: a `WorkerPool` of this machine, or the tasks of
    `kbq/cluster/nodes.py`.
    """

    @property
    def count(self) -> int: ...  # blocks that are encoded at a time

    def submit(self, task: Sequence[Page], /) -> Future[EncodedParagraphs]: ...

    def result(self, future: Future[EncodedParagraphs], /) -> EncodedParagraphs:
        """Wait for a block. Raises KnowledgeBaseError if a worker died."""

    def dismiss(self) -> None: ...


StartEncoders = Callable[[Model], Workers]  # returns workers that encode with this model


def encode_blocks(
    model: Model,
    blocks: Iterable[Block],
    pages_of: Callable[[Block], Sequence[Page]],
    start_encoders: StartEncoders | None = None,
) -> Iterator[tuple[Block, EncodedParagraphs]]:
    """Yield each block, in order, with the encoded paragraphs of its pages; by default, encode in
    this process.
    """
    if start_encoders is None:
        encode = PageEncoder(model)
        ahead = AHEAD if model.device.type == "cuda" else 0
        for block, finish in _ahead(blocks, lambda block: encode.start(pages_of(block)), ahead):
            yield block, finish()
        return

    workers = start_encoders(model)
    try:
        started = _ahead(
            blocks, lambda block: workers.submit(pages_of(block)), workers.count * (1 + AHEAD)
        )
        for block, future in started:
            yield block, workers.result(future)
    finally:
        workers.dismiss()


def _ahead(
    blocks: Iterable[Block], start: Callable[[Block], Started], count: int
) -> Iterator[tuple[Block, Started]]:
    """Yield each block with the result of `start`, once `count` later blocks have been started."""
    waiting: deque[tuple[Block, Started]] = deque()
    for block in blocks:
        waiting.append((block, start(block)))
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


def processes(count: int) -> StartEncoders | None:
    """Return what starts encoders in this number of processes, or None for one, which is this
    process.
    """

    def start_encoders(model: Model) -> Workers:
        gpus = torch.cuda.device_count()
        devices = [device_of(number, model.device, gpus) for number in range(count)]
        return WorkerPool(encoder, packed(model), devices)

    return None if count == 1 else start_encoders


def packed(model: Model) -> bytes:
    pickled = io.BytesIO()
    model.phrases.eval()  # it is read when it is first needed
    torch.save(model, pickled)  # pickle would always load it to the GPU that it comes from
    return pickled.getvalue()


def encoder(packed: bytes, device: str) -> Callable[[Sequence[Page]], EncodedParagraphs]:
    """In a worker process, return what encodes the pages of a block."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    model: Model = torch.load(io.BytesIO(packed), "cpu", weights_only=False)
    model.phrases.to(device)
    return PageEncoder(model)
