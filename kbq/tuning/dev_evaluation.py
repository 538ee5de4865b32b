"""Dev evaluation: dev queries are answered with the live query encoder and scored as KILT does."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kbq.answers import Answer, SearchOptions
from kbq.array_types import Doubles
from kbq.kilt.records import Gold, Guess
from kbq.kilt.rules import DOWNSTREAM_NAMES, downstream_row
from kbq.kilt.task import Task
from kbq.search.hybrid import BM25_WEIGHT, SPARTA_WEIGHT
from kbq.tuning.labels import TunableKb
from kbq.tuning.triples import pages_of

FACTORS = (0.5, 1.0, 2.0, 4.0)  # tried for the weights of words beside the vectors
DENSE = SearchOptions(5, "page", "dense")


def hybrid(factor: float) -> SearchOptions:
    """Return the options of a search with these weights of words."""
    return SearchOptions(5, "page", "hybrid", BM25_WEIGHT * factor, SPARTA_WEIGHT * factor)


class DevScorer:
    """Scores the live query encoder on dev queries, as KILT does."""

    def __init__(self, task: Task, golds: Sequence[Gold], kb: TunableKb) -> None:
        self._task, self._golds, self._kb = task, golds, kb
        fits = kb.model.query_tokenizer.is_short_enough
        self._texts = [task.query_of(gold.input or "", fits, gold.id) for gold in golds]
        self._have_pages = np.array([bool(pages_of(gold)) for gold in golds])
        metric = task.answer_metric
        if task.answer == "none" or not any(gold.answers for gold in golds):
            self.measure = "Rprec"
        else:
            self.measure = f"KILT-{metric}" if self._have_pages.any() else metric

    @property
    def asked(self) -> list[Gold]:
        """Return the dev records, with the texts that the encoder reads as their inputs."""
        return [replace(gold, input=text) for gold, text in zip(self._golds, self._texts, strict=True)]

    def __len__(self) -> int:
        return len(self._golds)

    @property
    def digest(self) -> str:
        """Return a digest of the dev queries, their answers, and the measure."""
        digest = hashlib.sha256(f"{self._task.name} {self.measure} ".encode())
        for gold in self._golds:
            digest.update(repr((gold.input, [(output.answer, output.pages) for output in gold.outputs])).encode())
        return digest.hexdigest()

    def score(self) -> float:
        """Return the mean of the measure by vectors alone, from 0 to 1."""
        return float(self.values(DENSE).mean())

    def values(self, options: SearchOptions) -> Doubles:
        """Measure each dev query; without a gold page, its answer counts anywhere. Shape: (queries,)."""
        found = self._kb.search(self._texts, options)
        pairs = zip(self._golds, found, strict=True)
        scores = np.array([downstream_row(gold, self._guess(gold, pages)) for gold, pages in pairs])
        anywhere = scores[:, DOWNSTREAM_NAMES.index(self.measure.removeprefix("KILT-"))]
        return np.where(self._have_pages, scores[:, DOWNSTREAM_NAMES.index(self.measure)], anywhere)

    def _guess(self, gold: Gold, pages: Sequence[Answer]) -> Guess:
        """Make a prediction, without an answer if the gold record has none to compare it with."""
        answer = ""
        if pages and gold.answers and self._task.answer != "none":
            answer = pages[0].text if self._task.answer == "phrase" else pages[0].title
        return Guess(gold.id, gold.line, answer.strip(), tuple(hit.page_id for hit in pages))

    def best_factor(self, usual: float) -> tuple[float, float]:
        """Return the factor for the weights of words that serves this query encoder best, and its score with it.

        The `usual` factor stays unless another one gains more than two standard errors on these queries.
        """
        factors = dict.fromkeys((usual, *FACTORS))
        values = {factor: self.values(hybrid(factor)) for factor in factors}
        best = max(values, key=lambda factor: float(values[factor].mean()))
        gain = values[best] - values[usual]
        if gain.mean() <= 2 * gain.std() / math.sqrt(len(gain)):
            best = usual
        return best, float(values[best].mean())
