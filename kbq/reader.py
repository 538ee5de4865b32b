"""Reader: a question-answering network finds phrases in the paragraphs that a search has found. `--reader`.

What opens and what closes an answer is normalised over all paragraphs of a query together, so that they compete.
Source: arXiv 2009.13013, section 4. Any BERT-like question-answering checkpoint of Hugging Face can read.
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


class Reader(CrossEncoder):
    """A cross-encoder that answers from paragraphs."""

    def read(self, query: str, paragraphs: Sequence[Hit]) -> list[Hit]:
        """The phrases of these paragraphs, best first, none overlapping a better one.

        A score is the logarithm of the chance that this start and this end are the answer's, among all of them.

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
        read = [one for one in zip(paragraphs, texts, logits, strict=True) if one[1].ids]
        if not read:
            return []
        total = np.logaddexp.reduce(np.concatenate(logits, axis=1), axis=1, keepdims=True)
        found = [hit for paragraph, text, scores in read for hit in _phrases(paragraph, text, scores - total)]
        return sorted(found, key=lambda hit: -hit.score)


def _phrases(paragraph: Hit, text: Tokens, scores: Floats) -> Iterator[Hit]:
    """Each start with its best end; the better one of two that overlap. Shape: (2, tokens)."""
    sums, lasts = best_ends(scores)
    taken = np.zeros(len(sums), bool)
    place = paragraph.phrase
    for first in np.argsort(-sums, kind="stable"):
        stop = lasts[first] + 1
        if taken[first:stop].any():
            continue
        taken[first:stop] = True
        start, end = int(text.starts[first]), int(text.ends[stop - 1])
        phrase = Phrase(paragraph.context[start:end], place.document_id, place.title, place.paragraph, start, end)
        yield Hit(phrase, float(sums[first]), paragraph.context, (start, end))


@dataclass(frozen=True, slots=True)
class RetrieverReader:
    """Answers queries like a knowledge base, with phrases that a reader finds in the best `depth` paragraphs."""

    kb: KnowledgeBase
    reader: Reader
    depth: int = DEPTH

    @property
    def query_tokenizers(self) -> list[QueryTokenizer]:
        """The tokenizers of all networks that will read a query."""
        return [*self.kb.query_tokenizers, self.reader.queries]

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
        retrieved = self.kb.search(texts, self.depth, "paragraph", backend, weights)
        answers = []
        for text, paragraphs in zip(texts, retrieved, strict=True):
            hits = self.reader.read(text, paragraphs)
            if unit == "document":
                hits = list({hit.phrase.document_id: hit for hit in reversed(hits)}.values())
                hits.sort(key=lambda hit: -hit.score)
            answers.append(hits[:k])
        return answers
