"""Answers: the records of a search, from its options to the answers that it returns.

Text is Unicode NFC everywhere. Character positions are half-open, [start, end), and count the
characters of one paragraph. `score`: higher is better; only the scores of one query in one search
can be compared.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, get_args

from kbq.errors import CorpusError, QueryError
from kbq.options import Option, check
from kbq.text import html
from kbq.text.encodings import check_encoding
from kbq.text.normal_forms import tidy
from kbq.text.queries import Query

CorpusFormat: TypeAlias = Literal[
    "auto", "kilt", "jsonl", "squad", "dpr", "msmarco", "text", "table"
]
TitleFrom: TypeAlias = Literal["auto", "heading", "metadata", "name"]
BuiltKind = Literal["exact", "disk", "compact", "tiny"]
IndexKind = Literal[BuiltKind, "official"]  # the last is imported
INDEX_KINDS: tuple[IndexKind, ...] = get_args(IndexKind)
WantedKind = Literal["auto", BuiltKind]
Unit = Literal["phrase", "sentence", "paragraph", "page"]
Purpose = Literal["query", "cell"]  # most queries have an answer, most cells of a table have none
ASKED: dict[Purpose, str] = {"query": "queries", "cell": "cells of tables"}
Backend = Literal["auto", "dense", "bm25", "sparta", "hybrid"]
WordBackend = Literal["bm25", "sparta"]
WORDS_ALONE: tuple[WordBackend, ...] = ("bm25", "sparta")
WeightType = Literal["float32", "int8"]
# Defaults of a search.
K = 5
DEPTH = 20
RETRIEVAL_WEIGHT = 0.1
N_RERANKED = 10
MOST_WEIGHT = 1e6  # a larger weight of words would lose the scores of vectors in rounding
TOP_PAGES = 20  # length of a prediction's provenance
TOP = 3  # alternatives that `kbq fill` keeps
# Characters of evidence in JSON on either side of an answer: most paragraphs are whole.
CONTEXT = 500
# Extra characters allowed so that a letter keeps its combining marks: Unicode's limit is 30.
MOST_MARKS = 32
JOINER = "\u200d"  # joins the parts of an emoji


@dataclass(frozen=True, slots=True)
class CorpusColumns:
    """The names of the columns, or fields, of a corpus that hold the parts of a page."""

    id: Annotated[str, Option("For tables and jsonl: the column of page ids.")] = "id"
    title: Annotated[str, Option("For tables and jsonl: the column of titles.")] = "title"
    text: Annotated[str, Option("For tables and jsonl: the column of texts.")] = "text"


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """How documents are read. Raises CorpusError for invalid values."""

    title_from: Annotated[
        TitleFrom,
        Option("For documents: where titles come from; auto: metadata, heading, then name."),
    ] = "auto"
    encoding: Annotated[
        str | None, Option("For documents: encoding of text, such as windows-1252.")
    ] = None
    strict: Annotated[
        bool, Option("Stop at a document that cannot be read, instead of leaving it out.")
    ] = False
    seconds_per_document: Annotated[
        float, Option("For documents: longest time to read one, in seconds.", 0.1)
    ] = 30.0

    def __post_init__(self) -> None:
        check(self, CorpusError)
        if self.encoding is not None:
            check_encoding(self.encoding)


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
            "8; default model: 4",
        ),
    ] = None
    sparta_weight: Annotated[
        float | None,
        Option(
            "With hybrid: what each point of SPARTA adds to a score.",
            0,
            MOST_WEIGHT,
            "4; default model: 2",
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
            "10 if the model can",
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
        finder = {"bm25": "BM25", "sparta": "SPARTA"}.get(self.backend)
        if self.reader is not None and self.unit in ("sentence", "paragraph"):
            raise QueryError(
                f"a reader finds no {self.unit}: ask for phrases or pages", is_usage=True
            )

        if self.reader is None and finder and self.unit in ("phrase", "sentence"):
            raise QueryError(
                f"{finder} finds no {self.unit}: ask for paragraphs or pages, or use the backend "
                "hybrid",
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


@dataclass(frozen=True, slots=True)
class Answer:
    """A phrase found for a query, with its evidence: `text` is `context[start:end]`, tidied (see
    `letters`).

    A search by words alone finds no phrase: the whole paragraph is the answer.
    """

    text: str
    score: float
    page_id: str
    title: str
    paragraph: int  # the corpus's own number, so numbers may have gaps
    start: int
    end: int
    context: str  # the whole paragraph
    unit: tuple[int, int]  # characters of the retrieved unit (phrase, sentence, paragraph) in it
    # Metadata of the page, as in its corpus.
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)
    # Chance that it is right, from 0 to 1; None: no calibration fits.
    probability: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", tidy(self.text))

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Page id, paragraph and characters, which tell answers apart."""
        return self.page_id, self.paragraph, self.start, self.end

    def window(self, context: int) -> tuple[int, int]:
        """Return the characters [start, end) of the paragraph around the answer: up to `context` on
        either side.

        Near the beginning or the end of the paragraph, the other side gets more.
        """
        # missing, where positive.
        before = context - self.start
        after = context - (len(self.context) - self.end)
        first = max(0, self.start - context - max(0, after))
        last = min(len(self.context), self.end + context + max(0, before))
        return _outside_letter(self.context, first, -1), _outside_letter(self.context, last, 1)

    def to_dict(self, context: int = CONTEXT) -> dict[str, object]:
        """Return the answer as `kbq query --json` prints it: flat, with part of its paragraph, and
        `metadata` if any.

        `text` is `context[start - context_start : end - context_start]`, with one blank for any
        white space. Raises QueryError if `context`, the number of characters on either side of the
        answer, is negative.
        """
        if type(context) is not int or context < 0:
            raise QueryError(f"context is {context!r}, must be 0 or more")
        answer: dict[str, object] = {
            "text": self.text,
            "score": round(self.score, 4),
            "probability": None if self.probability is None else round(self.probability, 4),
        }
        place: dict[str, object] = {
            "page_id": self.page_id,
            "title": self.title,
            "paragraph": self.paragraph,
            "start": self.start,
            "end": self.end,
            "unit_start": self.unit[0],
            "unit_end": self.unit[1],
        }
        first, last = self.window(context)
        evidence: dict[str, object] = {"context_start": first, "context": self.context[first:last]}
        if self.metadata:
            evidence["metadata"] = dict(self.metadata)

        return answer | place | evidence

    def __reduce__(self) -> tuple[type["Answer"], tuple[object, ...]]:
        # Actors of a cluster send many answers; a dataclass with slots takes twice as long.
        return Answer, _fields_of(self)

    def _repr_html_(self) -> str:
        return Answers([self])._repr_html_()

    def __str__(self) -> str:
        return (
            f"{self.text}  {self.score:.2f}  {self.title} (page {self.page_id}, paragraph "
            f"{self.paragraph})"
        )


HEADER = "answer", "probability", "evidence", "page"  # columns of a notebook's answers


class Answers(list[Answer]):
    """The answers to a query, best first; a notebook shows them with their evidence."""

    def _repr_html_(self) -> str:
        return html.table(HEADER, map(_cells, self)) if self else html.text("no answer")


class AnswersOfEach(list[list[Answer]]):
    """The answers to each of several queries; a notebook shows the best of each, with its evidence."""

    queries: Sequence[str] = ()

    def _repr_html_(self) -> str:
        best = (_cells(answers[0]) if answers else () for answers in self)
        rows = [(_left(query), *cells) for query, cells in zip(self.queries, best, strict=True)]
        return html.table(("query", *HEADER), rows)


class Facts(dict[str, object]):
    """Facts by name; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        return html.table(
            (), ((_left(name.replace("_", " ")), _left(value)) for name, value in self.items())
        )


def _left(value: object) -> str:
    return html.element("td", html.text(value), style="text-align:left")


def _cells(answer: Answer) -> list[str]:
    """Return an answer, its probability, evidence and page as cells of a table in a notebook."""
    chance = answer.probability
    worth = (
        html.text(f"{answer.score:.2f}") if chance is None else html.bar(chance, percentage(chance))
    )
    first, last = answer.window(160)
    before = "… " * (first > 0) + answer.context[first : answer.start]
    after = answer.context[answer.end : last] + " …" * (last < len(answer.context))
    evidence = html.marked(before, answer.text, after)
    place = f"page {answer.page_id}, paragraph {answer.paragraph}"

    return [
        html.element("td", html.element("b", html.text(answer.text))),
        html.element("td", worth),
        html.element("td", evidence, style="text-align:left"),
        html.element("td", html.text(answer.title), title=place),
    ]


class PageName(NamedTuple):
    """The id and the title of a page."""

    page_id: str
    title: str


class StrongTerms(NamedTuple):
    """The strongest terms of a sentence, or of a paragraph as a whole."""

    paragraph: int  # its number
    text: str
    terms: dict[str, float]  # their weights, the largest first


_fields_of = attrgetter(*(one.name for one in fields(Answer)))


def is_likely(answer: Answer, min_probability: float) -> bool:
    """Return whether an answer is at least this likely to be right; an unknown probability counts
    as 0.
    """
    return min_probability <= (answer.probability or 0.0)


@dataclass(frozen=True, slots=True)
class Result:
    """The answers found for one query."""

    query: str
    answers: list[Answer]  # best first, likely or not
    min_probability: float  # the bound that was asked for
    unknown_words: Sequence[str]  # words that no page has, perhaps mistyped
    is_exact: bool  # nothing better can have been missed

    @property
    def likely(self) -> list[Answer]:
        """The answers that are likely enough."""
        return [answer for answer in self.answers if is_likely(answer, self.min_probability)]

    @property
    def best_guess(self) -> Answer | None:
        """The best answer if none is likely enough."""
        return self.answers[0] if self.answers and not self.likely else None

    def facts(self, context: int = CONTEXT) -> dict[str, object]:
        """Return the result as `to_dict` does, without its answers, of which there may be very
        many.
        """
        guess = self.best_guess
        facts: dict[str, object] = {
            "query": self.query,
            "exact": self.is_exact,
            "unknown_words": list(self.unknown_words),
        }
        return facts if guess is None else facts | {"best_guess": guess.to_dict(context)}

    def to_dict(self, context: int = CONTEXT) -> dict[str, Any]:
        """Return the result as `kbq query --json` and the service give it; see `Answer.to_dict`."""
        return self.facts(context) | {
            "answers": [answer.to_dict(context) for answer in self.likely]
        }


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """All that decides the answers of a search besides its queries: runs that share it can resume
    one another.
    """

    contents: str  # digest of the knowledge base, without its indexes of vectors
    pages: str  # digest of the ids of the pages that answers come from; empty: all
    index: str  # `exact`, or what decides the hits of another index
    query_encoder: str  # its fingerprint
    backend: Backend
    weights: tuple[float, float]  # worth of a point of BM25, and of SPARTA
    reader: str | None  # fingerprint of the reader, if one is asked for
    # The reader that judges phrases again, and the digest of the calibration.
    reranker: Mapping[str, object] | None


class ReadsQueries(Protocol):
    """The tokenizer of a network that reads queries."""

    def ids_of(self, text: str) -> list[int]:
        """Return token ids. Raises QueryError if the network cannot read the text."""

    def is_short_enough(self, text: str) -> bool:
        """Whether a text fits the network."""


class Askable(Protocol):
    """The part of a `Searcher` that KILT predictions need."""

    folder: Path

    @property
    def batch_size(self) -> int:
        """How many queries to ask at a time."""

    def check(
        self, options: SearchOptions, texts: Sequence[str] = (), places: Sequence[str] = ()
    ) -> Sequence[Query]:
        """Return the queries that texts are. Raises QueryError if options do not fit, or texts
        cannot be asked.
        """

    def results(
        self, queries: Sequence[Query], options: SearchOptions, spell: bool = False
    ) -> Iterator[Result]:
        """Yield the result of each query that `check` has let pass."""

    def query_tokenizers(self, options: SearchOptions) -> Sequence[ReadsQueries]:
        """Return the tokenizers of all networks that will read a query."""

    def facts(self, options: SearchOptions) -> SearchFacts:
        """Return what decides the answers."""

    def writes_answers(self, options: SearchOptions) -> bool:
        """Whether the reader writes answers instead of finding phrases."""

    def untuned_relations(self, texts: Iterable[str]) -> list[str]:
        """Return the relations of queries that the query encoder was not tuned on."""


def percentage(probability: float) -> str:
    """Return a probability in whole percents.

    >>> percentage(0.934), percentage(0.001), percentage(0.9999)
    ('93 %', '< 1 %', '> 99 %')
    """
    percent = round(100 * probability)
    return f"{percent} %" if 0 < percent < 100 else "> 99 %" if percent else "< 1 %"


def percent(share: float, digits: int = 0) -> str:
    """Return a share, which may be nothing or all, in percent.

    >>> percent(0.4), percent(1), percent(0.98765, 2)
    ('40 %', '100 %', '98.77 %')
    """
    return f"{100 * share:.{digits}f} %"


def counted(count: int, thing: str) -> str:
    """Return a number of things.

    >>> counted(1, "page"), counted(1234, "page")
    ('1 page', '1,234 pages')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _outside_letter(text: str, cut: int, step: int) -> int:
    """Move a cut on, by steps of 1 or -1, until it parts no letter from its marks and no emoji.

    >>> _outside_letter("ab\u0301c", 2, -1), _outside_letter("ab\u0301c", 2, 1), _outside_letter("abc", 2, 1)
    (1, 3, 2)
    """
    for _ in range(MOST_MARKS):
        if not 0 < cut < len(text):
            break
        if unicodedata.category(text[cut])[0] != "M" and JOINER not in text[cut - 1 : cut + 1]:
            break
        cut += step
    return cut
