"""ReQA: every sentence of a reading-comprehension file is a candidate; how high does the one with the answer stand?

    python benchmarks/reqa.py EXAMPLES.json [--sparta MODEL] [--articles 12] [--name reqa_squad]

MRR and R@1, in percent. BM25 sees the sentence alone, and once more with the rest of its paragraph behind it, as SPARTA
does; SPARTA keeps the strongest 50, 500 and all impacts of a sentence. Ties rank at their worst.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import bm25s
import numpy as np
import reporting
from numpy.typing import NDArray

from kbq.sparse.bm25 import words_of
from kbq.sparse.sparta_model import SpartaModel, strongest_impacts
from kbq.training.examples import Passage, read_examples
from kbq.training.sparta import SentenceExample, prepare

Scores = NDArray[np.float32]
TERMS = (50, 500, 10**6)


def judged(
    questions: Sequence[str], golds: Sequence[Sequence[int]], scored: Callable[[str], Scores]
) -> dict[str, object]:
    """MRR and R@1 over the questions; of several right sentences the first one counts."""
    ranks = []
    for question, gold in zip(questions, golds, strict=True):
        scores = scored(question)
        ranks.append(int((scores >= scores[list(gold)].max()).sum()))
    found = np.array(ranks)
    return {"MRR": round(100 * float((1 / found).mean()), 2), "R@1": round(100 * float((found == 1).mean()), 2)}


def bm25(texts: Sequence[str]) -> Callable[[str], Scores]:
    """Lucene's weights over these texts."""
    index = bm25s.BM25()
    index.index(words_of(texts), show_progress=False)

    def scored(question: str) -> Scores:
        known = [word for word in words_of([question])[0] if word in index.vocab_dict]
        return np.asarray(index.get_scores(known)) if known else np.zeros(len(texts), np.float32)

    return scored


def sparta(model: SpartaModel, examples: Sequence[SentenceExample], k: int) -> Callable[[str], Scores]:
    """Sums of looked-up impacts."""
    windows = [window for example in examples for window in example.windows]
    table = np.zeros((len(model.vocabulary), len(windows)), np.float16)
    for index, terms, impacts in strongest_impacts(model, windows, k):
        table[terms.numpy(), index] = impacts.numpy()
    return lambda question: table[model.query_terms(question)].sum(axis=0, dtype=np.float32)


def chosen(passages: Sequence[Passage], articles: int) -> list[Passage]:
    """All passages of some articles, at random."""
    groups = sorted({passage.group for passage in passages})
    kept = set(groups if not articles else random.Random(0).sample(groups, min(articles, len(groups))))
    return [passage for passage in passages if passage.group in kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", type=Path)
    parser.add_argument("--sparta", type=Path, required=True, help="its tokenizer and window cut the sentences")
    parser.add_argument("--articles", type=int, default=0, help="at random; 0: all")
    parser.add_argument("--without-network", action="store_true", help="BM25 only")
    parser.add_argument("--name", default="reqa")
    options = parser.parse_args()
    model = SpartaModel.open(options.sparta)
    passages = chosen(read_examples([options.examples], doubtful=True)[0], options.articles)
    questions, golds, alone, in_context, examples = [], [], [], [], []
    for passage in passages:
        for example in prepare(model, [passage]):
            first = len(alone)
            sentences = [passage.text[window.start : window.end] for window in example.windows]
            alone += sentences
            in_context += [f"{sentence} {passage.text}" for sentence in sentences]
            golds += [[first + place for place in gold] for gold in example.golds]
            questions += example.texts
            examples.append(example)
    figures: dict[str, object] = {
        "sentences": len(alone),
        "questions": len(questions),
        "BM25, sentence": judged(questions, golds, bm25(alone)),
        "BM25, sentence and paragraph": judged(questions, golds, bm25(in_context)),
    }
    for k in () if options.without_network else TERMS:
        name = f"SPARTA, {k if k < TERMS[-1] else 'all'} terms"
        figures[name] = judged(questions, golds, sparta(model, examples, k))
    reporting.write(options.name, figures, [options.examples, options.sparta / "sparta.json"], seed=0)


if __name__ == "__main__":
    main()
