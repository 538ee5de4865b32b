"""TREC: predictions and gold become run and qrels files, and measures of ir-measures where it is installed.

TREC tools sort by score and break ties by page id, so the list order becomes the score 1/rank. They know
one set of relevant pages for each query: evidence sets and bundles are united.
"""

import importlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

from kbq.errors import EvaluationError
from kbq.kilt.files import Problems, Source, parse_records, write_lines
from kbq.kilt.records import PAGE, parse_ranking, read_golds


def read_run(predictions: Source, rank_keys: Sequence[str] = PAGE) -> Iterator[tuple[str, str, int]]:
    """Yield query, page and rank from 1: the distinct pages of every prediction, which must have one ranking."""
    problems = Problems()
    guesses = list(parse_records(predictions, problems, partial(parse_ranking, rank_keys=rank_keys, depth=0)))
    problems.raise_if_any(f"exporting {predictions}")
    for guess in guesses:
        yield from ((guess.id, page, rank) for rank, page in enumerate(guess.pages, 1))


def read_qrels(gold: Source, rank_keys: Sequence[str] = PAGE) -> Iterator[tuple[str, str]]:
    """Yield query and page: the distinct pages of all outputs of every gold record."""
    problems = Problems()
    golds = list(read_golds(gold, rank_keys, problems))
    problems.raise_if_any(f"exporting {gold}")
    for record in golds:
        pages = dict.fromkeys(page for output in record.outputs for page in output.pages)
        yield from ((record.id, page) for page in pages)


def write_run(predictions: Source, out_path: Path, rank_keys: Sequence[str] = PAGE) -> int:
    """Write a TREC run file, and return how many lines it has.

    Raises EvaluationError if a file cannot be read or written.
    """
    run = read_run(predictions, rank_keys)
    lines = (f"{column(query)} Q0 {column(page)} {rank} {1 / rank!r} kbq" for query, page, rank in run)
    return write_lines(out_path, lines)


def write_qrels(gold: Source, out_path: Path, rank_keys: Sequence[str] = PAGE) -> int:
    """Write a TREC qrels file, and return how many lines it has; see `write_run`."""
    qrels = read_qrels(gold, rank_keys)
    return write_lines(out_path, (f"{column(query)} 0 {column(page)} 1" for query, page in qrels))


def column(text: str) -> str:
    """Return an id without blanks, which separate TREC columns: they become %20 and the like.

    >>> column("enwiki-New York 5%")
    'enwiki-New%20York%205%25'
    """
    return re.sub(r"[\s%]", lambda found: quote(found[0]), text)


def measure(
    gold: Source, predictions: Source, measures: str, queries: Sequence[str], rank_keys: Sequence[str] = PAGE
) -> dict[str, float]:
    """Return measures of ir-measures, such as "RR nDCG@10 Success@5", over these queries.

    A query without a prediction, or without a gold page, counts 0, as in KILT's own scores.

    Raises EvaluationError if ir-measures is not installed, a measure is unknown, or a file cannot be read.
    """
    try:
        library = importlib.import_module("ir_measures")
    except ImportError as error:
        raise EvaluationError("ir-measures is not installed: pip install ir-measures") from error
    try:
        parsed = [library.parse_measure(name) for name in measures.split()]
    except (ValueError, NameError) as error:
        raise EvaluationError(f"{measures!r} names no measures of ir-measures: {error}", is_usage=True) from error
    qrels = [library.Qrel(query, page, 1) for query, page in read_qrels(gold, rank_keys)]
    run = [library.ScoredDoc(query, page, 1 / rank) for query, page, rank in read_run(predictions, rank_keys)]
    values = {(str(one.measure), one.query_id): one.value for one in library.iter_calc(parsed, qrels, run)}
    means = {}
    for name in parsed:
        aggregator = name.aggregator()
        for query in queries:
            aggregator.add(values.get((str(name), query), 0.0))
        means[str(name)] = float(aggregator.result())
    return means
