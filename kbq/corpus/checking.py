"""Checking: bad lines of a corpus, pages that were made in Python, and text that is not English."""

import re
from collections.abc import Iterable, Iterator

from kbq.corpus.metadata import check_metadata, encodable
from kbq.corpus.pages import Page, PageIds, Paragraph, refuse_long_names
from kbq.errors import MOST_PROBLEMS, CorpusError, KbqError
from kbq.storage.lines import source_name
from kbq.storage.progress import Note

READ_ON = 100_000  # pages that are read after the first bad line, in search of more
# The default model, the grammars of dates and the stems of words are made for English. Every third or fourth word of
# English prose is one of these; in other languages, fewer than one in fifteen is spelt alike.
COMMON = frozenset({
    "the", "of", "and", "to", "in", "is", "was", "for", "that", "with", "as", "by", "on", "at", "from", "it", "are",
    "were", "which", "his", "her", "has", "had", "be",
})  # fmt: skip
LEAST = 0.08  # share of words that are common ones
WORDS = 2000  # that are looked at
NOT_ENGLISH = (
    "most of this text does not look like English, for which the default model is made: expect few answers, or choose "
    "another --model"
)
_WORD = re.compile(r"[^\W\d_]+")


class BadLines:
    """The bad lines of a corpus: skipped with a note, or collected, so that the corpus is refused with all of them."""

    def __init__(self, corpus: object, are_skipped: bool, note: Note) -> None:
        self._corpus = source_name(str(corpus))
        self._are_skipped, self._note = are_skipped, note
        self._problems: list[str] = []
        self.count = 0

    def add(self, problem: KbqError) -> None:
        """Take the problem of a line. Raises CorpusError if there are too many."""
        self.count += 1
        if self._are_skipped:
            self._note(f"skipped: {problem}")
            return
        self._problems.append(str(problem))
        if self.count == MOST_PROBLEMS:
            raise self._refusal(all_read=False)

    def all_or_none(self, pages: Iterable[Page]) -> Iterator[Page]:
        """Yield the pages up to the first bad line; from there on, only read the corpus, so that all are named.

        Raises CorpusError if there are bad lines, and they are not skipped.
        """
        read_on = 0
        try:
            for page in pages:
                if not self._problems:
                    yield page
                    continue
                read_on += 1
                if read_on >= READ_ON:
                    break
        except CorpusError:
            if not self._problems:  # else it only says that there was no good line
                raise
        if self._problems:
            raise self._refusal(all_read=read_on < READ_ON)

    def _refusal(self, all_read: bool) -> CorpusError:
        if self._problems[1:]:
            return CorpusError(
                f"{self._corpus} has {self.count} bad lines{'' if all_read else ', or more'}: "
                "correct them, or leave them out with --skip-bad-lines",
                self._problems,
            )
        return CorpusError(self._problems[0])


def checked_pages(pages: Iterable[Page], known_ids: Iterable[str] = ()) -> Iterator[Page]:
    """Yield pages that were made in Python, each with an id of its own.

    Raises CorpusError if one is not a page, lacks an id, or has the id of another, or if there is none.
    """
    known = PageIds(known_ids)
    count = 0
    for count, page in enumerate(pages, start=1):
        if not isinstance(page, Page) or not all(map(_is_paragraph, page.paragraphs)):
            raise CorpusError(f"page {count} is {page!r:.80}: give kbq.Page(id, title, paragraphs)")
        if not (isinstance(page.id, str) and page.id.strip() and isinstance(page.title, str)):
            raise CorpusError(f"page {count} has the id {page.id!r} and the title {page.title!r}: both must be text")
        refuse_long_names(page)
        if not known.add(page.id):
            raise CorpusError(f"page id {page.id!r} is taken by an earlier page: give every page its own id")
        for text in (page.id, page.title, *(one.text for one in page.paragraphs)):
            encodable(text, f"page {page.id!r}")
        try:
            check_metadata(page.metadata)
        except CorpusError as error:
            raise CorpusError(f"page {page.id!r}: {error}") from None
        yield page
    if count == 0:
        raise CorpusError("there are no pages: a corpus needs at least one")


def _is_paragraph(one: object) -> bool:
    return isinstance(one, Paragraph) and isinstance(one.text, str) and isinstance(one.number, int) and one.number >= 0


def noting_language(pages: Iterable[Page], note: Note) -> Iterator[Page]:
    """Yield the same pages; note once enough text has passed, or at the end, if it does not look like English."""
    words: list[str] = []
    for page in pages:
        if len(words) < WORDS:
            words += [word for one in page.paragraphs for word in _WORD.findall(one.text)]
            if len(words) >= WORDS:
                _say(words, note)
        yield page
    if len(words) < WORDS:
        _say(words, note)


def looks_english(words: Iterable[str]) -> bool:
    """Whether enough of some words are common in English; too few words always do.

    >>> looks_english("Die Brücke wurde im Jahr 1851 gebaut und steht noch".split() * 10)
    False
    >>> looks_english("The bridge was built in the year 1851 and is still there".split() * 10)
    True
    """
    several = [word.casefold() for word in words]
    return len(several) < 50 or sum(word in COMMON for word in several) >= LEAST * len(several)


def _say(words: list[str], note: Note) -> None:
    if not looks_english(words):
        note(NOT_ENGLISH)
