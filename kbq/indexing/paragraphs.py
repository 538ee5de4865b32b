"""Paragraphs: documents become the kept tokens of their paragraphs, as int8 vectors with their places in the text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbq.encoding.model import Model
from kbq.encoding.phrases import encode_windows
from kbq.encoding.windows import Window, tokenize, windows
from kbq.indexing.dump import EncodedParagraph
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
            positions,
            text.starts[positions] + np.uint32(paragraph.begin),
            text.ends[positions] + np.uint32(paragraph.begin),
        )
        for paragraph, text, (vectors, positions) in zip(paragraphs, texts, kept, strict=True)
    )
    return [[next(encoded) for _ in document.paragraphs] for document in block]


def _encode_kept(model: Model, cut: list[list[Window]]) -> list[tuple[NDArray[np.int8], NDArray[np.uint32]]]:
    """The kept tokens of each paragraph, given as its windows: vectors (kept, dim) and positions (kept,)."""
    flat = [window for paragraph in cut for window in paragraph]
    vectors, positions = [_NOTHING] * len(flat), [_NOWHERE] * len(flat)
    for index, found, logits in encode_windows(model.phrases, flat, model.tokenizer.pad_token_id, model.uses_segments):
        chance = logits.max(axis=1)
        # A window keeps its best token in any case, so that every paragraph can be found.
        kept = np.flatnonzero((chance > model.config.filter_threshold) | (chance == chance.max()))
        vectors[index] = quantise(found[kept], model.scale)
        positions[index] = (kept + flat[index].position).astype(np.uint32)
    paragraphs, first = [], 0
    for windows_of_one in cut:
        own = slice(first, first + len(windows_of_one))
        first = own.stop
        empty = np.empty((0, model.dim), np.int8)
        paragraphs.append((np.concatenate([empty, *vectors[own]]), np.concatenate([_NOWHERE, *positions[own]])))
    return paragraphs


_NOTHING = np.empty((0, 0), np.int8)
_NOWHERE = np.empty(0, np.uint32)


def quantise(vectors: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.int8]:
    """Vectors in int8 steps of `scale`, symmetric per dimension. Shapes: (tokens, dim), (dim,)."""
    steps: NDArray[np.int8] = np.clip(np.rint(vectors / scale), -127, 127).astype(np.int8)
    return steps
