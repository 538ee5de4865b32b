"""Company: whether answers depend on the queries asked beside them or on groups of shards, and what it costs.

    python benchmarks/company.py PAGES.jsonl QUERIES.jsonl WORK [--pages 4000] [--before CHECKOUT]

The knowledge base, of 25 small shards with all kinds of indexes, is made in WORK, once. Queries are asked alone and in
random batches of 2 to 256, and of 1, 2, 3 and 7 parts of the shards, whose answers are merged. Counted are those that
differ in a bit of a vector or in anything of an answer. A checkout of an earlier version is measured in the same run.
Its processes take turns with today's, as other programs on a machine change what a query costs.
"""

import argparse
import heapq
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import reporting
from measuring import cpu_seconds, inputs

from kbq.answers import SearchOptions
from kbq.dump import building
from kbq.index.factory import open_index
from kbq.kb import KnowledgeBase
from kbq.search.hybrid import LexicalScores
from kbq.search.search import SearchContext, search
from kbq.storage.lines import read_json_lines

K, SHARD_ROWS, BLOCK = 10, 25_000, 2**16
KINDS, UNITS, PARTS = ("exact", "disk", "compact", "tiny"), ("phrase", "sentence", "paragraph", "page"), (1, 2, 3, 7)
MANY, FREQUENT, SOME, FEW = 10_000, 3000, 60, 20  # queries: vectors; compact search; others; exact search, and a reader
ALONE, TOGETHER, ROUNDS = 12, 64, 5  # queries whose cost is measured, one at a time and together, each version in turn
WARM = "Marie Curie [SEP] place of birth"


def make(pages: Path, folder: Path, count: int) -> None:
    """Build the knowledge base with all its indexes."""
    source = folder.with_suffix(".jsonl")
    records = islice((record for _, record in read_json_lines(str(pages))), count)
    source.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    building.SHARD_ROWS, building.BLOCK_CHARACTERS = SHARD_ROWS, BLOCK
    kb = KnowledgeBase.build(source, folder, index="exact")
    for kind in ("disk", "tiny", "compact"):
        kb = kb.index_vectors(kind, recall=0.95)


class Asked:
    """A knowledge base with some queries; how these are asked is the same code in all versions."""

    def __init__(self, folder: Path, queries: Path) -> None:
        self.kbs = {kind: KnowledgeBase.open(folder, index=kind, device="cpu") for kind in KINDS}
        self.kb = self.kbs["exact"]
        texts = inputs(queries)
        relations = sorted({text.partition(" [SEP] ")[2] for text in texts})
        subjects = [text.partition(" [SEP] ")[0] for text in texts]
        source = random.Random(0)
        self.texts = source.sample(texts, min(len(texts), MANY))
        while len(self.texts) < MANY:  # subjects of some queries with relations of others
            self.texts.append(f"{source.choice(subjects)} [SEP] {source.choice(relations)}")

    def vectors(self, count: int) -> int:
        """Queries of which a vector differs between alone and batches."""
        texts = self.texts[:count]
        alone = [self.kb.model.encode_queries([text]) for text in texts]
        return sum(
            any(
                side[place].tobytes() != own[0].tobytes()
                for side, own in zip(together, alone[first + place], strict=True)
            )
            for first, stop in cut(count)
            for together in [self.kb.model.encode_queries(texts[first:stop])]
            for place in range(stop - first)
        )

    def answers(self, kind: str, backend: str, unit: str, count: int, reader: str | None = None) -> int:
        """Queries whose answers differ between alone and batches, from text to answer."""
        kb, texts = self.kbs[kind], self.texts[:count]
        options = SearchOptions(K, unit, backend, reader=reader)
        alone = [kb.search([text], options)[0] for text in texts]
        found = [answers for first, stop in cut(count) for answers in kb.search(texts[first:stop], options)]
        return sum(own != together for own, together in zip(alone, found, strict=True))

    def parts(self, kind: str, backend: str, unit: str, count: int) -> dict[str, int]:
        """Queries whose answers differ between one search and several of parts of the shards, by their number."""
        kb, texts = self.kbs[kind], self.texts[:count]
        vectors = kb.model.in_row_units(*kb.model.encode_queries(texts))
        whole = self._searched(kb, texts, vectors, backend, unit, slice(None))
        differing = {}
        for number in PARTS:
            answers = [self._searched(kb, texts, vectors, backend, unit, part) for part in divided(kb, number)]
            found = [
                list(islice(heapq.merge(*of_query, key=lambda hit: -hit.score), K))
                for of_query in zip(*answers, strict=True)
            ]
            differing[str(number)] = sum(one != merged for one, merged in zip(whole, found, strict=True))
        return differing

    def _searched(self, kb: Any, texts: Sequence[str], vectors: Any, backend: str, unit: Any, part: slice) -> list[Any]:
        sources: list[Any] = []
        if backend == "hybrid":
            sources = kb.words.all_scores(texts, *kb.weights(SearchOptions()))
        elif backend == "bm25":
            sources = [kb.words.scores(texts, "bm25")]
        lexical = [LexicalScores(s._shards[part], s._indexes[part], s._terms, s._weight) for s in sources]
        if backend == "bm25":
            return [lexical[0].best(query, unit, K) for query in range(len(texts))]
        shards = kb.shards[part]
        index = open_index(shards, kb.index, kb.model.device, **whole_of(kb))
        return search(SearchContext(shards, index, kb.model.config.length_penalty), vectors, K, unit, lexical)

    def cost(self, what: str, kind: str, together: int, count: int) -> float:
        """CPU milliseconds a query: of its vectors, or of a search with this backend, so many at a time."""
        kb, texts = self.kbs[kind], self.texts[:count]
        if what == "vectors":
            ask: Callable[[Sequence[str]], object] = kb.model.encode_queries
        else:
            options = SearchOptions(K, backend=what)
            ask = lambda part: kb.search(part, options)  # noqa: E731
        ask([WARM])
        return 1000 * cpu_seconds(lambda: [ask(texts[n : n + together]) for n in range(0, count, together)]) / count


def cut(count: int) -> Iterator[tuple[int, int]]:
    """Batches of 2 to 256 queries, small ones as likely as large ones."""
    source, first = random.Random(1), 0
    while first < count:
        stop = min(count, first + round(2 ** source.uniform(1, 8)))
        yield first, stop
        first = stop


def whole_of(kb: Any) -> dict[str, Any]:
    """What today's indexes want to know of the knowledge base, if they see a part of it."""
    try:
        from kbq.index.base import Whole
    except ImportError:
        return {}
    return {"whole": Whole.of(kb.shards)}


def divided(kb: Any, count: int) -> list[slice]:
    """The shards in some parts of whole groups; an earlier version gets the same."""
    step = -(-len(kb.shards) // 12)
    groups = -(-len(kb.shards) // step)
    stops = [min(len(kb.shards), groups * number // count * step) for number in range(count + 1)]
    return [slice(first, stop) for first, stop in itertools.pairwise(stops)]


class Version:
    """A process of one version of kbq that does what it is told on its standard input."""

    def __init__(self, checkout: Path, folder: Path, queries: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", str(folder), str(queries)],
            env=os.environ | {"PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def do(self, what: str, *arguments: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([what, *arguments]), file=self._process.stdin, flush=True)
        told = json.loads(self._process.stdout.readline())
        print(f"{what} {arguments}: {told}", file=sys.stderr, flush=True)
        return told


def work(folder: Path, queries: Path) -> None:
    """Be a `Version`."""
    asked = Asked(folder, queries)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        print(json.dumps(getattr(asked, what)(*arguments)), flush=True)


def combinations() -> Iterator[tuple[str, str, str]]:
    """Kind, backend and unit of all searches."""
    yield from ((kind, backend, unit) for kind in KINDS for backend in ("dense", "hybrid") for unit in UNITS)
    yield from (("exact", "bm25", unit) for unit in ("paragraph", "page"))


def main() -> None:
    if sys.argv[1] == "--worker":
        work(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--pages", dest="count", type=int, default=4000)
    parser.add_argument("--before", type=Path, help="a checkout of the version before")
    options = parser.parse_args()
    folder = options.work / "company"
    if not (folder / "manifest.json").exists():
        make(options.pages, folder, options.count)
    checkouts = {"after": Path(__file__).parents[1]} | ({"before": options.before} if options.before else {})
    versions = {name: Version(checkout, folder, options.queries) for name, checkout in checkouts.items()}
    kb = KnowledgeBase.open(folder)
    figures: dict[str, Any] = {"shards": len(kb.shards), "vectors": kb.counts.rows}
    figures["CPU ms a query"] = costs(versions)
    for name, version in versions.items():
        share = 1 if name == "after" else 2  # of the queries, for what is known to differ
        figures[name] = {
            "vectors": {"queries": MANY // share, "differ in batches": version.do("vectors", MANY // share)},
            "phrases, compact, dense": asked(version, FREQUENT // share, "compact", "dense", "phrase"),
            "phrases, compact, hybrid, a reader": asked(
                version, FEW // share, "compact", "hybrid", "phrase", "default"
            ),
        }
        for kind, backend, unit in combinations():
            count = (FEW if kind == "exact" else SOME) // share
            found = asked(version, count, kind, backend, unit)
            found["differ in parts"] = version.do("parts", kind, backend, unit, count)
            figures[name][f"{kind}, {backend}, {unit}"] = found
    reporting.write("company", figures, [options.pages, options.queries, folder], seed=0)


def asked(version: Version, count: int, *how: str) -> dict[str, Any]:
    """How many queries have other answers in batches than alone."""
    kind, backend, unit, *reader = how
    return {"queries": count, "differ in batches": version.do("answers", kind, backend, unit, count, *reader)}


def costs(versions: dict[str, Version]) -> dict[str, dict[str, float]]:
    """The median of some rounds, in which the versions take turns, of CPU milliseconds a query."""
    wanted = {
        f"{what}, {kind}, {'alone' if together == 1 else f'{together} at a time'}": (what, kind, together, count)
        for what, kind in [("vectors", "exact"), *((what, kind) for what in ("dense", "hybrid") for kind in KINDS)]
        for together, count in ((1, ALONE), (TOGETHER, TOGETHER))
    }
    taken: dict[str, dict[str, list[float]]] = {title: {name: [] for name in versions} for title in wanted}
    for _ in range(ROUNDS):
        for title, how in wanted.items():
            for name, version in versions.items():
                taken[title][name].append(version.do("cost", *how))
    return {
        title.replace("vectors, exact", "vectors"): {
            name: round(statistics.median(ms), 2) for name, ms in by_name.items()
        }
        for title, by_name in taken.items()
    }


if __name__ == "__main__":
    main()
