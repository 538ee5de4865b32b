"""Negatives: how well a model tells the right passage from others, of other topics (L_topic) and of
the same (L_hard).

    python benchmarks/negatives.py dev.json [--model MODEL] [--queries 500] [--others 50]
        [--name negatives]

Source: arXiv 2109.08133, section 4.2 and Fig. 3. A passage's score is that of its best phrase (Eq.
3), and a loss is -log of the right passage's share (Eq. 4): among random passages for L_topic; for
L_hard, beside the passage itself without the sentences that hold an answer. Lower is better.
"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from measuring import arguments

from kbq.array_types import Doubles
from kbq.english.sentences import sentence_bounds
from kbq.index.base import MAX_TOKENS
from kbq.model.model import Model
from kbq.text.whole_words import whole_words
from kbq.training.batches import Passage, TrainingQuery, read_examples
from kbq.training.quantisation import EncodedTokens, encode_tokens


def without_answer(passage: Passage, query: TrainingQuery) -> Passage:
    """The passage without the sentences that hold one of the answers."""
    bounds = sentence_bounds(passage.text)
    kept = [
        passage.text[start:end]
        for start, end in bounds
        if not holds(passage.text[start:end], query)
    ]
    return Passage(passage.title, " ".join(kept), (), passage.group)


def holds(text: str, query: TrainingQuery) -> bool:
    return any(whole_words(text, answer) for answer in query.answers)


def best_phrases(tokens: EncodedTokens, passages: int, products: Doubles) -> Doubles:
    """The score of the best phrase of each passage.

    Args:
        products: of each token with a query's start vector and its end vector. Shape: (tokens, 2).
    """
    is_token = np.isfinite(tokens.logits[:, 0])  # between passages there are places without one
    opens, closes = np.where(is_token[:, None], products, -np.inf).T
    reached = np.lib.stride_tricks.sliding_window_view(
        np.append(closes, np.full(MAX_TOKENS - 1, -np.inf)), MAX_TOKENS
    )
    scores = np.full(passages, -np.inf)
    np.maximum.at(scores, tokens.passages, opens + reached.max(axis=1))
    return scores


def loss(scores: np.ndarray) -> float:
    """-log of the first passage's share."""
    return float(np.logaddexp.reduce(scores) - scores[0])


def losses(model: Model, passages: list[Passage], queries: int, others: int) -> dict[str, Any]:
    """The mean of L_topic and of L_hard over some queries, each with its number of queries."""
    source = random.Random(0)
    asked = source.sample(
        [(number, query) for number, passage in enumerate(passages) for query in passage.queries],
        queries,
    )
    without = [without_answer(passages[number], query) for number, query in asked]
    tokens = encode_tokens(model, [*passages, *without])
    vectors = tokens.vectors.astype(np.float64)
    asking = np.array(model.encode_queries([query.text for _, query in asked]), np.float64)
    found: dict[str, list[float]] = {"L_topic": [], "L_hard": []}
    for place, (number, query) in enumerate(asked):
        products = vectors @ asking[:, place].T
        scores = best_phrases(tokens, len(passages) + len(asked), products)
        hard = scores[[number, len(passages) + place]]
        elsewhere = [
            other
            for other, passage in enumerate(passages)
            if passage.group != passages[number].group and not holds(passage.text, query)
        ]
        random_ones = source.sample(elsewhere, min(others, len(elsewhere)))
        found["L_topic"].append(loss(scores[[number, *random_ones]]))
        if np.isfinite(hard[1]):  # else nothing is left of the passage
            found["L_hard"].append(loss(hard))
    return {name: [round(float(np.mean(each)), 4), len(each)] for name, each in found.items()}


def main() -> None:
    options = arguments(
        __doc__, dev=Path, model="default", queries=500, others=50, name="negatives"
    )
    passages, _ = read_examples([options.dev], doubtful=True)
    model = Model.open(options.model, "cpu")
    figures = {"mean loss, queries": losses(model, passages, options.queries, options.others)}
    reporting.write(options.name, figures, [options.dev], seed=0)


if __name__ == "__main__":
    main()
