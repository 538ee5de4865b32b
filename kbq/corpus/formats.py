"""Formats: what a line of KILT, JSON lines, SQuAD, DPR or MS MARCO says becomes a page."""

import csv
import re
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeAlias, TypeVar

from kbq.answers import content_start
from kbq.corpus.options import CorpusColumns
from kbq.corpus.pages import (
    Page,
    Paragraph,
    as_paragraphs,
    blocks,
    clean_metadata,
    page_id_of,
    wrong_field,
)
from kbq.corpus.table_pages import Source
from kbq.errors import CorpusError
from kbq.storage.lines import BadLine, Line, whole_text
from kbq.storage.records import parsed_json
from kbq.text.normal_forms import clean_text

Fields: TypeAlias = dict[str, object]
Kind = TypeVar("Kind")
DPR_HEADER = "id\ttext\ttitle"
# `_id` repeats `wikipedia_id`; anchors and categories are Wikipedia's links, and longer than the
# text.
_KILT_FIELDS = frozenset(
    {"wikipedia_id", "wikipedia_title", "text", "_id", "anchors", "categories"}
)
_WRITE: dict[type, str] = {str: "text in quotes", list: "a list", dict: "an object {…}"}


def kilt_page(fields: Fields) -> Page:
    """Return a page of KILT's knowledge source, whose first paragraph may be its title."""
    title = _text(fields.get("wikipedia_title"), "wikipedia_title").strip()
    paragraphs = []
    for number, text in enumerate(_texts(fields, "text")):
        begin = content_start(text)
        is_title_line = number == 0 and text.strip() == title
        if text[begin:].strip() and not is_title_line:
            paragraphs.append(Paragraph(number, text, begin))
    page_id = page_id_of(fields.get("wikipedia_id"), "wikipedia_id")
    return Page(page_id, title, paragraphs, metadata=_others(fields, _KILT_FIELDS))


def jsonl_page(columns: CorpusColumns, fields: Fields) -> Page:
    """Return the page in a JSON line, whose text is whole or in paragraphs."""
    has_paragraphs = "paragraphs" in fields
    if has_paragraphs and columns.text in fields:
        raise CorpusError(f"the page has both {columns.text} and paragraphs: keep one of them")
    id_field = "_id"
    if columns.id in fields or "_id" not in fields:
        id_field = columns.id
    page_id = page_id_of(fields.get(id_field), columns.id)
    title = _text(fields.get(columns.title), columns.title).strip()
    texts = (
        _texts(fields, "paragraphs")
        if has_paragraphs
        else blocks(_text(fields.get(columns.text), columns.text))
    )
    known = frozenset({id_field, columns.title, columns.text, "paragraphs"})
    return Page(page_id, title, as_paragraphs(texts), metadata=_others(fields, known))


def _others(fields: Fields, known: frozenset[str]) -> Fields:
    """Return the fields without a meaning of their own, which become metadata."""
    return clean_metadata({name: value for name, value in fields.items() if name not in known})


def squad_pages(lines: Iterator[Line], name: str) -> Iterator[Source]:
    """Return what reads each article of a SQuAD file as a page."""
    wanted = 'write one object {"data": [{"title", "paragraphs": [{"context"}]}]}'
    try:
        fields = parsed_json(whole_text(lines, name, CorpusError, "\n"))
    except ValueError as reason:
        raise CorpusError(f"{name}: not JSON ({reason}): {wanted}") from reason
    if not isinstance(fields, dict) or not isinstance(fields.get("data"), list):
        raise CorpusError(f"{name}: it has no list of articles: {wanted}")
    articles = enumerate(fields["data"], start=1)
    return (
        (f"{name}: article {number}", partial(_squad_page, article)) for number, article in articles
    )


def _squad_page(article: object) -> Page:
    fields = _checked(article, "the article", dict)
    # SQuAD writes titles as in Wikipedia's URLs, with `_` for a space.
    title = _text(fields.get("title"), "title").replace("_", " ").strip()
    page_id = page_id_of(fields.get("id", fields["title"]), "id")
    contexts = []
    for number, item in enumerate(_checked(fields.get("paragraphs"), "paragraphs", list)):
        paragraph = _checked(item, f"paragraphs[{number}]", dict)
        contexts.append(_text(paragraph.get("context"), f"paragraphs[{number}].context"))
    return Page(page_id, title, as_paragraphs(contexts))


class _Passage(NamedTuple):
    location: str
    title: str
    paragraph: Paragraph


def dpr_pages(lines: Iterator[Line], name: str, on_bad_line: BadLine) -> Iterator[Source]:
    passages = _dpr_passages(lines, name, on_bad_line)
    # Each passage without a title is a page of its own.
    for _, group in groupby(
        passages, key=lambda passage: passage.title or passage.paragraph.number
    ):
        page = list(group)
        yield page[0].location, partial(_dpr_page, page)


def _dpr_passages(lines: Iterator[Line], name: str, on_bad_line: BadLine) -> Iterator[_Passage]:
    """Yield the passages of a DPR file; lines that hold none are told and left out."""
    for number, line in lines:
        if not line.strip() or line == DPR_HEADER:
            continue
        location = f"{name}:{number}"
        try:
            # Line by line, so that an unclosed quotation mark affects one passage only.
            row = next(csv.reader([line], delimiter="\t", strict=True))
        except csv.Error as reason:
            advice = "enclose the text in quotation marks and double those inside it"
            on_bad_line(CorpusError(f"{location}: {reason}: {advice}"))
            continue

        if len(row) == 3 and re.fullmatch("[0-9]{1,9}", row[0]):
            yield _Passage(
                location, clean_text(row[2]).strip(), Paragraph(int(row[0]), clean_text(row[1]))
            )
        else:
            advice = "write id (up to 9 digits), text and title, separated by tabs"
            on_bad_line(CorpusError(f"{location}: {row!r:.60} is not a passage: {advice}"))


def _dpr_page(page: list[_Passage]) -> Page:
    """Return passages that follow one another under a title as one page."""
    numbers = [passage.paragraph.number for passage in page]
    if len(set(numbers)) < len(numbers):
        raise CorpusError(
            f"passages of {page[0].title!r} share an id: give every passage its own id"
        )
    paragraphs = tuple(passage.paragraph for passage in page if passage.paragraph.text.strip())
    # The title cannot be the id: if passages are shuffled or left out, it occurs more than once.
    return Page(str(numbers[0]), page[0].title, paragraphs)


def msmarco_page(line: str) -> Page:
    page_id, tab, text = line.partition("\t")
    if not tab:
        raise CorpusError(f"{line!r:.60} is not a passage: write an id, a tab and the text")
    return Page(page_id_of(page_id, "id"), "", as_paragraphs([clean_text(text)]))


def _texts(fields: Fields, name: str) -> list[str]:
    items = enumerate(_checked(fields.get(name), name, list))
    return [_text(item, f"{name}[{number}]") for number, item in items]


def _text(value: object, name: str) -> str:
    return clean_text(_checked(value, name, str))


def _checked(value: object, name: str, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        raise wrong_field(name, value, _WRITE[kind])
    return value
