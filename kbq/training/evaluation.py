"""Evaluation: reading comprehension with the phrase dump as it will be searched: filtered, int8, whole words.

EM and F1 under SQuAD's normalisation, once with the gold passage given and once among all passages.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kbq.encoding.model import Floats, Model
from kbq.kb import KnowledgeBase
from kbq.kilt.answers import normalise, token_f1
from kbq.records import Document, Paragraph
from kbq.searching.spans import paragraph_spans
from kbq.training.examples import Passage


@dataclass(frozen=True, slots=True)
class ReadingScores:
    """All values but `queries` are percentages; `kept` is the filter's share of tokens."""

    queries: int
    gold_em: float  # the gold passage is given
    gold_f1: float
    open_em: float  # every passage is a candidate
    open_f1: float
    open_passage: float  # the best phrase stands in the gold passage
    kept: float


def evaluate_reading(model: Model, passages: Sequence[Passage]) -> ReadingScores:
    """Build a knowledge base of the passages and ask it all their queries."""
    documents = [
        Document(str(number), passage.title, (Paragraph(0, passage.text),)) for number, passage in enumerate(passages)
    ]
    asked = [(number, query) for number, passage in enumerate(passages) for query in passage.queries]
    golds = [[normalise(answer) for answer in query.answers] for _, query in asked]
    with tempfile.TemporaryDirectory() as folder:
        kb = KnowledgeBase.build(documents, Path(folder) / "kb", model, bm25=False)
        vectors = model.encode_queries([query.text for _, query in asked])
        hits = kb.search_vectors(*vectors, k=1)
        scaled = np.stack(vectors, axis=1) * model.scale
        given = [_read(kb, number, query) for (number, _), query in zip(asked, scaled, strict=True)]
        kept = kb.counts.rows / max(1, kb.counts.tokens)
    found = [hit[0].phrase.text if hit else "" for hit in hits]
    in_gold = [
        bool(hit) and hit[0].phrase.document_id == str(number) for hit, (number, _) in zip(hits, asked, strict=True)
    ]
    gold_em, gold_f1 = _scores(given, golds)
    open_em, open_f1 = _scores(found, golds)
    return ReadingScores(len(asked), gold_em, gold_f1, open_em, open_f1, _percent(in_gold), 100 * kept)


def _read(kb: KnowledgeBase, number: int, query: Floats) -> str:
    """The best phrase of one passage, which is a page of one paragraph, for a query. Shape: (2, dim)."""
    for shard in kb.shards:
        if number < len(shard.texts):
            break
        number -= len(shard.texts)
    best = paragraph_spans(shard, number, query)
    return shard.texts[number][shard.starts[best.starts[0]] : shard.ends[best.ends[0]]]


def _scores(answers: Sequence[str], golds: Sequence[Sequence[str]]) -> tuple[float, float]:
    guesses = [normalise(answer) for answer in answers]
    exact = [guess in gold for guess, gold in zip(guesses, golds, strict=True)]
    overlap = [max(token_f1(guess, text) for text in gold) for guess, gold in zip(guesses, golds, strict=True)]
    return _percent(exact), _percent(overlap)


def _percent(values: Sequence[float]) -> float:
    return round(100 * sum(values) / max(1, len(values)), 2)
