"""Speed: the custom-index example of the DensePhrases repository, per CPU second, against the
official code's figures.

    OMP_NUM_THREADS=1 python benchmarks/speed.py custom-index/articles.json squad/dev-v1.1.json.xz
        [--name speed]

The official figures were measured with the same shapes (MiniLM, one thread) on another day, on a
similar machine. Searches are in all vectors, as there; the other figures are of the model with its
filter.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import reporting
import torch
from keep_all_tokens import without_filter
from measuring import arguments, cpu_seconds

from kbq.corpus.readers import read_corpus
from kbq.dump.page_directory import Pages
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold, GoldOutput
from kbq.model.model import Model
from kbq.search.search import search
from kbq.training.batches import read_examples
from kbq.tuning.labels import Labeller, PreparedQuery
from kbq.tuning.query_side import Distillation, Finetuner
from kbq.tuning.settings import FinetuningSettings

OFFICIAL = {
    "indexed tokens": 339.0,
    "searches, top 10, 64 at a time": 141.0,
    "searches, top 10, one at a time": 114.0,
    "searches, top 100, 64 at a time": 22.0,
    "searches, top 100, one at a time": 21.0,
    "queries, text to answer, one at a time": 9.4,
    "fine-tuning steps, 12 queries, k = 100": 0.215,
}


def rate(count: float, work: Callable[[], object], repeat: int = 3) -> float:
    """Return the rate per CPU second, the best of several runs."""
    return count / cpu_seconds(work, repeat)


def tuning(kb: KnowledgeBase, texts: list[str], batch: int = 12) -> Finetuner:
    """Prepare to tune for an epoch, where the gold answer of each query is its best answer now."""
    labeller = Labeller(kb.searcher.shards, Pages.open(kb.folder).ids())
    queries = []
    for text, hits in zip(texts, kb.query(texts, k=1, backend="dense", rerank=0), strict=True):
        phrase = hits[0]
        output = GoldOutput(phrase.text, (phrase.page_id,), frozenset([phrase.page_id]), ())
        gold = Gold(text, 1, text, {}, (output,))
        queries.append(
            PreparedQuery(
                tuple(kb.model.query_tokenizer.ids_of(text)), gold, labeller.find(gold)[0]
            )
        )
    settings = FinetuningSettings(epochs=1, batch=batch, learning_rate=1e-6, keep=0)  # as there
    return Finetuner(
        kb.searcher,
        labeller,
        queries,
        settings,
        lambda: 0.0,
        Distillation(kb.searcher, (), (), settings.k),
    )


def searches(kb: KnowledgeBase, texts: list[str]) -> Iterator[float]:
    """Yield searches per CPU second: top 10 with 64 queries and with one at a time, then top 100."""
    queries = kb.model.in_row_units(*kb.model.encode_queries(texts))
    for k in (10, 100):
        for together in (64, 1):
            parts = [
                slice(first, first + together)
                for first in range(0, 512 if together > 1 else 64, together)
            ]
            yield rate(
                parts[-1].stop,
                lambda: [
                    search(kb.searcher.search_context, queries[part], k, "phrase")  # noqa: B023
                    for part in parts  # noqa: B023
                ],
            )


def main() -> None:
    options = arguments(__doc__, articles=Path, questions=Path, name="speed")
    torch.set_num_threads(1)
    model = Model.open("default", "cpu")
    pages = list(read_corpus(str(options.articles)))
    passages, _ = read_examples([options.questions], doubtful=True)
    texts = [query.text for passage in passages for query in passage.queries][:512]
    with tempfile.TemporaryDirectory() as folder:
        kb = KnowledgeBase.build(pages, Path(folder) / "warm", model, bm25=False)
        places = iter(Path(folder) / str(number) for number in range(9))
        encoding = rate(
            kb.counts.tokens, lambda: KnowledgeBase.build(pages, next(places), model, bm25=False)
        )
        answering = rate(
            128, lambda: [kb.query([text], k=10, backend="dense", rerank=0) for text in texts[:128]]
        )
        tuners = iter([tuning(kb, texts[:240]) for _ in range(3)])
        steps = rate(
            20, lambda: next(tuners).run(next(places) / "checkpoint.pt", lambda step: None)
        )
        everything = KnowledgeBase.build(
            pages, Path(folder) / "everything", without_filter(model), bm25=False
        )
        searching = list(searches(everything, texts))
    ours = dict(zip(OFFICIAL, (encoding, *searching, answering, steps), strict=True))
    rows = {
        name: {
            "kbq": round(ours[name], 2),
            "official": official,
            "ratio": round(ours[name] / official, 1),
        }
        for name, official in OFFICIAL.items()
    }
    reporting.write(options.name, {"per CPU second": rows}, [options.articles, options.questions])


if __name__ == "__main__":
    main()
