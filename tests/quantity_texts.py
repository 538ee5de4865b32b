"""Random quantities: a text, and the number, unit and qualifier of which it was made."""

import random
from dataclasses import dataclass
from decimal import Decimal

from num2words import num2words

from kbq.english.quantities import TABLE, Bound

UNITS = [line.split("\t")[2].split("|") for line in TABLE.read_text("utf-8").splitlines()[1:]]
MONEY = ["$", "€", "£", "US$", "USD ", "¥", "₹"]
WORD_UNITS = [
    form for forms in UNITS for form in forms if form.isalpha() and form.islower() and len(form) > 2
]
SIGN_UNITS = [
    "km", "m", "kg", "%", "km²", "ha", "mm", "ft", "mph", "°C", "kW", "hours", "miles", "acres",
]  # fmt: skip
QUALIFIERS: list[tuple[str, str, Bound | str]] = [
    ("", "", ""), ("", "", ""), ("", "", ""), ("about ", "", "~"), ("approximately ", "", "~"), ("some ", "", "~"),
    ("more than ", "", ">"), ("over ", "", ">"), ("at least ", "", ">="), ("", " or more", ">="), ("up to ", "", "<="),
    ("less than ", "", "<"), ("fewer than ", "", "<"), ("no more than ", "", "<="), ("exceeding ", "", ">"),
    ("", " or so", "~"), ("almost ", "", "~"), ("not exceeding ", "", "<="), ("well over ", "", ">"),
]  # fmt: skip


@dataclass(frozen=True)
class Written:
    """A quantity in one of its forms; `core` is the text without its qualifier."""

    before: str
    core: str
    behind: str
    number: Decimal
    unit: str
    qualifier: str

    @property
    def text(self) -> str:
        return f"{self.before}{self.core}{self.behind}"


def number_in_words(value: int) -> str:
    return str(num2words(value)).replace(",", "")


def a_number(draw: random.Random) -> tuple[str, Decimal]:
    """Return a number, and one of the ways to write it."""
    whole = draw.choice(
        [draw.randrange(1, 100), draw.randrange(1, 10**4), draw.randrange(1, 10**9)]
    )
    match draw.randrange(8):
        case 0:
            return number_in_words(whole % 10**6 + 1), Decimal(whole % 10**6 + 1)
        case 1:
            cents = draw.randrange(1, 100)
            return f"{whole:,}.{cents:02}", whole + Decimal(cents) / 100
        case 2:
            tenths, scale = (
                draw.randrange(1, 10),
                draw.choice([("thousand", 3), ("million", 6), ("billion", 9)]),
            )
            return f"{whole % 900 + 1}.{tenths} {scale[0]}", (
                whole % 900 + 1 + Decimal(tenths) / 10
            ).scaleb(scale[1])
        case 3:
            return f"{whole:,}".replace(",", draw.choice(["\u00a0", "\u202f"])), Decimal(whole)
        case 4:
            sign, part = draw.choice(
                [("½", "0.5"), ("¼", "0.25"), ("¾", "0.75"), (" 1/2", "0.5"), (" 3/4", "0.75")]
            )
            return f"{whole % 1000 + 1}{sign}", whole % 1000 + 1 + Decimal(part)
        case 5:
            power = draw.randrange(3, 20)
            times = draw.choice([" × 10^", "×10^", " x 10^"])
            digit = draw.randrange(1, 10)
            return f"{digit}.5{times}{power}", (digit + Decimal("0.5")).scaleb(power)
        case _:
            return f"{whole:,}", Decimal(whole)


def a_quantity(draw: random.Random) -> Written:
    """Return a random quantity, its sign and its words around."""
    text, number = a_number(draw)
    before, behind, qualifier = draw.choice(QUALIFIERS)
    if not qualifier and draw.random() < 0.3:
        sign = draw.choice(["−", "minus ", "-", "negative "] if text[0].isdigit() else ["minus "])
        number, text = -number, sign + text
    kind = draw.random()
    if kind < 0.2:
        unit = draw.choice(MONEY)
        is_signed = text[0] in "−-"
        text = f"{text[0]}{unit}{text[1:]}" if is_signed else f"{unit}{text}"
        if text.lower().startswith(unit.lower()) and not text[len(unit) :][:1].isdigit():
            return a_quantity(draw)  # nobody writes $minus five
        return Written(before, text, behind, number, unit.strip(), qualifier)
    unit = draw.choice([*SIGN_UNITS, *draw.sample(WORD_UNITS, 10), "", ""])
    return Written(before, f"{text} {unit}".strip(), behind, number, unit, qualifier)
