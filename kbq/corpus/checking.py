"""Checking: what becomes of the bad lines of a corpus, and of pages that were made in Python."""

from collections.abc import Callable, Iterable, Iterator

from kbq.corpus.metadata import check_metadata
from kbq.corpus.page_ids import PageIds
from kbq.corpus.pages import Page, Paragraph, refuse_long_names
from kbq.errors import MOST_PROBLEMS, CorpusError, KbqError
from kbq.storage.lines import source_name

READ_ON = 100_000  # pages that are read after the first bad line, in search of more


class BadLines:
    """The bad lines of a corpus: skipped with a note, or collected, so that the corpus is refused with all of them."""

    def __init__(self, corpus: object, are_skipped: bool, note: Callable[[str], None]) -> None:
        self._corpus = source_name(str(corpus))
        self._are_skipped, self._note = are_skipped, note
        self._problems: list[str] = []
        self.count = 0

    def add(self, problem: KbqError) -> None:
        """Take the problem of a line.

        Raises:
            CorpusError: there are too many.
        """
        self.count += 1
        if self._are_skipped:
            self._note(f"skipped: {problem}")
            return
        self._problems.append(str(problem))
        if self.count == MOST_PROBLEMS:
            raise self._refusal(all_read=False)

    def all_or_none(self, pages: Iterable[Page]) -> Iterator[Page]:
        """The pages up to the first bad line; from there on the corpus is only read, so that all bad lines are named.

        Raises:
            CorpusError: there are bad lines, and they are not skipped.
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
                "mend them, or leave them out with --skip-bad-lines",
                self._problems,
            )
        return CorpusError(self._problems[0])


def checked_pages(pages: Iterable[Page], known_ids: Iterable[str] = ()) -> Iterator[Page]:
    """Pages that were made in Python, each with an id of its own.

    Raises:
        CorpusError: one is not a page, lacks an id, or has the id of another; or there is none.
    """
    known = PageIds(known_ids)
    count = 0
    for count, page in enumerate(pages, start=1):
        if not isinstance(page, Page) or not all(map(_is_paragraph, page.paragraphs)):
            raise CorpusError(f"page {count} is {page!r:.80}: give kbq.Page(id, title, paragraphs)")
        if not (isinstance(page.id, str) and page.id.strip() and isinstance(page.title, str)):
            raise CorpusError(f"page {count} has the id {page.id!r} and the title {page.title!r}: give texts")
        refuse_long_names(page)
        if not known.add(page.id):
            raise CorpusError(f"page id {page.id!r} is taken by an earlier page: give every page its own id")
        _refuse_surrogates(page)
        try:
            check_metadata(page.metadata)
        except CorpusError as error:
            raise CorpusError(f"page {page.id!r}: {error}") from None
        yield page
    if count == 0:
        raise CorpusError("there are no pages: a corpus needs at least one")


def _is_paragraph(one: object) -> bool:
    return isinstance(one, Paragraph) and isinstance(one.text, str) and isinstance(one.number, int) and one.number >= 0


def _refuse_surrogates(page: Page) -> None:
    """Half a surrogate pair is not text: neither a tokenizer nor a file takes it."""
    for text in (page.id, page.title, *(one.text for one in page.paragraphs)):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            found = text[error.start]
            raise CorpusError(f"page {page.id!r} contains {found!r}, half of a character: leave it out") from None
