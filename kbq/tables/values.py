"""Values: the text of a value becomes a date or a quantity, or has no normal form; and texts become comparable.

The grammars are strict: a text has a normal form only if it is one date or one number as a whole, and can be read in
one way. Dates in English order and numbers with English separators are assumed.
"""

import re
from decimal import Decimal
from functools import lru_cache

from kbq.dump.page_directory import PageValue, Titles
from kbq.tables import dates
from kbq.tables.claims import Claim, DateValue, QuantityValue, ValueType
from kbq.tables.dates import date_of, date_of_cell
from kbq.text.letters import normalised, seen

LONGEST = 64  # characters of a text that may be a date or a quantity
_NUMBER = (
    r"(?P<sign>[-−]?)(?P<whole>[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}"
    r"|[1-9][0-9]{0,2}(?:[\u00a0\u2009\u202f][0-9]{3})+|0|[1-9][0-9]*)(?P<part>\.[0-9]+)?"
)
_DOUBTFUL = re.compile(  # 1.234, more than a thousand to half of Europe; 12m, which may be millions
    r"(?<![0-9,])[1-9][0-9]{0,2}\.[0-9]{3}(?![0-9])|[0-9]m$"
)
_SCIENTIFIC = re.compile(r"[-+]?[0-9](?:\.[0-9]+)?[eE][-+]?[0-9]{1,2}", re.ASCII)  # as computers write numbers
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


def normal_form(
    text: str, type: ValueType | None = None, before: str = "", behind: str = ""
) -> DateValue | QuantityValue | None:
    """Return the date or the quantity that a text certainly is; None if there is any doubt.

    Args:
        type: what the value is known to be. Without it, a number alone is neither a date nor a quantity, and a quantity
            must have a well-known unit.
        before: the text before it, which may say "about".
        behind: the text after it.

    >>> normal_form("November 7, 1867"), normal_form("US$ 3.2 billion")
    (DateValue(edtf='1867-11-07', precision=11, julian=False), QuantityValue(number='3200000000', unit='US$'))
    >>> normal_form("c. 44 BC"), normal_form("the 1990s"), normal_form("12/05/2003")
    (DateValue(edtf='-0043~', precision=9, julian=True), DateValue(edtf='199X', precision=8, julian=False), None)
    """
    text = seen(text).strip()
    if len(text) > LONGEST or type in ("text", "page"):
        return None
    if type == "date":
        return date_of(text, before, behind, is_date=True)
    if type == "quantity":
        return _quantity(text, anything_counts=True)
    return None if text.isdigit() else date_of(text, before, behind) or _quantity(text)


@lru_cache(2**14)
def _forms(text: str) -> tuple[str, DateValue | None, QuantityValue | None]:
    """Return what a value is compared by: its words, and the date and the quantity that it may be."""
    short = " ".join(seen(text).split()) if len(text) <= LONGEST else ""
    number = f"{Decimal(short):f}" if _SCIENTIFIC.fullmatch(short) else short
    return normalised(text), date_of_cell(short), _quantity(number, anything_counts=True)


def keys_of(text: str) -> frozenset[object]:
    """Return the forms of a text: two texts of the same value share one."""
    return frozenset(form for form in _forms(text) if form is not None)


def agree(one: str, other: str) -> bool:
    """Whether two texts are one value: the same words, the same number, or dates of which one may be more exact.

    >>> agree("1867-11-07T00:00:00Z", "7 November 1867"), agree("1985.0", "1985"), agree("Lodz", "Łódź")
    (True, True, True)
    >>> agree("C", "C#"), agree("1867-11-08", "7 November 1867"), agree("バリ", "パリ")
    (False, False, False)
    """
    (words, date, quantity), (others, other_date, other_quantity) = _forms(one), _forms(other)
    if words == others or (date and other_date and dates.agree(date, other_date)):
        return True
    return quantity is not None and quantity == other_quantity


def is_same(text: str, claim: Claim, titles: Titles) -> bool:
    """Whether a claim has a value: the same text, page or quantity, or a date that agrees as far as both go."""
    if agree(text, claim.value):
        return True
    if isinstance(claim.normal, DateValue):  # which may rest on the words around the value
        own = date_of_cell(text)
        return own is not None and dates.agree(own, claim.normal)
    return isinstance(claim.normal, PageValue) and titles.page(text) == claim.normal


def _quantity(text: str, anything_counts: bool = False) -> QuantityValue | None:
    """Return a number with or without a unit; with `anything_counts`, the unit may be any word without capitals."""
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
