"""Accelerator: what a GPU does for kbq, beside the bare product and copy of the same run.

    python benchmarks/accelerator.py [--device cuda] [--small]

It makes its own data: the bundled articles, several times, and random vectors. Seconds are wall time, with all that the
CPU does for the GPU. Figures are written after each part; one that fails says why, and the others go on. `--small`
writes nothing and shows that it runs: with TRITON_INTERPRET=1 and `--device cpu`, on any machine.
"""

import copy
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import reporting
import torch
from keep_all_tokens import without_filter
from measuring import arguments, inputs, wall_seconds
from speed import tuning

from kbq.corpus.pages import Page, Paragraph
from kbq.corpus.readers import read_corpus
from kbq.dump import building, page_encoder
from kbq.dump.page_encoder import PageEncoder
from kbq.dump.shard_writer import EncodedParagraphs, Progress, ShardWriter, page_digest
from kbq.dump.shards import Shard
from kbq.index import exact
from kbq.index.exact import ExactIndex
from kbq.index.gpu_rows import GpuRows
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.sample_kb import ARTICLES
from kbq.search.search import SearchContext, search

ROWS = 1_329_480  # of a shard: T-REx's pages, and some
DIM = 384
TOGETHER = 64  # queries
REPEAT = 5
COPIES = 40  # of the bundled articles
PROCESSES = 12  # that share the device
MANY = 300  # copies of the articles, for these


@dataclass
class Run:
    """The device, and the figures so far."""

    device: torch.device
    small: bool
    figures: dict[str, Any] = field(default_factory=dict)

    def part(self, name: str, work: Callable[["Run", dict[str, Any]], None]) -> None:
        """Do one part; its figures are kept as far as it comes."""
        begun, found = time.monotonic(), self.figures.setdefault(name, {})
        try:
            work(self, found)
        except Exception as error:
            found["failed"] = f"{type(error).__name__}: {str(error)[:500]}"
        found["section seconds"] = round(time.monotonic() - begun, 1)
        print(reporting.table({name: found}))
        if not self.small:
            reporting.write("accelerator", self.figures, [], seed=0)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def milliseconds(self, work: Callable[[], object], repeat: int = REPEAT) -> float:
        """Return the fewest milliseconds of some calls, after one that is not counted."""

        def whole() -> None:
            work()
            self.wait()

        whole()
        return round(1000 * wall_seconds(whole, 1 if self.small else repeat), 3)


def limits(run: Run, found: dict[str, Any]) -> None:
    """Measure what the device can do at best."""
    found["torch"], found["device"] = torch.__version__, "the CPU itself"
    if run.device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(run.device)
        found["GB"] = round(torch.cuda.get_device_properties(run.device).total_memory / 1e9, 1)
        found["triton"] = version("triton")
    rows = random_rows(run, 100_000 if run.small else 10_000_000)
    for columns in (32, 128):
        others = random_rows(run, columns).T
        name = f"int8 product of {len(rows)} rows with {columns} columns, ms"
        found[name] = run.milliseconds(lambda: torch._int_mm(rows, others))  # noqa: B023
    other = torch.empty_like(rows)
    taken = run.milliseconds(lambda: other.copy_(rows))
    found["copy GB/s, read and written"] = round(2 * rows.numel() / taken / 1e6)
    size = 512 if run.small else 8192
    matrix = torch.randn(size, size, device=run.device, dtype=torch.bfloat16)
    found["bf16 product, TFLOP/s"] = round(2 * size**3 / run.milliseconds(lambda: matrix @ matrix) / 1e9, 1)


def random_rows(run: Run, count: int) -> torch.Tensor:
    """Make rows like those of a dump. Shape: (count, DIM), int8."""
    source = torch.Generator(run.device).manual_seed(count)
    rows = torch.empty((count, DIM), dtype=torch.int8, device=run.device)
    for part in rows.split(1_000_000):
        part.copy_(torch.randn(part.shape, device=run.device, generator=source).mul_(35).clamp_(-127, 127))
    return rows


def random_shard(folder: Path, rows: int) -> Shard:
    """Write a shard of random vectors, in paragraphs of 60 rows."""
    source, count = np.random.default_rng(0), rows // 60
    quarter = source.standard_normal((-(-rows // 4), DIM), np.float32)
    quarter = np.clip(quarter * 35, -127, 127).astype(np.int8)  # random numbers take long: other signs make others
    vectors = np.concatenate([quarter * source.choice(np.array([-1, 1], np.int8), DIM) for _ in range(4)])
    edges = source.choice(np.array([0, 1, 2, 3], np.uint8), (count, 60), p=[0.05, 0.15, 0.15, 0.65])
    text, starts, places = " ".join(["word"] * 60), np.arange(60, dtype=np.uint32) * 5, np.arange(60, dtype=np.uint32)
    pages = [Page(str(number), "Title", (Paragraph(0, text),)) for number in range(count)]
    sizes, logits = np.full(count, 60), np.zeros(60 * count, np.float32)
    columns = (np.tile(column, count) for column in (places, starts, starts + 4))
    writer = ShardWriter(folder, DIM, Progress())
    encoded = EncodedParagraphs(sizes, sizes, vectors[: 60 * count], logits, edges.ravel(), *columns)
    writer.append(pages, list(map(page_digest, pages)), encoded)
    writer.close()
    return Shard(folder)


def others(base: Shard, count: int) -> list[Shard]:
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
    near = np.stack([shards[0].vectors[rows], shards[0].vectors[rows + 2]], axis=1).astype(np.float32)
    noisy: np.ndarray = (near + source.standard_normal(near.shape, np.float32) * 70) / 100
    return noisy.astype(np.float32)


def multiplied_by(kind: type) -> AbstractContextManager[object]:
    """Have an exact index that is opened meanwhile multiply its rows in this way."""
    return patch.object(exact, "kind_for", lambda device, dim: kind)


def checked(run: Run, found: dict[str, Any]) -> None:
    """Compare the kernels with PyTorch's products and a CPU, in random shards and in ties."""
    begun = time.monotonic()
    kernels = found["kernels work"] = exact.kernels_work(run.device, DIM)  # type: ignore[attr-defined]
    found["seconds to compile and check"] = round(time.monotonic() - begun, 1)
    with tempfile.TemporaryDirectory() as folder:
        shard = random_shard(Path(folder) / "shard-00000", 600 if run.small else 60_000)
        shards = others(shard, 3)
        queries = queries_for(shards)[: 2 if run.small else TOGETHER]
        with multiplied_by(exact._BlockedRows):
            on_cpu = search(SearchContext(shards, ExactIndex(shards, [torch.device("cpu")] * 3)), queries, 10, "phrase")
        kinds = {"kernels": GpuRows if kernels else exact._BlockedRows, "PyTorch's products": exact._BlockedRows}
        for name, kind in kinds.items():
            with multiplied_by(kind):
                index = ExactIndex(shards, [run.device] * 3)
            same = search(SearchContext(shards, index), queries, 10, "phrase")
            alone = [search(SearchContext(shards, index), query[None], 10, "phrase")[0] for query in queries[:4]]
            found[f"queries with the same hits as on the CPU, {name}"] = sum(map(list.__eq__, same, on_cpu))
            found[f"the same alone, {name}"] = sum(map(list.__eq__, alone, on_cpu))
        found["queries"] = len(queries)
        for shard in shards[1:]:
            shard.vectors[:] = 3
        index = ExactIndex(shards[1:], [run.device] * 2)
        ties = search(SearchContext(shards[1:], index), queries[:2], 5, "phrase")
        with multiplied_by(exact._BlockedRows):
            context = SearchContext(shards[1:], ExactIndex(shards[1:], [torch.device("cpu")] * 2))
        plain = search(context, queries[:2], 5, "phrase")
        found["queries with the same hits among equal rows, of 2"] = sum(map(list.__eq__, ties, plain))


def searched(times: int) -> Callable[[Run, dict[str, Any]], None]:
    """Return a part that searches as many random shards."""

    def work(run: Run, found: dict[str, Any]) -> None:
        base = shard_of(run)
        shards = others(base, times)
        queries = queries_for(shards)
        found["vectors"] = sum(map(len, shards))
        if run.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(run.device)
        begun = time.monotonic()
        index = ExactIndex(shards, [run.device] * times)
        run.wait()
        found["opening, seconds"] = round(time.monotonic() - begun, 1)
        (part,) = index._parts
        if isinstance(part, GpuRows):
            for name, columns in (("64 together", 2 * TOGETHER), ("one", 32)):
                matrix = random_rows(run, columns).T
                parts = part._vectors.split(4_000_000)
                found[f"bare int8 product, {name}, ms"] = run.milliseconds(partial(multiplied, parts, matrix), 3)
        context = SearchContext(shards, index)
        for name, size in (("64 together", TOGETHER), ("one", 1)):
            some_of = itertools.cycle(np.split(queries, TOGETHER // size))
            taken = run.milliseconds(lambda: search(context, next(some_of), 10, "phrase"))  # noqa: B023
            found[f"search with its answers, {name}, ms"] = taken
            found[f"queries per second, {name}"] = round(1000 * size / taken, 1)
            if f"bare int8 product, {name}, ms" in found:
                found[f"times the bare product, {name}"] = round(taken / found[f"bare int8 product, {name}, ms"], 2)
        if run.device.type == "cuda":
            found["GB on the device, this process"] = round(torch.cuda.max_memory_allocated(run.device) / 1e9, 2)
        if times == 1:
            with multiplied_by(exact._BlockedRows):
                plain = SearchContext(shards, ExactIndex(shards, [run.device]))
            for name, size in (("64 together", TOGETHER), ("one", 1)):
                taken = run.milliseconds(partial(search, plain, queries[:size], 10, "phrase"), 3)
                found[f"with PyTorch's products, {name}, ms"] = taken
            same = map(list.__eq__, *(search(each, queries, 10, "phrase") for each in (context, plain)))
            found["queries with the same hits as PyTorch's products"] = sum(same)

    return work


def multiplied(parts: Sequence[torch.Tensor], matrix: torch.Tensor) -> None:
    """Multiply all rows, a part at a time: together, the products would take more memory than the rows."""
    for part in parts:
        torch._int_mm(part, matrix)


def shard_of(run: Run) -> Shard:
    """Return the random shard, which is made once."""
    folder = shard_folder()
    folder.parent.mkdir(exist_ok=True)
    return Shard(folder) if folder.exists() else random_shard(folder, 600 if run.small else ROWS)


def shard_folder() -> Path:
    """Return the place of this process's random shard."""
    return Path(tempfile.gettempdir()) / f"kbq-accelerator-{os.getpid()}" / "shard-00000"


def articles(copies: int) -> list[Page]:
    """Return the bundled articles, several times."""
    pages = list(read_corpus(str(ARTICLES)))
    return [replace(page, page_id=f"{page.page_id} {copy}") for copy in range(copies) for page in pages]


def encoded(run: Run, found: dict[str, Any]) -> None:
    """Measure tokens a second of a process, a build and the network alone, and compare vectors with the CPU's."""
    pages = articles(1 if run.small else COPIES)
    model = Model.open("default", str(run.device))
    blocks = list(building._blocks(iter(pages)))
    PageEncoder(model)(blocks[0])  # warm

    def encode() -> list[Any]:
        return [block for _, block in page_encoder.encode_blocks(model, blocks, lambda block: block)]

    begun = time.monotonic()
    tokens = sum(int(block.tokens.sum()) for block in encode())
    taken = time.monotonic() - begun
    found |= {"tokens": tokens, "one process, tokens per second": round(tokens / taken)}
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        kb = KnowledgeBase.build(pages, Path(folder) / "kb", model, index="exact", bm25=False)
        found["build, one process, tokens per second"] = round(kb.counts.tokens / (time.monotonic() - begun))
    several = 2 if run.small else PROCESSES
    blocks, done = list(building._blocks(iter(articles(2 if run.small else MANY)))), [(0.0, 0)]
    begun = time.monotonic()
    for _, block in page_encoder.encode_blocks(model, blocks, lambda block: block, page_encoder.processes(several)):
        done.append((time.monotonic() - begun, done[-1][1] + int(block.tokens.sum())))
    (begun, before), (ended, tokens) = done[min(3 * several, len(done) - 2)], done[-1]
    found[f"{several} processes, tokens per second"] = round((tokens - before) / (ended - begun))
    found[f"{several} processes with their start, tokens per second"] = round(tokens / ended)
    few = articles(1)[:20]
    on_device, on_cpu = (without_filter(Model.open("default", device)) for device in (str(run.device), "cpu"))
    one, other = (PageEncoder(each)(few).vectors.astype(np.float32) for each in (on_device, on_cpu))
    cosines = (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    found |= {"mean cosine to the CPU's": float(cosines.mean()), "least cosine": float(cosines.min())}


def asked(run: Run, found: dict[str, Any]) -> None:
    """Ask the sample knowledge base with and without reranking, and compare the answers with a CPU's."""
    texts = inputs(ARTICLES.parent / "queries.jsonl")[: 22 if run.small else 4 * TOGETHER]
    kb, on_cpu = (KnowledgeBase.sample(device=device) for device in (str(run.device), "cpu"))
    for n_reranked in (0, 10):
        name = f"reranking {n_reranked}"

        def ask(part: Sequence[str], n_reranked: int = n_reranked) -> object:
            return kb.query(part, k=10, rerank=n_reranked)

        begun = time.monotonic()
        first = kb.query(texts[:1], k=10, rerank=n_reranked)
        found[f"{name}, the first query, ms"] = round(1000 * (time.monotonic() - begun), 1)
        begun = time.monotonic()
        answers = kb.query(texts, k=10, rerank=n_reranked)
        found[f"{name}, all for the first time, queries per second"] = round(len(texts) / (time.monotonic() - begun), 1)
        found[f"{name}, queries per second"] = round(1000 * len(texts) / run.milliseconds(lambda: ask(texts), 2), 1)
        each = []
        for text in texts[1:20]:
            begun = time.monotonic()
            ask([text])
            each.append(1000 * (time.monotonic() - begun))
        found[f"{name}, one alone, ms: median, most"] = [round(float(np.median(each)), 1), round(max(each), 1)]
        expected = on_cpu.query(texts[:TOGETHER], k=10, rerank=n_reranked)
        same = [bool(a and b and a[0].text == b[0].text) for a, b in zip(answers, expected, strict=False)]
        found[f"{name}, the best answer is the CPU's, of {len(same)}"] = sum(same)
        found[f"{name}, one alone has the same answers as in company"] = first[0] == answers[0]
    several = 2 if run.small else PROCESSES
    with KnowledgeBase.sample(device=str(run.device), workers=several) as kb:
        begun, copies = time.monotonic(), 1 if run.small else 4 * several
        found[f"{several} processes have the same answers"] = kb.query(texts, k=10, rerank=10) == answers
        found[f"{several} processes, the first {len(texts)} queries, seconds"] = round(time.monotonic() - begun, 1)
        for n_reranked in (0, 10):
            begun = time.monotonic()
            kb.query(texts * copies, k=10, rerank=n_reranked)
            taken = time.monotonic() - begun
            found[f"{several} processes, reranking {n_reranked}, queries per second"] = round(
                copies * len(texts) / taken, 1
            )


def tuned(run: Run, found: dict[str, Any]) -> None:
    """Measure steps a second of tuning a query encoder, 24 queries a step, on the sample knowledge base."""
    kb = KnowledgeBase.sample(device=str(run.device))
    texts = inputs(ARTICLES.parent / "queries.jsonl")[: 24 if run.small else 480]
    with tempfile.TemporaryDirectory() as folder:
        seen: list[float] = []
        tuning(kb, texts, 24).run(Path(folder) / "one.pt", lambda step: seen.append(time.monotonic()))
        if len(seen) > 6:  # the first ones load libraries and compile
            found["steps per second"] = round((len(seen) - 5) / (seen[-1] - seen[4]), 2)


def main() -> None:
    options = arguments(__doc__, device="cuda", small=False)
    run = Run(torch.device(options.device), options.small)
    if options.device == "cpu" and "TRITON_INTERPRET" in os.environ:
        exact.kernels_work = lambda device, dim: True  # type: ignore[attr-defined]
        exact.kind_for = lambda device, dim: GpuRows
    run.part("limits", limits)
    run.part("kernels equal PyTorch and the CPU", checked)
    run.part("search of 1.3 million", searched(1))
    run.part("text to answer", asked)
    run.part("encoding", encoded)
    run.part("search of 9.3 million", searched(2 if run.small else 7))
    run.part("search of 46.5 million", searched(3 if run.small else 35))
    run.part("tuning", tuned)
    shutil.rmtree(shard_folder().parent, ignore_errors=True)


if __name__ == "__main__":
    main()
