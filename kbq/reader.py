"""Reader: a question-answering network finds phrases in the paragraphs that a search has found. `--reader`.

What opens and what closes an answer is normalised within each paragraph, as readers are trained; which paragraph has it
is what the search says. Source: arXiv 2009.13013, section 4 (which normalises over all paragraphs together), arXiv
1902.01718, section 3. The default model's own reader can read, and any BERT-like question-answering checkpoint.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kbq.array_types import Floats
from kbq.corpus import content_start
from kbq.encoding.cross_encoder import CrossEncoder
from kbq.encoding.queries import QueryTokenizer
from kbq.encoding.windows import Tokens, tokenize
from kbq.errors import QueryError
from kbq.kb import KnowledgeBase
from kbq.options import Backend, Unit
from kbq.records import Hit, Phrase
from kbq.searching.lexical import HybridWeights
from kbq.searching.spans import best_ends

DEPTH = 20  # paragraphs read for a query
RETRIEVAL_WEIGHT = 0.1  # of a point of a phrase's score, beside the reader's logarithms of chances


class Reader(CrossEncoder):
    """A cross-encoder that answers from paragraphs."""

    def read(self, query: str, paragraphs: Sequence[Hit], prior: Floats | None = None) -> list[Hit]:
        """The phrases of these paragraphs, best first, none overlapping a better one.

        A score is the logarithm of the chance that this start and this end are the answer's, among all of a paragraph.

        Args:
            prior: what is added to the scores of each paragraph's phrases. Shape: (paragraphs,).

        Raises:
            QueryError: the query cannot be read.
        """
        (ids,) = self.queries.token_ids([query])
        begins = [content_start(hit.context) for hit in paragraphs]
        contents = [hit.context[begin:] for hit, begin in zip(paragraphs, begins, strict=True)]
        texts = [
            replace(text, starts=text.starts + np.uint32(begin), ends=text.ends + np.uint32(begin))
            for text, begin in zip(tokenize(self.tokenizer, contents), begins, strict=True)
        ]
        logits = self.score([self.windows(ids, text.ids) for text in texts])
        added = np.zeros(len(texts), np.float32) if prior is None else prior
        found = [
            hit
            for paragraph, text, own, more in zip(paragraphs, texts, logits, added, strict=True)
            if text.ids
            for hit in _phrases(paragraph, text, own, more)
        ]
        return sorted(found, key=lambda hit: -hit.score)


def _phrases(paragraph: Hit, text: Tokens, logits: Floats, prior: float) -> Iterator[Hit]:
    """Each start with its best end; the better one of two that overlap. Shape: (2, tokens)."""
    sums, lasts = best_ends(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    taken = np.zeros(len(sums), bool)
    place = paragraph.phrase
    for first in np.argsort(-sums, kind="stable"):
        start, end = int(text.starts[first]), int(text.ends[lasts[first]])
        # All pieces of a word have its characters.
        own = slice(np.searchsorted(text.ends, start, "right"), np.searchsorted(text.starts, end))
        if taken[own].any():
            continue
        taken[own] = True
        phrase = Phrase(paragraph.context[start:end], place.document_id, place.title, place.paragraph, start, end)
        yield Hit(phrase, float(sums[first] + prior), paragraph.context, (start, end))


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader, how many paragraphs it reads, and how much their search scores count.

    To the reader's score comes what the search says of the paragraph, less what it says of the best one, times
    `retrieval_weight`, in units of a query encoder whose `lexical_factor` is 1; points of words alone are worth what
    they are worth beside vectors.
    """

    reader: Reader
    depth: int = DEPTH  # paragraphs for a query
    retrieval_weight: float = RETRIEVAL_WEIGHT


@dataclass(frozen=True, slots=True)
class RetrieverReader:
    """Answers queries like a knowledge base, with phrases that a reader finds in the best paragraphs."""

    kb: KnowledgeBase
    reading: Reading

    @property
    def query_tokenizers(self) -> list[QueryTokenizer]:
        """The tokenizers of all networks that will read a query."""
        return [*self.kb.query_tokenizers, self.reading.reader.queries]

    def search(
        self,
        texts: Sequence[str],
        k: int = 10,
        unit: Unit = "phrase",
        backend: Backend = "auto",
        weights: HybridWeights | None = None,
    ) -> list[list[Hit]]:
        """The k best phrases of each query, or the best phrase of each of the k best pages.

        Raises:
            QueryError: a query cannot be read, or another unit is asked for.
        """
        if unit not in ("phrase", "document"):
            raise QueryError(f"a reader finds no {unit}: ask for phrases")
        retrieved = self.kb.search(texts, self.reading.depth, "paragraph", backend, weights)
        points = {"bm25": self.kb.weights.bm25, "sparse": self.kb.weights.sparta}.get(backend, 1.0)
        weight = np.float32(self.reading.retrieval_weight * points / (self.kb.model.config.lexical_factor or 1.0))
        answers = []
        for text, paragraphs in zip(texts, retrieved, strict=True):
            found = np.array([hit.score for hit in paragraphs], np.float32)
            hits = self.reading.reader.read(text, paragraphs, weight * (found - found.max(initial=-np.inf)))
            if unit == "document":
                hits = list({hit.phrase.document_id: hit for hit in reversed(hits)}.values())
                hits.sort(key=lambda hit: -hit.score)
            answers.append(hits[:k])
        return answers
