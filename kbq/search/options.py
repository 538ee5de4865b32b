"""Options: how a search finds answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from kbq.errors import QueryError
from kbq.options import Option, check, refuse_unknown_options
from kbq.storage.paths import as_path

Unit = Literal["phrase", "sentence", "paragraph", "page"]
Purpose = Literal["query", "cell"]  # most queries have an answer, most cells of a table have none
ASKED: dict[Purpose, str] = {"query": "queries", "cell": "cells of tables"}
Backend = Literal["auto", "dense", "bm25", "sparta", "hybrid"]
WordBackend = Literal["bm25", "sparta"]
WORDS_ALONE: tuple[WordBackend, ...] = ("bm25", "sparta")
# What words alone do not find, and what to ask for instead.
NOT_FOUND: Mapping[str, tuple[str, tuple[Unit, ...], str]] = {
    "bm25": ("BM25", ("phrase", "sentence"), "paragraphs or pages"),
    "sparta": ("SPARTA", ("phrase",), "sentences, paragraphs or pages"),
}
# Defaults of a search.
K = 5
DEPTH = 20
RETRIEVAL_WEIGHT = 0.1
N_RERANKED = 10
# What a point of each source adds to the score of a phrase, times the `lexical_factor` of the query
# encoder. docs/notebook/decisions.md says how they were chosen.
BM25_WEIGHT = 8.0
SPARTA_WEIGHT = 4.0
DEFAULT_FACTOR = 0.5  # the `lexical_factor` of the default model, for the help
MOST_WEIGHT = 1e6  # a larger weight of words would lose the scores of vectors in rounding
EXPLAINED = 3  # paragraphs
STRONGEST = 10  # terms of a sentence
TOP_PAGES = 20  # length of a prediction's provenance


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of a search. Raises QueryError for invalid values."""

    k: Annotated[int, Option("How many answers.", least=1, flag="-k")] = K
    unit: Annotated[
        Unit | None,
        Option(
            "What one answer is: by default a phrase; with bm25 or sparta and no --reader, a "
            "paragraph."
        ),
    ] = None
    backend: Annotated[
        Backend,
        Option(
            "dense: vectors of phrases; bm25: words of paragraphs; sparta: word weights that a "
            "SPARTA model learned; hybrid: vectors and words; auto: hybrid where words are "
            "indexed, else dense."
        ),
    ] = "auto"
    bm25_weight: Annotated[
        float | None,
        Option(
            "With hybrid: what each point of BM25 adds to a score.",
            0,
            MOST_WEIGHT,
            f"{BM25_WEIGHT:g}; default model: {BM25_WEIGHT * DEFAULT_FACTOR:g}",
        ),
    ] = None
    sparta_weight: Annotated[
        float | None,
        Option(
            "With hybrid: what each point of SPARTA adds to a score.",
            0,
            MOST_WEIGHT,
            f"{SPARTA_WEIGHT:g}; default model: {SPARTA_WEIGHT * DEFAULT_FACTOR:g}",
        ),
    ] = None
    reader: Annotated[
        str | None,
        Option(
            "A reader of the paragraphs found: `default`, or a checkpoint that answers questions, "
            "or writes answers."
        ),
    ] = None
    depth: Annotated[
        int, Option("With --reader: how many paragraphs it reads for each query.", least=1)
    ] = DEPTH
    retrieval_weight: Annotated[
        float,
        Option("With --reader: what each point of the search adds to its score.", 0, MOST_WEIGHT),
    ] = RETRIEVAL_WEIGHT
    rerank: Annotated[
        int | None,
        Option(
            "How many phrases of each query the model's reader judges again; 0: none.",
            0,
            None,
            f"{N_RERANKED} if the model can",
        ),
    ] = None
    min_probability: Annotated[
        float, Option("Leave out answers that are less likely than this.", 0, 1)
    ] = 0.0
    calibration: Annotated[
        str | None,
        Option(
            "File from `kbq calibrate`, instead of the model's own calibration.", metavar="FILE"
        ),
    ] = None
    purpose: Purpose = "query"  # decides which of the model's own calibrations gives probabilities

    def __post_init__(self) -> None:
        check(self, QueryError)
        if self.reader is not None and self.unit in ("sentence", "paragraph"):
            raise QueryError(
                f"a reader finds no {self.unit}: ask for phrases or pages", is_usage=True
            )

        finder, units, others = NOT_FOUND.get(self.backend, ("", (), ""))
        if self.reader is None and self.unit in units:
            raise QueryError(
                f"{finder} finds no {self.unit}: ask for {others}, or use the backend hybrid",
                is_usage=True,
            )

    @property
    def chosen_unit(self) -> Unit:
        """The unit that is asked for or, by default, the smallest that can be found."""
        return self.unit or (
            "paragraph" if self.reader is None and self.backend in WORDS_ALONE else "phrase"
        )


class RankKwargs(TypedDict, total=False):
    """The options that rank answers; see `SearchOptions`."""

    bm25_weight: float | None
    sparta_weight: float | None
    rerank: int | None


class SearchKwargs(RankKwargs, total=False):
    """The options of a search that methods take by name only; see `SearchOptions`."""

    reader: str | Path | None
    depth: int
    retrieval_weight: float
    min_probability: float
    calibration: str | Path | None


class QueryKwargs(SearchKwargs, total=False):
    """The options of `KnowledgeBase.aquery`."""

    unit: Unit | None
    backend: Backend


class PredictKwargs(SearchKwargs, total=False):
    """The options of `KnowledgeBase.predict`."""

    top_pages: int
    unit: Unit
    with_text: bool
    questions: str | Path | None
    backend: Backend
    report: Callable[[int, int], None]


def check_explained(k: int, backend: Backend) -> None:
    """Raise QueryError if a number of paragraphs or terms has no meaning, or a backend is not one of
    words alone.
    """
    SearchOptions(k, backend=backend)
    if backend not in WORDS_ALONE:
        raise QueryError(
            f"backend {backend!r} cannot be explained: choose bm25 or sparta", is_usage=True
        )


def search_options(keywords: Mapping[str, Any], **others: Any) -> SearchOptions:
    """Make the options of a search from the keywords of a method; networks and files may be paths.

    Raises:
        QueryError: an option is unknown, or its value has no meaning.
    """
    refuse_unknown_options(keywords, SearchOptions.__dataclass_fields__, QueryError)
    named = [name for name in ("reader", "calibration") if keywords.get(name) is not None]
    paths = {name: str(as_path(keywords[name], f"a {name}")) for name in named}
    return SearchOptions(**{**keywords, **paths, **others})
