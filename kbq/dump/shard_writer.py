"""Writing shards: pages with their encoded paragraphs are appended to the files of a shard, which survives a kill."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbq.corpus.pages import Page
from kbq.dump.arrays import GrowingArray, GrowingTexts
from kbq.dump.shards import DIGEST_BYTES, LOGIT_STEPS, TEXTS, Counts, ShardEntry
from kbq.storage.folders import new_folder
from kbq.storage.records import digest_of_bytes
from kbq.storage.seals import seal_folder
from kbq.storage.writing import sync


@dataclass(frozen=True, slots=True)
class EncodedParagraph:
    """The kept tokens of a paragraph. Shapes: vectors (kept, dim), other arrays (kept,)."""

    number: int
    text: str
    tokens: int  # before the filter
    vectors: NDArray[np.int8]
    logits: NDArray[np.float32]  # the higher one of the filter's two
    edges: NDArray[np.uint8]  # OPENS, CLOSES, or both
    positions: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    ends: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a shard is on the disk, so that a build can resume."""

    counts: Counts = field(default_factory=Counts)
    sizes: Mapping[str, int] = field(default_factory=dict)  # entries of each file


class ShardWriter:
    """Writes a shard, from the beginning or from the progress of a build that was killed."""

    def __init__(self, folder: Path, dim: int | None, progress: Progress) -> None:
        """Raises ValueError if a file is shorter than the progress says.

        Args:
            dim: of the vectors; None: they are not written, as codes that lie elsewhere stand for them.
        """
        if not progress.sizes or not folder.exists():  # the folder, if any, is left from an abandoned build
            new_folder(folder)
        self.counts = progress.counts
        self.vectors = [] if dim is None else [GrowingArray(folder / "vectors.npy", np.int8, dim)]
        self.per_row = {
            name: GrowingArray(folder / f"{name}.npy", np.uint32) for name in ("positions", "starts", "ends")
        }
        self.logits = GrowingArray(folder / "logits.npy", np.int8)
        self.edges = GrowingArray(folder / "edges.npy", np.uint8)
        self.paragraph_rows = GrowingArray(folder / "paragraph_rows.npy", np.int64)
        self.paragraph_numbers = GrowingArray(folder / "paragraph_numbers.npy", np.uint32)
        self.paragraph_pages = GrowingArray(folder / "paragraph_pages.npy", np.uint32)
        self.paragraph_tokens = GrowingArray(folder / "paragraph_tokens.npy", np.uint32)
        self.page_digests = GrowingArray(folder / "page_digests.npy", np.uint8, DIGEST_BYTES)
        self.texts, self.ids, self.titles, self.metadata = (GrowingTexts(folder, name) for name in TEXTS)
        self.folder = folder
        self._appended: list[tuple[Page, bytes, Sequence[EncodedParagraph]]] = []
        for array in self._arrays():
            left, size = len(array), progress.sizes.get(array.path.name, 0)
            if left < size:
                self.abandon()
                raise ValueError(f"{array.path} has {left:,} entries, {size:,} were written")
            array.truncate(size)

    def append(self, page: Page, digest: bytes, paragraphs: Sequence[EncodedParagraph]) -> None:
        """Add a page, its `page_digest`, and its encoded paragraphs; they are written together with others."""
        self._appended.append((page, digest, paragraphs))
        tokens, rows = sum(one.tokens for one in paragraphs), sum(len(one.positions) for one in paragraphs)
        self.counts += Counts(1, len(paragraphs), tokens, rows)

    def _write(self) -> None:
        """Write what has been appended, if anything has."""
        if not self._appended:
            return
        pages, digests, of_pages = zip(*self._appended, strict=True)
        self._appended = []
        self.ids.append([page.id for page in pages])
        self.titles.append([page.title for page in pages])
        self.metadata.append(
            [json.dumps(dict(page.metadata), ensure_ascii=False) if page.metadata else "" for page in pages]
        )
        self.page_digests.append(np.frombuffer(b"".join(digests), np.uint8).reshape(len(pages), -1))
        paragraphs = [paragraph for of_page in of_pages for paragraph in of_page]
        if not paragraphs:
            return
        first = len(self.page_digests) - len(pages)
        numbers = np.repeat(np.arange(first, first + len(pages)), [len(of_page) for of_page in of_pages])
        sizes = np.array([len(paragraph.positions) for paragraph in paragraphs])
        self.paragraph_rows.append(len(self.edges) + np.cumsum(sizes))
        self.paragraph_numbers.append(np.array([paragraph.number for paragraph in paragraphs]))
        self.paragraph_pages.append(numbers)
        self.paragraph_tokens.append(np.array([paragraph.tokens for paragraph in paragraphs]))
        self.texts.append([paragraph.text for paragraph in paragraphs])
        for vectors in self.vectors:
            vectors.append(np.concatenate([paragraph.vectors for paragraph in paragraphs]))
        for name, array in self.per_row.items():
            array.append(np.concatenate([getattr(paragraph, name) for paragraph in paragraphs]))
        logits = np.concatenate([paragraph.logits for paragraph in paragraphs])
        self.logits.append(np.clip(np.rint(logits * LOGIT_STEPS), -127, 127))
        self.edges.append(np.concatenate([paragraph.edges for paragraph in paragraphs]))

    def sync(self) -> Progress:
        """Write everything appended so far to the disk."""
        self._write()
        for array in self._arrays():
            array.sync()
        sync(self.folder)
        return Progress(self.counts, {array.path.name: len(array) for array in self._arrays()})

    def close(self) -> ShardEntry:
        """Finish and seal the shard."""
        self._write()
        for array in self._arrays():
            array.close()
        return ShardEntry(self.folder.name, seal_folder(self.folder).digest, self.counts, self.counts)

    def abandon(self) -> None:
        """Close the files of a failed build, so that nothing is written to them once another run resumes."""
        for array in self._arrays():
            array.abandon()

    def _arrays(self) -> list[GrowingArray]:
        lists = self.texts, self.ids, self.titles, self.metadata
        texts = [array for texts in lists for array in (texts.bytes, texts.ends)]
        numbers = [self.paragraph_rows, self.paragraph_numbers, self.paragraph_pages, self.paragraph_tokens]
        rows = [*self.per_row.values(), self.logits, self.edges]
        return [*self.vectors, *rows, *numbers, self.page_digests, *texts]


def page_digest(page: Page) -> bytes:
    """A digest of all that a page says: the same page gives the same digest, always and everywhere."""
    paragraphs = [(one.number, one.text, one.begin) for one in page.paragraphs]
    said = json.dumps([page.id, page.title, paragraphs, dict(page.metadata)], sort_keys=True)
    return bytes.fromhex(digest_of_bytes(said.encode()))
