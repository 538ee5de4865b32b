"""BM25: score the words of queries in paragraphs that are indexed by English stems.

Words are compared when `folded`, so that Lodz finds Łódź, and AC Milan A.C. Milan; words with
letters beyond ASCII are also there as they are written, since Réunion is rarer than reunion. Names
made of common words ("The Band") are found by the title as a whole, which is a term, too; it counts
only where no word of the name tells anything. Of scripts without blanks between words, such as
Chinese, pairs of neighbouring letters are the words, as in Lucene.

The folder `bm25/` of a shard holds how often each word occurs in each paragraph (`Postings`), and
in `lengths.npy` (u32 [paragraphs]) how many words each has. Weights are Lucene's. They depend on
word frequencies in the whole knowledge base, and are computed at search time: so shards are
indexed, appended and merged independently, and scored as one. Source: arXiv 2407.03618.

An inverted index of a shard (`Postings`), which SPARTA has as well:

    passages.npy     i32 [entries]        the passages that contain each term, term by term
    counts.npy       u8 … u32 [entries]   how often the term occurs there (BM25), or
    weights.npy      f32 [entries]        its weight there, its impact (SPARTA)
    begins.npy       i64 [terms + 1]      the first entry of each term; the last number is that of
    entries terms.{bin,npy}  terms                sorted

A passage is a paragraph (BM25) or a sentence (SPARTA). All files are memory-mapped.
"""

import copy
import itertools
import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Floats
from kbq.dump.manifest import BM25, Manifest, changing, write_manifest
from kbq.dump.shards import Shard
from kbq.storage.folders import folder_bytes
from kbq.storage.reports import Report, Stage, silent
from kbq.text.normal_forms import folded, joined, plain
from kbq.text.queries import Query
from kbq.text.whole_words import UNSPACED
from kbq.words.postings import Entries, Postings, damaged, is_complete, write_postings

# Saturation of repeated words, and normalisation by length.
K1 = 1.5
B = 0.75
CHUNK = 4096  # paragraphs tokenised together
LENGTHS = "lengths"
# An empty array: the words are folded, and titles are terms; older indexes lack it.
FOLDED = "folded"
UNFOLDED = "its words are only found as written, with their accents"
TITLE = "="  # how the term of a title begins: no word does
# What a word of the relation counts in a hybrid search: vectors know its synonyms, too, but no
# names.
RELATION = 0.25
COMMON = 0.02  # a word in more paragraphs than this share is too common to identify a name
STEMS = 10_000  # words that the stemmer remembers
LONGEST_NAME = 200  # characters of a name that is looked up as a title
CACHED = 2**14  # words whose inverse frequencies are cached
WORD = re.compile(r"\b\w\w+\b")  # words as scikit-learn and bm25s have them
UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")  # has words, but no blanks between them
ENGLISH = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
STOP_WORDS = frozenset(ENGLISH.split())  # Lucene's, as bm25s has them


def add_bm25(folder: Path, manifest: Manifest, report: Report = silent) -> Manifest:
    """Index the shards that have no BM25 index yet; returns the new manifest, which the caller
    writes.
    """
    stage = Stage(report, "words indexed, paragraphs", manifest.counts.paragraphs)
    built = []
    for shard in manifest.open_shards(folder):
        part = f"{shard.folder.name}/{BM25}"
        index_folder = bm25_folder(shard.folder)
        seal = manifest.seals.get(part)
        if is_complete(index_folder, shard.seal, seal) and is_folded(index_folder):
            stage.add(len(shard.texts))
        else:
            vocabulary, entries, lengths = _count_words(shard, stage)
            others: dict[str, NDArray[Any]] = {LENGTHS: lengths, FOLDED: np.empty(0, np.uint8)}
            write_postings(index_folder, vocabulary, entries, "counts", shard.seal, others)
            built.append(part)

    return replace(manifest.without_seals(built), bm25=True)


def index_bm25(folder: Path, report: Report = silent) -> int:
    """Add a BM25 index to the shards of a published knowledge base that have none that can
    be searched.

    Returns the bytes of all of them.
    """
    with changing(folder) as before:
        manifest = add_bm25(folder, before, report)
        write_manifest(folder, manifest)
    return sum(folder_bytes(bm25_folder(shard)) for shard in manifest.shard_folders(folder))


def bm25_folder(shard: Path) -> Path:
    return shard / BM25


def is_folded(folder: Path) -> bool:
    """Return whether the words of an index are folded; others are built again."""
    return (folder / f"{FOLDED}.npy").exists()


def _count_words(shard: Shard, stage: Stage) -> tuple[list[str], Entries, NDArray[np.uint32]]:
    """Return the vocabulary of a shard, how often each word occurs in each paragraph, and the
    lengths of paragraphs.
    """
    numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    terms = array("i")
    counts = array("I")
    sizes = array("i")
    lengths = array("I")

    for first in range(0, len(shard.texts), CHUNK):
        paragraphs = range(first, min(first + CHUNK, len(shard.texts)))
        titles = [shard.title_of(paragraph) for paragraph in paragraphs]
        texts = [
            f"{title} {shard.texts[paragraph]}"
            for title, paragraph in zip(titles, paragraphs, strict=True)
        ]
        for title, text, words in zip(titles, texts, words_of(texts), strict=True):
            counted = Counter(words)
            counted.update(_written_stems(text))
            counted[title_term(title)] = 1
            lengths.append(len(words))
            sizes.append(len(counted))
            terms.extend(map(numbers.__getitem__, counted))
            counts.extend(counted.values())

        stage.add(len(paragraphs))

    frequencies = np.frombuffer(counts, np.uint32)
    frequencies = frequencies.astype(np.min_scalar_type(frequencies.max(initial=0)))
    passages = np.repeat(np.arange(len(sizes), dtype=np.int32), np.frombuffer(sizes, np.int32))
    entries = Entries(passages, np.frombuffer(terms, np.int32), frequencies)

    return list(numbers), entries, np.frombuffer(lengths, np.uint32)


def _written_stems(text: str) -> list[str]:
    """Return the stems of words that have other letters than those of ASCII, as they are written."""
    if text.isascii():
        return []
    words = [
        word
        for word in WORD.findall(UNSPACED_RUN.sub(" ", plain(text)).lower())
        if not word.isascii()
    ]
    if words:
        return list(_stemmer().stemWords(words))
    return []


@lru_cache(2**12)  # the paragraphs of a page follow one another
def title_term(title: str) -> str:
    """Return the term of a title as a whole.

    >>> title_term("The Band"), title_term("A.C. Milan")
    ('=the band', '=ac milan')
    """
    return TITLE + " ".join(re.findall(r"\w+", folded(joined(title)).replace("'", "")))


def words_of(texts: Sequence[str]) -> list[list[str]]:
    """Return the stems of the words of each text, folded, without English stop words and single
    letters.
    """
    stemmed = _stemmer().stemWords
    stems: list[list[str]] = []
    for text in texts:
        words = WORD.findall(in_pairs(folded(joined(text)).lower()))
        stems.append(stemmed([word for word in words if word not in STOP_WORDS]))
    return stems


def in_pairs(text: str) -> str:
    """Put blanks between the pairs of neighbouring letters of scripts that write none between
    words.

    >>> in_pairs("韩国Nexon公司的"), in_pairs("no change")
    (' 韩国 Nexon 公司 司的 ', 'no change')
    """

    def pairs(run: re.Match[str]) -> str:
        letters = run[0]
        return f" {' '.join(map(''.join, itertools.pairwise(letters)))} "

    if text.isascii():
        return text
    return UNSPACED_RUN.sub(pairs, text)


@cache
def _stemmer() -> Any:
    import Stemmer  # imported on demand, as dense search does not need it

    return Stemmer.Stemmer("english", STEMS)


def query_words(query: Query, indexes: Sequence["BM25Index"] = ()) -> list[str]:
    """Return the stems of a query's words; of a name that common words make up, the term of its
    title, too.

    Args:
        indexes: of all shards; without them no name is known to be common.
    """
    (words,) = words_of([query.words])
    if not indexes:
        return words
    written = [
        stem for stem in _written_stems(query.words) if any(stem in index for index in indexes)
    ]
    return [*words, *written, *_title_terms(query.name, indexes)]


def _title_terms(name: str, indexes: Sequence["BM25Index"]) -> list[str]:
    term = title_term(name)
    if len(term) > LONGEST_NAME:
        return []
    if not any(term in index for index in indexes):
        return []
    (words,) = words_of([name])
    paragraphs = sum(index.count for index in indexes)
    is_common = all(
        sum(len(index.of(word)[0]) for index in indexes) > COMMON * paragraphs
        for word in set(words)
    )
    return [term] if is_common else []


def shares_of(query: Query, terms: Sequence[str]) -> list[float]:
    """Return how much each term of a query counts, given as `query_words` has them.

    >>> shares_of(Query.of("Nile [SEP] length"), ["nile", "length"]), shares_of(Query.of("how?"), ["how"])
    ([1.0, 0.25], [1.0])
    """
    if not query.is_slot or query.mention is not None:
        return [1.0] * len(terms)
    subject, relation = words_of((query.subject, query.relation))
    behind = len(subject) + len(relation)
    return [RELATION if len(subject) <= number < behind else 1.0 for number in range(len(terms))]


def missing_words(text: str, indexes: Sequence["BM25Index"]) -> list[str]:
    """Return the words of a text that no paragraph has; stop words, numbers and scripts without
    case are left out.
    """
    words = [word for word in WORD.findall(plain(text)) if word.lower() != word.upper()]
    terms = words_of(words) if words else []
    return [
        word
        for word, stems in zip(words, terms, strict=True)
        if stems and not any(stem in index for stem in stems for index in indexes)
    ]


@dataclass(frozen=True, slots=True)
class WordStatistics:
    """The statistics of the paragraphs of a knowledge base, as far as some words need them."""

    mean_length: float
    weights: Mapping[str, float]

    def idf(self, word: str) -> float:
        """Return the weight of one of these words."""
        return self.weights[word]


class Statistics:
    """The statistics of the paragraphs of a knowledge base: their number, mean length, and document
    frequencies.
    """

    def __init__(self, indexes: Sequence["BM25Index"]) -> None:
        """`indexes`: of all shards."""
        self._indexes = indexes
        self._cached: dict[str, float] = {}

    @cached_property
    def paragraphs(self) -> int:
        return sum(len(index.live_lengths) for index in self._indexes)

    @cached_property
    def mean_length(self) -> float:
        """In words, at least 1."""
        words = sum(int(index.live_lengths.sum(dtype=np.int64)) for index in self._indexes)
        return max(1.0, words / max(1, self.paragraphs))

    def idf(self, word: str) -> float:
        """Lucene's inverse document frequency, where a document is a paragraph; never negative."""
        weight = self._cached.get(word)
        if weight is None:
            frequency = sum(len(index.of(word)[0]) for index in self._indexes)
            weight = math.log(1 + (self.paragraphs - frequency + 0.5) / (frequency + 0.5))
            if len(self._cached) < CACHED:
                self._cached[word] = weight
        return weight


class BM25Index(Postings):
    """The BM25 index of one shard: how often each word occurs in each paragraph, and how many words
    that has.

    Scores need the statistics of the whole knowledge base; see `within`.
    """

    _statistics: Statistics | WordStatistics

    def __init__(self, shard: Shard) -> None:
        """Raises KnowledgeBaseError if a file is missing or damaged."""
        super().__init__(bm25_folder(shard.folder), "counts")
        if not is_folded(self.folder):
            error = ValueError(UNFOLDED)
            raise damaged(self.folder, shard.folder.parent, "counts", error)

        self._lengths: NDArray[np.uint32] = self.array(LENGTHS)
        if len(self._lengths) != len(shard.texts):
            error = ValueError(
                f"{LENGTHS}.npy has {len(self._lengths)} of {len(shard.texts)} paragraphs"
            )
            raise damaged(self.folder, shard.folder.parent, "counts", error)

        self.expect(len(shard.texts))
        self.live = shard.live
        self._texts = shard.texts

    @property
    def live_lengths(self) -> NDArray[np.uint32]:
        """The lengths of the paragraphs that still count. Shape: (live paragraphs,)."""
        if self.live is None:
            return self._lengths
        return self._lengths[self.live]

    def strongest(self, passage: int, k: int | None) -> dict[str, float]:
        """Return the k terms with the largest weights in a paragraph, or all, the largest first."""
        weights = self.parts(list(super().strongest(passage, None)), passage)
        return dict(sorted(weights.items(), key=lambda pair: -pair[1])[:k])

    def sentences(self, paragraph: int, k: int | None = None) -> list[tuple[str, dict[str, float]]]:
        """Return the paragraph, which is not parted, with its k strongest terms."""
        return [(self._texts[paragraph], self.strongest(paragraph, k))]

    def statistics(self, words: Iterable[str]) -> WordStatistics:
        """Return the statistics outside this shard that scores of these words depend on."""
        return WordStatistics(
            self._statistics.mean_length, {word: self._statistics.idf(word) for word in words}
        )

    def within(self, statistics: Statistics | WordStatistics) -> Self:
        """Return the same index, with the statistics of all shards."""
        index = copy.copy(self)
        index._statistics = statistics
        return index

    def scores(self, terms: Sequence[str], shares: Sequence[float] = ()) -> Floats:
        """Add up the BM25 weights of words in each paragraph, or a share of each. Shape:
        (paragraphs,).
        """
        scores = np.zeros(self.count, np.float32)
        for term, share in zip(terms, itertools.chain(shares, itertools.repeat(1.0)), strict=False):
            paragraphs, counts = self.of(term)
            relative = self._lengths[paragraphs] / self._statistics.mean_length
            weights = (
                share * self._statistics.idf(term) * counts / (counts + K1 * (1 - B + B * relative))
            )
            scores[paragraphs] += weights.astype(np.float32)
        return scores


def open_bm25(shards: Sequence[Shard]) -> list[BM25Index]:
    """Open the indexes of all shards."""
    indexes = [BM25Index(shard) for shard in shards]
    statistics = Statistics(indexes)
    return [index.within(statistics) for index in indexes]
