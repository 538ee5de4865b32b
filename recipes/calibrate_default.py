"""Fit both calibrations of a model: that of queries, and that of cells of tables.

    python recipes/calibrate_default.py KB FOLDER MODEL [--queries 5000] [--cells 900] [--rows
    ROWS.npz]

Most queries have an answer, most cells of a table have none, so their probabilities differ. FOLDER
is of recipes/prepare_calibration.py: calibration.jsonl has queries, cells.jsonl cells. MODEL, a
folder, gets `calibration.json` and `calibration-of-cells.json`. At most --queries queries are
drawn, and --cells cells of each set, so that no style outweighs the others. ROWS.npz keeps the
features of the best answer to each cell. The pages of KB hold the answers; a cell that is read
alone takes no answer from another page that names its subject, since nobody has read whether that
page says more. So cells teach nothing of answers from other pages than the subject's: the slots
among the queries do, and are one more set. They are no table's, and promise no precision of one.
"""

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from mine_phrases import chosen_phrases
from prepare_slots import json_lines

from kbq.asking.searcher import Searcher
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.model.model_folder import read_config, write_config
from kbq.reading.probability import CALIBRATION, CALIBRATION_OF_CELLS, FEATURES, features
from kbq.reading.reranker import rerank
from kbq.search.options import N_RERANKED, SearchOptions
from kbq.search.search import BATCH
from kbq.storage.reading import file_digest
from kbq.text.answer_scores import normalise_answer
from kbq.text.queries import Query
from kbq.tuning.calibrate import JudgedAnswer, judge, write_calibration
from kbq.tuning.triples import GoldQuery, read_triples

SLOT = FEATURES.index("slot")
DEEPER = 60  # phrases that are searched for, where other pages' may be left out


@dataclass(frozen=True, slots=True)
class JudgedCell:
    """The best answer to a cell, as the reader judges it."""

    meta: dict[str, Any]  # of the KILT line
    query: str
    answer: str
    row: tuple[float, ...]  # features
    is_right: bool


def judged_cells(kb: Searcher, cells: Sequence[dict[str, Any]]) -> Iterator[JudgedCell]:
    """Judge the best answer to each cell; one without any answer is left out."""
    options = SearchOptions(N_RERANKED, "phrase", purpose="cell")
    plan, reranking = kb.plan(options), kb.reranking
    deep = SearchOptions(DEEPER, "phrase", rerank=0)
    for first in range(0, len(cells), BATCH):
        part = cells[first : first + BATCH]
        queries = [Query.of(cell["input"]) for cell in part]
        found = [
            chosen_phrases(hits, query.text, cell["meta"])[:N_RERANKED]
            for hits, query, cell in zip(kb.search(queries, deep), queries, part, strict=True)
        ]
        seen = rerank(reranking.reader, queries, found, plan.score_scale, reranking.relation_judge)
        for cell, query, candidates in zip(part, queries, seen, strict=True):
            if not candidates:
                continue
            best = candidates[0].answer.text
            forms = {normalise_answer(form) for value in cell["meta"]["values"] for form in value}
            row = tuple(features(query, candidates, plan.naming(query))[0].tolist())
            yield JudgedCell(
                cell["meta"], query.text, best, row, normalise_answer(best) in forms - {""}
            )
        print(f"{first + len(part)} of {len(cells)} cells", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--cells", type=int, default=900)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    try:
        calibrate(
            options.kb,
            options.folder,
            options.model,
            (options.queries, options.cells),
            options.rows,
            options.device,
        )
    except KbqError as error:
        sys.exit(str(error))


def calibrate(
    kb_folder: Path,
    folder: Path,
    model: Path,
    most: tuple[int, int],
    rows: Path | None,
    device: str,
) -> None:
    """Fit both calibrations. `most`: queries, and cells of a set."""
    for name in (
        CALIBRATION,
        CALIBRATION_OF_CELLS,
    ):  # they would be fitted near those of an earlier reader
        (model / name).unlink(missing_ok=True)
    write_config(model, read_config(model))  # it names all files
    kb = KnowledgeBase.open(kb_folder, model, device=device).searcher
    queries, cells = folder / "calibration.jsonl", folder / "cells.jsonl"
    golds = map(GoldQuery.of, drawn(read_triples(queries, unanswered=True), most[0]))
    asked = judge(kb, list(golds), SearchOptions())
    found = list(judged_cells(kb, drawn_of_sets(json_lines(cells), most[1])))
    if rows is not None:
        save_rows(rows, found)
    of_cells = [
        JudgedAnswer(one.query.split("[SEP]")[-1].strip(), False, one.row, one.is_right)
        for one in found
    ]
    slots = [replace(one, promises=False) for one in asked if one.features[SLOT]]
    of_cells += drawn(slots, most[1])
    cell = SearchOptions(purpose="cell")
    # Cells come first: once there is another calibration, theirs would be fitted near it.
    for name, judged, sources, search in (
        (CALIBRATION_OF_CELLS, of_cells, [cells, queries], cell),
        (CALIBRATION, asked, [queries], SearchOptions()),
    ):
        facts = {
            "command": "recipes/calibrate_default.py",
            "data": {source.name: file_digest(source) for source in sources},
        }
        outcome = write_calibration(kb, judged, model / name, search, facts)
        print(
            f"{name}: {outcome.queries} answers, {outcome.right} right, AUROC {outcome.auroc}, "
            f"ECE {outcome.ece}"
        )
    write_config(model, read_config(model))


def drawn(items: Sequence[Any], most: int) -> list[Any]:
    return random.Random(0).sample(items, min(most, len(items)))


def drawn_of_sets(cells: Iterable[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    by_set = defaultdict(list)
    for cell in cells:
        by_set[cell["meta"]["set"]].append(cell)
    return [cell for members in by_set.values() for cell in drawn(members, most)]


def save_rows(path: Path, found: Sequence[JudgedCell]) -> None:
    told = json.dumps([[one.meta, one.query, one.answer] for one in found])
    rows, right = np.array([one.row for one in found]), np.array([one.is_right for one in found])
    np.savez_compressed(path, rows=rows, right=right, cells=np.array(told))


if __name__ == "__main__":
    main()
