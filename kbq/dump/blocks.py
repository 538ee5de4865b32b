"""Blocks: some documents become the kept tokens of their paragraphs, as int8 vectors with their places in the text."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.array_types import Rows
from kbq.dump.shards import CLOSES, OPENS, EncodedParagraph
from kbq.encoding.model import Model
from kbq.encoding.phrases import EncodedBatch, encode_batches
from kbq.encoding.windows import Window, tokenize, windows
from kbq.records import Document


def encode_documents(model: Model, block: Sequence[Document]) -> list[list[EncodedParagraph]]:
    """Encode all paragraphs of a block of documents, together; one item for each document."""
    titles = tokenize(model.tokenizer, [document.title for document in block])
    paragraphs = [paragraph for document in block for paragraph in document.paragraphs]
    texts = tokenize(model.tokenizer, [paragraph.text[paragraph.begin :] for paragraph in paragraphs])
    title_ids = [title.ids for document, title in zip(block, titles, strict=True) for _ in document.paragraphs]
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
    return [[next(encoded) for _ in document.paragraphs] for document in block]


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
