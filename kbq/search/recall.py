"""Recall: queries become the recall of an index, and the number of cells to probe for a requested recall.

Vectors of the dump cannot replace queries: they are close to other vectors of the dump, and find those with a fraction
of the probes.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from kbq.answers import Answer
from kbq.array_types import Floats
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.index.cells import clusters_for
from kbq.index.factory import open_index
from kbq.model.model import Model
from kbq.search.search import BATCH, SearchContext, search
from kbq.storage.progress import Report, Stage, silent

K = 10  # recall is measured on the k best phrases
SLOTS = (
    "place of birth",
    "date of birth",
    "occupation",
    "spouse",
    "member of",
    "country",
    "located in",
    "capital",
    "part of",
    "author",
    "founded by",
    "instance of",
    "language",
    "award received",
    "genre",
    "date",
)


def own_queries(shards: Sequence[Shard], model: Model, count: int, seed: int = 0) -> list[str]:
    """Slot queries about random pages of the knowledge base; without the title if the encoder cannot read it."""
    random = np.random.default_rng(seed)
    slots = [str(slot) for slot in random.choice(SLOTS, count)]
    left = [(shard.titles, np.flatnonzero(shard.live_pages())) for shard in shards]
    left = [(titles, pages) for titles, pages in left if len(pages)]
    if not left:
        return slots
    queries = []
    for slot in slots:
        titles, pages = left[random.integers(len(left))]
        query = f"{titles[int(pages[random.integers(len(pages))])]} [SEP] {slot}"
        queries.append(query if model.query_tokenizer.accepts(query) else slot)
    return queries


def tune_probes(
    shards: Sequence[Shard],
    entry: IndexEntry,
    queries: Floats,
    device: torch.device,
    length_penalty: float = 0.0,
    report: Report = silent,
) -> IndexEntry:
    """The entry with about the fewest probes that reach its target recall, and the measured recall.

    If even all cells do not reach the target, the entry has the fewest probes that find as much as all cells.

    Args:
        queries: start over end vector, in the units of the rows. Shape: (queries, 2, dim).
        length_penalty: subtracted from the score of a phrase for each token after its first.
    """

    def ten_best(trial: IndexEntry) -> list[list[Answer]]:
        index = open_index(shards, trial, device, may_leave_gpu=True)  # lack of GPU memory may be why it is built
        context = SearchContext(shards, index, length_penalty)
        how = "exactly" if trial.kind == "exact" else f"with {trial.probes:,} probe{'s' * (trial.probes > 1)}"
        stage = Stage(report, f"recall of the {entry.kind} index, queries searched {how}", len(queries))
        hits: list[list[Answer]] = []
        for first in range(0, len(queries), BATCH):
            part = queries[first : first + BATCH]
            hits += search(context, part, K, "phrase")
            stage.add(len(part))
        return hits

    exact = ten_best(IndexEntry())

    def measure(probes: int) -> IndexEntry:
        trial = replace(entry, probes=probes)
        return replace(trial, recall=recall(exact, ten_best(trial)), queries=len(queries))

    cells = max((clusters_for(len(shard)) for shard in shards), default=1)
    trials = [measure(1)]
    while trials[-1].recall < entry.target and trials[-1].probes < cells:
        trials.append(measure(min(cells, 2 * trials[-1].probes)))
    goal = min(entry.target, trials[-1].recall)
    best = next(trial for trial in trials if trial.recall >= goal)
    too_few = max((trial.probes for trial in trials if trial.probes < best.probes), default=0)
    while best.probes - too_few > max(1, best.probes // 16):
        trial = measure((too_few + best.probes) // 2)
        if trial.recall < goal:
            too_few = trial.probes
        else:
            best = trial
    return best


def recall(exact: Sequence[Sequence[Answer]], found: Sequence[Sequence[Answer]]) -> float:
    """The mean share of the phrases of exact search that were found, or 1 if it finds none for any query."""
    shares = []
    for true, hits in zip(exact, found, strict=True):
        phrases = {hit.place for hit in hits}
        shares += [np.mean([hit.place in phrases for hit in true])] if true else []
    return float(np.mean(shares)) if shares else 1.0
