"""Reader weight: what a point of the search should count beside what a reader says of the paragraphs found.

    python benchmarks/reader_weight.py KB TASK:TRAIN.jsonl [TASK:TRAIN.jsonl …] [--reader default] [--sample 300]

Chosen on queries that are reported nowhere else. Every paragraph is read once, what the search says is added then.
"""

import argparse
import json
import tempfile
from pathlib import Path

import reporting
from hybrid import prediction
from kilt import judged, sampled

from kbq.answers import DEPTH, SearchOptions
from kbq.kb import KnowledgeBase
from kbq.kilt.lines import write_lines
from kbq.kilt.prediction import read_inputs
from kbq.kilt.task import Task
from kbq.reading.reader import Reader, with_retrieval

WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("gold", nargs="+", metavar="TASK:TRAIN")
    parser.add_argument("--model", help="a tuned query encoder")
    parser.add_argument("--reader", default="default")
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--weights", type=float, nargs="+", default=WEIGHTS)
    parser.add_argument("--sample", type=int, default=300, help="queries of each file, at random; 0: all")
    parser.add_argument("--name", default="reader_weight")
    options = parser.parse_args()
    kb, reader = KnowledgeBase.open(options.kb, options.model), Reader.open(options.reader)
    figures: dict[str, object] = {"model": kb.manifest.model_fingerprint, "reader": reader.fingerprint()}
    files = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, _, path in (item.partition(":") for item in options.gold):
            files.append(Path(path))
            task, gold = Task.load(name), sampled(Path(path), options.sample, Path(temporary))
            queries = read_inputs(task, gold, [kb.model.query_tokenizer, reader.query_tokenizer])
            texts = [query.text for query in queries]
            paragraphs = kb.query(texts, options.depth, "paragraph")
            phrases = [reader.read(text, found) for text, found in zip(texts, paragraphs, strict=True)]
            rows: dict[str, object] = {}
            for weight in options.weights:
                scaled = weight * kb.score_scale(SearchOptions())
                ranked = [with_retrieval(*both, scaled) for both in zip(phrases, paragraphs, strict=True)]
                lines = [prediction(query, hits) for query, hits in zip(queries, ranked, strict=True)]
                out = Path(temporary) / f"{gold.name}-{weight}"
                write_lines(out, (json.dumps(line, ensure_ascii=False) for line in lines))
                rows[f"{weight:g}"] = judged(gold, out)
            figures[gold.name.split(".")[0]] = rows
    reporting.write(options.name, figures, [options.kb, *files], seed=0)


if __name__ == "__main__":
    main()
