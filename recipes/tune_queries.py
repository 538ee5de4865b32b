"""Tune the query encoder of a model against all tokens of the training passages at once.

    python recipes/tune_queries.py MODEL OUT slots.jsonl squad-train.json.xz [--squad 2000]
    [--epochs 1.5]

The passages become a phrase dump that stays as it is; a query's gold tokens compete with all other
tokens of the dump (full softmax), not only with those of a batch. This is query-side fine-tuning
(arXiv 2012.12624, section 6) with every row as a candidate instead of the top 100, which small
dumps allow. The phrase encoder is not touched: knowledge bases built with MODEL can be asked with
OUT.
"""

import argparse
import dataclasses
import random
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kbq.corpus.pages import Page, Paragraph
from kbq.dump.shards import Shard
from kbq.errors import QueryError
from kbq.kb import KnowledgeBase
from kbq.model.devices import autocast, padded
from kbq.model.model import Model
from kbq.training.attention import recompute_attention
from kbq.training.batches import Passage, TrainingQuery, read_examples
from kbq.training.engine import Optimizer

BATCH = 128
LEARNING_RATE = 5e-5
WARMUP = 0.05  # share of the steps


@dataclass(frozen=True, slots=True)
class Example:
    """A query's token ids, and for start and end: its gold rows, and the rows of equal answers
    elsewhere.
    """

    ids: list[int]
    gold: tuple[np.ndarray, np.ndarray]
    ignored: tuple[np.ndarray, np.ndarray]


def gold_rows(shard: Shard, passage: int, query: TrainingQuery) -> tuple[list[int], list[int]]:
    """Return the first row of each answer's first word and the last row of its last, where the
    filter kept them.
    """
    rows = shard.rows_of(passage)
    begins, stops = shard.starts[rows], shard.ends[rows]
    starts, ends = [], []
    for start, end in query.places:
        at_start = np.flatnonzero((begins <= start) & (stops > start))
        at_end = np.flatnonzero((begins < end) & (stops >= end))
        if len(at_start) and len(at_end):
            starts.append(int(rows[at_start[0]]))
            ends.append(int(rows[at_end[-1]]))
    return starts, ends


def make_examples(model: Model, shard: Shard, passages: list[Passage]) -> list[Example]:
    """Make examples of the queries whose answers the filter kept. Equal answers do not compete."""
    found = []
    by_query, by_answer = defaultdict(lambda: ([], [])), defaultdict(lambda: ([], []))
    for number, passage in enumerate(passages):
        for query in passage.queries:
            rows = gold_rows(shard, number, query)
            try:
                ids = model.query_tokenizer.ids_of(query.text)
            except QueryError:
                continue
            if not rows[0]:
                continue
            key, answer = query.text.lower(), query.answers[0].lower()
            found.append((ids, key, answer))
            for side in (0, 1):
                by_query[key][side].extend(rows[side])
                by_answer[answer][side].extend(rows[side])
    return [
        Example(
            ids,
            tuple(np.unique(by_query[key][side]) for side in (0, 1)),
            tuple(np.setdiff1d(by_answer[answer][side], by_query[key][side]) for side in (0, 1)),
        )
        for ids, key, answer in found
    ]


def loss_of(queries: Tensor, rows: Tensor, batch: list[Example], side: int) -> Tensor:
    """Return -log of the gold rows' share of the softmax over all rows. Shapes: (queries, dim),
    (rows, dim).
    """
    scores = (queries.to(rows.dtype) @ rows.T).float()
    owner = np.repeat(np.arange(len(batch)), [len(example.gold[side]) for example in batch])
    gold = np.concatenate([example.gold[side] for example in batch])
    of_gold = scores.new_full(
        (len(batch), max(len(example.gold[side]) for example in batch)), -torch.inf
    )
    place = np.concatenate([np.arange(len(example.gold[side])) for example in batch])
    of_gold = of_gold.index_put(
        (torch.from_numpy(owner), torch.from_numpy(place)), scores[owner, gold]
    )
    hidden = np.repeat(np.arange(len(batch)), [len(example.ignored[side]) for example in batch])
    scores[hidden, np.concatenate([example.ignored[side] for example in batch])] = -torch.inf
    return (scores.logsumexp(dim=1) - of_gold.logsumexp(dim=1)).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "out", "slots", "squad_file"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--squad", type=int, default=2000, help="passages of SQuAD, at random")
    parser.add_argument("--epochs", type=float, default=1.5)
    options = parser.parse_args()
    rng = random.Random(0)
    model = Model.open(options.model)
    passages = [passage for passage in read_examples([options.slots])[0] if passage.group != "qamr"]
    squad, _ = read_examples([options.squad_file])
    passages += rng.sample(squad, min(options.squad, len(squad)))
    pages = [Page(str(i), p.title, (Paragraph(0, p.text),)) for i, p in enumerate(passages)]
    with tempfile.TemporaryDirectory() as folder:
        shard = KnowledgeBase.build(pages, Path(folder) / "kb", model, bm25=False).searcher.shards[
            0
        ]
        examples = make_examples(model, shard, passages)
        rows = torch.from_numpy(shard.vectors * model.scale).bfloat16().to(model.device)
        print(f"{len(examples)} queries, {len(rows)} rows", flush=True)
        train(model, rows, examples, int(options.epochs * len(examples) / BATCH), rng)
    tuned = {
        "command": "recipes/tune_queries.py",
        "epochs": options.epochs,
        "squad": options.squad,
        "seed": 0,
    }
    model.config = dataclasses.replace(
        model.config, training=model.config.training | {"query side": tuned}
    )
    model.save(options.out, "int8")


def train(
    model: Model, rows: Tensor, examples: list[Example], steps: int, rng: random.Random
) -> None:
    """Move the query encoder alone, batch by batch."""
    recompute_attention(model.queries)
    optimizer = Optimizer(
        [p for p in model.queries.parameters() if p.requires_grad], LEARNING_RATE, WARMUP, steps
    )
    begun, average = time.monotonic(), 0.0
    order: list[int] = []
    for step in range(steps):
        while len(order) < BATCH:
            order = rng.sample(range(len(examples)), len(examples)) + order
        batch = [examples[order.pop()] for _ in range(BATCH)]
        with autocast(model.device):
            starts, ends = model.queries(
                *padded([e.ids for e in batch], model.tokenizer.pad_token_id, model.device)
            )
        loss = (loss_of(starts, rows, batch, 0) + loss_of(ends, rows, batch, 1)) / 2
        optimizer.add(loss)
        optimizer.step()
        average += (float(loss.detach()) - average) * (0.05 if step else 1)
        if step % 20 == 0:
            print(
                f"step {step}/{steps} loss {average:.3f} {time.monotonic() - begun:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
