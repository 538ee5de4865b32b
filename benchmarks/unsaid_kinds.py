"""Kinds of examples of the unsaid, and what each is worth: a reader is taught with all three, and with one left out.

    python benchmarks/unsaid_kinds.py WORK EXAMPLES.jsonl… --model MODEL --fit PHRASES.jsonl --cells PHRASES.jsonl
        [--queries 1800] [--seeds 0 1] [--name unsaid_kinds]

All files are of recipes/mine_phrases.py: EXAMPLES teach, those of --fit (recipes/prepare_calibration.py) fit a
calibration, and the cells of --cells are judged. MODEL has not been taught what pages do not say. Every run has as
many queries. "Confusable" are phrases that answer another relation of the same subject. A killed run resumes.
"""

import dataclasses
import json
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import reporting
from measuring import arguments, rounded, share_of

from kbq.array_types import Bools, Doubles
from kbq.kilt.confidence import auroc
from kbq.reading.probability import HIDDEN, chances_of, features, fit
from kbq.reading.reader import Reader
from kbq.reading.reranker import rerank
from kbq.search.search import BATCH
from kbq.text.answer_scores import normalise
from kbq.text.markers import slot_of
from kbq.training.mined_queries import MinedQuery, as_line, read_mined
from kbq.training.reranker import TeachingSettings, teach_reranker

UNSAID = 0.4  # of the queries: cells that a page is annotated not to state
JUDGED, USUAL = 10, 0.5  # phrases of a query; the probability from which a cell is filled
ALL = ("evidence removed", "plausible and unsaid", "confusable")


def mixture(queries: Sequence[MinedQuery], kinds: Sequence[str], most: int, seed: int) -> list[MinedQuery]:
    """Draw as many queries for each choice of kinds."""
    drawn = random.Random(seed).sample(queries, len(queries))
    stated = [query for query in drawn if query.answers]
    unsaid = [query for query in drawn if not query.answers][: int(UNSAID * most)]
    chosen = [*(unsaid if "plausible and unsaid" in kinds else []), *stated][:most]
    return chosen if "confusable" in kinds else list(without_confusable(chosen, stated))


def without_confusable(chosen: Sequence[MinedQuery], stated: Sequence[MinedQuery]) -> Iterator[MinedQuery]:
    known = defaultdict[str, set[str]](set)
    for query in stated:
        if slot := slot_of(query.text):
            known[slot[0]].update(map(normalise, query.answers))
    for query in chosen:
        slot = slot_of(query.text)
        others = known[slot[0]] - set(map(normalise, query.answers)) if slot else set()
        phrases = tuple(phrase for phrase in query.phrases if normalise(phrase.text) not in others)
        yield dataclasses.replace(query, phrases=phrases)


def taught(model: str, work: Path, queries: Sequence[MinedQuery], kinds: Sequence[str], seed: int) -> Path:
    """Return a copy of the model, taught with the kinds of examples."""
    out = work / f"{'-'.join(kinds).replace(' ', '_')}-{seed}"
    if not out.exists():
        examples = out.with_suffix(".jsonl")
        examples.write_text("".join(json.dumps(as_line(query)) + "\n" for query in queries), encoding="utf-8")
        removed = TeachingSettings().removed if "evidence removed" in kinds else 0.0
        teach_reranker(examples, out, model, settings=TeachingSettings(seed=seed, removed=removed))
    return out


class Judged:
    """The best answer to each query: its features, and whether it is right."""

    def __init__(self, reader: Reader, queries: Sequence[MinedQuery]) -> None:
        rows, right = [], []
        for first in range(0, len(queries), BATCH):
            batch = queries[first : first + BATCH]
            found = [query.phrases[:JUDGED] for query in batch]
            for query, looks in zip(batch, rerank(reader, [query.text for query in batch], found), strict=True):
                if looks:
                    rows.append(features(query.text, looks)[0])
                    right.append(query.label(looks[0].answer) == "right")
        self.rows: Doubles = np.array(rows, np.float64)
        self.right: Bools = np.array(right)


def with_hidden(queries: Sequence[MinedQuery]) -> list[MinedQuery]:
    """Add some of the queries without their pages, and some without their evidence, as `kbq calibrate` does."""
    hidden = []
    for query in queries:
        drawn = zlib.crc32(query.text.encode()) / 2**32
        if query.answers and drawn < HIDDEN:
            changed: Callable[[], MinedQuery] = (
                query.with_pages_hidden if drawn < HIDDEN / 2 else query.with_evidence_removed
            )
            hidden.append(changed())
    return [*queries, *hidden]


def main() -> None:
    options = arguments(
        __doc__,
        work=Path,
        examples=[Path],
        model="",
        fit=None,
        cells=None,
        queries=1800,
        seeds=(0, 1),
        name="unsaid_kinds",
    )
    options.work.mkdir(parents=True, exist_ok=True)
    examples = list(read_mined(options.examples))
    fitting, cells = with_hidden(list(read_mined(Path(options.fit)))), list(read_mined(Path(options.cells)))
    stated = np.array([bool(query.answers) for query in cells])
    figures: dict[str, object] = {"scale": {"queries": options.queries, "cells": len(cells)}}
    for left_out in ("", *ALL):
        kinds = [kind for kind in ALL if kind != left_out]
        for seed in options.seeds:
            queries = mixture(examples, kinds, options.queries, seed)
            reader = Reader.open(str(taught(options.model, options.work, queries, kinds, seed)), "cpu")
            fitted, judged = Judged(reader, fitting), Judged(reader, cells)
            chances = chances_of(judged.rows, *fit(fitted.rows, fitted.right))
            filled = chances >= USUAL
            name = f"without {left_out or 'nothing'}, seed {seed}"
            figures[name] = {
                "right answers to the queries of the calibration": share_of(fitted.right[: len(fitting)]),
                "first answer right where stated": share_of(judged.right[stated]),
                "right at 0.5": share_of(judged.right[filled]),
                "recall": share_of((judged.right & filled)[stated]),
                "unsaid cells filled": share_of(filled[~stated]),
                "AUROC": rounded(auroc(chances, judged.right)),
            }
            print(name, figures[name], flush=True)
            reporting.write(options.name, figures, [*options.examples, Path(options.fit), Path(options.cells)])


if __name__ == "__main__":
    main()
