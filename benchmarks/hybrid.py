"""Hybrid: how much a point of BM25 should weigh, and reciprocal rank fusion as the alternative that needs no weight.

    python benchmarks/hybrid.py KB TASK:TRAIN.jsonl [TASK:TRAIN.jsonl …] [--sample 800] [--name hybrid]

For queries that are reported nowhere else. The fusion gives every paragraph 1 / (60 + rank) from each of the two sides.
"""

import argparse
import json
import tempfile
from pathlib import Path

import reporting
from kilt import judged, sampled

from kbq.kb import KnowledgeBase
from kbq.kilt.reading.lines import write_lines
from kbq.prediction import PredictionSettings, kilt_line, predict_file, read_inputs
from kbq.records import Evidence, Hit, Prediction
from kbq.task import load_task

WEIGHTS = (0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0)
WORDS_ONLY = 1e4  # a weight that leaves the vectors no say but which phrase of a paragraph is best
DEPTH = 100  # paragraphs of each ranking
PAGES = 5


def fused(dense: list[Hit], words: list[Hit]) -> list[Hit]:
    """The paragraphs of two rankings, best first by the sum of 1 / (60 + rank)."""
    scores: dict[tuple[str, int], float] = {}
    hits: dict[tuple[str, int], Hit] = {}
    for ranking in (dense, words):
        for rank, hit in enumerate(ranking, start=1):
            key = (hit.phrase.document_id, hit.phrase.paragraph)
            scores[key] = scores.get(key, 0.0) + 1 / (60 + rank)
            hits.setdefault(key, hit)
    return [hits[key] for key in sorted(hits, key=lambda key: -scores[key])]


def prediction(identity: str, text: str, hits: list[Hit]) -> Prediction:
    """The best phrase, and distinct pages."""
    pages = {hit.phrase.document_id: hit.phrase for hit in reversed(hits)}
    order = dict.fromkeys(hit.phrase.document_id for hit in hits)
    best = [pages[page] for page in order][:PAGES]
    places = tuple(Evidence(p.document_id, p.title, p.paragraph, p.start, p.end) for p in best)
    return Prediction(identity, text, best[0].text if best else "", places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("gold", nargs="+", metavar="TASK:TRAIN")
    parser.add_argument("--sample", type=int, default=800, help="queries of each file, at random; 0: all")
    parser.add_argument("--weights", type=float, nargs="+", default=WEIGHTS)
    parser.add_argument("--name", default="hybrid")
    options = parser.parse_args()
    kb = KnowledgeBase.open(options.kb)
    figures: dict[str, object] = {"model": kb.manifest.model_fingerprint}
    files = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, _, path in (item.partition(":") for item in options.gold):
            files.append(Path(path))
            task, gold = load_task(name), sampled(Path(path), options.sample, Path(temporary))
            rows: dict[str, object] = {}
            for weight in options.weights:
                out = Path(temporary) / f"{gold.name}-{weight}"
                settings = PredictionSettings(PAGES, backend="hybrid", bm25_weight=weight)
                predict_file(task, gold, kb, out, settings, lambda done, total: None)
                rows[f"weight {weight:g}"] = judged(gold, out)
            if task.answer == "phrase":
                queries = read_inputs(task, gold, kb)
                texts = [query.text for query, _ in queries]
                dense = kb.search(texts, DEPTH, "paragraph")
                words = kb.search(texts, DEPTH, "paragraph", "hybrid", WORDS_ONLY)
                lines = (
                    kilt_line(prediction(query.id, text, fused(*rankings)))
                    for (query, text), *rankings in zip(queries, dense, words, strict=True)
                )
                out = Path(temporary) / f"{gold.name}-fused"
                write_lines(out, (json.dumps(line, ensure_ascii=False) for line in lines))
                rows["reciprocal rank fusion"] = judged(gold, out)
            figures[gold.name.split(".")[0]] = rows
    reporting.write(options.name, figures, [options.kb, *files], seed=0)


if __name__ == "__main__":
    main()
