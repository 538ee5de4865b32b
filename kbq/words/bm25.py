"""BM25: the words of every paragraph, under its page's title: Lucene's weights, English stems.

A shard's `bm25/` holds how often a word stands in each paragraph (`Postings`), and in `lengths.npy` (u32 [paragraphs])
how many words each has. What a word weighs depends on how common it is in the whole knowledge base, and is computed at
search time: so each shard is indexed, appended and merged alone, and all weigh like one. Source: arXiv 2407.03618.
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Floats
from kbq.dump.manifest import Manifest
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.system.callbacks import Report, Stage, silent
from kbq.words.postings import Entries, ImpactIndex, Postings, damaged, query_text, write_postings

K1, B = 1.5, 0.75  # how soon a repeated word stops counting, and how much a long paragraph loses
CHUNK = 4096  # paragraphs whose words are found together
MADE_BY = "--bm25"
WORDS = "bm25"  # folder in each shard
LENGTHS = "lengths"
REMEMBERED = 2**14  # words of queries whose weight is remembered
WORD = re.compile(r"\b\w\w+\b")  # bm25s' own pattern


def add_bm25(folder: Path, manifest: Manifest, report: Report = silent) -> Manifest:
    """Index the shards that are not indexed yet; the manifest that says so is returned for the caller to write."""
    stage = Stage(report, "words indexed, paragraphs", manifest.counts.paragraphs)
    for shard in manifest.open_shards(folder):
        if _is_whole(shard):
            stage.add(len(shard.texts))
        else:
            vocabulary, entries, lengths = _count_words(shard, stage)
            write_postings(bm25_folder(shard.folder), vocabulary, entries, "counts", {LENGTHS: lengths})
    return replace(manifest, bm25=True)


def open_bm25(shards: Sequence[Shard]) -> "list[BM25Index]":
    """The indexes of all shards; a passage is a paragraph.

    Raises:
        KnowledgeBaseError: a file is missing or damaged.
    """
    counts = [WordCounts(shard) for shard in shards]
    statistics = Statistics(counts)
    return [BM25Index(shard_counts, statistics) for shard_counts in counts]


def bm25_folder(shard: Path) -> Path:
    """Where the index of a shard lies."""
    return shard / WORDS


def _is_whole(shard: Shard) -> bool:
    try:
        WordCounts(shard)
    except KnowledgeBaseError:
        return False
    return True


class WordCounts(Postings):
    """How often each word stands in each paragraph of a shard, and how many words that paragraph has (`lengths`)."""

    def __init__(self, shard: Shard) -> None:
        """Raises KnowledgeBaseError when a file is missing or damaged."""
        super().__init__(bm25_folder(shard.folder), "counts", MADE_BY)
        self.lengths: NDArray[np.uint32] = self.array(LENGTHS)
        if len(self.lengths) != len(shard.texts):
            error = ValueError(f"{LENGTHS}.npy has {len(self.lengths)} of {len(shard.texts)} paragraphs")
            raise damaged(self.folder, shard.folder.parent, error, MADE_BY)


class Statistics:
    """How many passages a knowledge base has, how long they are, and in how many of them a word stands."""

    def __init__(self, counts: Sequence[WordCounts]) -> None:
        self._counts = counts
        self._remembered: dict[str, float] = {}

    @cached_property
    def passages(self) -> int:
        """How many there are in all shards."""
        return sum(len(counts.lengths) for counts in self._counts)

    @cached_property
    def mean_length(self) -> float:
        """Of all passages, in words; at least 1."""
        return max(1.0, sum(int(counts.lengths.sum(dtype=np.int64)) for counts in self._counts) / max(1, self.passages))

    def idf(self, word: str) -> float:
        """Lucene's inverse page frequency: never negative."""
        weight = self._remembered.get(word)
        if weight is None:
            frequency = sum(len(counts.of(word)[0]) for counts in self._counts)
            weight = math.log(1 + (self.passages - frequency + 0.5) / (frequency + 0.5))
            if len(self._remembered) < REMEMBERED:
                self._remembered[word] = weight
        return weight


class BM25Index(ImpactIndex):
    """The words of one shard, weighed by the statistics of the whole knowledge base."""

    def __init__(self, counts: WordCounts, statistics: Statistics) -> None:
        super().__init__(counts, len(counts.lengths))
        self._lengths, self._statistics = counts.lengths, statistics

    def impacts(self, term: str) -> tuple[NDArray[np.int32], Floats]:
        """The passages that have a word, and what it weighs there. Shapes: (its passages,)."""
        passages, counts = self._postings.of(term)
        relative = self._lengths[passages] / self._statistics.mean_length
        weights = self._statistics.idf(term) * counts / (counts + K1 * (1 - B + B * relative))
        return passages, weights.astype(np.float32)


def _count_words(shard: Shard, stage: Stage) -> tuple[list[str], Entries, NDArray[np.uint32]]:
    """The shard's own words, how often they stand in its paragraphs, and how many words each of these has."""
    numbers: dict[str, int] = {}
    passages, terms, counts, lengths = array("i"), array("i"), array("I"), array("I")
    for passage, words in enumerate(_passages(shard, stage)):
        lengths.append(len(words))
        for word, count in Counter(words).items():
            passages.append(passage)
            terms.append(numbers.setdefault(word, len(numbers)))
            counts.append(count)
    frequencies = np.frombuffer(counts, np.uint32)
    frequencies = frequencies.astype(np.min_scalar_type(frequencies.max(initial=0)))
    entries = Entries(np.frombuffer(passages, np.int32), np.frombuffer(terms, np.int32), frequencies)
    return list(numbers), entries, np.frombuffer(lengths, np.uint32)


def _passages(shard: Shard, stage: Stage) -> Iterator[list[str]]:
    """The words of each paragraph, the page's title before it."""
    for first in range(0, len(shard.texts), CHUNK):
        paragraphs = range(first, min(first + CHUNK, len(shard.texts)))
        yield from words_of([f"{shard.title_of(paragraph)} {shard.texts[paragraph]}" for paragraph in paragraphs])
        stage.add(len(paragraphs))


def words_of(texts: Sequence[str]) -> list[list[str]]:
    """Stems of the lower-case words of each text that have two letters or more and are no English stop words."""
    import bm25s  # imported only here: a dense search does without it

    stems = bm25s.tokenize(list(texts), stopwords="en", stemmer=_stemmer(), return_ids=False, show_progress=False)
    return [[word for word in words if word] for words in stems]


@cache
def _stemmer() -> Any:
    import Stemmer  # imported only here: as above

    return Stemmer.Stemmer("english")


def query_words(text: str) -> list[str]:
    """The words of a query; see `query_text`."""
    (words,) = words_of([query_text(text)])
    return words


def missing_words(text: str, indexes: Sequence[ImpactIndex]) -> list[str]:
    """Words of a text that no passage has in any form; stop words, numbers and scripts without capitals aside."""
    words = [word for word in WORD.findall(text) if word.lower() != word.upper()]
    terms = words_of(words) if words else []
    return [
        word
        for word, stems in zip(words, terms, strict=True)
        if stems and not any(stem in index for stem in stems for index in indexes)
    ]
