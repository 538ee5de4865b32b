"""Bounds: how much one request may ask for, at every door: the API, the page, reconciliation, and the tools of a model.

A request is counted as what it becomes: a name with three properties of three pages is nine queries.
"""

from collections.abc import Sequence

from kbq.answers import LOOKS, SearchOptions
from kbq.search.search import BATCH
from kbq.serve.problems import RefusedError

LONGEST = 4096  # characters of a query, a subject, a relation, a name
MOST_QUERIES, MOST_ANSWERS = BATCH, 100  # of a request to be answered at once, and for each of them
MOST_CELLS, MOST_RELATIONS = 1000, 60  # of a table that is filled a few cells at a time
MOST_PAGES = 1000  # that a request may choose
MOST_ASKED_OF_TABLE = 4000  # queries: a relation may have several wordings
MOST_ASKED = 300  # queries of a request of reconciliation or of a tool, which is answered as a whole
MOST_TEXT = 1_000_000  # characters of all queries of a request together, and bytes of the request itself
MOST_FIELDS = 100  # of an object in a request; all that it can have are fewer
MOST_ANSWERED = 8_000_000  # characters of an answer
READING = 8  # as how many plain queries one counts that a reader reads
UNREAD = 1 / 8  # and one without reranking


def weight(options: SearchOptions) -> int:
    """Return as how many plain queries each one with these options counts, by the time that it takes."""
    looks = -(-(options.rerank or 0) // LOOKS)
    return max(1, looks, READING if options.reader else 1)


def cost(queries: int, options: SearchOptions) -> float:
    """Return what queries cost, in plain ones: `weight` each, and less without reranking."""
    return queries * (UNREAD if options.rerank == 0 and not options.reader else weight(options))


def refuse_more(things: str, count: int, most: int, status: int = 413) -> None:
    """Refuse a request that asks for too many things. Raises RefusedError."""
    if count > most:
        raise RefusedError(
            status, f"the request has {count:,} {things}, at most {most:,} are taken: send several requests"
        )


def refuse_costly(queries: int, options: SearchOptions) -> None:
    """Refuse more queries than are searched together, counted by what they cost. Raises RefusedError."""
    each = weight(options)
    if queries * each > MOST_QUERIES:
        raise RefusedError(
            422,
            f"{queries} queries with a reader or such deep reranking take as long as {queries * each:,}: ask "
            f"{MOST_QUERIES // each} at once",
        )


def refuse_long(subjects: Sequence[str], wordings: Sequence[str]) -> None:
    """Refuse a table with too many queries, each subject with each wording of a relation, or too long ones.

    Raises:
        RefusedError: they are.
    """
    refuse_more("queries", len(subjects) * len(wordings), MOST_ASKED_OF_TABLE, 422)
    size = sum(map(len, subjects)) * len(wordings) + sum(map(len, wordings)) * len(subjects)
    refuse_more("characters in its queries", size, MOST_TEXT, 422)
