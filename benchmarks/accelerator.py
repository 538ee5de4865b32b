"""Accelerator: measure kbq on a GPU, beside the bare product of the same run, and compare its
answers with a CPU's.

    python benchmarks/accelerator.py [rows | codes] [--device cuda] [--small] [--corpus FILE]

The data are the bundled articles, several times, and random vectors. Seconds are wall time, with
all that the CPU does for the GPU. Figures are written after each part; if a part fails, its error
is recorded and the next one begins. `codes` measures the codes of an index instead (see
`device_codes.py`) and keeps the other figures of the file; with `--corpus`, also those of real
text. `--small` writes nothing and shows that the program runs, also with `--device cpu`; codes then
need Triton's interpreter (`TRITON_INTERPRET=1`).
"""

import copy
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import device_codes
import numpy as np
import reporting
import torch
from keep_all_tokens import without_filter
from measuring import arguments, inputs, wall_seconds
from speed import tuning

from kbq.answers import Answer
from kbq.corpus.pages import Page, Paragraph
from kbq.corpus.readers import read_corpus
from kbq.dump import page_encoder, resumable_build
from kbq.dump.page_encoder import PageEncoder
from kbq.dump.shard_writer import EncodedParagraphs, Progress, ShardWriter, page_digest
from kbq.dump.shards import Shard
from kbq.index.exact import ExactIndex
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.sample_kb import ARTICLES
from kbq.search.search import SearchContext, search

ROWS = 1_329_480  # of a shard: about as many as T-REx's pages have
DIM = 384
TOGETHER = 64  # queries
REPEAT = 5
COPIES = 40  # of the bundled articles, for one process
PROCESSES = 12  # that share the device
MANY = 300  # copies of the articles, for these


@dataclass
class Run:
    """The device, and the figures so far."""

    device: torch.device
    small: bool
    figures: dict[str, Any] = field(default_factory=dict)

    def part(self, name: str, work: Callable[["Run", dict[str, Any]], None]) -> None:
        """Do one part, and keep the figures that it reaches."""
        found = self.figures[name] = self._card()
        try:
            work(self, found)
        except Exception as error:
            found["failed"] = f"{type(error).__name__}: {str(error)[:500]}"
        print(reporting.table({name: found}))
        if not self.small:
            reporting.write("accelerator", self.figures, [], seed=0)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _card(self) -> dict[str, Any]:
        """Name the card: parts of one file may have run on several."""
        return (
            {"device": torch.cuda.get_device_name(self.device)}
            if self.device.type == "cuda"
            else {}
        )

    def forget_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> dict[str, float]:
        """Return the most memory of the device that this process has taken since the peak was
        forgotten.
        """
        if self.device.type != "cuda":
            return {}
        return {
            "GB on the device, this process": round(
                torch.cuda.max_memory_allocated(self.device) / 1e9, 2
            )
        }

    def milliseconds(self, work: Callable[[], object]) -> float:
        """Return the fewest milliseconds of some calls, after one that is not counted."""

        def whole() -> None:
            work()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)

        whole()
        return round(1000 * wall_seconds(whole, 1 if self.small else REPEAT), 3)


# Searching random vectors


def random_shard(folder: Path, rows: int) -> Shard:
    """Write a shard of random vectors, in paragraphs of 60 rows."""
    source, count = np.random.default_rng(0), rows // 60
    quarter = source.standard_normal((-(-rows // 4), DIM), np.float32)
    # Random numbers take long, so only signs differ.
    quarter = np.clip(quarter * 35, -127, 127).astype(np.int8)
    vectors = np.concatenate(
        [quarter * source.choice(np.array([-1, 1], np.int8), DIM) for _ in range(4)]
    )
    edges = source.choice(np.array([0, 1, 2, 3], np.uint8), (count, 60), p=[0.05, 0.15, 0.15, 0.65])
    text, starts, places = (
        " ".join(["word"] * 60),
        np.arange(60, dtype=np.uint32) * 5,
        np.arange(60, dtype=np.uint32),
    )
    pages = [Page(str(number), "Title", (Paragraph(0, text),)) for number in range(count)]
    sizes, logits = np.full(count, 60), np.zeros(60 * count, np.float32)
    columns = (np.tile(column, count) for column in (places, starts, starts + 4))
    writer = ShardWriter(folder, DIM, Progress())
    encoded = EncodedParagraphs(
        sizes, sizes, vectors[: 60 * count], logits, edges.ravel(), *columns
    )
    writer.append(pages, list(map(page_digest, pages)), encoded)
    writer.close()
    return Shard(folder)


def shards_like(base: Shard, count: int) -> list[Shard]:
    """Return the shard, and others of its shape with other vectors, in memory."""
    vectors = np.array(base.vectors)

    def other(number: int) -> Shard:
        source, shard = np.random.default_rng(number), copy.copy(base)
        shard.vectors = shard._scattered = np.roll(vectors, 7919 * number, axis=0)
        shard.vectors *= source.choice(np.array([-1, 1], np.int8), DIM)
        return shard

    with ThreadPoolExecutor(8) as pool:
        return [base, *pool.map(other, range(1, count))]


def queries_for(shards: Sequence[Shard]) -> np.ndarray:
    """Make start and end vectors near rows of a shard. Shape: (TOGETHER, 2, DIM)."""
    source = np.random.default_rng(2)
    rows = source.choice(len(shards[0]) - 3, TOGETHER, replace=False)
    near = np.stack([shards[0].vectors[rows], shards[0].vectors[rows + 2]], axis=1).astype(
        np.float32
    )
    noisy: np.ndarray = (near + source.standard_normal(near.shape, np.float32) * 70) / 100
    return noisy.astype(np.float32)


def compared(run: Run, found: dict[str, Any], shard: Shard) -> None:
    """Compare the device's hits with a CPU's, for queries in company and alone."""
    found["torch"] = torch.__version__
    if run.device.type == "cuda":
        found["triton"] = version("triton")
    shards = shards_like(shard, 3)
    queries = queries_for(shards)
    on_cpu, on_device = (
        SearchContext(shards, ExactIndex(shards, [device] * 3))
        for device in (torch.device("cpu"), run.device)
    )
    expected = search(on_cpu, queries, 10, "phrase")
    alone = [search(on_device, query[None], 10, "phrase")[0] for query in queries[:4]]
    found["queries"] = len(queries)
    found["queries with the same hits as on the CPU"] = sum(
        map(list.__eq__, search(on_device, queries, 10, "phrase"), expected)
    )
    found["the same alone, of 4"] = sum(map(list.__eq__, alone, expected[:4]))


def searched(run: Run, found: dict[str, Any], shard: Shard, times: int) -> None:
    """Search as many random shards, 64 queries together and one."""
    shards = shards_like(shard, times)
    queries = queries_for(shards)
    found["vectors"] = sum(map(len, shards))
    for name, columns in (("64 together", 2 * TOGETHER), ("one", 32)):  # kernels pad to 32 columns
        found[f"bare int8 product, {name}, ms"] = bare_product(run, shards, columns)
    run.forget_peak()
    context = SearchContext(shards, ExactIndex(shards, [run.device] * times))
    for name, size in (("64 together", TOGETHER), ("one", 1)):
        some_of = itertools.cycle(np.split(queries, TOGETHER // size))
        taken = run.milliseconds(lambda: search(context, next(some_of), 10, "phrase"))  # noqa: B023
        found[f"search with its answers, {name}, ms"] = taken
        found[f"queries per second, {name}"] = round(1000 * size / taken, 1)
        found[f"times the bare product, {name}"] = round(
            taken / found[f"bare int8 product, {name}, ms"], 2
        )
    found |= run.peak()


def bare_product(run: Run, shards: Sequence[Shard], columns: int) -> float:
    """Return the milliseconds that all rows take to be multiplied with so many columns."""
    rows = [torch.from_numpy(np.array(shard.vectors)).to(run.device) for shard in shards]
    matrix = torch.randint(-127, 128, (columns, DIM), dtype=torch.int8, device=run.device).T

    def multiply() -> None:
        for part in rows:  # together, the products would take more memory than the rows
            torch._int_mm(part, matrix)

    return run.milliseconds(multiply)


# Encoding, asking and tuning with the bundled articles


def articles(copies: int) -> list[Page]:
    """Return the bundled articles, several times."""
    pages = list(read_corpus(str(ARTICLES)))
    return [
        replace(page, page_id=f"{page.page_id} {copy}") for copy in range(copies) for page in pages
    ]


def encoded(run: Run, found: dict[str, Any]) -> None:
    """Measure tokens a second of one process, a build and several processes, and compare vectors
    with the CPU's.
    """
    pages = articles(1 if run.small else COPIES)
    model = Model.open("default", str(run.device))
    blocks = list(resumable_build._blocks(iter(pages)))
    PageEncoder(model)(blocks[0])  # warm
    done = list(encodings(model, blocks, 1))
    found |= {
        "tokens": done[-1][1],
        "one process, tokens per second": round(done[-1][1] / done[-1][0]),
    }
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        kb = KnowledgeBase.build(pages, Path(folder) / "kb", model, index="exact", bm25=False)
        found["build, one process, tokens per second"] = round(
            kb.counts.tokens / (time.monotonic() - begun)
        )
    several = 2 if run.small else PROCESSES
    done = list(
        encodings(
            model, list(resumable_build._blocks(iter(articles(2 if run.small else MANY)))), several
        )
    )
    (begun, before), (ended, tokens) = done[min(3 * several, len(done) - 2)], done[-1]
    found[f"{several} processes, tokens per second"] = round((tokens - before) / (ended - begun))
    found[f"{several} processes with their start, tokens per second"] = round(tokens / ended)
    few = articles(1)[:20]
    on_device, on_cpu = (
        without_filter(Model.open("default", device)) for device in (str(run.device), "cpu")
    )
    one, other = (PageEncoder(each)(few).vectors.astype(np.float32) for each in (on_device, on_cpu))
    cosines = (
        (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    )
    found["mean cosine to the CPU's"] = float(cosines.mean())


def encodings(model: Model, blocks: Sequence[Any], count: int) -> Iterator[tuple[float, int]]:
    """Encode in so many processes; yield the seconds and tokens so far after each block, and once
    before.
    """
    begun, tokens = time.monotonic(), 0
    yield 0.0, 0
    for _, block in page_encoder.encode_blocks(
        model, blocks, lambda block: block, page_encoder.processes(count)
    ):
        tokens += int(block.tokens.sum())
        yield time.monotonic() - begun, tokens


def asked(run: Run, found: dict[str, Any]) -> None:
    """Ask the sample knowledge base with and without reranking, and compare the answers with a
    CPU's.
    """
    texts = inputs(ARTICLES.parent / "queries.jsonl")[: 22 if run.small else 4 * TOGETHER]
    kb, on_cpu = (KnowledgeBase.sample(device=device) for device in (str(run.device), "cpu"))
    for n_reranked in (0, 10):
        ask: Callable[[Sequence[str]], list[list[Answer]]] = partial(
            kb.query, k=10, rerank=n_reranked
        )
        answers, first, name = ask(texts), ask(texts[:1])[0], f"reranking {n_reranked}"
        found[f"{name}, queries per second"] = round(
            1000 * len(texts) / run.milliseconds(partial(ask, texts)), 1
        )
        each = [1000 * wall_seconds(partial(ask, [text])) for text in texts[1:20]]
        found[f"{name}, one alone, ms: median, most"] = [
            round(float(np.median(each)), 1),
            round(max(each), 1),
        ]
        expected = on_cpu.query(texts[:TOGETHER], k=10, rerank=n_reranked)
        same = [
            bool(a and b and a[0].text == b[0].text)
            for a, b in zip(answers, expected, strict=False)
        ]
        found[f"{name}, the best answer is the CPU's, of {len(same)}"] = sum(same)
        found[f"{name}, one alone has the same answers as in company"] = first == answers[0]
    several, copies = (2, 1) if run.small else (PROCESSES, 4 * PROCESSES)
    with KnowledgeBase.sample(device=str(run.device), workers=several) as kb:
        found[f"{several} processes have the same answers"] = (
            kb.query(texts, k=10, rerank=10) == answers
        )
        for n_reranked in (0, 10):
            taken = wall_seconds(partial(kb.query, texts * copies, k=10, rerank=n_reranked))
            name = f"{several} processes, reranking {n_reranked}, queries per second"
            found[name] = round(copies * len(texts) / taken, 1)


def tuned(run: Run, found: dict[str, Any]) -> None:
    """Measure steps a second of tuning a query encoder, 24 queries a step, on the sample knowledge
    base.
    """
    kb = KnowledgeBase.sample(device=str(run.device))
    texts = inputs(ARTICLES.parent / "queries.jsonl")[: 24 if run.small else 480]
    with tempfile.TemporaryDirectory() as folder:
        seen: list[float] = []
        tuning(kb, texts, 24).run(
            Path(folder) / "one.pt", lambda step: seen.append(time.monotonic())
        )
        if len(seen) > 6:  # the first steps load libraries and compile
            found["steps per second"] = round((len(seen) - 5) / (seen[-1] - seen[4]), 2)


def main() -> None:
    options = arguments(
        __doc__, what=frozenset(("rows", "codes")), device="cuda", small=False, corpus=None
    )
    run = Run(torch.device(options.device), options.small)
    if options.what == "codes":
        run.figures |= {} if options.small else earlier_figures()
        for name, work in device_codes.parts(run, options.corpus):
            run.part(name, work)
        return
    with tempfile.TemporaryDirectory() as folder:
        shard = random_shard(Path(folder) / "shard-00000", 600 if options.small else ROWS)
        run.part("hits equal the CPU's", partial(compared, shard=shard))
        run.part("search of 1.3 million", partial(searched, shard=shard, times=1))
        run.part("text to answer", asked)
        run.part("encoding", encoded)
        run.part(
            "search of 9.3 million", partial(searched, shard=shard, times=2 if options.small else 7)
        )
        run.part(
            "search of 46.5 million",
            partial(searched, shard=shard, times=3 if options.small else 35),
        )
        run.part("tuning", tuned)


def earlier_figures() -> dict[str, Any]:
    """What the other parts have measured, which stays in the file."""
    path = reporting.RESULTS / "accelerator.json"
    figures: dict[str, Any] = (
        json.loads(path.read_text("utf-8"))["figures"] if path.exists() else {}
    )
    return figures


if __name__ == "__main__":
    main()
