"""Limits: how much a request may ask for, by what it costs.

A request counts by what it expands to: a name with three properties of three pages is nine queries.
"""

from collections.abc import Sequence

from kbq.search.options import N_RERANKED, SearchOptions
from kbq.search.search import BATCH
from kbq.serve.problems import RefusedError

LONGEST = 4096  # characters of a query, a subject, a relation, a name
# Limits of a request that is answered at once: queries, and answers of each.
MOST_QUERIES = BATCH
MOST_ANSWERS = 100
# Limits of a table that is filled a few cells at a time.
MOST_CELLS = 1000
MOST_RELATIONS = 60
MOST_PAGES = 1000  # pages that a request may choose
MOST_ASKED_OF_TABLE = 4000  # queries: a relation may have several wordings
# Queries of a request of reconciliation or of a tool, which is answered as a whole.
MOST_ASKED = 300
# Characters of all queries of a request together, and bytes of the request itself.
MOST_TEXT = 1_000_000
MOST_FIELDS = 100  # fields of an object in a request; all that it can have are fewer
MOST_ANSWERED = 8_000_000  # characters of an answer
READING = 8  # plain queries that a query with a reader counts as
UNREAD = 1 / 8  # and one without reranking


def weight(options: SearchOptions) -> int:
    """Return how many plain queries one with these options counts as, by the time that it takes."""
    batches = -(-(options.rerank or 0) // N_RERANKED)
    if options.reader:
        return max(batches, READING)
    return max(1, batches)


def cost(queries: int, options: SearchOptions) -> float:
    """Return the cost of queries in plain ones: `weight` each, and less without reranking."""
    if options.rerank == 0 and not options.reader:
        return queries * UNREAD
    return queries * weight(options)


def refuse_more(things: str, count: int, most: int, status: int = 413) -> None:
    """Raise RefusedError if a request asks for too many things."""
    if count > most:
        raise RefusedError(
            status,
            f"the request has {count:,} {things}, at most {most:,} are taken: send several "
            "requests",
        )


def refuse_costly(queries: int, options: SearchOptions) -> None:
    """Raise RefusedError for more queries than are searched together, counted by their cost."""
    each = weight(options)
    if queries * each > MOST_QUERIES:
        raise RefusedError(
            422,
            f"{queries} queries with a reader or such deep reranking take as long as "
            f"{queries * each:,}: ask {MOST_QUERIES // each} at once",
        )


def refuse_long(subjects: Sequence[str], wordings: Sequence[str]) -> None:
    """Raise RefusedError if a table has too many queries (each subject with each wording) or too
    long ones.
    """
    refuse_more("queries", len(subjects) * len(wordings), MOST_ASKED_OF_TABLE, 422)
    size = sum(map(len, subjects)) * len(wordings) + sum(map(len, wordings)) * len(subjects)
    refuse_more("characters in its queries", size, MOST_TEXT, 422)
