"""Answers: the records that a search returns.

Text is Unicode NFC everywhere. Character positions are half-open, [start, end), and count the
characters of one paragraph. `score`: higher is better; only the scores of one query in one search
can be compared.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

from kbq.errors import QueryError
from kbq.text import html
from kbq.text.normal_forms import tidy

BuiltKind = Literal["exact", "disk", "compact", "tiny"]
IndexKind = Literal[BuiltKind, "official"]  # the last is imported
INDEX_KINDS: tuple[IndexKind, ...] = get_args(IndexKind)
WantedKind = Literal["auto", BuiltKind]
WeightType = Literal["float32", "int8"]
# Characters of evidence in JSON on either side of an answer: most paragraphs are whole.
CONTEXT = 500
# Extra characters allowed so that a letter keeps its combining marks: Unicode's limit is 30.
MOST_MARKS = 32
KILT_MARKER = re.compile(r"\s*(Section::::[^\n]*|BULLET::::((-|\d+\.)(\s|$))?)\s*")
JOINER = "\u200d"  # joins the parts of an emoji


@dataclass(frozen=True, slots=True)
class Answer:
    """A phrase found for a query, with its evidence: `text` is `context[start:end]`, with one blank
    for any white space.

    A search by words alone finds no phrase: the whole paragraph, or sentence, is the answer.
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
        lacking_before = max(0, context - self.start)
        lacking_after = max(0, context - (len(self.context) - self.end))
        first = max(0, self.start - context - lacking_after)
        last = min(len(self.context), self.end + context + lacking_before)
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
        if self:
            return html.table(HEADER, map(_cells, self))
        return html.text("no answer")


class AnswersOfEach(list[list[Answer]]):
    """The answers to each of several queries; a notebook shows the best of each, with its evidence."""

    queries: Sequence[str] = ()

    def _repr_html_(self) -> str:
        best: list[Sequence[str]] = []
        for answers in self:
            if answers:
                best.append(_cells(answers[0]))
            else:
                best.append(())
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
        if self.answers and not self.likely:
            return self.answers[0]
        return None

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
        if guess is None:
            return facts
        return facts | {"best_guess": guess.to_dict(context)}

    def to_dict(self, context: int = CONTEXT) -> dict[str, Any]:
        """Return the result as `kbq query --json` and the service give it; see `Answer.to_dict`."""
        return self.facts(context) | {
            "answers": [answer.to_dict(context) for answer in self.likely]
        }


def content_start(text: str) -> int:
    """Return where a paragraph's content begins, after the list marker that a KILT knowledge source
    may have.
    """
    marker = KILT_MARKER.match(text)
    return marker.end() if marker else 0


def percentage(probability: float) -> str:
    """Return a probability in whole percents.

    >>> percentage(0.934), percentage(0.001), percentage(0.9999)
    ('93 %', '< 1 %', '> 99 %')
    """
    percent = round(100 * probability)
    if 0 < percent < 100:
        return f"{percent} %"
    if percent:
        return "> 99 %"
    return "< 1 %"


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
    plural = "s"
    if count == 1:
        plural = ""
    return f"{count:,} {thing}{plural}"


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
