"""Bad lines: skipped with a note, or collected, so that a corpus is refused with all of them."""

from collections.abc import Iterable, Iterator

from kbq.corpus.pages import Page
from kbq.errors import MOST_PROBLEMS, CorpusError, KbqError
from kbq.storage.lines import source_name
from kbq.storage.reports import Note

READ_ON = 100_000  # pages that are read after the first bad line, in search of more


class BadLines:
    """The bad lines of a corpus: skipped with a note, or collected, so that the corpus is refused
    with all of them.
    """

    def __init__(self, corpus: object, are_skipped: bool, note: Note) -> None:
        self._corpus = source_name(str(corpus))
        self._are_skipped = are_skipped
        self._note = note
        self._problems: list[str] = []
        self.count = 0

    def add(self, problem: KbqError) -> None:
        """Take the problem of a line. Raises CorpusError if there are too many."""
        self.count += 1
        if self._are_skipped:
            self._note(f"skipped: {problem.typed}")
            return
        self._problems.append(problem.typed)
        if self.count == MOST_PROBLEMS:
            raise self._refusal(all_read=False)

    def all_or_none(self, pages: Iterable[Page]) -> Iterator[Page]:
        """Yield the pages up to the first bad line; from there on, only read the corpus, so that
        all are named.
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
