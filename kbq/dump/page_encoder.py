"""Page encoder: blocks of pages become the kept tokens of their paragraphs.

A GPU computes a block while the host prepares the next one: what a block needs is asked for without waiting, and comes
back in one transfer for each batch of windows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Rows
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.shards import CLOSES, OPENS
from kbq.model.devices import fast_copy
from kbq.model.model import Model
from kbq.model.phrases import EncodedBatch, encode_batches
from kbq.model.windows import Tokens, Window, tokenize, windows

KEPT = 4  # beside OPENS and CLOSES
EXTRA = 5  # bytes of a token behind its vector: a logit, and these three flags


class PageEncoder:
    """Encodes pages with a copy of a model's network, in the type that the device multiplies fast."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._network = fast_copy(model.phrases.backbone, model.device)
        self._chooses_first = model.device.type == "cpu"  # a GPU would wait to learn how many tokens are kept
        self._scale = torch.from_numpy(model.scale).to(model.device)

    def __call__(self, block: Sequence[Page]) -> EncodedParagraphs:
        """Encode all paragraphs of a block of pages together."""
        return self.start(block)()

    def start(self, block: Sequence[Page]) -> Callable[[], EncodedParagraphs]:
        """Begin to encode a block, and return a function that waits for it. A CPU has finished by then."""
        model = self._model
        titles = tokenize(model.tokenizer, [page.title for page in block])
        paragraphs = [paragraph for page in block for paragraph in page.paragraphs]
        texts = tokenize(model.tokenizer, [paragraph.text[paragraph.begin :] for paragraph in paragraphs])
        title_ids = [title.ids for page, title in zip(block, titles, strict=True) for _ in page.paragraphs]
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
        """Send for the tokens of a batch: the device selects them; a CPU computes only what is kept."""
        config = self._model.config
        logits = batch.logits.amax(dim=2).masked_fill_(~batch.own, -torch.inf)
        # The best token of a window is always kept, as a phrase by itself, so that every paragraph can be found.
        best = (logits == logits.amax(dim=1, keepdim=True)) & batch.own
        kept = (logits > config.filter_threshold) | best
        opens, closes = ((batch.logits > config.edge_threshold) | best[:, :, None]).unbind(dim=2)
        flags = kept * KEPT + opens * OPENS + closes * CLOSES
        places = kept.flatten().nonzero()[:, 0] if self._chooses_first else None
        vectors, logits, flags = (
            part.flatten(0, 1) if places is None else part.flatten(0, 1)[places]
            for part in (batch.vectors, logits[..., None], flags[..., None])
        )
        columns = quantise(vectors, self._scale, config.value_offset), logits.view(torch.int8), flags.to(torch.int8)
        on_host = torch.cat(columns, dim=1).to("cpu", non_blocking=True)
        return _Batch(np.array(batch.members), batch.own.shape[1], places, on_host)


class _Batch(NamedTuple):
    """Tokens of windows that were encoded together."""

    members: Rows  # the numbers of the windows
    width: int  # tokens of a window, padding included
    places: Tensor | None  # of the kept tokens among all, or None: all of them are in `tokens`
    tokens: Tensor  # a vector, and EXTRA bytes behind it. Shape: (tokens, dim + EXTRA), int8

    def kept(self) -> tuple[Rows, Rows, NDArray[np.int8]]:
        """Return window and place in the window of each kept token, and its bytes, window after window."""
        tokens = self.tokens.numpy()
        places = np.flatnonzero(tokens[:, -1] & KEPT) if self.places is None else self.places.numpy()
        window, place = np.divmod(places, self.width)
        return self.members[window], place, tokens[places] if self.places is None else tokens


def _in_order(
    parts: Sequence[_Batch],
    cut: Sequence[Sequence[Window]],
    paragraphs: Sequence[Paragraph],
    texts: Sequence[Tokens],
    dim: int,
) -> EncodedParagraphs:
    """Return paragraphs with the kept tokens of their windows; `cut`: the windows of each, `texts`: its tokens."""
    flat = [window for of_paragraph in cut for window in of_paragraph]
    found = [part.kept() for part in parts]
    owners = np.concatenate([np.empty(0, np.int64), *(members for members, _, _ in found)])
    order = np.argsort(owners, kind="stable")  # the tokens of a window are in order already
    rows = np.empty(len(order), np.int64)
    rows[order] = np.arange(len(order))
    vectors, rest = np.empty((len(order), dim), np.int8), np.empty((len(order), EXTRA), np.int8)
    positions = np.empty(len(order), np.uint32)
    before = np.array([window.position - window.first for window in flat], np.int64)
    first = 0
    for members, place, tokens in found:
        own = rows[first : first + len(members)]
        vectors[own], rest[own], positions[own] = tokens[:, :dim], tokens[:, dim:], place + before[members]
        first += len(members)
    paragraph = np.repeat(np.arange(len(cut)), [len(of_paragraph) for of_paragraph in cut])[owners[order]]
    sizes = np.array([len(text.ids) for text in texts], np.int64)
    places = (np.cumsum(sizes) - sizes)[paragraph] + positions
    begins = np.array([each.begin for each in paragraphs], np.uint32)[paragraph]
    nothing = np.empty(0, np.uint32)
    starts, ends = (
        np.concatenate([nothing, *sides])[places] + begins
        for sides in ([text.starts for text in texts], [text.ends for text in texts])
    )
    logits = np.ascontiguousarray(rest[:, :4]).view(np.float32)[:, 0]
    edges = (rest[:, -1] & (OPENS | CLOSES)).view(np.uint8)
    kept = np.bincount(paragraph, minlength=len(cut))
    return EncodedParagraphs(sizes, kept, vectors, logits, edges, positions, starts, ends)


def encode_pages(model: Model, block: Sequence[Page]) -> EncodedParagraphs:
    """Encode all paragraphs of a block of pages together."""
    return PageEncoder(model)(block)


def quantise(vectors: Tensor, scale: Tensor, offset: float = 0.0) -> Tensor:
    """Quantise vectors to int8 in steps of `scale`, from `offset`. Shapes: (tokens, dim), (dim,)."""
    return ((vectors - offset) / scale).round_().clamp_(-127, 127).to(torch.int8)
