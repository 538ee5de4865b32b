"""Evaluation: reading comprehension with the phrase dump as it will be searched: filtered, int8, whole words.

EM and F1 under SQuAD's normalisation, once with the gold passage given and once among all passages.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kbq.array_types import Floats
from kbq.corpus.pages import Page, Paragraph
from kbq.dump.building import build_shards
from kbq.dump.manifest import Manifest
from kbq.dump.shards import Shard
from kbq.index.factory import open_index
from kbq.model.model import Model
from kbq.search.search import SearchContext, search
from kbq.search.spans import paragraph_spans
from kbq.text.answer_scores import score_answer
from kbq.training.examples import Passage, readable


@dataclass(frozen=True, slots=True)
class ReadingScores:
    """All values but `queries` are percentages; `kept` is the filter's share of tokens."""

    queries: int
    gold_em: float  # the gold passage is given
    gold_f1: float
    open_em: float  # every passage is a candidate
    open_f1: float
    open_passage: float  # the best phrase is in the gold passage
    open_passage_5: float  # the gold passage is among the best five
    kept: float


def evaluate_reading(model: Model, passages: Sequence[Passage]) -> ReadingScores:
    """Make a phrase dump of the passages and ask it all their queries that the encoder can read."""
    pages = [Page(str(number), passage.title, (Paragraph(0, passage.text),)) for number, passage in enumerate(passages)]
    queries = readable(passages, model.query_tokenizer)
    golds = [query.answers for _, query in queries]
    vectors = model.in_row_units(*model.encode_queries([query.text for _, query in queries]))
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "dump"
        counts, corpus = build_shards(pages, model, dump, 0, lambda counts: None)
        manifest = Manifest("", "", model.dim, model.config.filter_threshold).with_shards(counts, corpus)
        shards = manifest.open_shards(dump)
        index = open_index(shards, manifest.index, model.device, may_leave_gpu=True)
        penalty = model.config.length_penalty
        hits = search(SearchContext(shards, index, penalty), vectors, 5, "page")
        answers_in_gold = [
            _read(shards, number, vector, penalty) for (number, _), vector in zip(queries, vectors, strict=True)
        ]
        kept = manifest.counts.rows / max(1, manifest.counts.tokens)
    answers_in_all = [hit[0].text if hit else "" for hit in hits]
    found = [[hit.page_id for hit in best] for best in hits]
    first, top_5 = (
        _percent([str(number) in best[:k] for best, (number, _) in zip(found, queries, strict=True)]) for k in (1, 5)
    )
    gold_em, gold_f1 = answer_scores(answers_in_gold, golds)
    open_em, open_f1 = answer_scores(answers_in_all, golds)
    return ReadingScores(len(queries), gold_em, gold_f1, open_em, open_f1, first, top_5, 100 * kept)


def _read(shards: Sequence[Shard], number: int, query: Floats, length_penalty: float) -> str:
    """Return the best phrase for a query in one passage, a page of one paragraph; "" without one. Shape: (2, dim)."""
    for shard in shards:
        if number < len(shard.texts):
            break
        number -= len(shard.texts)
    best = paragraph_spans(shard, number, query, length_penalty)
    if not len(best.starts):
        return ""
    return shard.texts[number][shard.starts[best.starts[0]] : shard.ends[best.ends[0]]]


def answer_scores(answers: Sequence[str], golds: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Return EM and F1 in percent, under SQuAD's normalisation; of several gold answers the best counts."""
    scores = [score_answer(*pair, with_rouge=False) for pair in zip(answers, golds, strict=True)]
    return _percent([one.em for one in scores]), _percent([one.f1 for one in scores])


def _percent(values: Sequence[float]) -> float:
    return round(100 * sum(values) / max(1, len(values)), 2)
