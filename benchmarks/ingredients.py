"""Ingredients: what each part of teaching the reranker is worth, at a small scale.

    python benchmarks/ingredients.py MODEL TRAIN.jsonl NAME=PHRASES.jsonl [NAME=…] [--queries 1200] [--seeds 0 1]

MODEL has a reader that has not learned to judge yet; TRAIN and PHRASES are files of recipes/mine_phrases.py. Every run
lacks one part, and reads as many queries, in the same order. The ten best phrases of the search are judged. Beside the
share of queries whose best phrase is right stands the AUROC of its odds, when all queries are asked a second time
without the pages that answer them.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import reporting
import torch
from torch import Tensor, nn

from kbq.answers import LOOKS
from kbq.kilt.confidence import auroc
from kbq.reading.network import ReaderNetwork
from kbq.reading.reranker import Look, rerank
from kbq.training import reranker_losses as reranking
from kbq.training.mined_queries import Label, MinedQuery, read_mined
from kbq.training.reranker import RerankerRun, TeachingSettings, judging_reader, prepare

DEVICE = "cpu"
EASIER = 12  # places further down in the search are the wrong phrases of one run


@dataclass(frozen=True)
class Part:
    """How a run differs from the one with all parts."""

    change: Callable[[ReaderNetwork], None] = lambda reader: None  # of the reader, before it learns
    queries: Callable[[MinedQuery], MinedQuery] = lambda query: query  # before they teach
    hidden: float = TeachingSettings().hidden
    tokens: float = 0.5  # the weight of the loss of tokens
    loss: Callable[[Tensor, Sequence[Label]], Tensor] = reranking.phrase_loss
    proposes: bool = True


def frozen(reader: ReaderNetwork) -> None:
    """Let the judge learn alone."""
    network, judge = reader.reranking
    network.requires_grad_(False)
    judge.requires_grad_(True)


def searchless(reader: ReaderNetwork) -> None:
    """Let the search count nothing."""
    _, judge = reader.reranking
    nn.init.zeros_(judge.retrieval)
    judge.retrieval.requires_grad_(False)


def with_easy_phrases(query: MinedQuery) -> MinedQuery:
    """The query with wrong phrases that the search ranks low, and its first right one."""
    right = [phrase for phrase in query.phrases if query.label(phrase) == "right"][:1]
    wrong = [phrase for phrase in query.phrases[EASIER:] if query.label(phrase) != "right"]
    return replace(query, phrases=(*right, *wrong) or query.phrases)


def each_alone(scores: Tensor, labels: Sequence[Label]) -> Tensor:
    """A loss in which phrases do not compete: each is right or wrong, whatever the others are."""
    known = torch.tensor([label in ("right", "wrong") for label in labels])
    goal = torch.tensor([float(label == "right") for label in labels])
    losses = nn.functional.binary_cross_entropy_with_logits(scores, goal, reduction="none")
    return losses[known].sum() / max(1, int(known.sum()))


PARTS = {
    "all": Part(),
    "phrases do not compete": Part(loss=each_alone),
    "no query without a right phrase": Part(hidden=0.0),
    "wrong phrases from far down": Part(queries=with_easy_phrases),
    "no loss of tokens": Part(tokens=0.0),
    "no score of the search": Part(change=searchless),
    "the judge learns alone": Part(change=frozen),
    "nothing is proposed": Part(proposes=False),  # as "all", but for what is judged afterwards
}


def taught(model: str, queries: Sequence[MinedQuery], part: Part, seed: int) -> ReaderNetwork:
    """A reader that has learned from the queries."""
    torch.manual_seed(seed)
    reader = judging_reader(model, DEVICE)
    part.change(reader)
    settings = TeachingSettings(seed=seed, hidden=part.hidden)
    chosen, _ = prepare(reader, map(part.queries, queries), settings)
    run = RerankerRun(reader, chosen, settings)
    run.weights = {"phrases": 1.0, "tokens": part.tokens}
    with patch.object(reranking, "phrase_loss", part.loss), tempfile.TemporaryDirectory() as folder:
        run.run(Path(folder) / "checkpoint.pt", lambda step: None)
    reader.reranking[0].eval()
    return reader


def measured(reader: ReaderNetwork, sets: Mapping[str, Sequence[MinedQuery]], proposes: bool) -> dict[str, list[float]]:
    """By data set: the percentage of queries whose best phrase is right, and the AUROC of its odds."""
    figures = {}
    for name, queries in sets.items():
        best = judged(reader, queries, proposes)
        known = judged(reader, [query.with_pages_hidden() for query in queries], proposes)
        right = np.array([rightly for rightly, _ in best])
        odds = np.array([odd for _, odd in (*best, *known)])
        both = np.array([rightly for rightly, _ in (*best, *known)])
        figures[name] = [round(100 * float(right.mean()), 1), round(auroc(odds, both) or 0.0, 3)]
    return figures


def judged(reader: ReaderNetwork, queries: Sequence[MinedQuery], proposes: bool) -> list[tuple[bool, float]]:
    """Of each query, whether its best phrase is right, and its odds."""
    phrases = [query.phrases[:LOOKS] for query in queries]
    found = rerank(reader, [query.text for query in queries], phrases)
    return [outcome(query, looks, proposes) for query, looks in zip(queries, found, strict=True)]


def outcome(query: MinedQuery, looks: Sequence[Look], proposes: bool) -> tuple[bool, float]:
    best = next((look.answer for look in looks if proposes or not look.is_proposed), None)
    return (best is not None and query.label(best) in ("right", "elsewhere"), -np.inf if best is None else best.score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("train", type=Path)
    parser.add_argument("sets", nargs="+", metavar="NAME=PHRASES")
    parser.add_argument("--queries", type=int, default=1200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    files = {name: Path(path) for name, _, path in (one.partition("=") for one in options.sets)}
    sets = {name: list(read_mined([path])) for name, path in files.items()}
    queries = list(read_mined([options.train]))[: options.queries]
    figures: dict[str, object] = {
        "queries": {name: len(each) for name, each in sets.items()} | {"taught with": len(queries)},
        "search alone": {name: searched(each) for name, each in sets.items()},
    }
    of_parts: dict[str, list[dict[str, list[float]]]] = {name: [] for name in PARTS}
    for seed in options.seeds:
        for name, part in PARTS.items():
            if part.proposes:
                reader = taught(options.model, queries, part, seed)
                of_parts[name].append(measured(reader, sets, True))
            if name == "all":
                of_parts["nothing is proposed"].append(measured(reader, sets, False))
            print(seed, name, of_parts[name], flush=True)
            reporting.write("ingredients", figures | {"parts": of_parts}, [options.train, *files.values()], seed=seed)


def searched(queries: Sequence[MinedQuery]) -> float:
    """The percentage of queries whose best phrase of the search is right."""
    right = [bool(query.phrases) and query.label(query.phrases[0]) in ("right", "elsewhere") for query in queries]
    return round(100 * sum(right) / len(right), 1)


if __name__ == "__main__":
    main()
