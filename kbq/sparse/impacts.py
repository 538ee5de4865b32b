"""Impacts: what terms weigh in the passages of one shard; a passage's score is the sum over the query's terms."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Floats
from kbq.sparse.postings import Postings
from kbq.text.markers import MARKERS, MENTION


class ImpactIndex:
    """What terms weigh in the passages of one shard: as it is stored, unless a subclass computes it."""

    def __init__(self, postings: Postings, count: int) -> None:
        """`count`: passages of the shard."""
        self._postings = postings
        self.count = count

    def impacts(self, term: str) -> tuple[NDArray[np.int32], Floats]:
        """The passages that have a term, and what it weighs there. Shapes: (its passages,)."""
        return self._postings.of(term)

    def scores(self, terms: Sequence[str]) -> Floats:
        """The sum of each passage's impacts; a term that stands twice counts twice. Shape: (passages,)."""
        scores = np.zeros(self.count, np.float32)
        for term in terms:
            passages, weights = self.impacts(term)
            scores[passages] += weights
        return scores

    def parts(self, terms: Sequence[str], passage: int) -> dict[str, float]:
        """What each term adds to a passage's score."""
        return {term: count * float(self.scores([term])[passage]) for term, count in Counter(terms).items()}

    def passages(self, term: str) -> NDArray[np.int32]:
        """The passages that have a term. Shape: (its passages,)."""
        return self._postings.of(term)[0]

    def __contains__(self, term: str) -> bool:
        """Whether any passage has a term."""
        return len(self.passages(term)) > 0


def query_text(text: str) -> str:
    """The text to look up: a marked mention alone, as its context would lead to the page that it was taken from.

    >>> query_text("it joins the [START_ENT] Nile [END_ENT] there"), query_text("Nile [SEP] length")
    (' Nile ', 'Nile   length')
    """
    mention = MENTION.search(text)
    return mention[1] if mention else MARKERS.sub(" ", text)
