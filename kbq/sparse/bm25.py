"""BM25: the words of every paragraph, under its page's title, become impacts: Lucene's weights, English stems.

The weights depend on how common a word is in the whole knowledge base. `bm25-N` holds those that know N shards, so that
an append writes new ones beside the old, and several shards score like one.
"""

import math
import re
import shutil
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kbq.dump.manifest import Manifest
from kbq.dump.shards import Shard
from kbq.sparse.impacts import ImpactIndex, Impacts, query_text, write_impacts
from kbq.system.stages import Report, Stage, silent

K1, B = 1.5, 0.75  # how soon a repeated word stops to count, and how much a long paragraph loses
CHUNK = 4096  # paragraphs whose words are found together
WORD = re.compile(r"\b\w\w+\b")  # bm25s' own pattern


@dataclass(frozen=True, slots=True)
class Statistics:
    """How long the passages of a knowledge base are, and in how many of them each word stands (`frequencies`)."""

    passages: int
    mean_length: float  # in words
    frequencies: Counter[str]

    def idf(self, word: str) -> float:
        """Lucene's inverse document frequency: never negative."""
        frequency = self.frequencies[word]
        return math.log(1 + (self.passages - frequency + 0.5) / (frequency + 0.5))


def add_bm25(folder: Path, manifest: Manifest, report: Report = silent) -> Manifest:
    """Write the indexes of all shards, in bounded memory; the manifest that knows them is the caller's to publish."""
    shards = manifest.open_shards(folder)
    statistics = _statistics(shards, Stage(report, "words counted, paragraphs", manifest.counts.paragraphs))
    stage = Stage(report, "words weighed, paragraphs", manifest.counts.paragraphs)
    for shard in shards:
        write_impacts(bm25_folder(shard.folder, manifest), *_impacts(shard, statistics, stage))
    return replace(manifest, bm25=True)


def open_bm25(shard: Shard, manifest: Manifest) -> ImpactIndex:
    """The index of one shard; its passages are the shard's paragraphs."""
    return ImpactIndex(bm25_folder(shard.folder, manifest), len(shard.texts))


def bm25_folder(shard: Path, manifest: Manifest) -> Path:
    """Where the index of a shard lies."""
    return shard / f"bm25-{len(manifest.shards)}"


def remove_older(folder: Path, manifest: Manifest) -> None:
    """Remove the indexes that earlier manifests named."""
    for shard in manifest.shard_folders(folder):
        for older in set(shard.glob("bm25-*")) - {bm25_folder(shard, manifest)}:
            shutil.rmtree(older, ignore_errors=True)


def _statistics(shards: Sequence[Shard], stage: Stage) -> Statistics:
    passages, length = 0, 0
    frequencies: Counter[str] = Counter()
    for shard in shards:
        for words in _passages(shard, stage):
            passages += 1
            length += len(words)
            frequencies.update(set(words))
    return Statistics(passages, length / max(1, passages), frequencies)


def _impacts(shard: Shard, statistics: Statistics, stage: Stage) -> tuple[list[str], Impacts]:
    """The shard's own words, and what they weigh in its paragraphs."""
    numbers: dict[str, int] = {}
    passages, terms, counts = array("i"), array("i"), array("i")
    lengths = array("i")
    for passage, words in enumerate(_passages(shard, stage)):
        lengths.append(len(words))
        for word, count in Counter(words).items():
            passages.append(passage)
            terms.append(numbers.setdefault(word, len(numbers)))
            counts.append(count)
    of, term, often = (np.frombuffer(values, np.int32) for values in (passages, terms, counts))
    idf = np.array([statistics.idf(word) for word in numbers])
    relative = np.frombuffer(lengths, np.int32)[of] / max(1.0, statistics.mean_length)
    weights = idf[term] * often / (often + K1 * (1 - B + B * relative))
    return list(numbers), Impacts(of, term, weights.astype(np.float32))


def _passages(shard: Shard, stage: Stage) -> Iterator[list[str]]:
    """The words of each paragraph, the page's title before it."""
    for first in range(0, len(shard.texts), CHUNK):
        paragraphs = range(first, min(first + CHUNK, len(shard.texts)))
        titles = (shard.titles[int(shard.paragraph_documents[paragraph])] for paragraph in paragraphs)
        yield from words_of([f"{title} {shard.texts[p]}" for title, p in zip(titles, paragraphs, strict=True)])
        stage.add(len(paragraphs))


def words_of(texts: Sequence[str]) -> list[list[str]]:
    """Stems of the lower-case words of each text that have two letters or more and are no English stop words."""
    import bm25s  # only here: see `ImpactIndex`

    found = bm25s.tokenize(list(texts), stopwords="en", stemmer=_stemmer(), return_ids=False, show_progress=False)
    return [[word for word in words if word] for words in found]


@cache
def _stemmer() -> Any:
    import Stemmer  # only here: see `ImpactIndex`

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
