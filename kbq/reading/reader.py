"""Reader: a question-answering network finds phrases in the paragraphs that a search has found. `--reader`.

The chances to open and to close an answer are normalised within each paragraph, as readers are trained; which paragraph
has it is for the search to say. Source: arXiv 2009.13013, section 4 (which normalises over all paragraphs together),
arXiv 1902.01718, section 3. The default model's own reader can read, and any BERT-like question-answering checkpoint.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from kbq.answers import Answer, Unit
from kbq.array_types import Floats
from kbq.model.windows import Tokens, tokenize
from kbq.reading.network import ReaderNetwork
from kbq.search.spans import best_ends
from kbq.text.markers import content_start


class Reader(ReaderNetwork):
    """A reader network that answers from paragraphs."""

    def read(self, query: str, paragraphs: Sequence[Answer]) -> list[Answer]:
        """The phrases of these paragraphs, best first, none overlapping a better one.

        A score is the sum of the logarithms of two chances: of its start and of its end, among those of the paragraph.

        Raises:
            QueryError: the query cannot be read.
        """
        ids = self.query_tokenizer.ids_of(query)
        begins = [content_start(hit.context) for hit in paragraphs]
        contents = [hit.context[begin:] for hit, begin in zip(paragraphs, begins, strict=True)]
        texts = [
            replace(text, starts=text.starts + np.uint32(begin), ends=text.ends + np.uint32(begin))
            for text, begin in zip(tokenize(self.tokenizer, contents), begins, strict=True)
        ]
        logits = self.score([self.windows(ids, text.ids) for text in texts])
        results = zip(paragraphs, texts, logits, strict=True)
        phrases = [hit for paragraph, text, scores in results if text.ids for hit in _phrases(paragraph, text, scores)]
        return sorted(phrases, key=lambda hit: -hit.score)

    def answers(
        self, texts: Sequence[str], retrieved: Sequence[Sequence[Answer]], k: int, unit: Unit, weight: float
    ) -> list[list[Answer]]:
        """The k best phrases of each query in its paragraphs, or the best phrase of each of the k best pages.

        Args:
            retrieved: the paragraphs that a search has found, best first, a list for each query.
            weight: what a point of the search adds to the reader's score.

        Raises:
            QueryError: a query cannot be read.
        """
        answers = []
        for text, paragraphs in zip(texts, retrieved, strict=True):
            hits = with_retrieval(self.read(text, paragraphs), paragraphs, weight)
            if unit == "page":
                best: dict[str, Answer] = {}
                for hit in hits:
                    best.setdefault(hit.page_id, hit)
                hits = list(best.values())
            answers.append(hits[:k])
        return answers


def _phrases(paragraph: Answer, text: Tokens, logits: Floats) -> Iterator[Answer]:
    """Each start with its best end; of two that overlap, only the better one. Shape of `logits`: (2, tokens)."""
    sums, lasts = best_ends(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    taken = np.zeros(len(sums), bool)
    for first in np.argsort(-sums, kind="stable"):
        start, end = int(text.starts[first]), int(text.ends[lasts[first]])
        # All pieces of a word have the characters of the whole word.
        tokens = slice(np.searchsorted(text.ends, start, "right"), np.searchsorted(text.starts, end))
        if taken[tokens].any():
            continue
        taken[tokens] = True
        text_between, place = paragraph.context[start:end], (start, end)
        yield replace(paragraph, text=text_between, score=float(sums[first]), start=start, end=end, unit=place)


def with_retrieval(phrases: Sequence[Answer], paragraphs: Sequence[Answer], weight: float) -> list[Answer]:
    """The phrases read in these paragraphs, best first, with what the search says of the paragraphs.

    Added to a phrase's score is its paragraph's score, less that of the best paragraph, times `weight`.
    """
    best = max((hit.score for hit in paragraphs), default=0.0)
    added = {(hit.page_id, hit.paragraph): weight * (hit.score - best) for hit in paragraphs}
    hits = [replace(hit, score=hit.score + added[hit.page_id, hit.paragraph]) for hit in phrases]
    return sorted(hits, key=lambda hit: -hit.score)
