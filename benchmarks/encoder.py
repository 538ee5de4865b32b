"""Encoder: tokens per second of paragraphs, against the fastest matrix product of the same run; and what is padding.

    python benchmarks/encoder.py CORPUS [--paragraphs 2000] [--threads 2]

The share counts what real tokens need: linear layers, and attention within each window. `before` is autocast with plain
attention; the ways are measured by turns. How far vectors are from those of float32 is said as cosines.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import reporting
import torch

from kbq.corpus import read_corpus
from kbq.encoding import phrases
from kbq.encoding.backbone import autocast, buckets, hidden_states
from kbq.encoding.model import Model
from kbq.encoding.windows import Window, tokenize, windows

ROUNDS = 3


def windows_of(corpus: Path, model: Model, most: int) -> list[Window]:
    """The windows of the first paragraphs."""
    pages = read_corpus(str(corpus))
    some = list(islice(((page.title, text) for page in pages for text in page.paragraphs), most))
    titles = tokenize(model.tokenizer, [title for title, _ in some])
    texts = tokenize(model.tokenizer, [paragraph.text[paragraph.begin :] for _, paragraph in some])
    pairs = zip(titles, texts, strict=True)
    return [
        window for title, text in pairs for window in windows(model.tokenizer, title.ids, text, model.config.window)
    ]


def operations(model: Model, lengths: list[int]) -> float:
    """Multiplications and additions for windows of these lengths."""
    config = model.phrases.backbone.config
    dim, layers = config.hidden_size, config.num_hidden_layers
    linear = layers * (4 * dim**2 + 2 * dim * config.intermediate_size)
    return sum(2.0 * length * (linear + 2 * layers * length * dim) for length in lengths)


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def peak(size: int = 2048) -> float:
    """Operations per second of square bf16 matrices, the best of some."""
    one = torch.randn(size, size, dtype=torch.bfloat16)
    return max(2 * size**3 / seconds(lambda: one @ one) for _ in range(20))


def encoded(model: Model, batch: list[Window]) -> np.ndarray:
    """The vectors of all tokens, in order. Shape: (tokens, dim)."""
    parts = phrases.encode_windows(model.phrases, batch, model.tokenizer.pad_token_id, model.uses_segments)
    return np.concatenate([vectors for _, vectors, _ in sorted(parts, key=lambda part: part[0])])


@contextmanager
def before() -> Iterator[None]:
    """Products alone in 16 bits, plain attention."""

    def states(*arguments: Any) -> torch.Tensor:
        with autocast(torch.device("cpu")):
            return hidden_states(*arguments)

    with in_float32(), mock.patch.object(phrases, "hidden_states", states):
        yield


@contextmanager
def in_float32() -> Iterator[None]:
    with mock.patch.object(phrases, "fast_copy", lambda backbone, device: backbone):
        yield


now = nullcontext  # as kbq encodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--paragraphs", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = Model.open("default", "cpu")
    batch = windows_of(options.corpus, model, options.paragraphs)
    lengths = [len(window.ids) for window in batch]
    padded = sum(len(part) * max(lengths[i] for i in part) for part in buckets(lengths, phrases.BATCH_TOKENS))
    with in_float32():
        truth = encoded(model, batch)
    fastest = 0.0
    taken: dict[str, float] = {}
    cosines: dict[str, float] = {}
    for _ in range(ROUNDS):
        fastest = max(fastest, peak())
        for name, way in (("before", before), ("now", now)):
            with way():
                begun = time.perf_counter()
                vectors = encoded(model, batch)
                taken[name] = min(taken.get(name, np.inf), time.perf_counter() - begun)
            lengths_of = np.linalg.norm(truth, axis=1) * np.linalg.norm(vectors, axis=1)
            cosines[name] = float(((truth * vectors).sum(axis=1) / lengths_of).mean())
    figures: dict[str, object] = {
        "threads": options.threads,
        "windows": len(batch),
        "tokens": sum(lengths),
        "padding, percent": round(100 * (1 - sum(lengths) / padded), 1),
        "fastest product, GFLOP/s": round(fastest / 1e9),
    }
    for name, best in taken.items():
        figures[name] = {
            "tokens per second": round(sum(lengths) / best),
            "share of the fastest product, percent": round(100 * operations(model, lengths) / best / fastest, 1),
            "mean cosine to float32": round(cosines[name], 6),
        }
    reporting.write("encoder", figures, [options.corpus])


if __name__ == "__main__":
    main()
