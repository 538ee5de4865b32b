"""Pages: the records of a corpus with their metadata."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbq.errors import CorpusError
from kbq.storage.paths import as_iterable
from kbq.storage.records import parsed_json
from kbq.storage.rows import text_of
from kbq.text.normal_forms import clean_text, normal_form

LONGEST_NAME = 4096  # characters of an id or a title: as long as a path may be

DEEPEST = 50  # lists and objects in one another
ADDRESS = re.compile(r"(url|href|link)s?$", re.IGNORECASE)
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
SKIPPED = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]")
SAFE = "http", "https", "mailto"
_WANTED = "write text, a finite number, true, false, null, a list or an object"

_NOT_IN_AN_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

BOLD = 7  # the level of a short line in bold letters, which may be a heading


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a page; `number` is the corpus's own, so numbers may have gaps."""

    number: int
    text: str
    # First character of the content: a list marker before it is not part of any answer.
    begin: int = 0


@dataclass(frozen=True, slots=True, init=False)
class Page:
    """A page of a corpus; `page_id` is the page's own (KILT: wikipedia_id)."""

    page_id: str
    title: str
    paragraphs: tuple[Paragraph, ...]
    # Further facts from its source, as JSON values: url, date, ….
    metadata: Mapping[str, object] = field(hash=False)

    def __init__(
        self,
        page_id: str,
        title: str,
        paragraphs: str | Iterable[Paragraph | str] = (),
        *,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Paragraphs that are given as strings are numbered by their position, from 0.

        >>> page = Page("1", "Warsaw", ["Warsaw is the capital of Poland."], metadata={"licence": "CC0"})
        >>> page.paragraphs
        (Paragraph(number=0, text='Warsaw is the capital of Poland.', begin=0),)
        >>> page.metadata
        {'licence': 'CC0'}
        """
        if metadata is not None and not isinstance(metadata, Mapping):
            raise CorpusError(f"the metadata of page {page_id!r} are {metadata!r:.60}: give a dict")
        texts = [paragraphs] if isinstance(paragraphs, str) else paragraphs
        several = as_iterable(
            texts,
            CorpusError,
            f"the paragraphs of page {page_id!r} are",
            "a text, or a list of texts",
        )
        object.__setattr__(self, "page_id", page_id)
        object.__setattr__(self, "title", title)
        numbered = (
            Paragraph(number, item) if isinstance(item, str) else item
            for number, item in enumerate(several)
        )
        object.__setattr__(self, "paragraphs", tuple(numbered))
        object.__setattr__(self, "metadata", dict(metadata or {}))


def blocks(text: str) -> list[str]:
    """Split a text at its blank lines."""
    return [block.strip("\n") for block in re.split(r"\n\s*\n", text) if block.strip()]


def as_paragraphs(texts: Iterable[str]) -> tuple[Paragraph, ...]:
    """Number texts by their position, and leave out blank ones."""
    return tuple(Paragraph(number, text) for number, text in enumerate(texts) if text.strip())


def page_id_of(value: object, name: str) -> str:
    """Return a page id that a field, or a column, of this name has. Raises CorpusError if it is
    none.
    """
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if is_whole and not isinstance(value, bool):
        return text_of(value)
    if not isinstance(value, str) or not value.strip() or _NOT_IN_AN_ID.search(value.strip()):
        raise wrong_field(name, value, "a whole number, or text without control characters")
    return normal_form("NFC", value.strip())


def wrong_field(name: str, value: object, wanted: str) -> CorpusError:
    """Return the error of a field with a wrong value."""
    shown = "missing" if value is None else f"{value!r:.40}"
    return CorpusError(f"{name} is {shown}: write {wanted}")


def refuse_long_names(page: Page) -> None:
    """Refuse a text as a title or an id, as both are printed with every answer. Raises CorpusError."""
    for what, name in (("page id", page.page_id), ("title", page.title)):
        if len(name) > LONGEST_NAME:
            raise CorpusError(
                f"the {what} {name[:40]!r}… has {len(name):,} characters: shorten it to "
                f"{LONGEST_NAME:,} at most"
            )


class PageIds:
    """A set of page ids, to find duplicates.

    It keeps a 64-bit hash of each id: 8 bytes a page, twice that while they are sorted. The
    probability that two different ids collide is pages² / 2^65: one in a million for 6 million
    pages.
    """

    max_recent = 2**17  # hashes that are collected before they are sorted in

    def __init__(self, known_ids: Iterable[str] = ()) -> None:
        """`known_ids`: the ids to begin with, each once."""
        self._recent: set[int] = set()
        self._sorted = np.sort(np.fromiter(map(hash, known_ids), np.int64))

    def __contains__(self, page_id: str) -> bool:
        key = hash(page_id)
        if key in self._recent:
            return True
        row = int(np.searchsorted(self._sorted, key))
        return bool((self._sorted[row : row + 1] == key).any())

    def add(self, page_id: str) -> bool:
        """Add an id; return whether it was new."""
        if page_id in self:
            return False
        self._recent.add(hash(page_id))
        if len(self._recent) >= self.max_recent:
            self._sorted = np.concatenate([self._sorted, np.fromiter(self._recent, np.int64)])
            self._sorted.sort()
            self._recent.clear()
        return True


def clean_metadata(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields with clean texts and names, inside lists and objects, too.

    Raises CorpusError if a value is not JSON, or too deep, or two names are the same once they are
    clean.

    >>> clean_metadata({"url": "https://a.org/Cafe\u0301", "years": [1815, None]})
    {'url': 'https://a.org/Café', 'years': [1815, None]}
    """
    return _object(fields, "", clean_text)


def jsonable(fields: Mapping[Any, Any]) -> dict[str, object]:
    """Return fields in which values that JSON lacks, such as dates, are text; in lists and objects,
    too.

    Values that `clean_metadata` refuses, bytes and deep nesting, stay.
    """

    def plain(value: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            return value
        if isinstance(value, str | int | float | bool | bytes | tuple | None):
            return value
        if isinstance(value, dict):
            return {str(name): plain(inner, depth + 1) for name, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner, depth + 1) for inner in value]
        return text_of(value)

    return {str(name): plain(value) for name, value in fields.items()}


def check_metadata(fields: Mapping[str, object]) -> None:
    """Raise CorpusError for fields that `clean_metadata` refuses, or with half of a character;
    change nothing.
    """
    _object(fields, "", encodable)


def stored_metadata(written: str) -> Mapping[str, Any]:
    """Parse the metadata that a knowledge base stores as JSON, and leave out unsafe addresses.

    Raises CorpusError if it is not JSON that kbq writes; a seal does not say who made a knowledge
    base.
    """
    try:
        fields = parsed_json(written)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
    except ValueError as error:
        raise CorpusError(str(error)) from None
    check_metadata(fields)
    return without_unsafe_urls(fields)


def without_unsafe_urls(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out addresses that a browser, or another program, would run or open here:
    `javascript:`, `file:`.

    A field is an address if its name ends in url, href or link; it stays with http, https or
    mailto, or without a scheme. This holds wherever metadata leave kbq; in its files they are as
    they were.

    >>> without_unsafe_urls({"url": "JavaScript:alert(1)", "links": ["https://e.org/"], "note": "javascript: x"})
    {'links': ['https://e.org/'], 'note': 'javascript: x'}
    """
    return {
        name: value
        for name, value in fields.items()
        if not (ADDRESS.search(name) and _is_unsafe(value))
    }


def has_value(fields: Mapping[str, Any], name: str, text: str) -> bool:
    """Return whether a field has a value that is written like this, alone or in a list.

    >>> has_value({"tags": ["de", 3]}, "tags", "3"), has_value({"old": True}, "old", "true"), has_value({}, "a", "")
    (True, True, False)
    """
    value = fields.get(name)
    several = value if isinstance(value, list) else [value]
    written = (
        str(item).lower() if isinstance(item, bool) else str(item)
        for item in several
        if not isinstance(item, dict)
    )
    return name in fields and value is not None and text in written


def _is_unsafe(value: object) -> bool:
    """Return whether a value, or one within it, is an address with another scheme, as browsers read
    it.
    """
    if isinstance(value, list):
        return any(map(_is_unsafe, value))
    if isinstance(value, dict):
        return any(map(_is_unsafe, value.values()))
    scheme = None
    if isinstance(value, str):
        scheme = SCHEME.match(SKIPPED.sub("", value))
    return scheme is not None and scheme[1].lower() not in SAFE


def _object(
    fields: Mapping[str, object], name: str, clean: Callable[[str], str], depth: int = 0
) -> dict[str, object]:
    """Return fields with clean names and values. Raises CorpusError if two get one name."""
    cleaned: dict[str, object] = {}
    for key, value in fields.items():
        if not isinstance(key, str):
            raise CorpusError(
                f"{name or 'metadata'} has the field {key!r:.40}: use text as its name"
            )

        clean_key = clean(key)
        if clean_key in cleaned:
            raise CorpusError(
                f"{name or 'the page'} has two fields {clean_key!r:.40}: give each its own name"
            )

        cleaned[clean_key] = _value(
            value, f"{name}.{clean_key}" if name else clean_key, clean, depth + 1
        )

    return cleaned


def _value(value: object, name: str, clean: Callable[[str], str], depth: int) -> object:
    """Return a value with clean texts. Raises CorpusError if JSON has no such value."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth > DEEPEST and isinstance(value, list | dict):
        raise CorpusError(f"{name:.40}… is nested more than {DEEPEST} deep: flatten it")
    if isinstance(value, list):
        return [
            _value(item, f"{name}[{number}]", clean, depth + 1) for number, item in enumerate(value)
        ]

    if isinstance(value, dict):
        return _object(value, name, clean, depth)
    if isinstance(value, float):
        shown = json.dumps(value)
    else:
        shown = f"{value!r:.40}"
    raise CorpusError(f"{name} is {shown}: {_WANTED}")


def encodable(text: str, where: str = "metadata") -> str:
    """Return a text; refuse half of a surrogate pair in it, which neither a tokenizer nor a file
    takes.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = text[error.start]
        raise CorpusError(
            f"{where} contains {found!r}, half of a character: leave it out"
        ) from None
    return text


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a row of a table or a heading."""

    text: str
    level: int = 0  # level of a heading: 1 to 6, or BOLD; 0: text
    size: float = 0.0  # size of the letters of a PDF, in points


@dataclass(slots=True)
class Contents:
    """The contents of a document."""

    # Numbers and blocks of a PDF's pages; others have number 0.
    pages: list[tuple[int, list[Block]]]
    title: str = ""  # title that its metadata state
    metadata: dict[str, object] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    window_title: str = ""  # title of an HTML page's window


def checked_pages(pages: Iterable[Page], known_ids: Iterable[str] = ()) -> Iterator[Page]:
    """Yield pages that were made in Python, each with an id of its own.

    Raises CorpusError if one is not a page, lacks an id, or has the id of another, or if there is
    none.
    """
    known = PageIds(known_ids)
    count = 0
    for count, page in enumerate(pages, start=1):
        if not isinstance(page, Page) or not all(map(_is_paragraph, page.paragraphs)):
            raise CorpusError(
                f"page {count} is {page!r:.80}: give kbq.Page(page_id, title, paragraphs)"
            )

        if not (
            isinstance(page.page_id, str) and page.page_id.strip() and isinstance(page.title, str)
        ):
            raise CorpusError(
                f"page {count} has the id {page.page_id!r} and the title {page.title!r}: both "
                "must be text"
            )

        refuse_long_names(page)
        if not known.add(page.page_id):
            raise CorpusError(
                f"page id {page.page_id!r} is taken by an earlier page: give every page its own id"
            )

        for text in (page.page_id, page.title, *(paragraph.text for paragraph in page.paragraphs)):
            encodable(text, f"page {page.page_id!r}")
        try:
            check_metadata(page.metadata)
        except CorpusError as error:
            raise CorpusError(f"page {page.page_id!r}: {error.typed}") from None

        yield page

    if count == 0:
        raise CorpusError("there are no pages: a corpus needs at least one")


def _is_paragraph(one: object) -> bool:
    return (
        isinstance(one, Paragraph)
        and isinstance(one.text, str)
        and isinstance(one.number, int)
        and one.number >= 0
    )
