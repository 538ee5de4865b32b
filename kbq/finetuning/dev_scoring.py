"""Judge: dev queries are predicted with the live query encoder and scored as KILT does."""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kbq.answers import Backend
from kbq.array_types import Doubles
from kbq.finetuning.triples import kilt_record, pages_of
from kbq.kb import KnowledgeBase
from kbq.kilt.evaluation import score_downstream
from kbq.kilt.lines import write_lines
from kbq.kilt.metrics import Deviations
from kbq.kilt.prediction import PredictionSettings, Query, kilt_line, predict
from kbq.kilt.records import Gold
from kbq.kilt.task import Task
from kbq.reading.reader import Answering
from kbq.searching.hybrid import HybridWeights

FACTORS = (0.5, 1.0, 2.0, 4.0)  # tried for the weights of words beside the vectors


class Judge:
    """Scores dev queries with the live query encoder, as KILT does."""

    def __init__(self, task: Task, golds: Sequence[Gold], kb: KnowledgeBase, folder: Path) -> None:
        self._task, self._kb = task, kb
        self._gold, self._guess = folder / "dev.jsonl", folder / "dev-predictions.jsonl"
        texts = [task.query_of(gold.input or "", kb.model.query_tokenizer.is_short_enough, gold.id) for gold in golds]
        self._queries = [(Query(gold.id, text), gold.input or "") for gold, text in zip(golds, texts, strict=True)]
        write_lines(self._gold, (json.dumps(kilt_record(gold), ensure_ascii=False) for gold in golds))
        self._have_answers = [bool(gold.answers) for gold in golds]
        self._have_pages = np.array([bool(pages_of(gold)) for gold in golds])
        metric = task.answer_metric
        if task.answer == "none" or not any(self._have_answers):
            self.measure = "Rprec"
        else:
            self.measure = f"KILT-{metric}" if self._have_pages.any() else metric

    def __len__(self) -> int:
        return len(self._queries)

    @property
    def digest(self) -> str:
        """A digest of the dev queries, their answers, and what these are scored by."""
        return hashlib.sha256(f"{self._task.name} {self.measure} ".encode() + self._gold.read_bytes()).hexdigest()

    def score(self, backend: Backend = "dense", weights: HybridWeights | None = None) -> float:
        """The mean of the measure, from 0 to 1."""
        return float(self.values(backend, weights).mean())

    def values(self, backend: Backend = "dense", weights: HybridWeights | None = None) -> Doubles:
        """The measure of each dev query; where it has no page, its answer may stand anywhere. Shape: (queries,)."""
        settings = PredictionSettings(top_pages=5, answering=Answering(backend, weights))
        predictions = predict(self._task, self._queries, self._kb, settings)
        lines = (kilt_line(prediction) for prediction in predictions)
        pairs = zip(lines, self._have_answers, strict=True)
        guesses = ({**line, "output": [_with_answer(line["output"][0], has_answer)]} for line, has_answer in pairs)
        write_lines(self._guess, (json.dumps(guess, ensure_ascii=False) for guess in guesses))
        scores = score_downstream(self._gold, self._guess, Deviations(rouge=False))
        anywhere = scores.column(self.measure.removeprefix("KILT-"))
        return np.where(self._have_pages, scores.column(self.measure), anywhere)

    def best_factor(self, usual: float) -> tuple[float, float]:
        """The factor for the weights of words that serves this query encoder best, and its score with it.

        The `usual` factor stays unless another one gains more than two standard errors on these queries.
        """
        factors = dict.fromkeys((usual, *FACTORS))
        values = {factor: self.values("hybrid", HybridWeights().times(factor)) for factor in factors}
        best = max(values, key=lambda factor: float(values[factor].mean()))
        gain = values[best] - values[usual]
        if gain.mean() <= 2 * gain.std() / math.sqrt(len(gain)):
            best = usual
        return best, float(values[best].mean())


def _with_answer(output: dict[str, Any], has_answer: bool) -> dict[str, Any]:
    """An output with an answer, as the evaluation wants it; an empty one where the gold has none to compare it with."""
    return {"answer": "", **output} if has_answer else {**output, "answer": ""}
