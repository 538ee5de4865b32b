"""Shard writer: append pages with their encoded paragraphs to a shard, so that a kill loses none.

docs/reference/formats.md lists the files. The shard's seal is written at the end; a list of deleted
pages may come later, from `changes.py`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Rows
from kbq.corpus.pages import Page
from kbq.dump.shards import (
    DIGEST_BYTES,
    LOGIT_STEPS,
    PER_PARAGRAPH,
    PER_ROW,
    TEXTS,
    Counts,
    GrowingArray,
    GrowingTexts,
    ShardEntry,
)
from kbq.storage.folders import new_folder
from kbq.storage.records import digest_of_bytes
from kbq.storage.seals import seal_folder
from kbq.storage.writing import sync_folder


class EncodedParagraphs(NamedTuple):
    """Paragraphs, one after another, with their kept tokens.

    Shapes: tokens and sizes (paragraphs,), vectors (kept, dim), other arrays (kept,).
    """

    tokens: Rows  # tokens of each paragraph, before the filter
    sizes: Rows  # rows of each paragraph, after the filter
    vectors: NDArray[np.int8]
    logits: NDArray[np.float32]  # the higher one of the filter's two
    edges: NDArray[np.uint8]  # OPENS, CLOSES, or both
    positions: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    ends: NDArray[np.uint32]

    @classmethod
    def joined(cls, parts: Iterable["EncodedParagraphs"]) -> "EncodedParagraphs":
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a shard is on the disk, so that a build can resume."""

    counts: Counts = field(default_factory=Counts)
    sizes: Mapping[str, int] = field(default_factory=dict)  # entries of each file


class ShardWriter:
    """Writes a shard, from the beginning or from the progress of a build that was killed."""

    def __init__(self, folder: Path, dim: int | None, progress: Progress) -> None:
        """Open all files and cut them back to the progress. Raises ValueError if one is shorter.

        `dim` is that of the vectors, or None if codes elsewhere replace them.
        """
        # A folder may be left from an abandoned build.
        if not progress.sizes or not folder.exists():
            new_folder(folder)
        self.folder = folder
        self.counts = progress.counts
        self.per_row = {
            name: GrowingArray(folder / f"{name}.npy", dtype) for name, dtype in PER_ROW.items()
        }
        if dim is not None:
            self.per_row["vectors"] = GrowingArray(folder / "vectors.npy", np.int8, dim)
        self.per_paragraph = {
            name: GrowingArray(folder / f"paragraph_{name}.npy", dtype)
            for name, dtype in PER_PARAGRAPH.items()
        }
        self.page_digests = GrowingArray(folder / "page_digests.npy", np.uint8, DIGEST_BYTES)
        self.texts = {name: GrowingTexts(folder, name) for name in TEXTS}
        for array in self._arrays():
            left = len(array)
            size = progress.sizes.get(array.path.name, 0)
            if left < size:
                self.abandon()
                raise ValueError(f"{array.path} has {left:,} entries, {size:,} were written")
            array.truncate(size)

    def append(
        self, pages: Sequence[Page], digests: Sequence[bytes], encoded: EncodedParagraphs
    ) -> None:
        """Write pages with their encoded paragraphs behind those that are there."""
        paragraphs = [paragraph for page in pages for paragraph in page.paragraphs]
        self.texts["ids"].append([page.page_id for page in pages])
        self.texts["titles"].append([page.title for page in pages])
        self.texts["metadata"].append(
            [
                json.dumps(dict(page.metadata), ensure_ascii=False) if page.metadata else ""
                for page in pages
            ]
        )
        self.texts["texts"].append([paragraph.text for paragraph in paragraphs])
        self.page_digests.append(np.frombuffer(b"".join(digests), np.uint8))
        numbers = np.arange(self.counts.pages, self.counts.pages + len(pages))
        self.per_paragraph["rows"].append(self.counts.rows + np.cumsum(encoded.sizes))
        self.per_paragraph["numbers"].append(
            np.array([paragraph.number for paragraph in paragraphs])
        )
        self.per_paragraph["pages"].append(
            np.repeat(numbers, [len(page.paragraphs) for page in pages])
        )
        self.per_paragraph["tokens"].append(encoded.tokens)

        for name, array in self.per_row.items():
            column = getattr(encoded, name)
            array.append(
                np.clip(np.rint(column * LOGIT_STEPS), -127, 127) if name == "logits" else column
            )

        self.counts += Counts(
            len(pages), len(paragraphs), int(encoded.tokens.sum()), len(encoded.positions)
        )

    def sync(self) -> Progress:
        for array in self._arrays():
            array.sync()
        sync_folder(self.folder)
        return Progress(self.counts, {array.path.name: len(array) for array in self._arrays()})

    def close(self) -> ShardEntry:
        for array in self._arrays():
            array.close()
        return ShardEntry(
            self.folder.name, seal_folder(self.folder).digest, self.counts, self.counts
        )

    def abandon(self) -> None:
        """Close the files of a failed build, so that nothing is written to them when another run
        resumes.
        """
        for array in self._arrays():
            array.abandon()

    def _arrays(self) -> list[GrowingArray]:
        arrays = [*self.per_row.values(), *self.per_paragraph.values(), self.page_digests]
        for texts in self.texts.values():
            arrays += [texts.bytes, texts.ends]
        return arrays


def page_digest(page: Page) -> bytes:
    """Return a digest of all that a page says, which is the same for the same page everywhere."""
    paragraphs = [
        (paragraph.number, paragraph.text, paragraph.begin) for paragraph in page.paragraphs
    ]
    said = json.dumps([page.page_id, page.title, paragraphs, dict(page.metadata)], sort_keys=True)
    return bytes.fromhex(digest_of_bytes(said.encode()))
