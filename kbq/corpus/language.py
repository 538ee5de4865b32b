"""Language: pages pass through, and it is said where most of their text does not look like English."""

import re
from collections.abc import Iterable, Iterator

from kbq.corpus.pages import Page
from kbq.storage.progress import Note

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


def noting_language(pages: Iterable[Page], note: Note) -> Iterator[Page]:
    """The same pages; a note is made once enough text has passed, or at the end."""
    words: list[str] = []
    is_open = True
    for page in pages:
        if is_open:
            words += [word for one in page.paragraphs for word in _WORD.findall(one.text)]
            if len(words) >= WORDS:
                is_open = False
                _say(words, note)
        yield page
    if is_open:
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
