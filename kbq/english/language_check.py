"""The language check: tell by its common words whether a text is English."""

from collections.abc import Iterable

# The default model, the grammars of dates and the stems of words are made for English. Every third
# or fourth word of English prose is one of these; in other languages, fewer than one in fifteen is
# spelt alike.
COMMON = frozenset(
    {
        "the", "of", "and", "to", "in", "is", "was", "for", "that", "with", "as", "by", "on", "at",
        "from", "it", "are", "were", "which", "his", "her", "has", "had", "be",
    }
)  # fmt: skip
LEAST = 0.08  # share of words that are common ones


def looks_english(words: Iterable[str]) -> bool:
    """Whether enough of some words are common in English; too few words always do.

    >>> looks_english("Die Brücke wurde im Jahr 1851 gebaut und steht noch".split() * 10)
    False
    >>> looks_english("The bridge was built in the year 1851 and is still there".split() * 10)
    True
    """
    several = [word.casefold() for word in words]
    return len(several) < 50 or sum(word in COMMON for word in several) >= LEAST * len(several)
