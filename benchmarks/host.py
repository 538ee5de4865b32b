"""Host: what a processor does for a device that takes no time, for each token that is encoded and each query.

    OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false python benchmarks/host.py [--label after]

A network stands for the device: it gives the same vectors for whatever it reads, at once. What is left is what limits a
GPU. Seconds are those of one CPU thread; reading text in pieces is told apart, as it takes all cores where there are
several. Operations and bytes are those that PyTorch is asked for, and makes, while a query is answered: on a GPU, every
operation is a launch. The path of GPUs is taken on the CPU for it.
"""

import argparse
import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import reporting
import torch
from measuring import cpu_seconds, inputs
from torch.utils._python_dispatch import TorchDispatchMode

from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.dump import building, page_encoder, workers
from kbq.dump.page_encoder import EXTRA, KEPT, encode_pages
from kbq.dump.shards import CLOSES, OPENS
from kbq.index.base import Candidates
from kbq.kb import KnowledgeBase
from kbq.model import bert, phrases
from kbq.model.model import Model
from kbq.model.phrases import EncodedBatch
from kbq.model.windows import tokenize
from kbq.reading import phrase_windows
from kbq.sample_kb import ARTICLES
from kbq.search.search import SearchContext, search

COPIES = 6  # of the bundled articles
QUERIES, ALONE = 64, 16
GPU_BATCH = 65536  # tokens
RUNS = 5
SHARE = 0.4  # of the tokens, which the filter keeps


class Counted(TorchDispatchMode):
    """Counts what PyTorch does."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.bytes = 0, 0

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        result = operation(*given, **(named or {}))
        made = [one for one in (result if isinstance(result, tuple | list) else (result,)) if torch.is_tensor(one)]
        sources = {one.untyped_storage().data_ptr() for one in given if torch.is_tensor(one)}
        new = [one for one in made if one.untyped_storage().data_ptr() not in sources]
        self.operations += bool(new) or not made
        self.bytes += sum(one.numel() * one.element_size() for one in new)
        return result


@contextlib.contextmanager
def no_network(model: Model) -> Iterator[None]:
    """Every BERT gives the same numbers, at once, and tokens come back as if a GPU had chosen and rounded them."""
    source, dim = torch.Generator().manual_seed(0), model.dim
    states = torch.randn((2 * GPU_BATCH, dim), generator=source)
    tokens = torch.randint(-127, 128, (2 * GPU_BATCH, dim + EXTRA), generator=source).to(torch.int8)
    tokens[:, dim:] = 0
    several = itertools.cycle([tokens.clone() for _ in range(4)])  # as batches wait for each other
    flags = ((torch.rand(2 * GPU_BATCH, generator=source) < SHARE) * (KEPT + OPENS + CLOSES)).to(torch.int8)

    def forward(self: Any, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None) -> Any:
        return bert.Encoded(states[: input_ids.numel()].view(*input_ids.shape, dim))

    def asked_for(self: Any, batch: EncodedBatch) -> Any:
        found = next(several)[: batch.own.numel()]
        found[:, -1] = flags[: len(found)] * batch.own.flatten()
        return page_encoder._Batch(np.array(batch.members), batch.own.shape[1], None, found)

    replaced = [
        (bert.Bert, "forward", forward),
        (page_encoder.PageEncoder, "_asked_for", asked_for),
        (model.phrases.filter, "forward", lambda vectors: vectors[:, :, :2]),
    ]
    with as_on_a_gpu(), instead(replaced):
        yield


@contextlib.contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Batches and paths are those of a GPU."""
    replaced = [
        (phrases, "batch_tokens", lambda device: GPU_BATCH),
        (phrase_windows, "batch_tokens", lambda device: GPU_BATCH),
        (phrase_windows, "is_batch_invariant", lambda network, device: False),
    ]
    with instead(replaced):
        yield


@contextlib.contextmanager
def instead(replaced: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Something else under these names of these owners."""
    with contextlib.ExitStack() as stack:
        for one in replaced:
            stack.enter_context(patch.object(*one))
        yield


def encoding(pages: Sequence[Page], model: Model) -> dict[str, Any]:
    """Microseconds a token, from pages to the tokens that are kept, and from these to files."""
    blocks = list(building._blocks(iter(pages)))
    texts = [paragraph.text[paragraph.begin :] for page in pages for paragraph in page.paragraphs]
    titles = [page.title for page in pages]
    with no_network(model):
        encoded = [encode_pages(model, block) for block in blocks]
        tokens = sum(one.tokens for block in encoded for page in block for one in page)
        kept = sum(len(one.positions) for block in encoded for page in block for one in page)

        def encode() -> None:
            for _ in workers.encode_blocks(model, blocks, lambda block: block):
                pass

        whole = cpu_seconds(encode, RUNS)
    inner = model.tokenizer.backend_tokenizer
    pieces = cpu_seconds(lambda: [inner.encode_batch(part, add_special_tokens=False) for part in (titles, texts)], RUNS)
    prepared = cpu_seconds(lambda: [tokenize(model.tokenizer, part) for part in (titles, texts)], RUNS)
    with tempfile.TemporaryDirectory() as folder:
        places = iter(Path(folder) / str(number) for number in range(RUNS))

        def write() -> None:
            given = iter(encoded)
            building.build_shards(pages, model, next(places), 0, lambda counts: None, encode=lambda block: next(given))

        written = cpu_seconds(write, RUNS)
    micro = 1e6 / tokens
    return {
        "tokens": tokens,
        "kept": kept,
        "paragraphs": len(texts),
        "µs a token, all of encoding": round(whole * micro, 2),
        "of these: tokenizer (tokenizers, all cores)": round(pieces * micro, 2),
        "of these: whole words": round((prepared - pieces) * micro, 2),
        "µs a token, all but the tokenizer": round((whole - pieces) * micro, 2),
        "µs a token, from kept tokens to files": round(written * micro, 2),
    }


class KnownIndex:
    """Gives the candidates that were found before."""

    def __init__(self, context: SearchContext) -> None:
        self._inner = context.index
        self._known: dict[tuple[bytes, int], list[list[Candidates]]] = {}
        (group,) = context.index.groups
        self.groups = [type(group)(group.first, group.shards, self)]

    def candidates(self, starts: Any, ends: Any, k: int, bonus: Any = None) -> list[list[Candidates]]:
        key = starts.tobytes(), k
        if key not in self._known:
            self._known[key] = self._inner.candidates(starts, ends, k, bonus)
        return self._known[key]


def answering(kb: KnowledgeBase, texts: list[str]) -> dict[str, Any]:
    """Milliseconds a query of a search whose index takes no time, and of reranking whose network takes none."""
    context = kb.search_context
    known = SearchContext(context.shards, KnownIndex(context), context.length_penalty)
    starts, ends = kb.model.encode_queries(texts)
    queries = kb.model.in_row_units(starts, ends)

    def alone() -> None:
        for number in range(ALONE):
            search(known, queries[number : number + 1], 10, "phrase")

    figures = {
        "search, ms a query, 64 together": round(
            1000 * warm(lambda: search(known, queries, 10, "phrase")) / QUERIES, 3
        ),
        "search, ms a query, one alone": round(1000 * warm(alone) / ALONE, 3),
    }
    found = kb.query(texts, k=10, backend="dense", rerank=0)
    with no_network(kb.model):

        def look(together: int, count: int) -> Callable[[], None]:
            def work() -> None:
                for first in range(0, count, together):
                    part = slice(first, min(count, first + together))
                    kb.reranking.rerank_found(texts[part], found[part], 1.0)

            return work

        figures["reranking, ms a query, 64 together"] = round(1000 * warm(look(QUERIES, QUERIES)) / QUERIES, 3)
        figures["reranking, ms a query, one alone"] = round(1000 * warm(look(1, ALONE)) / ALONE, 3)
    with as_on_a_gpu():
        for name, together in (("64 together", QUERIES), ("one alone", 1)):
            count = QUERIES if together > 1 else ALONE
            with Counted() as counted:
                look(together, count)()
            figures[f"reranking with its network, operations a query, {name}"] = round(counted.operations / count)
            figures[f"reranking with its network, MB made a query, {name}"] = round(counted.bytes / count / 1e6, 1)
    return figures


def warm(work: Callable[[], object]) -> float:
    """CPU seconds, when everything was done once before."""
    work()
    return cpu_seconds(work, RUNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--label", default="after", help="of these figures; those of other labels are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kb = KnowledgeBase.sample(device="cpu")
    questions = inputs(ARTICLES.parent / "queries.jsonl")
    figures = {"answering": answering(kb, questions[:QUERIES])}
    articles = list(read_corpus(str(ARTICLES)))
    pages = [replace(page, id=f"{page.id} {copy}") for copy in range(COPIES) for page in articles]
    figures["encoding"] = encoding(pages, Model.open("default", "cpu"))
    path = reporting.RESULTS / "host.json"
    before = json.loads(path.read_text("utf-8"))["figures"] if path.exists() else {}
    reporting.write("host", before | {options.label: figures}, [ARTICLES])


if __name__ == "__main__":
    main()
