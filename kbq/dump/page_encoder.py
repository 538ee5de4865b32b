"""Page encoder: blocks of pages become the kept tokens of their paragraphs.

A GPU computes a block while the host prepares the next one: what a block needs is asked for without waiting, and comes
back in one transfer for each batch of windows.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Rows
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.shard_writer import EncodedParagraph
from kbq.dump.shards import CLOSES, OPENS
from kbq.model.devices import fast_copy
from kbq.model.model import Model
from kbq.model.phrases import EncodedBatch, encode_batches
from kbq.model.windows import Tokens, Window, tokenize, windows

Encoded = list[list[EncodedParagraph]]
KEPT = 4  # beside OPENS and CLOSES
EXTRA = 5  # bytes of a token behind its vector: a logit, and these three flags


class PageEncoder:
    """Encodes pages with a copy of a model's network, in the type that the device multiplies fast."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._network = fast_copy(model.phrases.backbone, model.device)
        self._chooses_first = model.device.type == "cpu"  # a GPU would wait to learn how many tokens are kept
        self._scale = torch.from_numpy(model.scale).to(model.device)

    def __call__(self, block: Sequence[Page]) -> Encoded:
        """Encode all paragraphs of a block of pages together; one item per page."""
        return self.start(block)()

    def start(self, block: Sequence[Page]) -> Callable[[], Encoded]:
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

        def finish() -> Encoded:
            if done is not None:
                done.synchronize()
            kept = _in_order(parts, flat, model.dim)
            encoded = iter(_paragraphs(paragraphs, texts, [len(of_paragraph) for of_paragraph in cut], kept))
            return [[next(encoded) for _ in page.paragraphs] for page in block]

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
    parts: Sequence[_Batch], flat: Sequence[Window], dim: int
) -> tuple[NDArray[np.int8], NDArray[np.uint32], Rows]:
    """Return the bytes and the positions of all kept tokens, window after window, and how many each window has.

    Shapes: (kept, dim + EXTRA), (kept,), (windows,).
    """
    found = [part.kept() for part in parts]
    owners = np.concatenate([np.empty(0, np.int64), *(members for members, _, _ in found)])
    rows = np.empty(len(owners), np.int64)
    rows[np.argsort(owners, kind="stable")] = np.arange(len(owners))  # the tokens of a window are in order already
    tokens, positions = np.empty((len(owners), dim + EXTRA), np.int8), np.empty(len(owners), np.uint32)
    before = np.array([window.position - window.first for window in flat], np.int64)
    first = 0
    for members, place, of_part in found:
        own = rows[first : first + len(members)]
        tokens[own], positions[own] = of_part, place + before[members]
        first += len(members)
    return tokens, positions, np.bincount(owners, minlength=len(flat))


def _paragraphs(
    paragraphs: Sequence[Paragraph],
    texts: Sequence[Tokens],
    windows_of: Sequence[int],
    kept: tuple[NDArray[np.int8], NDArray[np.uint32], Rows],
) -> list[EncodedParagraph]:
    """Return each paragraph with its kept tokens, from `_in_order`; `windows_of`: how many windows it has."""
    tokens, positions, counts = kept
    dim = tokens.shape[1] - EXTRA
    sizes = np.array([len(text.ids) for text in texts], np.int64)
    window_bounds = np.concatenate([[0], np.cumsum(counts)])
    bounds = window_bounds[np.concatenate([[0], np.cumsum(windows_of, dtype=np.int64)])]
    owner = np.repeat(np.arange(len(paragraphs)), np.diff(bounds))
    places = (np.cumsum(sizes) - sizes)[owner] + positions
    begins = np.array([paragraph.begin for paragraph in paragraphs], np.uint32)[owner]
    nothing = np.empty(0, np.uint32)
    starts, ends = (
        np.concatenate([nothing, *sides])[places] + begins
        for sides in ([text.starts for text in texts], [text.ends for text in texts])
    )
    logits = np.ascontiguousarray(tokens[:, dim : dim + 4]).view(np.float32)[:, 0]
    edges = (tokens[:, -1] & (OPENS | CLOSES)).view(np.uint8)
    columns: tuple[NDArray[Any], ...] = (tokens[:, :dim], logits, edges, positions, starts, ends)
    return [
        EncodedParagraph(paragraph.number, paragraph.text, size, *(column[first:stop] for column in columns))
        for paragraph, size, first, stop in zip(paragraphs, sizes.tolist(), bounds[:-1], bounds[1:], strict=True)
    ]


def encode_pages(model: Model, block: Sequence[Page]) -> Encoded:
    """Encode all paragraphs of a block of pages together; one item per page."""
    return PageEncoder(model)(block)


def quantise(vectors: Tensor, scale: Tensor, offset: float = 0.0) -> Tensor:
    """Quantise vectors to int8 in steps of `scale`, from `offset`. Shapes: (tokens, dim), (dim,)."""
    return ((vectors - offset) / scale).round_().clamp_(-127, 127).to(torch.int8)
