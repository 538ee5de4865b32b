"""Earlier mention: find where a text last names a subject before a window, so that a reader knows
who is meant.

A window shows 200 characters on either side of a phrase. In a text about several things, these
often say "she" or "the mill"; the name stands further up.
"""

import re
from functools import lru_cache

from kbq.text.whole_words import whole_words
from kbq.words.names import SubjectName

# Characters of the text around a mention: a title before it, what it is after it.
BEFORE = 20
AFTER = 100
CLAUSE_END = re.compile(r"[.;!?]\s")
_subject_name = lru_cache(64)(SubjectName)  # all windows of a query have one subject


def earlier_mention(
    subject: str, title: str, text: str, begin: int, stop: int
) -> tuple[int, int] | None:
    """Return the characters [start, end) of a text around the last mention of a subject before a
    window.

    Args:
        subject: the subject of a slot query.
        title: of the page; if it is the subject, no mention is needed.
        begin, stop: the characters of the window in the text.

    Returns:
        None if the window itself names the subject, or nothing before it does.

    >>> text = "The mill was built by Ann Orr of Leeds. " + 30 * "It rained. " + "She died in 1901."
    >>> start, end = earlier_mention("Ann Orr", "The mill", text, len(text) - 17, len(text))
    >>> text[start:end]
    'mill was built by Ann Orr of Leeds.'
    >>> earlier_mention("Ann Orr", "Ann Orr", text, len(text) - 17, len(text)) is None
    True
    """
    if begin <= 0 or not subject:
        return None
    subject_name = _subject_name(subject)
    if subject_name.is_title(title):
        return None
    for name in filter(None, (subject, subject_name.family_name)):
        places = whole_words(text[:stop], name, in_any_case=name == subject)
        if any(place >= begin for place in places):
            return None
        if places:
            return _mentioning(text, places[-1], places[-1] + len(name), begin)

    return None


def _mentioning(text: str, first: int, last: int, begin: int) -> tuple[int, int]:
    """Return the characters of a mention and of its clause, cut between words, before the window."""
    start = max(0, first - BEFORE)
    if start:
        blank = text.find(" ", start, first)
        start = first if blank < 0 else blank + 1
    clause = CLAUSE_END.search(text, last, min(last + AFTER, begin))
    if clause:
        return start, clause.start() + 1
    end = min(last + AFTER, begin)
    blank = text.rfind(" ", last, end)
    if end == begin or blank < 0:
        return start, end
    return start, blank
