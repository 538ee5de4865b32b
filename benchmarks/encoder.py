"""Encoder: measure tokens per second of paragraphs, beside the fastest matrix product of the same
run.

    python benchmarks/encoder.py CORPUS… [--paragraphs 2000] [--threads 2] [--name encoder]

The share of that product counts the operations that real tokens need: linear layers, and attention
within each window. Cosines compare vectors with those of float32. Also measured: padding, the
default model's size on the disk and in memory, and the time to encode one query.
"""

import statistics
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import reporting
import torch
from measuring import arguments, megabytes, wall_seconds

from kbq.corpus.readers import read_corpus
from kbq.model import model as phrases
from kbq.model.devices import batch_tokens, buckets, fast_dtype
from kbq.model.model import Model
from kbq.model.model_folder import DEFAULT_MODEL, WEIGHTS
from kbq.model.tokenizer import Window, tokenize, windows

ROUNDS = 3


def windows_of(corpus: Path, model: Model, most: int) -> list[Window]:
    """Return the windows of the first paragraphs."""
    pages = read_corpus(str(corpus))
    some = list(islice(((page.title, text) for page in pages for text in page.paragraphs), most))
    titles = tokenize(model.tokenizer, [title for title, _ in some])
    texts = tokenize(model.tokenizer, [paragraph.text[paragraph.begin :] for _, paragraph in some])
    pairs = zip(titles, texts, strict=True)
    return [
        window
        for title, text in pairs
        for window in windows(model.tokenizer, title.ids, text, model.config.window)
    ]


def operations(model: Model, lengths: list[int]) -> float:
    """Count multiplications and additions for windows of these lengths."""
    config = model.phrases.backbone.config
    dim, layers = config.hidden_size, config.num_hidden_layers
    linear = layers * (4 * dim**2 + 2 * dim * config.intermediate_size)
    return sum(2.0 * length * (linear + 2 * layers * length * dim) for length in lengths)


def peak(size: int = 2048) -> float:
    """Return the operations per second of the fastest product of square matrices, in the type that
    kbq encodes in.
    """
    one = torch.randn(size, size, dtype=fast_dtype(torch.device("cpu")))
    return max(2 * size**3 / wall_seconds(lambda: one @ one) for _ in range(20))


def encoded(model: Model, batch: list[Window]) -> np.ndarray:
    """Return the vectors of all tokens, in order. Shape: (tokens, dim)."""
    parts = phrases.encode_windows(
        model.phrases, batch, model.tokenizer.pad_token_id, model.uses_segments
    )
    return np.concatenate([vectors for _, vectors, _ in sorted(parts, key=lambda part: part[0])])


def one_query(model: Model) -> dict[str, float]:
    """Return the milliseconds that one query takes to encode, by percentile."""
    taken = [
        1000 * wall_seconds(lambda: model.encode_queries(["Marie Curie [SEP] place of birth"]))
        for _ in range(200)
    ]
    return {
        "p50": round(statistics.median(taken), 1),
        "p95": round(statistics.quantiles(taken, n=20)[-1], 1),
    }


def measured(model: Model, corpus: Path, paragraphs: int) -> dict[str, object]:
    """Encode the first paragraphs of a corpus."""
    batch = windows_of(corpus, model, paragraphs)
    lengths = [len(window.ids) for window in batch]
    padded = sum(
        phrases.window_tensors([batch[i] for i in part], 0, False, torch.device("cpu"))[0].numel()
        for part in buckets(lengths, batch_tokens(torch.device("cpu")))
    )
    with mock.patch.object(phrases, "fast_copy", lambda backbone, device: backbone):
        truth = encoded(model, batch)  # in float32
    fastest, taken = 0.0, np.inf
    for _ in range(ROUNDS):
        fastest = max(fastest, peak())
        taken = min(taken, wall_seconds(lambda: encoded(model, batch)))
    vectors = encoded(model, batch)
    cosines = (truth * vectors).sum(axis=1) / (
        np.linalg.norm(truth, axis=1) * np.linalg.norm(vectors, axis=1)
    )
    return {
        "windows": len(batch),
        "tokens": sum(lengths),
        "padding, percent": round(100 * (1 - sum(lengths) / padded), 1),
        "fastest product, GFLOP/s": round(fastest / 1e9),
        "now": {
            "tokens per second": round(sum(lengths) / taken),
            "share of the fastest product, percent": round(
                100 * operations(model, lengths) / taken / fastest, 1
            ),
            "mean cosine to float32": round(float(cosines.mean()), 6),
        },
    }


def main() -> None:
    options = arguments(__doc__, corpora=[Path], paragraphs=2000, threads=2, name="encoder")
    torch.set_num_threads(options.threads)
    empty = megabytes()
    model = Model.open("default", "cpu")
    query = one_query(model)  # loads what a query needs, too
    figures: dict[str, object] = {
        "threads": options.threads,
        "products in": str(fast_dtype(torch.device("cpu"))).removeprefix("torch."),
        "model on the disk, MB": round((DEFAULT_MODEL / WEIGHTS).stat().st_size / 1e6, 1),
        "model in memory, MB": round(megabytes() - empty),
        "one query, ms": query,
    }
    for corpus in options.corpora:
        figures[corpus.parent.name] = measured(model, corpus, options.paragraphs)
        reporting.write(options.name, figures, options.corpora)


if __name__ == "__main__":
    main()
