"""Dates: read a date, in ISO 8601 or EDTF, from a text with the words around it.

The grammars are strict: a text is a date only if all of it is one, which can be read in one way,
and no form says more than the text. English order is assumed. Dates before 15 October 1582 are of
the Julian calendar.
"""

import calendar
import re
from functools import lru_cache

import msgspec
import numpy as np
from msgspec.structs import replace as with_parts

from kbq.text.normal_forms import seen

# Precisions of Wikibase.
DAY = 11
MONTH = 10
YEAR = 9
DECADE = 8
CENTURY = 7
GREGORIAN = (1582, 10, 15)  # the first day of its calendar
_NAMES = "January|February|March|April|May|June|July|August|September|October|November|December"
SHORT_MONTHS = [name[:3] for name in _NAMES.split("|")]
WEEKDAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_BEFORE = r"(?P<before>B\.? ?C\.?(?: ?E\.?)?)"
_ERA = rf"(?:{_BEFORE}|A\.?D\.?|C\.?E\.?)"
_YEAR = rf"(?:A\.?D\.? (?P<ad>[0-9]{{1,4}})|(?P<of_era>[0-9]{{1,4}}) {_ERA}|(?P<year>[12][0-9]{{3}}|[1-9][0-9]{{2}}))"
_ORDINALS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth"
    "|fifteenth|sixteenth|seventeenth|eighteenth|nineteenth|twentieth|twenty-first"
)
# months, in 7.XI.1867.
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
# Forms of dates; parts in square brackets may be missing. Excel has 7-Nov-1867, ctime Thu Nov 7 …
# 1867.
FORMS = (
    "[{weekday}[,] ][the ]{day}[ of] {month}[,] {year}",
    "[{weekday}[,] ]{month} [the ]{day}[,] {year}",
    "[{weekday}[,] ]{year}[,] {month} {day}",
    "{year}, {day} {month}",
    "{day}-{month}-{year}",
    "{day}/{month}/{year}",
    "{day}.{month}.{year}",
    "{day}.[ ]{roman}.[ ]{year}",
    "{day}/{roman}/{year}", "{day}-{roman}-{year}", "{day} {roman} {year}", "{year}-{month}-{day}",
    "{year}/{month}/{day}", "{month}[ of][,] {year}", "{month}-{year}", "{year} {month}", "{year}",
)  # fmt: skip
_SHORT_DAYS = "|".join(day[:3] for day in WEEKDAYS.split("|"))
_PARTS = {
    "weekday": rf"(?P<weekday>{WEEKDAYS}|{_SHORT_DAYS}|Tues|Thurs?)\.?",
    "day": r"(?P<day>0?[1-9]|[123][0-9])(?:st|nd|rd|th)?",
    "month": rf"(?P<month>{_NAMES}|{'|'.join(SHORT_MONTHS)}|Sept)\.?",
    "roman": rf"(?P<roman>(?-i:{'|'.join(_ROMAN)}))",
    "year": _YEAR,
}
_ABOUT = (
    r"(?:(?-i:c)(?:\. ?a)?(?:\.|\b|(?=[0-9]))|cc?a\b\.?|circ?a?\b\.?|(?:in|on) or (?:about|around|near)\b|about\b"
    r"|abt\b\.?|around\b|approx(?:\.|imately\b)|roughly\b|nearly\b|almost\b|near\b|close to\b"
    r"|some(?:where|time) (?:about|around)\b|in the region of\b|(?:at |around )?the turn of\b|towards?\b|[~±≈∼])"
)
_MARK = rf"(?P<circa>\(?{_ABOUT}\)? ?(?:the )?(?:year )?)?"
LONGEST = 96  # characters of a date or a quantity


class DateValue(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    tag="date",
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """A date in EDTF (ISO 8601 if possible). Precision, as in Wikibase: 11 day, 10 month, 9 year, 8
    decade, 7 century.

    A Julian date has the year, month and day of that calendar, as in the text. `within`: the first
    and the last year or month of a time that the text says more closely than `edtf` can: 1921/1924,
    or 1955/1959 for the late 1950s.
    """

    edtf: str
    precision: int
    julian: bool = False
    within: str = ""


def _form(form: str) -> str:
    optional = form.replace("[", "(?:").replace("]", ")?").replace(".", r"\.")
    return _MARK + re.sub(r"\{(\w+)\}", lambda part: _PARTS[part[1]], optional)


_CENTURIES, _DECADES, _TWO_YEARS, *_DATES = (
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        rf"(?:the )?(?:(?P<number>[0-9]{{1,2}})(?:st|nd|rd|th)|(?P<word>{_ORDINALS}))[ -]+century(?: {_ERA})?",
        r"(?:the )?([12][0-9]{2})0['’]?s",
        r"([1-9][0-9]{2,3}) ?/ ?([0-9]{1,4})",
        *map(_form, FORMS),
        r"(?P<year>[12][0-9]{3})(?P<by>[-/.])(?P<month>0?[1-9]|1[0-2])(?P=by)(?P<day>0?[1-9]|[123][0-9])",
        r"(?P<year>[1-9][0-9]{2,3})年(?:(?P<month>[0-9]{1,2})月(?:(?P<day>[0-9]{1,2})日)?)?",
    )
)

_NUMERIC = re.compile(r"([0-9]{1,2})([/.-])([0-9]{1,2})\2([12][0-9]{3})")

_EDTF = re.compile(r"-?[0-9]{4}(?:-[0-9]{2}){0,2}[~?]?|-?(?:[0-9]{3}X|[0-9]{2}XX)")

_BASIC = re.compile(r"([12][0-9]{3})([01][0-9])([0-3][0-9])")  # ISO 8601 without hyphens

_CLOCK = re.compile(  # time after a date, or before the year of ctime
    r"(?:(?<=[0-9])T|,? )(?:[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[AP]\.?M\.?)?|(?<=T)[0-9]{4,6})"
    r"(?: ?(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?(?=$| [0-9]{4}$)",
    re.IGNORECASE,
)

_TYPED = re.compile(
    r"[\"'](.+)[\"']\^\^(?:xsd:|<http://www\.w3\.org/2001/XMLSchema#)(?:date|dateTime|gYear|gYearMonth)>?"
)

# Zone of a day, in XML Schema.
_ZONE = re.compile(r"(?<=[0-9])(?:Z|(?<=-[0-9]{2})[+-][0-9]{2}:?[0-9]{2})$")

_UNKNOWN = re.compile(r"(?:-(?:XX|xx|UU|uu|\?\?)){1,2}$")  # parts of a date

_SUPPLIED = re.compile(r"\[([^\[\]]+)\]")  # date that a cataloguer supplied

# Date of QuickStatements.
_WIKIBASE = re.compile(r"([+-])([0-9]{4,})-([0-9]{2})-([0-9]{2})T00:00:00Z/(7|8|9|10|11)(/J)?")

_FLOAT = re.compile(r"([1-9][0-9]{2,3})\.0+")

_TWICE = re.compile(r"(.+?) ?[(\[](.+)[)\]]")  # 7 November 1867 (1867-11-07)

_ABOUT_BEFORE = re.compile(
    rf"(?:^|[\s(\[,;–—-]){_ABOUT}[\s()\]]*(?:on |in )?(?:the )?(?:year )?(?:of )?(?:A\.?D\.? )?$",
    re.I,
)

_DOUBT = (
    "probably|perhaps|possibly|presumably|maybe|likely|allegedly|supposedly|reportedly|conjecturally|reputedly"
    "|purportedly|traditionally|apparently|ostensibly|tentatively"
)

_SAID = r"(?:thought|believed|said|assumed|supposed|presumed|reputed|reported|rumou?red|claimed|considered) to"

_DOUBT_BEFORE = re.compile(
    rf"\b(?:{_DOUBT}|(?:may|might|could) have|(?:seems|appears) to have|{_SAID}|estimated|uncertain"
    r"|(?:according to|by) (?:tradition|legend),?|(?:tradition|legend) (?:says|holds|has))\b,?[^,.;:()]{0,60}$",
    re.I,
)

_BOUND = r"before|after|by|until|till|up to|prior to|later than|earlier than|not before|between|either|or|to or from"

_PART_BEFORE = (
    r"(?:the )?(?:(?:(?:very )?(?:early|mid|late)|(?:beginning|start|middle|end|close|spring|summer|autumn|fall"
    r"|winter|turn) of)[ -])?(?:the )?(?:year )?$"
)

_BOUND_BEFORE = re.compile(
    rf"\b(?:{_BOUND})(?: or (?:in|on|during))? {_PART_BEFORE}"
    rf"|\b(?:aft|bef|ante)\.? {_PART_BEFORE}|\b(?:pre|post)-$"
    r"|\bat the (?:very )?(?:latest|earliest|soonest),? (?:in |by |on )?(?:the )?(?:year )?$"
    rf"|\bbetween [^,.;()]{{0,40}}\band {_PART_BEFORE}",
    re.I,
)

_ABOUT_BEHIND = re.compile(
    r"[\s,]*[(\[]?(?<![A-Za-z.])(?:or (?:so|thereabouts?)\b|thereabouts\b|(?:\+ ?/ ?[-−–]|±|\+-)"
    r"|(?:approx(?:\.|imately\b)?|roughly|circa|ca?+\.?+|more or less|give or take[^.;()]{0,20})(?=\s*(?:[)\].,;]|$)))",
    re.I,
)

_BOUND_BEHIND = re.compile(
    r"[\s,]*[(\[]?(?:or (?:possibly |perhaps |even |a (?:little|bit|few years) |some ?what |shortly |soon |slightly )?"
    r"(?:earlier|later|before|after|sooner)\b|at (?:the )?(?:very )?(?:latest|earliest|soonest)\b)"
    # Years that part (1744–45), and no life that ends (7 May 1744 – 5 June 1800).
    rf"|[-–—][0-9]{{1,2}}(?![0-9]|[.:/-][0-9]|(?:st|nd|rd|th)?,? (?:of )?(?:{'|'.join(SHORT_MONTHS)}))",
    re.I,
)

_DOUBT_BEHIND = re.compile(
    r"\s*\(?\s*(?:\?|probably|possibly|uncertain|disputed|estimated|reputedly|traditionally)", re.I
)

_OR_BEHIND = re.compile(
    rf"\s*(?:/\s?[0-9]{{1,4}}\b|,? or (?:early |late |mid-|perhaps |possibly |in |the )*"
    rf"(?:(?:{_NAMES}|{'|'.join(SHORT_MONTHS)})\.? )?[0-9]{{1,4}}s?\b)",
    re.I,
)

# "Julian" alone may be a name, and OS that of maps.
_ENDS_A_STYLE = r"(?=[)\].,;:]|\s[0-9]|\s[A-Z][a-z]+\s[0-9]|\s*$)"

_OLD = rf"(?:(?-i:O\.\s?S\b\.?|OS(?=[:)\]]|$))|old[ -]style{_ENDS_A_STYLE}|Julian\s(?:calendar|date)|Julian(?=[)\]]))"

_NEW = (
    rf"(?:(?-i:N\.\s?S\b\.?|NS(?=[:)\]]|$))|new[ -]style{_ENDS_A_STYLE}|Gregorian\s(?:calendar|date)"
    r"|Gregorian(?=[)\]]))"
)

_STYLE = re.compile(
    rf"[\s,]*[(\[]?\s*(?:in the )?(?:(?P<old>{_OLD})|(?P<new>{_NEW}))(?P<other>[:,]?\s*(?:[0-9]|[A-Z][a-z]+ [0-9]))?",
    re.I,
)

_STYLE_BEFORE = re.compile(rf"(?:(?P<old>{_OLD})|(?P<new>{_NEW}))[\])]?[:,]?\s*(?:on )?$", re.I)

_OWN_STYLE = re.compile(
    rf"(?P<date>.+?)[,\s]*[(\[]?(?:(?P<old>{_OLD})|(?P<new>{_NEW}))[)\]]?", re.I
)

_TWO_STYLES = tuple(
    re.compile(rf"{form}(?:,?\s(?P<year>[0-9]{{3,4}}))?", re.I)
    for form in (
        # 7 November [O.S. 26 October] 1867; 7 November 1867 (26 October O.S.)
        rf"(?P<first>[^()\[\]]+?)\s?[(\[]\s?(?:(?P<old>{_OLD})|(?P<new>{_NEW})):?\s(?P<second>[^()\[\]]+)[)\]]",
        rf"(?P<first>[^()\[\]]+?)\s?[(\[](?P<second>[^()\[\]]+?),?\s(?:(?P<old>{_OLD})|(?P<new>{_NEW}))[)\]]",
    )
)

DAY_NUMBER = r"(?:0?[1-9]|[12][0-9]|3[01])(?:st|nd|rd|th)?"

MONTHS = rf"(?:{_NAMES}|{'|'.join(SHORT_MONTHS)}|Sept)\.?"

_BY = r"\s?(?:--?|[–—/]|(?:to|and|or|until|till|through|&)\s)\s?"

_DAYS_BEFORE = re.compile(  # the day of a date is one of two
    rf"(?:^|[^0-9.,/:–-])(?:(?:{MONTHS}\s)?{DAY_NUMBER}|{DAY_NUMBER}\s{MONTHS}){_BY}$", re.I
)

_DAYS = re.compile(  # 7–8 May 1945; 30 April to 2 May 1945; May 7–8, 1945
    rf"(?<![\w.,/:])(?:between )?"
    rf"(?:{DAY_NUMBER}(?:\s(?P<month_of_one>{MONTHS}))?{_BY}{DAY_NUMBER}\s(?P<month>{MONTHS}),?"
    rf"|(?P<month_first>{MONTHS})\s{DAY_NUMBER}{_BY}(?:(?P<month_second>{MONTHS})\s)?{DAY_NUMBER},?)"
    r"\s(?P<year>[12][0-9]{3})(?![0-9])",
    re.I,
)

_MONTHS_BEFORE = re.compile(rf"(?:^|[\s(]){MONTHS}{_BY}$")  # the month of a date is one of two

_SPAN = re.compile(  # May–June 1940; from May to June 1940
    rf"(?<![\w.,/:])(?<![0-9]\s)(?:between )?(?P<first>{MONTHS}){_BY}(?P<last>{MONTHS})(?:\sof|,)?"
    r"\s(?P<year>[12][0-9]{3})(?![0-9])"
)

_YEARS = re.compile(  # 1921–24; from 1921 to 1924; between 1921 and 1924; the 2016–17 season
    r"(?:the )?(?P<first>[12][0-9]{3})(?P<by> ?(?:--|[–—]) ?|-)(?P<last>[12][0-9]{3}|[0-9]{2})(?: seasons?)?"
    r"|(?:from )?(?P<from>[12][0-9]{3}) (?:to|until|till|through) (?P<to>[12][0-9]{3})"
    r"|between (?P<after>[12][0-9]{3}) and (?P<before>[12][0-9]{3})",
    re.I,
)

# Years of a span, of which either is no date alone: 1940–41; between 1921 and 1924.
_TWO_OF_A_SPAN = re.compile(
    r"(?<![\w./:–—-])[12][0-9]{3}[–-](?:1[3-9]|[2-9][0-9])(?![\w–-]|[./:][0-9])"
    r"|\bbetween [12][0-9]{3} and [12][0-9]{3}(?![\w–-])"
)

_LONGEST_SPAN = 10  # years; a life is longer, as a rule

_PART_OF = re.compile(  # the early 1950s; mid-19th century; the end of May 1940
    r"(?:the )?(?:(?:very )?(?P<part>early|mid|late)|(?P<side>beginning|start|middle|end|close) of"
    r"|(?P<piece>early|first|second|middle|last|latter) (?:part|half|years) of)[ -](?P<whole>.+)",
    re.I,
)

# Tenths of a time in which its parts lie, which nobody has defined.
_FIRST = (0, 5)
_MIDDLE = (2, 8)
_LAST = (5, 10)
_PARTS_OF_A_TIME = {
    "early": _FIRST, "beginning": _FIRST, "start": _FIRST, "first": _FIRST, "mid": _MIDDLE,
    "middle": _MIDDLE, "late": _LAST, "end": _LAST, "close": _LAST, "second": _LAST,
    "last": _LAST, "latter": _LAST,
}  # fmt: skip

_MONTHS_OF_SEASONS = {  # winters belong to two years
    "spring": (3, 6), "summer": (6, 9), "autumn": (9, 12), "fall": (9, 12), "easter": (3, 4),
    "whitsun": (5, 6), "christmas": (12, 12),
}  # fmt: skip

_SEASON = re.compile(  # summer of 2001
    rf"(?:the )?(?:(?:early|mid|late)[ -])?(?P<season>{'|'.join(_MONTHS_OF_SEASONS)})(?: of)?,? "
    r"(?P<year>[12][0-9]{3})",
    re.I,
)

_IN_TWO_STYLES = re.compile(  # dates in a longer text
    rf"(?:{DAY_NUMBER}\s{MONTHS}|{MONTHS}\s{DAY_NUMBER})\s?[(\[]\s?(?:{_OLD}|{_NEW}):?\s(?:[^()\[\]]{{3,24}})[)\]],?"
    r"\s[12][0-9]{3}(?![0-9])",
    re.I,
)

# Perhaps behind the other year of a span: 367–282 BC.
_ERA_BEHIND = re.compile(
    r"\s?(?:(?:[-–—]|to\s)\s?[0-9]{1,4}\s?)?(B\.? ?C\.?(?: ?E\.?)?)(?![A-Za-z])"
)


def date_of(
    text: str, before: str = "", behind: str = "", is_date: bool = False
) -> DateValue | None:
    """Return the date of a text, or None.

    Args:
        before: the text before it: "c." makes it approximate, "before" makes it no date.
        behind: the text after it: "BC" belongs to the year, "(?)" is a doubt.
        is_date: whether it is certainly a date, so that years below 1000 need no era.

    >>> date_of("1265"), date_of("1265", "was born c. "), date_of("1265", "before "), date_of("1903/4")
    (DateValue(edtf='1265', precision=9, julian=True), DateValue(edtf='1265~', precision=9, julian=True), None, \
DateValue(edtf='190X', precision=8))
    """
    text = " ".join(seen(text).split())
    before = seen(before[-80:])
    text = re.sub(r" ([,.]) ?", r"\1 ", text)
    two = _OR_BEHIND.match(behind)
    if two:
        if "/" in two[0]:
            return _of_two(text + two[0].strip())
        return None
    if two_styles := next(filter(None, (form.fullmatch(text) for form in _TWO_STYLES)), None):
        return _of_two_styles(two_styles)
    own = _OWN_STYLE.fullmatch(text)
    style = own or _STYLE_BEFORE.search(before) or _STYLE.match(behind)
    if own:
        text = own["date"]
    if _DAYS_BEFORE.search(before) and re.match(
        rf"(?:{MONTHS}\s)?{DAY_NUMBER}(?:\s|,)", text, re.I
    ):
        return None
    if _MONTHS_BEFORE.search(before) and re.match(rf"{MONTHS},?\s[0-9]", text):
        return None
    found = _dated(text, before, behind, is_date)
    return (
        found
        if found is None or style is None or found.precision < DAY
        else _of_style(found, style)
    )


def _of_two_styles(two: re.Match[str]) -> DateValue | None:
    """Return the day of two calendars in the Gregorian one, if both are the same day."""
    year = two["year"] or ""
    first = f"{two['first']} {year}".strip()
    second = f"{two['second']} {year}".strip()
    new = second
    old = first
    if two["old"]:
        new = first
        old = second
    found = _read(new, False) or _read(f"{new} {old[-4:]}", False)
    if found is None:
        return None
    return DateValue(found.edtf, found.precision)


def _of_style(found: DateValue, style: re.Match[str]) -> DateValue:
    """Return a date in the calendar that is named beside it: in brackets with another date, that of
    the other one.
    """
    parts = style.groupdict()
    is_old = bool(parts["old"]) != bool(parts.get("other"))
    return DateValue(found.edtf, found.precision, is_old)


def _dated(text: str, before: str, behind: str, is_date: bool) -> DateValue | None:
    """Return the date of a text in the calendar of its time."""
    about = _ABOUT_BEFORE.search(before)
    bound = _BOUND_BEFORE.search(before) or _BOUND_BEFORE.search(
        f"{before[: about.start()]} " if about else ""
    )
    if bound or _BOUND_BEHIND.match(behind) or re.search("[0-9] ?/ ?$", before):
        return None
    era = _ERA_BEHIND.match(behind)
    if era and re.search("[0-9]$", text):
        text = f"{text} {era[1]}"
    mark = ""
    if (
        re.fullmatch(r".*[0-9] ?(?:\?|\(\?\))", text)
        or _DOUBT_BEHIND.match(behind)
        or _DOUBT_BEFORE.search(before)
    ):
        mark = "?"
        text = re.sub(r" ?(?:\?|\(\?\))$", "", text)
    elif own := re.search(
        rf"(?:{_ABOUT_BEHIND.pattern})(?:[ 0-9)\]]|years?)*$", text, re.IGNORECASE
    ):
        mark = "~"
        text = text[: own.start()]
    found = _read(text, is_date)
    if about or _ABOUT_BEHIND.match(behind):
        mark = "~"
    if not found or not mark or found.edtf[-1] in "~X":
        return found
    return DateValue(found.edtf + mark, found.precision, found.julian)


def date_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return characters [start, end) of the days or months, or of the day in two calendars, to
    which a date belongs, or its own.

    >>> text = "He died on the night of 7–8 May 1945."
    >>> text[slice(*date_around(text, 26, 36))]
    '7–8 May 1945'
    """
    first = max(0, start - LONGEST)
    for form in (_IN_TWO_STYLES, _DAYS, _SPAN, _TWO_OF_A_SPAN):
        for found in form.finditer(text, first, end + LONGEST):
            if found.start() <= start and end <= found.end():
                return found.span()
    return start, end


@lru_cache(2**14)
def date_of_cell(text: str) -> DateValue | None:
    """Return the date in a cell of a table, perhaps in a form of computers: ISO, EDTF, or a number."""
    text = " ".join(seen(text).split())
    number = _FLOAT.fullmatch(text)
    if number:
        text = number[1]
    typed = _TYPED.fullmatch(text)
    if typed:
        text = typed[1]
    wikibase = _WIKIBASE.fullmatch(text)
    if wikibase:
        return _of_wikibase(*wikibase.groups())
    text = _UNKNOWN.sub("", _ZONE.sub("", text))
    supplied = _SUPPLIED.fullmatch(text)
    if supplied:
        text = supplied[1]
    twice = _TWICE.fullmatch(text)
    if twice:
        both = [found for part in twice.groups() if (found := date_of_cell(part))]
        if len(both) == 2 and dates_agree(*both):
            return max(both, key=lambda one: one.precision)
    text = _CLOCK.sub("", text).removeprefix("+")
    basic = _BASIC.fullmatch(text)
    if basic:
        text = "-".join(basic.groups())
    found = None
    if _EDTF.fullmatch(text):
        found = _of_edtf(text)
    return found or date_of(text, is_date=True)


def dates_agree(one: DateValue, other: DateValue) -> bool:
    """Whether two dates are the same as far as both go; "about" and "perhaps" are ignored. Parts of
    a time, and spans, agree with what they have a month in common with.
    """
    if one.within or other.within:
        first_of_one, last_of_one = _months(one)
        first_of_other, last_of_other = _months(other)
        return first_of_one <= last_of_other and first_of_other <= last_of_one
    first, second = sorted(
        (one.edtf.rstrip("~?"), other.edtf.rstrip("~?")), key=lambda edtf: len(edtf.rstrip("X"))
    )
    if "X" in first:
        return second.startswith(first.rstrip("X"))
    return second == first or second.startswith(f"{first}-")


def _months(date: DateValue) -> tuple[int, int]:
    """Return the first and the last month of a date, counted from the year 0."""
    bounds = []
    for edtf, digit, month in zip(
        (date.within or f"{date.edtf}/{date.edtf}").split("/"), "09", (1, 12), strict=True
    ):
        sign, year, given = re.match("(-?)([0-9X]{4})(?:-([0-9]{2}))?", edtf).groups()  # type: ignore[union-attr]
        number = int(sign + year.replace("X", digit))
        bounds.append(12 * number + int(given or month))
    return min(bounds), max(bounds)


def day_in_words(edtf: str) -> str:
    """Return a day as texts write it.

    >>> day_in_words("1867-11-07"), day_in_words("1867-11-07~")
    ('7 November 1867', 'about 7 November 1867')
    """
    year, month, day = edtf.rstrip("~?").split("-")
    written = f"{int(day)} {_NAMES.split('|')[int(month) - 1]} {int(year)}"
    if edtf.endswith("~"):
        return f"about {written}"
    return written


def gregorian(date: DateValue) -> str:
    """Return a date in EDTF's calendar, the Gregorian; only Julian days change."""
    found = re.fullmatch(r"(-?[0-9]{4})-([0-9]{2})-([0-9]{2})([~?]?)", date.edtf)
    if not date.julian or not found:
        return date.edtf
    day = _gregorian_day(int(found[1]), int(found[2]), int(found[3]), is_julian=True)
    year = 1970 + int(day.astype("datetime64[Y]").astype(int))  # NumPy writes -43 as -043
    return f"{_year(year)}{str(day)[-6:]}{found[4]}"


def _read(text: str, is_date: bool) -> DateValue | None:
    """Return the date that a whole text is, or None."""
    years = _YEARS.fullmatch(text)
    if years and is_date:  # elsewhere it may be a range of numbers
        return _of_years(years)
    season = _SEASON.fullmatch(text)
    if season:
        first, last = _MONTHS_OF_SEASONS[season["season"].lower()]
        year = season["year"]
        return with_parts(_value(year, YEAR), within=f"{year}-{first:02}/{year}-{last:02}")
    part = _PART_OF.fullmatch(text)
    if part:
        return _of_part(part, _read(part["whole"], is_date))
    days = _DAYS.fullmatch(text.removeprefix("from "))
    if days:
        return _of_days(days)
    months = _SPAN.fullmatch(text.removeprefix("from "))
    if months:
        if _month(months["first"]) >= _month(months["last"]):  # the first is of the year before
            return None
        return _day_or_longer(int(months["year"]), 0, 0)
    if decade := _DECADES.fullmatch(text):  # the 1900s may be a century
        if decade[1][2] == "0":
            return None
        return _value(f"{decade[1]}X", DECADE)
    century = _CENTURIES.fullmatch(text)
    if century:
        number = int(century["number"] or _ORDINALS.split("|").index(century["word"].lower()) + 1)
        sign = "-" if century["before"] else ""
        if 1 <= number <= 21:
            return _value(f"{sign}{number - 1:02}XX", CENTURY)
        return None
    if _TWO_YEARS.fullmatch(text):
        return _of_two(text)
    text = _CLOCK.sub("", text)
    if re.fullmatch(r"\+?-?[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return _of_edtf(text.removeprefix("+"))
    numeric = _NUMERIC.fullmatch(text)
    if numeric:
        first = int(numeric[1])
        second = int(numeric[3])
        year = int(numeric[4])
        day, month = (first, second) if first > 12 else (second, first)
        if first == second or day > 12:
            return _day_or_longer(year, month, day)
        return None
    for form in _DATES:
        found = form.fullmatch(text)
        if found:
            return _named(found.groupdict(), is_date)
    return None


def _of_days(days: re.Match[str]) -> DateValue | None:
    """Return the month or year of several days: 7–8 May 1945 is in May 1945."""
    last = days["month"] or days["month_second"] or days["month_first"]
    first = last
    if days["month_second"]:
        first = days["month_first"]
    if days["month_of_one"]:
        first = days["month_of_one"]
    first_day, last_day = re.findall("(?<![0-9])[0-9]{1,2}(?![0-9])", days[0])[:2]
    begins = _month(first), int(first_day)
    ends = _month(last), int(last_day)
    if begins >= ends:  # the first is of the month, or the year, before
        return None
    month = 0
    if begins[0] == ends[0]:
        month = ends[0]
    return _day_or_longer(int(days["year"]), month, 0)


def _month(name: str) -> int:
    """Return the number of a month, 1 for January."""
    return SHORT_MONTHS.index(name[:3].title()) + 1


def _of_years(years: re.Match[str]) -> DateValue | None:
    """Return the decade or century of a few years: between 1921 and 1924 is in the 1920s."""
    first = years["first"] or years["from"] or years["after"]
    last = years["last"] or years["to"] or years["before"]
    if years["by"] == "-" and len(last) == 2 and int(last) <= 12:  # 2001-02 may be a month
        return None
    last = first[: 4 - len(last)] + last
    if int(last) - int(first) >= _LONGEST_SPAN:
        return None
    found = _of_two(f"{first}/{last}")
    if found is None:
        return None
    return with_parts(found, within=f"{first}/{last}")


def _of_part(part: re.Match[str], whole: DateValue | None) -> DateValue | None:
    """Return the time that a part belongs to, within which it lies: the late 1950s in the 1950s."""
    if whole is None or whole.precision >= DAY or whole.edtf.startswith("-"):
        return None
    name = (part["part"] or part["side"] or part["piece"]).lower()
    first, last = _PARTS_OF_A_TIME[name]
    if whole.precision == MONTH:
        return whole
    if whole.precision == YEAR:
        year = whole.edtf[:4]
        months = [f"{year}-{1 + 12 * first // 10:02}", f"{year}-{12 * last // 10:02}"]
        return with_parts(whole, within="/".join(months))
    known = whole.edtf.rstrip("X")
    begins = int(known.ljust(4, "0"))
    tenth = 10 ** (4 - len(known)) // 10
    return with_parts(whole, within=f"{begins + first * tenth:04}/{begins + last * tenth - 1:04}")


def _of_two(text: str) -> DateValue | None:
    """Return the decade or century of two years: 1368/69 is in the 1360s."""
    found = _TWO_YEARS.fullmatch(text)
    if not found:
        return None
    first = found[1]
    second = first[: max(0, len(first) - len(found[2]))] + found[2]
    if len(second) != len(first):
        return None
    if not 0 < int(second) - int(first) < 100:
        return None
    first = f"{int(first):04}"
    second = f"{int(second):04}"
    if first[:3] == second[:3]:
        return _value(f"{first[:3]}X", DECADE)
    if first[:2] == second[:2]:
        return _value(f"{first[:2]}XX", CENTURY)
    return None


def _of_edtf(text: str) -> DateValue | None:
    """Return a date in ISO or EDTF; 00 stands for unknown parts."""
    mark = ""
    if text[-1] in "~?":
        mark = text[-1]
    sign = "-" if text.startswith("-") else ""
    year, *rest = text.strip("-~?").split("-")
    if "X" in year:
        precision = CENTURY
        if year.count("X") == 1:
            precision = DECADE
        return _value(sign + year, precision)
    if rest == ["00"]:  # 1999-00 is a season
        return None
    month, day = (*map(int, rest), 0, 0)[:2]
    return (
        _day_or_longer(-int(year) if sign else int(year), month, day, mark)
        if month or not day
        else None
    )


def _of_wikibase(
    sign: str, year: str, month: str, day: str, precision: str, julian: str | None
) -> DateValue | None:
    """Return a date of Wikibase, where 44 BC is the year -44, and one of its years stands for a
    century or decade.
    """
    number = int(year)
    minus = "-" if sign == "-" else ""
    if precision in ("7", "8"):
        if precision == "7":
            digits = f"{(number - 1) // 100:02}XX"
        else:
            digits = f"{number // 10:03}X"
        return _value(minus + digits, int(precision))
    parts = (
        [int(month), int(day)]
        if precision == "11"
        else [int(month), 0]
        if precision == "10"
        else [0, 0]
    )
    astronomical = number
    if minus:
        astronomical = 1 - number
    found = _day_or_longer(astronomical, parts[0], parts[1])
    if found is None:
        return None
    if julian:
        return with_parts(found, julian=True)
    return found


def _named(parts: dict[str, str | None], is_date: bool) -> DateValue | None:
    """Return the date of named parts: its month may be a word or a Roman number."""
    year = int(parts["year"] or parts.get("ad") or parts.get("of_era") or 0)
    if not year and not parts["year"]:
        return None
    month = parts.get("month")
    if not (month or parts.get("roman")) and year < 1000 and parts["year"] and not is_date:
        return None
    year = 1 - year if parts.get("before") else year  # 1 BC is the year 0
    number = 0 if not month else int(month) if month.isdigit() else _month(month)
    roman = parts.get("roman")
    if roman:
        number = _ROMAN.index(roman) + 1
    day = int(parts.get("day") or 0)
    mark = ""
    if parts.get("circa"):
        mark = "~"
    named = _day_or_longer(year, number, day, mark)
    weekday = parts.get("weekday")
    if named and weekday:
        since_monday = (int(_gregorian_day(year, number, day, named.julian).astype(int)) + 3) % 7
        if WEEKDAYS.split("|")[since_monday][:3] != weekday[:3].title():
            return None
    return named


def _day_or_longer(year: int, month: int, day: int, mark: str = "") -> DateValue | None:
    """Return a date, with 0 for an unknown month or day, or None if there is no such day."""
    if not month:
        return _value(_year(year) + mark, YEAR)
    if not 1 <= month <= 12:
        return None
    if not day:
        return _value(f"{_year(year)}-{month:02}{mark}", MONTH)
    if (year, month, day) < GREGORIAN:
        leaps = year % 4 == 0
    else:
        leaps = calendar.isleap(year)
    days = (
        29 if month == 2 and leaps else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
    )
    if 1 <= day <= days:
        return _value(f"{_year(year)}-{month:02}-{day:02}{mark}", DAY)
    return None


def _year(year: int) -> str:
    sign = ""
    if year < 0:
        sign = "-"
    return f"{sign}{abs(year):04}"


def _value(edtf: str, precision: int) -> DateValue:
    """Return a date in the calendar of its time."""
    sign, digits, rest = re.match(r"(-?)([0-9X]{4})(?:-([0-9]{2}(?:-[0-9]{2})?))?", edtf).groups()  # type: ignore[union-attr]
    month = 0
    day = 0
    if rest:
        month, day = map(int, [*rest.split("-"), "0"][:2])
    year = int(digits.replace("X", "0"))
    known = 1 + bool(month) + bool(day)  # parts of the date
    is_julian = bool(sign) or (year, month, day)[:known] < GREGORIAN[:known]
    return DateValue(edtf, precision, is_julian)


def _gregorian_day(year: int, month: int, day: int, is_julian: bool) -> np.datetime64:
    """Return a day, which may be one of the Julian calendar, in the Gregorian one."""
    days_behind = 0
    if is_julian:
        century = (year - (month < 3)) // 100
        days_behind = century - century // 4 - 2
    month_begins = np.datetime64(f"{_year(year)}-{month:02}", "D")
    return month_begins + np.timedelta64(day - 1 + days_behind, "D")
