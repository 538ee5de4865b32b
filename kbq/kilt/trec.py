"""TREC: predictions and gold become run and qrels files, and any measure of ir-measures where installed.

TREC tools sort by score and break ties by page id, so the list order becomes the score 1/rank. They know
one set of relevant pages for each query: evidence sets and bundles are united.
"""

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kbq.errors import EvaluationError
from kbq.kilt.lines import JsonObject, write_lines
from kbq.kilt.parsing import parse_ranking, read_golds, read_guesses
from kbq.kilt.records import PAGE, Guess, Problems


@dataclass(frozen=True, slots=True)
class RankedPage:
    """A page of a run; a query's scores descend strictly from 1."""

    query: str
    page: str
    rank: int  # from 1

    @property
    def score(self) -> float:
        """1/rank."""
        return 1 / self.rank


@dataclass(frozen=True, slots=True)
class RelevantPage:
    """A page that some gold output names."""

    query: str
    page: str


def read_run(guess_path: Path, rank_keys: Sequence[str] = PAGE) -> list[RankedPage]:
    """The distinct pages (or what else `rank_keys` make one) of every prediction, best first.

    Raises:
        EvaluationError: the file cannot be read, or a prediction has not exactly one ranking.
    """

    def parse(record_id: str, line: int, record: JsonObject) -> Guess:
        return parse_ranking(record_id, line, record, rank_keys, depth=0)

    problems = Problems()
    run = []
    for guess in read_guesses(guess_path, parse, problems):
        if guess.problem is not None:
            problems.add(guess_path, guess.line, guess.id, guess.problem)
        run += [RankedPage(guess.id, page, rank) for rank, page in enumerate(guess.pages, 1)]
    problems.raise_if_any(f"exporting {guess_path}")
    return run


def read_qrels(gold_path: Path, rank_keys: Sequence[str] = PAGE) -> list[RelevantPage]:
    """The distinct pages of all outputs of every gold record.

    Raises:
        EvaluationError: the file cannot be read.
    """
    problems = Problems()
    qrels = []
    for gold in read_golds(gold_path, rank_keys, problems):
        pages = dict.fromkeys(page for output in gold.outputs for page in output.pages)
        qrels += [RelevantPage(gold.id, page) for page in pages]
    problems.raise_if_any(f"exporting {gold_path}")
    return qrels


def write_run(guess_path: Path, out_path: Path, rank_keys: Sequence[str] = PAGE) -> int:
    """Write a TREC run file, and return how many lines it has.

    Raises:
        EvaluationError: a file cannot be read or written.
    """

    def lines() -> Iterator[str]:
        for row in read_run(guess_path, rank_keys):
            yield f"{column(row.query)} Q0 {column(row.page)} {row.rank} {row.score!r} kbq"

    return write_lines(out_path, lines())


def write_qrels(gold_path: Path, out_path: Path, rank_keys: Sequence[str] = PAGE) -> int:
    """Write a TREC qrels file, and return how many lines it has.

    Raises:
        EvaluationError: a file cannot be read or written.
    """
    lines = (f"{column(row.query)} 0 {column(row.page)} 1" for row in read_qrels(gold_path, rank_keys))
    return write_lines(out_path, lines)


def column(text: str) -> str:
    """An id without blanks, which separate TREC columns: blanks become %20 and the like.

    >>> column("enwiki-New York 5%")
    'enwiki-New%20York%205%25'
    """
    return re.sub(r"[\s%]", lambda found: quote(found[0]), text)


def measure(
    gold_path: Path, guess_path: Path, measures: str, queries: Sequence[str], rank_keys: Sequence[str] = PAGE
) -> dict[str, float]:
    """Measures of ir-measures, such as "RR nDCG@10 Success@5", over these queries.

    A query without a prediction, or without a gold page, counts 0, as in KILT's own scores.

    Raises:
        EvaluationError: ir-measures is not installed, a measure is unknown, or a file cannot be read.
    """
    try:
        library = importlib.import_module("ir_measures")
    except ImportError as error:
        raise EvaluationError("ir-measures is not installed: pip install ir-measures") from error
    try:
        parsed = [library.parse_measure(name) for name in measures.split()]
    except (ValueError, NameError) as error:
        raise EvaluationError(f"{measures!r} names no measures of ir-measures: {error}", is_usage=True) from error
    qrels = [library.Qrel(row.query, row.page, 1) for row in read_qrels(gold_path, rank_keys)]
    run = [library.ScoredDoc(row.query, row.page, row.score) for row in read_run(guess_path, rank_keys)]
    values = {(str(one.measure), one.query_id): one.value for one in library.iter_calc(parsed, qrels, run)}
    means = {}
    for name in parsed:
        aggregator = name.aggregator()
        for query in queries:
            aggregator.add(values.get((str(name), query), 0.0))
        means[str(name)] = float(aggregator.result())
    return means
