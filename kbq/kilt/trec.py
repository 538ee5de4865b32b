"""TREC: predictions and gold become run and qrels files, which ir_measures, trec_eval and pyserini read.

They know one set of relevant pages for each query: evidence sets and bundles are united.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import numpy as np

from kbq.kilt.files import JsonObject, Problems, Source, parse_records, write_lines
from kbq.kilt.records import PAGE, only_output, page_of, provenance_items, read_golds, score_of


def write_run(predictions: Source, out_path: Path) -> int:
    """Write a TREC run file, and return how many lines it has: the distinct pages of every prediction.

    Raises EvaluationError if a file cannot be read or written, or a prediction has not exactly one ranking.
    """
    problems = Problems()
    rankings = list(parse_records(predictions, problems, _ranked))
    problems.raise_if_any(f"exporting {predictions}")
    return write_lines(
        out_path,
        (
            f"{column(query)} Q0 {column(page)} {rank} {score:.9g} kbq"
            for query, scores in rankings
            for rank, (page, score) in enumerate(scores.items(), 1)
        ),
    )


def _ranked(record_id: str, line: int, record: JsonObject) -> tuple[str, dict[str, float]]:
    found: dict[str, float | None] = {}
    for item in provenance_items(only_output(record, "provenance")):
        if PAGE in item:
            found.setdefault(page_of(item), score_of(item))
    return record_id, descending(found)


def descending(found: Mapping[str, float | None]) -> dict[str, float]:
    """Return scores by which tools find the order of the list again: those given or, if they do not fit it, 1/rank.

    Tools sort by score, read as 32 bits, and break ties by page id: an equal score is lowered by the least step.

    >>> descending({"7": 2.5, "9": 0.5}), descending({"7": 2.5, "9": None})
    ({'7': 2.5, '9': 0.5}, {'7': 1.0, '9': 0.5})
    """
    given = [score for score in found.values() if score is not None]
    if len(given) < len(found) or any(before < after for before, after in pairwise(given)):
        return {page: 1 / rank for rank, page in enumerate(found, 1)}
    scores: list[np.float32] = []
    for score in np.array(given, dtype=np.float32):
        scores.append(min(score, np.nextafter(scores[-1], np.float32(-np.inf))) if scores else score)
    return dict(zip(found, map(float, scores), strict=True))


def write_qrels(gold: Source, out_path: Path) -> int:
    """Write a TREC qrels file, and return how many lines it has: the distinct pages of all outputs of every record.

    Raises EvaluationError if a file cannot be read or written.
    """
    problems = Problems()
    golds = list(read_golds(gold, problems))
    problems.raise_if_any(f"exporting {gold}")
    pages = {record.id: dict.fromkeys(page for output in record.outputs for page in output.pages) for record in golds}
    return write_lines(
        out_path, (f"{column(query)} 0 {column(page)} 1" for query, relevant in pages.items() for page in relevant)
    )


def column(text: str) -> str:
    """Return an id without blanks, which separate TREC columns: they become %20 and the like.

    >>> column("enwiki-New York 5%")
    'enwiki-New%20York%205%25'
    """
    return re.sub(r"[\s%]", lambda found: quote(found[0]), text)
