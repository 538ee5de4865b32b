"""Split dates: a day in one sentence, and its year in another.

A year holds for a day of its sentence, or of the next, if it sets the time of what is told ("In
1867 …") and nothing moves that on ("ten years later", a day earlier in the year).
"""

import re
from typing import NamedTuple

from kbq.english.dates import (
    DAY,
    DAY_NUMBER,
    LONGEST,
    MONTHS,
    SHORT_MONTHS,
    WEEKDAYS,
    DateValue,
    date_of,
)
from kbq.english.sentences import sentence_bounds

_WEEKDAY = rf"(?:(?:{WEEKDAYS}),? )?"
_DAY = re.compile(
    rf"{_WEEKDAY}(?:the )?(?:{DAY_NUMBER}(?: of)? {MONTHS}|{MONTHS} (?:the )?{DAY_NUMBER})(?![\w-])"
)
_DAY_OR_MONTH = re.compile(
    rf"(?:(?P<day>[0-9]+)\w*(?: of)? )?\b(?P<month>{MONTHS})(?![a-z])"
    r"(?: (?:the )?(?P<day_behind>[0-9]{1,2})(?![0-9]))?"
)
_YEAR = re.compile(r"(?<![\w.,:$£€¥/–-])[12][0-9]{3}(?![\w$€£%°/–-]|[.,:][0-9])")
_LIKE_A_YEAR = re.compile(r"(?<![0-9])[12][0-9]{3}(?![0-9])|\b[0-9]{1,4} B\.?C|\b[0-9]{2}s\b")
_YEAR_BEHIND = re.compile(r"(?:\s*,)?\s*(?:(?:of|in) )?(?:the year )?\(?[12][0-9]{3}(?![0-9])")
# A frame opens a sentence ("In 1867"), or names a month, too ("on 3 May 1867").
_SETS_THE_TIME = re.compile(
    rf"(?:(?:^|[.!?][\"'”’)\]]* )(?:In|During) (?:the year |early )?"
    rf"|\b{MONTHS},? (?:of )?|{_DAY.pattern},? (?:of )?)$"
)
_SAYS_THE_YEAR = re.compile(r"(?:The year|It|This|That) was (?:in )?(?:the year )?$")
_YEAR_SAID = re.compile(rf"\s*{_SAYS_THE_YEAR.pattern[:-1]}(?=[12])")
_SAME_YEAR = re.compile(
    r"\b(?:(?:later|earlier) )?(?:in |of )?(?:that|the same|this) (?:same )?year\b|\bof the year\b",
    re.IGNORECASE,
)
# Words that move the time on, or tell of every year.
_OTHER_TIME = re.compile(
    r"\b(?:years?|months|decades?|centur(?:y|ies)|following|next|subsequent\w*|after\w*|later|eventual\w*|finally"
    r"|anniversar\w+|birthdays?|every|each|annual\w*|yearly|always|usually|since|ago|celebrat\w+|observed"
    r"|commemorat\w+|feasts?|holidays?|festivals?|now|today|is|are|will)\b",
    re.IGNORECASE,
)
_BIRTH = re.compile(r"\b(?:born|birth|bapti[sz]ed|christened)\b", re.IGNORECASE)


class SplitDate(NamedTuple):
    """A date, and the characters [start, end) of the text that say all of it."""

    date: DateValue
    start: int
    end: int


def split_date(text: str, start: int, end: int) -> SplitDate | None:
    """Return the date of a day whose year stands elsewhere, or of a year that is said of a day, or
    None if there is any doubt.

    >>> text = "In 1867 she moved to Paris. On 7 November she married."
    >>> split_date(text, 31, 41)
    SplitDate(date=DateValue(edtf='1867-11-07', precision=11), start=3, end=41)
    >>> later = text.replace("On", "Ten years later, on")
    >>> split_date(later, 48, 58)
    """
    day = _DAY.fullmatch(text, start, end)
    if day:
        year = None
    else:
        year = _YEAR.fullmatch(text, start, end)
    if not (day or year) or _YEAR_BEHIND.match(text, end):
        return None
    sentences = sentence_bounds(text)
    own = max((place for place, bounds in enumerate(sentences) if bounds[0] <= start), default=0)
    first = sentences[max(0, own - 1)][0]
    last = sentences[own][1]
    if day:
        year = _year_behind(text, last) or _year_before(text, first, day, last)
    else:
        day = _day_before(text, first, sentences[own][0], start)
    if day and year:
        return _joined(text, day, year)
    return None


def _joined(text: str, day: re.Match[str], year: re.Match[str]) -> SplitDate | None:
    """Return the date of a day and a year, unless the words around the day make it another."""
    before = text[max(0, day.start() - LONGEST) : day.start()]
    behind = text[day.end() : day.end() + LONGEST]
    date = date_of(f"{day[0]}, {year[0]}", before, behind, is_date=True)
    if date is None or date.precision != DAY:
        return None
    start = min(day.start(), year.start())
    end = max(day.end(), year.end())
    return SplitDate(date, start, end)


def _year_before(text: str, first: int, day: re.Match[str], last: int) -> re.Match[str] | None:
    """Return the year that a day is in, if the text before it, from `first` on, sets it; the
    sentence of the day ends at `last`.
    """
    years = list(_LIKE_A_YEAR.finditer(text, first, day.start()))
    year = None
    if years:
        year = _YEAR.match(text, years[-1].start())
    if year is None or _LIKE_A_YEAR.search(text, day.end(), last):
        return None
    before = text[first : year.start()]
    if before.count("(") > before.count(")"):  # a life, or an aside
        return None
    behind = text[year.end() : last]
    frame = _SETS_THE_TIME.search(before)
    if not frame and not _SAME_YEAR.search(behind):
        return None
    is_of_birth = _BIRTH.search(before) and not _BIRTH.search(behind)
    if is_of_birth or _OTHER_TIME.search(_SAME_YEAR.sub("", behind)):
        return None
    begin = year.end()
    if frame:
        begin = first + frame.start()
    dates = _days_in(text[begin : day.start()])
    if max(dates, default=(0, 0)) <= _days_in(day[0])[0]:
        return year
    return None


def _days_in(text: str) -> list[tuple[int, int]]:
    """Return the months, with their days or 0, that a text names."""
    return [
        (
            SHORT_MONTHS.index(found["month"][:3].title()) + 1,
            int(found["day"] or found["day_behind"] or 0),
        )
        for found in _DAY_OR_MONTH.finditer(text)
    ]


def _year_behind(text: str, last: int) -> re.Match[str] | None:
    """Return the year that the sentence from `last` on says, as "The year was 1867" does."""
    said = _YEAR_SAID.match(text, last)
    if said:
        return _YEAR.match(text, said.end())
    return None


def _day_before(text: str, first: int, last: int, year: int) -> re.Match[str] | None:
    """Return the only day of a sentence [first, last), if the next one says its year."""
    days = list(_DAY.finditer(text, first, last))
    has_a_year = _LIKE_A_YEAR.search(text, first, last)
    is_said = _SAYS_THE_YEAR.fullmatch(text[last:year].lstrip())
    if is_said and len(days) == 1 and not has_a_year:
        return days[0]
    return None
