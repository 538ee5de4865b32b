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
from kbq.finetuning.labels import Labeller
from kbq.finetuning.loop import Finetuner, FinetuningSettings
from kbq.finetuning.preparation import PreparedQuery
from kbq.kb import KnowledgeBase
from kbq.kilt.reading.records import Gold, GoldOutput
from kbq.pages import Pages
from kbq.training.examples import read_examples

OFFICIAL = {
    "indexed tokens": 339.0,
    "searches, top 10, 64 at a time": 114.0,
    "queries, text to answer, one at a time": 9.4,
    "fine-tuning steps, 12 queries, k = 100": 0.215,
}


def rate(count: float, work: Callable[[], object], repeat: int = 3) -> float:
    """How many per CPU second: the best of a few runs, since other processes only ever slow one down."""
    rates = []
    for _ in range(repeat):
        before = time.process_time()
        work()
        rates.append(count / (time.process_time() - before))
    return max(rates)


def tuning(kb: KnowledgeBase, texts: list[str]) -> Finetuner:
    """Ready to tune for an epoch; the gold answer of each query is what is found first now."""
    labeller = Labeller(kb.shards, Pages(kb.folder).ids())
    queries = []
    for text, hits in zip(texts, kb.search(texts, k=1, backend="dense"), strict=True):
        phrase = hits[0].phrase
        output = GoldOutput(phrase.text, (phrase.document_id,), frozenset([phrase.document_id]), ())
        gold = Gold(text, 1, text, {}, (output,))
        queries.append(PreparedQuery(tuple(kb.model.reader.token_ids([text])[0]), gold, labeller.find(gold).phrases))
    settings = FinetuningSettings(epochs=1, batch=12, learning_rate=1e-6)
    return Finetuner(kb, labeller, queries, settings, lambda: 0.0)


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
        kb = KnowledgeBase.build(documents, Path(folder) / "warm", model, bm25=False)
        places = iter(Path(folder) / str(number) for number in range(9))
        encoding = rate(kb.counts.tokens, lambda: KnowledgeBase.build(documents, next(places), model, bm25=False))
        vectors = model.encode_queries(texts)
        searching = rate(len(texts), lambda: kb.search_vectors(*vectors, k=10))
        answering = rate(128, lambda: [kb.search([text], k=10, backend="dense") for text in texts[:128]])
        tuners = iter([tuning(kb, texts[:240]) for _ in range(3)])
        steps = rate(20, lambda: next(tuners).run(next(places) / "checkpoint.pt", lambda step: None))
    ours = dict(zip(OFFICIAL, (encoding, searching, answering, steps), strict=True))
    figures = {
        "per CPU second": {
            name: {
                "kbq": round(ours[name], 2),
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
