"""Values: the text of a value becomes a date or a quantity, or has no normal form; and texts become comparable.

The grammars are strict: a text has a normal form only if it is one date or one number as a whole, and can be read in
one way. English orders of dates and English separators of numbers are taken for granted.
"""

import re
import unicodedata
from datetime import date
from decimal import Decimal
from functools import lru_cache

from kbq.filling.claims import DateValue, QuantityValue, ValueType
from kbq.system import normal_forms

LONGEST = 64  # characters of a text that may be a date or a quantity
DAY, MONTH, YEAR, DECADE, CENTURY = 11, 10, 9, 8, 7  # precisions of Wikibase
GREGORIAN = date(1582, 10, 15)  # days before it are dates of the Julian calendar, which EDTF does not have

_APOSTROPHES = re.compile("['`´‘’‛′‵ʹʻʼʽʾʿˈꞋꞌ＇]")

_NAMES = "January|February|March|April|May|June|July|August|September|October|November|December"
_MONTHS = {name[:3]: number for number, name in enumerate(_NAMES.split("|"), 1)}
_MONTH = rf"(?P<month>{_NAMES}|{'|'.join(_MONTHS)}|Sept)\.?"
_DAY = r"(?P<day>0?[1-9]|[123][0-9])(?:st|nd|rd|th)?"
_WEEKDAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_WEEKDAY = rf"(?:(?P<weekday>{_WEEKDAYS}),? )?"
_BEFORE = r"(?P<before>B\.? ?C\.?(?: ?E\.?)?)"
_ERA = rf"(?:{_BEFORE}|A\.?D\.?|C\.?E\.?)"
_YEAR = rf"(?:A\.?D\.? (?P<ad>[0-9]{{1,4}})|(?P<of_era>[0-9]{{1,4}}) {_ERA}|(?P<year>[12][0-9]{{3}}))"
_ORDINALS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth"
    "|fifteenth|sixteenth|seventeenth|eighteenth|nineteenth|twentieth|twenty-first"
)
_CIRCA = r"(?P<circa>(?:c\.|ca\.|ca |circa |about |around |approximately ) ?)?"
_CENTURY, _DECADE, *_DATES = (
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        rf"(?:the )?(?:(?P<number>[0-9]{{1,2}})(?:st|nd|rd|th)|(?P<word>{_ORDINALS}))[ -]century(?: {_ERA})?",
        r"(?:the )?([12][0-9]{2})0['’]?s",
        rf"{_CIRCA}{_WEEKDAY}(?:the )?{_DAY}(?: of)? {_MONTH},? {_YEAR}",
        rf"{_CIRCA}{_WEEKDAY}{_MONTH} {_DAY},? {_YEAR}",
        rf"{_CIRCA}{_MONTH},? {_YEAR}",
        rf"{_CIRCA}{_YEAR}",
        r"(?P<year>[12][0-9]{3})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[123][0-9])",
    )
)
_NUMERIC = re.compile(r"([0-9]{1,2})([/.-])([0-9]{1,2})\2([12][0-9]{3})")

_NUMBER = (
    r"(?P<sign>[-−]?)(?P<whole>[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}"
    r"|[1-9][0-9]{0,2}(?:[\u00a0\u2009\u202f][0-9]{3})+|0|[1-9][0-9]*)(?P<part>\.[0-9]+)?"
)
_DOUBTFUL = re.compile(  # 1.234, more than a thousand to half of Europe; 12m, which may be millions
    r"(?<![0-9,])[1-9][0-9]{0,2}\.[0-9]{3}(?![0-9])|[0-9]m$"
)
_SCALES = {"thousand": 3, "lakh": 5, "million": 6, "crore": 7, "billion": 9, "bn": 9, "trillion": 12}
_SCALE = rf"(?:\s?(?P<scale>{'|'.join(_SCALES)})\b)?"
_CODES = "USD|EUR|GBP|JPY|CHF|CAD|AUD|NZD|CNY|INR|SEK|NOK|DKK|RUB|BRL|MXN|KRW|ZAR|PLN|TRY|SGD|HKD"
_CURRENCY = rf"(?:(?:US|U\.S\.|AU?|CA?|NZ|HK|NT|S|R|Mex)?\s?\$|[€£¥₹₽₩₺₪₫₱฿₴]|Rs\.?|{_CODES})"
_LENGTH = "[kcm]?m|kilomet(?:re|er)s?|met(?:re|er)s?|mi|miles?|ft|feet"
_UNIT = (
    rf"(?:[%‰€£¥]|per ?cent|°\s?[CF]|{_LENGTH}|(?:{_LENGTH})[²2³3]|(?:sq\.?|square|cubic)\s(?:{_LENGTH}|yards?)"
    r"|km/h|mph|m/s|[kmµ]?g|(?:kilo)?grams?|kilos|tonnes?|tons?|lbs?|pounds?|oz|ounces?|ha|hectares?|acres?|[mk]?[lL]"
    r"|lit(?:re|er)s?|[kMGT]?W|[kMGT]Wh|[kMGT]?Hz|[kMGT]B|years?|months?|weeks?|days?|hours?|minutes?|seconds?"
    rf"|(?:(?:US|U\.S\.|American|Canadian|Australian)\s)?dollars?|euros?|yen|rupees?|francs?|{_CODES})"
)
_BEHIND = re.compile(rf"{_NUMBER}{_SCALE}\s?(?P<unit>{_UNIT}|)")
_IN_FRONT = re.compile(rf"(?P<unit>{_CURRENCY})\s?{_NUMBER}{_SCALE}")
_COUNTED = re.compile(  # people, episodes, whatever is counted; but no season of 1982, and no part of a number
    rf"(?![12][0-9]{{3}}\s){_NUMBER}{_SCALE}\s"
    r"(?!hundred|thousand|lakh|million|crore|billion|trillion|dozen|score|hal[fv]|third|quarter)"
    r"(?!(?:times|per|point|plus|odd|and|noon)\b)(?P<unit>[^\W\d_]{3,})"
)


def normal_form(text: str, type: ValueType | None = None) -> DateValue | QuantityValue | None:
    """The date or the quantity that a text certainly is; None where there is any doubt.

    Args:
        type: what the value is known to be. Without it, a number alone is neither a date nor a quantity, and the unit
            of a quantity must be a well-known one.

    >>> normal_form("November 7, 1867"), normal_form("US$ 3.2 billion")
    (DateValue(edtf='1867-11-07', precision=11), QuantityValue(number='3200000000', unit='US$'))
    >>> normal_form("c. 44 BC"), normal_form("the 1990s"), normal_form("12/05/2003")
    (DateValue(edtf='-0043~', precision=9), DateValue(edtf='199X', precision=8), None)
    """
    text = text.strip()
    if len(text) > LONGEST or type in ("text", "page"):
        return None
    if type == "date":
        return _date(text)
    if type == "quantity":
        return _quantity(text, anything_counts=True)
    return None if text.isdigit() else _date(text) or _quantity(text)


@lru_cache(1024)  # the relations of a subject have the same values proposed, from the same pages
def normalised(text: str) -> str:
    """A text as values are compared: without case, diacritics, punctuation and superfluous blanks.

    Apostrophes are dropped, other punctuation counts as a blank; a text that is punctuation alone stays. Source of the
    rules: LM-KBC 2026.

    >>> normalised("O’Brien & Søn: “Café”, Łódź"), normalised("!!!")
    ('obrien søn cafe łodz', '!!!')
    """
    letters = normal_forms.normal_form("NFKD", _APOSTROPHES.sub("", text)).casefold()
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    words = "".join(" " if unicodedata.category(letter)[0] == "P" else letter for letter in letters).split()
    return " ".join(words) or text.casefold()


def _date(text: str) -> DateValue | None:
    text = " ".join(text.split())
    if decade := _DECADE.fullmatch(text):  # the 1900s may be a century
        return None if decade[1][2] == "0" else DateValue(f"{decade[1]}X", DECADE)
    if century := _CENTURY.fullmatch(text):
        number = int(century["number"] or _ORDINALS.split("|").index(century["word"].lower()) + 1)
        sign = "-" if century["before"] else ""
        return DateValue(f"{sign}{number - 1:02}XX", CENTURY) if 1 <= number <= 21 else None
    if numeric := _NUMERIC.fullmatch(text):
        first, second, year = int(numeric[1]), int(numeric[3]), int(numeric[4])
        day, month = (first, second) if first > 12 else (second, first)
        return _day_or_longer(year, month, day) if first == second or day > 12 else None
    for form in _DATES:
        if found := form.fullmatch(text):
            return _named(found.groupdict())
    return None


def _named(parts: dict[str, str | None]) -> DateValue | None:
    """A date whose parts a grammar has told apart."""
    year = int(parts["year"] or parts.get("ad") or parts.get("of_era") or 0)
    if not year and not parts["year"]:
        return None
    year = 1 - year if parts.get("before") else year  # 1 BC is the year 0
    month = parts.get("month")
    number = 0 if not month else int(month) if month.isdigit() else _MONTHS[month[:3].title()]
    named = _day_or_longer(year, number, int(parts.get("day") or 0), "~" if parts.get("circa") else "")
    weekday = parts.get("weekday")
    if named and weekday and _WEEKDAYS.split("|")[date.fromisoformat(named.edtf[:10]).weekday()] != weekday.title():
        return None
    return named


def _day_or_longer(year: int, month: int, day: int, mark: str = "") -> DateValue | None:
    """A date, its month and day 0 where they are not known; None where there is no such day."""
    edtf = f"{'-' if year < 0 else ''}{abs(year):04}"
    if not month:
        return DateValue(edtf + mark, YEAR)
    if not day:
        return DateValue(f"{edtf}-{month:02}{mark}", MONTH)
    try:
        is_gregorian = date(year, month, day) >= GREGORIAN
    except ValueError:
        return None
    return DateValue(f"{edtf}-{month:02}-{day:02}{mark}", DAY) if is_gregorian else None


def _quantity(text: str, anything_counts: bool = False) -> QuantityValue | None:
    """A number with or without a unit.

    Args:
        anything_counts: the unit may be any one word without capitals.
    """
    found = _BEHIND.fullmatch(text) or _IN_FRONT.fullmatch(text)
    if not found and anything_counts and text.islower():
        found = _COUNTED.fullmatch(text)
    if not found or _DOUBTFUL.search(text):
        return None
    digits = "".join(filter(str.isdigit, found["whole"])) + (found["part"] or "")
    power = _SCALES.get(found["scale"], 0)
    number = f"{Decimal(f'{digits}e{power}'):f}"
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return QuantityValue(number if number == "0" else found["sign"].replace("−", "-") + number, found["unit"])
