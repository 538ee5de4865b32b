"""Paragraphs: a test makes each with its text and its kept tokens, and writes them as the pages of
a shard.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbq.corpus.pages import Page, Paragraph
from kbq.dump.shard_writer import EncodedParagraphs, Progress, ShardWriter, page_digest
from kbq.dump.shards import Shard


@dataclass(frozen=True, slots=True)
class EncodedParagraph:
    """Shapes: vectors (kept, dim), other arrays (kept,)."""

    number: int
    text: str
    tokens: int  # before the filter
    vectors: NDArray[np.int8]
    logits: NDArray[np.float32]
    edges: NDArray[np.uint8]
    positions: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    ends: NDArray[np.uint32]


def write_shard(
    folder: Path, pages: Sequence[tuple[str, str, Sequence[EncodedParagraph]]], dim: int = 2
) -> Shard:
    """Write pages, each with its id, its title and its paragraphs."""
    writer = ShardWriter(folder, dim, Progress())
    nothing: Any = np.empty(0, np.int64)
    for page_id, title, paragraphs in pages:
        page = Page(page_id, title, [Paragraph(one.number, one.text) for one in paragraphs])
        parts = [EncodedParagraphs(nothing, nothing, np.empty((0, dim), np.int8), *[nothing] * 5)]
        for one in paragraphs:
            sizes = np.array([one.tokens]), np.array([len(one.positions)])
            parts.append(EncodedParagraphs(*sizes, *astuple(one)[3:]))
        writer.append([page], [page_digest(page)], EncodedParagraphs.joined(parts))
    writer.close()
    return Shard(folder)
