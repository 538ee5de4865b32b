"""Normal answers: the form in which KILT compares answers."""

import re
import string
from collections.abc import Iterator
from functools import lru_cache

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_BLANK = re.compile(r"\s")
SHORT_ANSWER = 100  # characters: of such texts, the last that were normalised are kept
# Characters of a long text that are split into words at a time: a word takes ten times its
# characters.
LONG_PART = 2**20


def normalise_answer(text: str) -> str:
    """Normalise an answer as KILT does: lower case, without ASCII punctuation, articles and surplus
    blanks.

    Unicode forms stay as they are.

    >>> normalise_answer("The U.S.  naive–cafe, a_b")
    'us naive–cafe ab'
    """
    if len(text) <= SHORT_ANSWER:
        return _normal_answer_before(text)
    return " ".join(filter(None, map(_normal_answer, parts(text))))


def _normal_answer(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


# The answers to a query are looked at several times.
_normal_answer_before = lru_cache(2**14)(_normal_answer)


def parts(text: str) -> Iterator[str]:
    """Yield a text in parts of about LONG_PART characters, which end at blanks."""
    first = 0
    while first < len(text):
        blank = _BLANK.search(text, first + LONG_PART)
        last = blank.end() if blank else len(text)
        yield text[first:last]
        first = last
