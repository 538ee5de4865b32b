"""Quantities: what random texts say is read, with every word around it that counts, and others'
parsers agree.
"""

import os
import random
import re
import warnings
from decimal import Decimal
from typing import Any

import pytest
from quantity_texts import Written, a_quantity

from kbq.english.quantities import (
    TABLE,
    Quantity,
    meaning,
    measures_of,
    quantity_around,
    quantity_of,
)
from kbq.tables.values import normal_form

FRAMES = [
    ("It has a population of ", "."), ("The value is ", " in 1990."), ("In 2019, it was ", ", and fell later."),
    ("(", " at the end)"), ("with ", " and 12 others."), ("By then ", " were known"), ("", ""),
]  # fmt: skip


def said(found: Quantity | None) -> tuple[Decimal, str, str] | None:
    if found is None:
        return None
    return Decimal(found.number), found.unit, "~" if found.about else found.bound


def expected(written: Written) -> tuple[Decimal, str, str]:
    return written.number, written.unit, written.qualifier


def test_a_thousand_random_quantities_are_read() -> None:
    draw = random.Random(3)
    for _ in range(1000):
        written = a_quantity(draw)
        assert said(quantity_of(written.text, True)) == expected(written), written.text


def test_the_words_around_a_thousand_random_quantities_count() -> None:
    """The whole is found from its core, and no part of it has a normal form that says something
    else.
    """
    draw = random.Random(4)
    for _ in range(1000):
        written, (before, behind) = a_quantity(draw), draw.choice(FRAMES)
        text = before + written.text + behind
        start = len(before) + len(written.before)
        whole = quantity_around(text, start, start + len(written.core))
        assert said(whole.quantity) == expected(written), text
        words = [word.span() for word in re.finditer(r"\S+", written.core)]
        first = draw.randrange(len(words))
        begin, end = start + words[first][0], start + words[draw.randrange(first, len(words))][1]
        found = normal_form(
            text[begin:end], "quantity", text[max(0, begin - 80) : begin], text[end : end + 80]
        )
        if found is not None:
            qualifier = "~" if found.about else found.bound  # type: ignore[union-attr]
            assert (Decimal(found.number), found.unit, qualifier) == expected(written), text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "number", "to", "unit"),
    [
        ("40–50 kg", "40", "50", "kg"), ("4,000 to 6,000", "4000", "6000", ""), ("from 5 m to 10 m", "5", "10", "m"),
        ("between 4,000 and 6,000", "4000", "6000", ""), ("3 to 4 million", "3000000", "4000000", ""),
        ("500,000 to 1 million", "500000", "1000000", ""),
        ("6 ft 7 in", "79", "", "in"), ("5'11\"", "71", "", "in"), ("1 hour 30 minutes", "90", "", "minutes"),
        ("12 lb 3 oz", "195", "", "oz"), ("2 years and 3 months", "27", "", "months"), ("Two", "2", "", ""),
        ("two hundred and fifty", "250", "", ""), ("a million", "1000000", "", ""), ("1 834 m", "1834", "", "m"),
        ("410 m below sea level", "-410", "", "m"), ("−$500", "-500", "", "$"), ("$-500", "-500", "", "$"),
        ("$3.2M", "3200000", "", "$"), ("€5bn", "5000000000", "", "€"), ("10⁶ km", None, "", ""),
        ("4.5×10²⁴ kg", "4500000000000000000000000", "", "kg"), ("12/km²", "12", "", "/km²"),
        ("12 inhabitants per km²", "12", "", "inhabitants per km²"),
        ("50 to 40", None, "", ""), ("5 ± 2", None, "", ""),
        ("between 5", None, "", ""), ("5 km 3 m", None, "", ""), ("5 ft 13 in", None, "", ""), ("3.2M", None, "", ""),
        ("two three", None, "", ""), ("about", None, "", ""), ("5 out of 6", None, "", ""), ("747s", None, "", ""),
    ],
)  # fmt: skip
def test_forms(text: str, number: str | None, to: str, unit: str) -> None:
    found = quantity_of(text, True)
    if number is None:
        assert found is None
    else:
        assert found is not None
        assert (found.number, found.to, found.unit) == (number, to, unit)


OTHER = (
    "rose by |5,000|", "another |20| people", "|5,000| more than", "half of |5,000|", "twice |5,000|",
    "net loss of |$5|",
    "a deficit of |$5 million|", "|5| out of 6", "rose from |40| to 50", "|40|–50 kg", "between |4| and 5",
    "|12| × 5 m",
    "5 of 1,|200| m", "No. |5|", "|5|th", "|3.2| million", "$|3| million", "minus |5|", "not |5|", "6 ft |7 in|",
    "|6 ft| 7 in", "|350| kilometres", "|5| times", "|12| per 1,000", "more than |5|", "|5| or more", "|5|+", "|5| ± 2",
)  # fmt: skip


@pytest.mark.parametrize("text", OTHER)
def test_a_number_is_nothing_without_the_words_that_change_it(text: str) -> None:
    before, value, behind = text.split("|")
    assert normal_form(value, "quantity", before, behind) is None


def test_every_unit_has_the_size_that_pint_knows() -> None:
    """Its acre is that of a survey, 4 parts in a million larger."""
    pint = pytest.importorskip("pint", reason="pint knows the sizes of units: pip install pint")
    registry = pint.UnitRegistry()
    bases = {
        "length": "m", "area": "m**2", "volume": "m**3", "mass": "kg", "time": "s", "month": "month", "speed": "km/h",
        "power": "W", "energy": "Wh", "frequency": "Hz", "information": "byte",
    }  # fmt: skip
    compared = 0
    for line in TABLE.read_text("utf-8").splitlines()[1:]:
        dimension, factor, forms = line.split("\t")
        for form in forms.split("|"):
            if (
                dimension in bases
                and (size := pint_size(registry, form, bases[dimension])) is not None
            ):
                compared += 1
                assert size == pytest.approx(float(factor), rel=1e-5), form
    assert compared > 120


def pint_size(registry: Any, form: str, base: str) -> float | None:
    """Return the size of a unit that pint knows by this form."""
    form = re.sub("^(?:sq|square) (.+)$", r"(\1)**2", form.replace("sq.", "sq"))
    form = re.sub("^(?:cu|cubic) (.+)$", r"(\1)**3", form)
    form = re.sub(
        r"^(km|m|cm|mi|ft)([23²³])$",
        lambda power: f"{power[1]}**{'23'['23²³'.index(power[2]) % 2]}",
        form,
    )
    try:
        return float(
            registry.parse_expression(form.replace(" per ", "/").replace(" ", "_"))
            .to(base)
            .magnitude
        )
    except Exception:  # pint has a family of errors, and ValueError
        return None


def test_every_unit_measures_what_pint_says() -> None:
    """To pint, pounds are no money, and kilos are kiloseconds."""
    pint = pytest.importorskip("pint", reason="pint knows what units measure: pip install pint")
    registry = pint.UnitRegistry()
    bases = {"length": "m", "area": "m**2", "mass": "kg", "time": "s"}
    compared = 0
    for line in TABLE.read_text("utf-8").splitlines()[1:]:
        for form in line.split("\t")[2].split("|"):
            said = {name for name, base in bases.items() if pint_size(registry, form, base)}
            own = measures_of(form)
            if said and own & {*bases} and form not in ("pound", "pounds", "kilo", "kilos"):
                compared += 1
                assert own == said, form
    assert compared > 80


@pytest.mark.slow
def test_quantulum_reads_the_same_number_wherever_it_reads_one() -> None:
    """It parts numbers with narrow blanks and powers of ten in two or three.

    Numbers below zero are left out: it knows no "negative" and no minus before a currency, and
    reads −65¾ as −64.25.
    """
    parser = pytest.importorskip(
        "quantulum3.parser", reason="quantulum3 reads quantities: pip install quantulum3"
    )
    draw, same, cases = random.Random(5), 0, int(os.environ.get("KBQ_CASES", "200"))
    for _ in range(cases):
        written = a_quantity(draw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = parser.parse(written.core)
        if len(found) == 1 and float(written.number) >= 0:
            same += 1
            assert float(found[0].value) == pytest.approx(float(written.number), rel=1e-9), (
                written.core
            )
    assert same > cases / 2


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("40 m", "40 metres", True), ("12 km²", "12 square kilometres", True), ("42 %", "42 percent", True),
        ("1 km", "1,000 m", True), ("90 min", "1.5 hours", True), ("$3 million", "US$3,000,000", True),
        ("5,000 people", "5000", True), ("5 kg", "5 lb", False), ("more than 5", "5", False), ("about 5", "5", True),
        ("5 to 6", "5", False), ("5 °C", "5 °F", False), ("€5", "$5", False), ("-5 m", "5 m", False),
    ],
)  # fmt: skip
def test_quantities_are_compared_by_what_they_mean(one: str, other: str, is_same: bool) -> None:
    first, second = quantity_of(one, True), quantity_of(other, True)
    assert first is not None
    assert second is not None
    assert (meaning(first) == meaning(second)) == is_same
