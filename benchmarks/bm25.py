"""BM25: the peer of the dense retriever, on the same corpus with the same evaluation.

    python benchmarks/bm25.py CORPUS GOLD.jsonl [GOLD.jsonl …] [--sample 2000] [--name bm25]

A passage is a paragraph with the page's title before it; a page stands where its best passage stands. BM25 finds no
answers: its answer is the title of the first page for entity linking, else empty, so that only page scores compare.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import bm25s
import reporting
import Stemmer
from kilt import judged, sampled

from kbq.corpus.readers import read_corpus
from kbq.kilt.lines import write_lines
from kbq.storage.lines import read_json_lines
from kbq.text.markers import MENTION

DEPTH = 200  # passages that are folded to pages
PAGES = 20
BATCH = 512  # queries searched together


@dataclass(frozen=True, slots=True)
class Passage:
    """Where a passage stands."""

    page: str
    title: str
    paragraph: int


class Passages:
    """The passages of a corpus under BM25 with Lucene's weights, English stems and stop words."""

    def __init__(self, corpus: Path) -> None:
        texts = []
        self.places = []
        for page in read_corpus(str(corpus)):
            for paragraph in page.paragraphs:
                self.places.append(Passage(page.id, page.title, paragraph.number))
                texts.append(f"{page.title} {paragraph.text}")
        self._stemmer = Stemmer.Stemmer("english")
        self._index = bm25s.BM25()
        self._index.index(self._tokens(texts), show_progress=False)

    def search(self, texts: list[str]) -> Iterator[list[Passage]]:
        """The best passages for each text, best first."""
        for first in range(0, len(texts), BATCH):
            found, _ = self._index.retrieve(
                self._tokens(texts[first : first + BATCH]), k=min(DEPTH, len(self.places)), show_progress=False
            )
            for row in found:
                yield [self.places[number] for number in row]

    def _tokens(self, texts: list[str]) -> object:
        return bm25s.tokenize(texts, stopwords="en", stemmer=self._stemmer, show_progress=False)


def query_of(text: str) -> str:
    """A marked mention alone, as its context leads BM25 to the page it was taken from; else the whole input."""
    mention = MENTION.search(text)
    return mention[1] if mention else text.replace("[SEP]", " ")


def prediction(record: dict[str, object], ranking: list[Passage]) -> str:
    """A KILT line: distinct pages, each at its best passage."""
    pages: dict[str, Passage] = {}
    for passage in ranking:
        pages.setdefault(passage.page, passage)
    best = list(pages.values())[:PAGES]
    provenance = [
        {
            "wikipedia_id": passage.page,
            "title": passage.title,
            "start_paragraph_id": passage.paragraph,
            "end_paragraph_id": passage.paragraph,
        }
        for passage in best
    ]
    output = {
        "answer": best[0].title if best and MENTION.search(str(record["input"])) else "",
        "provenance": provenance,
    }
    return json.dumps({"id": record["id"], "input": record["input"], "output": [output]}, ensure_ascii=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("gold", type=Path, nargs="+")
    parser.add_argument("--sample", type=int, default=0, help="queries of each file, at random; 0: all")
    parser.add_argument("--name", default="bm25")
    options = parser.parse_args()
    begun = time.perf_counter()
    passages = Passages(options.corpus)
    figures: dict[str, object] = {
        "bm25s": version("bm25s"),
        "passages": len(passages.places),
        "seconds to index": round(time.perf_counter() - begun, 1),
    }
    with tempfile.TemporaryDirectory() as temporary:
        for gold in (sampled(path, options.sample, Path(temporary)) for path in options.gold):
            records = [record for _, record in read_json_lines(str(gold))]
            begun = time.perf_counter()
            rankings = passages.search([query_of(str(record["input"])) for record in records])
            out = Path(temporary) / f"{gold.name.split('.')[0]}-predictions.jsonl"
            write_lines(out, (prediction(*pair) for pair in zip(records, rankings, strict=True)))
            seconds = round(time.perf_counter() - begun, 1)
            figures[gold.name.split(".")[0]] = judged(gold, out) | {"seconds to search": seconds}
    reporting.write(options.name, figures, [options.corpus, *options.gold])


if __name__ == "__main__":
    main()
