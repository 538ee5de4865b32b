"""Values: which texts are one value, by the normal form of a date or a quantity.

A text has a normal form only if all of it is one date or one number, which can be read in one way,
and no form says more than the text.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache

from kbq.dump.page_directory import PageValue, Titles
from kbq.english.countries import country_of
from kbq.english.dates import LONGEST, DateValue, date_of, date_of_cell, dates_agree
from kbq.english.phrases import compared_words
from kbq.english.quantities import (
    Measure,
    Quantity,
    as_measure,
    meaning,
    quantity_around,
    quantity_of,
    says_a_loss,
)
from kbq.tables.claims import Claim, QuantityValue, ValueType
from kbq.text.normal_forms import seen

# Numbers that computers write.
_SCIENTIFIC = re.compile(r"[-+]?[0-9](?:\.[0-9]+)?[eE][-+]?[0-9]{1,2}", re.ASCII)


def normal_form(
    text: str,
    type: ValueType | None = None,
    before: str = "",
    behind: str = "",
    measures: Sequence[Measure] = (),
) -> DateValue | QuantityValue | None:
    """Return the date or the quantity of a text, or None if there is any doubt.

    Args:
        type: the known type of the value. Without it, a number alone is neither a date nor a
            quantity, and a quantity must have a well-known unit.
        before, behind: the text around it, which may say "about".
        measures: of a quantity, what its unit measures, or anything.

    >>> normal_form("November 7, 1867")
    DateValue(edtf='1867-11-07', precision=11)
    >>> normal_form("US$ 3.2 billion").number
    '3200000000'
    >>> normal_form("c. 44 BC"), normal_form("the 1990s"), normal_form("12/05/2003")
    (DateValue(edtf='-0043~', precision=9, julian=True), DateValue(edtf='199X', precision=8), None)
    """
    text = seen(text).strip()
    if len(text) > LONGEST or type in ("text", "page"):
        return None
    if type == "date":
        return date_of(text, before, behind, is_date=True)
    if type == "quantity":
        return _quantity_in(text, before, behind, measures)
    if text.isdigit():
        return None
    quantity = quantity_of(text)
    is_plain = quantity and not (quantity.about or quantity.bound or quantity.to)
    date = date_of(text, before, behind)
    if date is not None or not is_plain:
        return date
    return _as_value(quantity)


@lru_cache(2**14)
def _forms(text: str) -> tuple[str, DateValue | None, tuple[object, ...] | None]:
    """Return the forms by which a value is compared: its words, and perhaps a date and what a
    quantity means.
    """
    short = ""
    if len(text) <= LONGEST:
        short = " ".join(seen(text).split())
    number = short
    if _SCIENTIFIC.fullmatch(short):
        number = f"{Decimal(short):f}"
    quantity = quantity_of(number, counts_anything=True)
    return (
        compared_words(text),
        date_of_cell(short),
        None if quantity is None else meaning(quantity),
    )


def keys_of(text: str, relation: str = "") -> frozenset[object]:
    """Return the forms of a text; texts of the same value share one. See `agree`."""
    words, date, quantity = _forms(text)
    country = country_of(words, relation)
    name: object = words
    if country:
        name = ("country", country)
    forms = name, date, quantity
    return frozenset(form for form in forms if form is not None)


def agree(one: str, other: str, relation: str = "") -> bool:
    """Whether two texts are one value: the same words, number or country, or dates that agree as
    far as both go.

    `relation`: of a language, German is not Germany.

    >>> agree("American", "USA"), agree("German", "Germany", "native language"), agree("The Beatles", "Beatles")
    (True, False, True)
    >>> agree("1867-11-07T00:00:00Z", "7 November 1867"), agree("1985.0", "1985"), agree("Lodz", "Łódź")
    (True, True, True)
    >>> agree("C", "C#"), agree("1867-11-08", "7 November 1867"), agree("バリ", "パリ")
    (False, False, False)
    """
    (words, date, quantity), (others, other_date, other_quantity) = _forms(one), _forms(other)
    if words == others or (date and other_date and dates_agree(date, other_date)):
        return True
    if quantity is not None and quantity == other_quantity:
        return True
    country = country_of(words, relation)
    return bool(country) and country == country_of(others, relation)


def is_same(text: str, claim: Claim, titles: Titles) -> bool:
    """Whether a claim has this value: the same text, page or quantity, or a date that agrees as far
    as both go.
    """
    if agree(text, claim.value, claim.relation):
        return True
    if isinstance(claim.normal, DateValue):  # rests perhaps on the words around the value
        own = date_of_cell(text)
        return own is not None and dates_agree(own, claim.normal)
    return isinstance(claim.normal, PageValue) and titles.page(text) == claim.normal


def _quantity_in(
    text: str, before: str, behind: str, measures: Sequence[Measure]
) -> QuantityValue | None:
    """Return the quantity of a text, or None if the words around it make another one of it."""
    quantity = quantity_of(text, counts_anything=True)
    if quantity is None or says_a_loss(before):
        return None
    if quantity.about and not quantity.unit and date_of(text):  # c. 1867
        return None
    start = len(before)
    end = len(before) + len(text)
    around = quantity_around(before + text + behind, start, end).quantity
    if around is None or (around.to, around.bound, around.number) != (
        quantity.to,
        quantity.bound,
        quantity.number,
    ):
        return None

    measured = as_measure(quantity, measures)
    measured_around = as_measure(around, measures)
    if measured is None or measured_around is None:
        return None
    has_other_unit = meaning(measured_around)[0] != meaning(measured)[0]
    if has_other_unit:
        return None
    return _as_value(replace(measured, about=around.about))


def _as_value(quantity: Quantity | None) -> QuantityValue | None:
    if quantity is None:
        return None
    return QuantityValue(
        quantity.number, quantity.unit, quantity.about, quantity.bound, quantity.to
    )
