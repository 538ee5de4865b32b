"""Paragraphs: documents become the kept tokens of their paragraphs, as int8 vectors with their places in the text."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbq.encoding.model import Model
from kbq.encoding.phrases import encode_windows
from kbq.encoding.windows import Window, tokenize, windows
from kbq.indexing.dump import CLOSES, OPENS, EncodedParagraph
from kbq.records import Document


def encode_documents(model: Model, block: Sequence[Document]) -> list[list[EncodedParagraph]]:
    """Encode all paragraphs of a block of documents, together; one item for each document."""
    titles = tokenize(model.tokenizer, [document.title for document in block])
    paragraphs = [paragraph for document in block for paragraph in document.paragraphs]
    texts = tokenize(model.tokenizer, [paragraph.text[paragraph.begin :] for paragraph in paragraphs])
    title_of = [title.ids for document, title in zip(block, titles, strict=True) for _ in document.paragraphs]
    cut = [
        windows(model.tokenizer, title, text, model.config.window) for title, text in zip(title_of, texts, strict=True)
    ]
    kept = _encode_kept(model, cut)
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


def _encode_kept(model: Model, cut: list[list[Window]]) -> list[_Kept]:
    """The kept tokens of each paragraph, given as its windows."""
    flat = [window for paragraph in cut for window in paragraph]
    columns = np.empty(0, np.uint32), np.empty(0, np.float32), np.empty(0, np.uint8)
    nothing = _Kept(np.empty((0, model.dim), np.int8), *columns)
    of_windows = [nothing] * len(flat)
    for index, found, logits in encode_windows(model.phrases, flat, model.tokenizer.pad_token_id, model.uses_segments):
        chance = logits.max(axis=1)
        # A window keeps its best token in any case, which is a phrase alone, so that every paragraph can be found.
        best = chance == chance.max()
        kept = np.flatnonzero((chance > model.config.filter_threshold) | best)
        edges = ((logits > model.config.edge_threshold) | best[:, None])[kept] @ np.array([OPENS, CLOSES], np.uint8)
        positions = (kept + flat[index].position).astype(np.uint32)
        of_windows[index] = _Kept(quantise(found[kept], model.scale), positions, chance[kept], edges)
    remaining = iter(of_windows)
    return [
        _Kept(*map(np.concatenate, zip(nothing, *(next(remaining) for _ in paragraph), strict=True)))
        for paragraph in cut
    ]


def quantise(vectors: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.int8]:
    """Vectors in int8 steps of `scale`, symmetric per dimension. Shapes: (tokens, dim), (dim,)."""
    steps: NDArray[np.int8] = np.clip(np.rint(vectors / scale), -127, 127).astype(np.int8)
    return steps
