"""Views: answers, pages and texts of forms become what templates show, in pieces between which an answer is marked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from kbq.answers import CONTEXT, percentage
from kbq.corpus.metadata import SAFE
from kbq.text.markers import SEPARATOR

if TYPE_CHECKING:
    from kbq.answers import Answer
    from kbq.corpus.pages import Page

SURE, LIKELY = 0.75, 0.5  # probabilities from which an answer has a colour


@dataclass(frozen=True, slots=True)
class Card:
    """An answer as it is shown."""

    text: str
    percent: str  # empty: no calibration fits
    width: int  # of a bar, of 100
    level: str  # sure, likely, unlikely, or unknown
    before: str
    after: str
    title: str
    place: str
    address: str


@dataclass(frozen=True, slots=True)
class MarkedParagraph:
    """A paragraph in three pieces; `marked` is empty where there is nothing to mark."""

    number: int
    before: str
    marked: str
    after: str


def asked_text(query: str, subject: str, relation: str) -> str:
    """What is asked: a whole query, or a subject with its relation, or a question.

    >>> asked_text("", " Marie Curie ", "spouse"), asked_text("", "Who was she?", " "), asked_text("a [SEP] b", "c", "")
    ('Marie Curie [SEP] spouse', 'Who was she?', 'a [SEP] b')
    """
    if query.strip():
        return query.strip()
    is_slot = bool(subject.strip() and relation.strip())
    return f"{subject.strip()} [SEP] {relation.strip()}" if is_slot else subject.strip()


def slot_of_text(text: str) -> tuple[str, str]:
    """The subject and the relation that a query is made of; a question has no relation."""
    subject, *rest = SEPARATOR.split(text, maxsplit=1)
    return subject.strip(), "".join(rest).strip()


def rows_of(text: str, separator: str = "\n") -> list[str]:
    """What a person has listed: each once, without blanks around it."""
    return list(dict.fromkeys(part for part in map(str.strip, text.split(separator)) if part))


def level_of(probability: float | None) -> str:
    """In words, for colours.

    >>> level_of(0.9), level_of(0.5), level_of(0.1), level_of(None)
    ('sure', 'likely', 'unlikely', 'unknown')
    """
    if probability is None:
        return "unknown"
    return "sure" if probability >= SURE else "likely" if probability >= LIKELY else "unlikely"


def percent_of(probability: float | None) -> str:
    """A probability as people read it; empty where there is none."""
    return "" if probability is None else percentage(probability)


def cards(kb: str, answers: Sequence[Answer]) -> list[Card]:
    """Answers as they are shown, each with a part of its paragraph."""
    return [_card(kb, answer) for answer in answers]


def _card(kb: str, answer: Answer) -> Card:
    first, last = answer.window(CONTEXT)
    before = ("… " if first else "") + answer.context[first : answer.start]
    after = answer.context[answer.end : last] + (" …" if last < len(answer.context) else "")
    place = f"paragraph {answer.paragraph}, characters {answer.start}–{answer.end}"
    where = address_of(kb, answer.page_id, answer.paragraph, answer.start, answer.end)
    percent, width = percent_of(answer.probability), round(100 * (answer.probability or 0))
    return Card(answer.text, percent, width, level_of(answer.probability), before, after, answer.title, place, where)


def address_of(kb: str, page_id: str, paragraph: int, start: int, end: int) -> str:
    """The address of a place in a page."""
    place = urlencode({"kb": kb, "paragraph": paragraph, "start": start, "end": end})
    return f"/page/{quote(page_id, safe='', errors='replace')}?{place}#here"


def web_address(metadata: Mapping[str, object]) -> str:
    """Where a page was taken from, if its corpus says it and a browser may go there; else nothing.

    >>> web_address({"url": "https://example.org"}), web_address({"url": " javascript:alert(1)"}), web_address({})
    ('https://example.org', '', '')
    """
    url = metadata.get("url")
    try:
        return url if isinstance(url, str) and urlsplit(url).scheme in SAFE else ""
    except ValueError:
        return ""


def claim_cells(kb: str, lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The claims of each cell as they are shown, by subject and relation."""
    return {
        (line["subject"], line["relation"]): [
            {
                "value": claim["value"],
                "percent": percent_of(claim["probability"]),
                "level": level_of(claim["probability"]),
                "accepted": claim["accepted"],
                "address": address_of(kb, *(claim[name] for name in ("page_id", "paragraph", "start", "end"))),
            }
            for claim in line["claims"]
        ]
        for line in lines
    }


def marked_paragraphs(page: Page, paragraph: int | None, start: int | None, end: int | None) -> list[MarkedParagraph]:
    """The paragraphs of a page, with some characters of one of them marked."""
    found = []
    for one in page.paragraphs:
        first, last = (start or 0, end or 0) if one.number == paragraph else (0, 0)
        first, last = (first, last) if 0 <= first < last <= len(one.text) else (0, 0)
        found.append(MarkedParagraph(one.number, one.text[:first], one.text[first:last], one.text[last:]))
    return found
