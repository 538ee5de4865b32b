"""Views: answers, pages and texts of forms become the parts of a page, which templates show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import kbq
from kbq.answers import CONTEXT, Answer, percentage
from kbq.corpus.metadata import SAFE
from kbq.corpus.pages import Page
from kbq.tables.outputs import BROWSER
from kbq.text.letters import normalised, without_surrogates
from kbq.text.markers import SEPARATOR

SURE, LIKELY = 0.75, 0.5  # probabilities from which an answer has a colour
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class MarkedParagraph:
    """A paragraph in three pieces; `marked` is empty where there is nothing to mark."""

    number: int
    before: str
    marked: str
    after: str


def asked_text(query: str, subject: str, relation: str) -> str:
    """Return the query that a form asks: a whole query, or a subject with its relation, or a question.

    >>> asked_text("", " Marie Curie ", "spouse"), asked_text("", "Who was she?", " "), asked_text("a [SEP] b", "c", "")
    ('Marie Curie [SEP] spouse', 'Who was she?', 'a [SEP] b')
    """
    if query.strip():
        return query.strip()
    is_slot = bool(subject.strip() and relation.strip())
    return f"{subject.strip()} [SEP] {relation.strip()}" if is_slot else subject.strip()


def slot_of_text(text: str) -> tuple[str, str]:
    """Return the subject and the relation that a query is made of; a question has no relation."""
    subject, *rest = SEPARATOR.split(text, maxsplit=1)
    return subject.strip(), "".join(rest).strip()


def rows_of(text: str, separator: str = "\n") -> list[str]:
    """Return the items of a list that a person has written: each once, without blanks around it."""
    return list(dict.fromkeys(part for part in map(str.strip, text.split(separator)) if part))


def level_of(probability: float | None) -> str:
    """Say in a word, for colours, how likely an answer is.

    >>> level_of(0.9), level_of(0.5), level_of(0.1), level_of(None)
    ('sure', 'likely', 'unlikely', 'unknown')
    """
    if probability is None:
        return "unknown"
    return "sure" if probability >= SURE else "likely" if probability >= LIKELY else "unlikely"


def cards_of(answers: Sequence[Answer]) -> list[list[Answer]]:
    """Put the places of the same answer together, best first: they are one card."""
    cards: dict[str, list[Answer]] = {}
    for answer in answers:
        cards.setdefault(normalised(answer.text), []).append(answer)
    return list(cards.values())


def evidence(answer: Answer) -> tuple[str, str]:
    """Return the parts of its paragraph before and behind an answer."""
    first, last = answer.window(CONTEXT)
    before = ("… " if first else "") + answer.context[first : answer.start]
    return before, answer.context[answer.end : last] + (" …" if last < len(answer.context) else "")


def address_of(kb: str, page_id: str, paragraph: int, start: int, end: int) -> str:
    """Return the address of a place in a page."""
    place = urlencode({"kb": kb, "paragraph": paragraph, "start": start, "end": end})
    return f"/page/{quote(page_id, safe='', errors='replace')}?{place}#here"


def web_address(metadata: Mapping[str, object]) -> str:
    """Return where a page was taken from, if its corpus says it and a browser may go there; else nothing.

    >>> web_address({"url": "https://example.org"}), web_address({"url": " javascript:alert(1)"}), web_address({})
    ('https://example.org', '', '')
    """
    url = metadata.get("url")
    try:
        return url if isinstance(url, str) and urlsplit(url).scheme in SAFE else ""
    except ValueError:
        return ""


def marked_paragraphs(page: Page, paragraph: int | None, start: int | None, end: int | None) -> list[MarkedParagraph]:
    """Return the paragraphs of a page, with some characters of one of them marked."""
    found = []
    for one in page.paragraphs:
        first, last = (start or 0, end or 0) if one.number == paragraph else (0, 0)
        first, last = (first, last) if 0 <= first < last <= len(one.text) else (0, 0)
        found.append(MarkedParagraph(one.number, one.text[:first], one.text[first:last], one.text[last:]))
    return found


def rendered(template: str, view: Mapping[str, Any]) -> str:
    """Return a page, or a part of one, as HTML."""
    return without_surrogates(_templates.get_template(template).render(view))


_templates = Environment(
    loader=FileSystemLoader([HERE / "templates", BROWSER]), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_templates.filters |= {"evidence": evidence, "level": level_of, "percentage": percentage}
_templates.globals |= {"address_of": address_of, "version": kbq.__version__}
