"""Speed: the custom-index example of the DensePhrases repository, per CPU second, against the official code's figures.

    OMP_NUM_THREADS=1 python benchmarks/speed.py custom-index/articles.json squad/dev-v1.1.json.xz

The official figures were measured on the same shapes (MiniLM, one thread) on another day and machine of the same kind.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import reporting
import torch

from kbq.corpus import read_corpus
from kbq.encoding.model import Model
from kbq.kb import KnowledgeBase
from kbq.training.examples import read_examples

OFFICIAL = {
    "indexed tokens": 339.0,
    "searches, top 10, 64 at a time": 114.0,
    "queries, text to answer, one at a time": 9.4,
}


def rate(count: float, work: Callable[[], object], repeat: int = 3) -> float:
    """How many per CPU second: the best of a few runs, since other processes only ever slow one down."""
    rates = []
    for _ in range(repeat):
        before = time.process_time()
        work()
        rates.append(count / (time.process_time() - before))
    return max(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("articles", type=Path)
    parser.add_argument("questions", type=Path, help="a SQuAD file: its questions are asked")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = Model.open("default", "cpu")
    documents = list(read_corpus(str(options.articles)))
    passages, _ = read_examples([options.questions], doubtful=True)
    texts = [query.text for passage in passages for query in passage.queries][:512]
    with tempfile.TemporaryDirectory() as folder:
        kb = KnowledgeBase.build(documents, Path(folder) / "warm", model)
        places = iter(Path(folder) / str(number) for number in range(9))
        encoding = rate(kb.counts.tokens, lambda: KnowledgeBase.build(documents, next(places), model))
        vectors = model.encode_queries(texts)
        searching = rate(len(texts), lambda: kb.search_vectors(*vectors, k=10))
        answering = rate(128, lambda: [kb.search([text], k=10) for text in texts[:128]])
    ours = dict(zip(OFFICIAL, (encoding, searching, answering), strict=True))
    figures = {
        "per CPU second": {
            name: {
                "kbq": round(ours[name], 1),
                "official": OFFICIAL[name],
                "ratio": round(ours[name] / OFFICIAL[name], 1),
            }
            for name in OFFICIAL
        },
        "tokens": kb.counts.tokens,
        "kept vectors": kb.counts.rows,
    }
    reporting.write("speed", figures, [options.articles, options.questions])


if __name__ == "__main__":
    main()
