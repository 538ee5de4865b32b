"""Quantities: read a number with its unit from a text with the words around it.

In comes a text, out comes a quantity, or nothing if there is any doubt. English separators are
assumed. A bound ("more than 5,000"), a range ("40–50 kg") and "about" are kept; a sign may be a
word ("minus", "below sea level"). The table beside this file has the forms of each unit, and its
size in a unit of its dimension.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

Bound: TypeAlias = Literal["", ">", ">=", "<", "<="]
Measure: TypeAlias = Literal["count", "length", "area", "mass", "time", "money"]

TABLE = Path(__file__).with_name("units.tsv")
LONGEST = 96  # characters of a quantity
# Contexts of numbers, and of what they make in another unit.
_EXACT = Context(prec=200)
_ROUNDED = Context(prec=15)
AROUND = 60  # characters around a number that may belong to it
ASKS_FOR_A_CHANGE = re.compile(
    r"\b(?:loss(?:es)?|deficit|shortfall|decline|decrease|reduction|growth|increase)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in decimal digits, and its unit as in the text, perhaps none."""

    number: str
    unit: str
    about: bool = False
    bound: Bound = ""
    to: str = ""  # the upper end of a range
    is_counted: bool = False  # the unit is a noun, not a known unit: people, episodes


class Span(NamedTuple):
    """A quantity, or None if there is a doubt, and the characters [start, end) that say it."""

    quantity: Quantity | None
    start: int
    end: int


@cache
def _units() -> dict[str, tuple[str, Decimal]]:
    """Return dimension and size of each unit by its forms; those of metres and the like also
    without case.
    """
    units: dict[str, tuple[str, Decimal]] = {}
    for line in TABLE.read_text("utf-8").splitlines()[1:]:
        dimension, factor, forms = line.split("\t")
        for form in forms.split("|"):
            units[form] = dimension, Decimal(factor)
    return units


_KINDS = ("day", "foot")  # units that are kinds, too: day pupils, foot soldiers
# What a dimension measures where its name does not say so.
_MEASURES = {
    "month": {"time"},
    "short ton": {"mass"},
    "pound": {"mass", "money"},
    "franc": {"money"},
}
_SCALES = {
    "hundred": 2,
    "thousand": 3,
    "lakh": 5,
    "million": 6,
    "mn": 6,
    "crore": 7,
    "billion": 9,
    "bn": 9,
    "trillion": 12,
    "tn": 12,
}
# Letters after an amount of money.
_LETTERS = {"k": 3, "K": 3, "M": 6, "m": 6, "B": 9, "bn": 9, "b": 9, "T": 12}
_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORD = "|".join(
    (*sorted(_ONES, key=len, reverse=True), *_TENS, "hundred", "thousand", "million", "billion")
)
_FRACTIONS = {
    "½": "0.5",
    "¼": "0.25",
    "¾": "0.75",
    "⅛": "0.125",
    "⅜": "0.375",
    "⅝": "0.625",
    "⅞": "0.875",
}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")

_SIGN = r"[-−–](?=[0-9½¼¾$€£¥₹₽]|[A-Z]{2,3}[ $]?[0-9$])|(?i:minus|negative)\s"
_WHOLE = (
    r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?![0-9])"
    r"|[1-9][0-9]{0,2}(?:[\u00a0\u2009\u202f][0-9]{3})+(?![0-9])|[1-9][0-9]{0,2}(?: [0-9]{3})+(?![0-9])|0|[1-9][0-9]*"
)
_POWER = r"\s?[×x·]\s?10(?:\^\s?(?P<power>[-−]?[0-9]{1,2})|(?P<raised>[⁻]?[⁰¹²³⁴-⁹]+))"
_DIGITS = rf"(?P<whole>{_WHOLE})(?P<part>\.[0-9]+)?(?:(?P<fraction>\s?[½¼¾⅛⅜⅝⅞]|\s[1-9]/[248](?![0-9]))|{_POWER})?"
_SPELT = (
    rf"(?P<words>(?i:(?:an?\s(?=hundred|thousand|million|billion))?(?:{_WORD})"
    rf"(?:(?:[\s-]|\sand\s)(?:{_WORD}))*))(?![\w-])"
)


def _is_currency(dimension: str) -> bool:
    """Whether a dimension is the code of a currency, such as USD."""
    return dimension.isupper() and len(dimension) == 3


@cache
def _unit_pattern(is_prefix: bool) -> str:
    """Return a pattern of all units, or of those of money before a number, the longest first."""
    money = {form for form, (dimension, _) in _units().items() if _is_currency(dimension)}
    forms = [form for form in _units() if not is_prefix or (form in money and not form.islower())]
    ways = [re.escape(form).replace(r"\ ", r"\s") for form in sorted(forms, key=len, reverse=True)]
    if is_prefix:
        return "|".join(ways)
    size = "(?:long|wide|tall|high|deep|thick|old|by|x)"
    # "12 in 1990" is no length, but "12 in long" is one.
    preposition = rf"(?:(?<!\sin)(?<!-in)|(?!\s+[(\[\"“‘']?(?!{size}\b)\w))"
    # "120 second-year students" are no seconds, but "a 90 minute-long film" has minutes.
    compound = rf"(?!-(?!{size}\b)[a-z])"
    return rf"(?:{'|'.join(ways)})(?![^\W_]){preposition}{compound}"


def _of_one(names: str) -> str:
    """Return the pattern of one number with its unit; `names` ends the names of its groups."""
    scale = "|".join(sorted(_SCALES, key=len, reverse=True))
    pattern = (
        rf"(?P<sign>{_SIGN})?(?:(?P<money>{_unit_pattern(is_prefix=True)})\s?(?P<minus>[-−])?)?"
        rf"(?:{_DIGITS}|(?P<alone>[½¼¾⅛⅜⅝⅞])|{_SPELT})"
        rf"(?:\s?(?P<scale>(?i:{scale}))(?![\w])|(?P<letter>k|K|M|m|B|bn|b|T)(?![\w]))?"
        rf"(?:[\s\u00a0-]?(?P<unit>{_unit_pattern(is_prefix=False)}))?"
    )
    return re.sub(r"\(\?P<(\w+)>", rf"(?P<\g<1>{names}>", pattern)


_COMPOUND = (  # a unit, the smaller one after it, and how many of these it has
    (r"ft|feet|foot|['’′]", r"in|inches|inch|[\"”″]|''", 12),
    (r"h|hr|hrs|hours?", r"m|min|mins|minutes?", 60),
    (r"m|min|mins|minutes?", r"s|sec|secs|seconds?", 60),
    (r"lbs?|pounds?", r"oz|ounces?", 16),
    (r"st|stone", r"lbs?|pounds?", 14),
    (r"years?", r"months?", 12),
)
_ABOUT = (
    r"(?:(?:estimated(?: at| to be)?|approximately|approx\.?|roughly|around|about|circa|ca?\.|nearly|almost|close to"
    r"|some|an estimated|in the region of|in the order of|on the order of)\s|[~≈∼]\s?|c\.\s?)"
)
_BOUNDS: tuple[tuple[Bound, str], ...] = (
    (
        ">",
        r"(?:(?:well |just |slightly |a little |far )?(?:more than|over|above|greater than|larger than|higher than)"
        r"|exceed(?:s|ed|ing)?|in excess of|upwards? of|north of)\s|>\s?",
    ),
    (
        ">=",
        r"(?:at least|no (?:fewer|less|under) than|not (?:fewer|less) than|a minimum of|minimum of|from at least)\s"
        r"|≥\s?|>=\s?",
    ),
    (
        "<",
        r"(?:(?:well |just |slightly |a little |far )?(?:less than|fewer than|under|below|smaller than|lower than))\s"
        r"|<\s?",
    ),
    (
        "<=",
        r"(?:up to|at most|no (?:more|greater) than|not (?:more|greater|exceeding) than|not exceeding|as many as"
        r"|as much as|a maximum of|maximum of)\s|≤\s?|<=\s?",
    ),
)
_BOUND = "|".join(f"(?:{pattern})" for _, pattern in _BOUNDS)
_BEHIND: tuple[tuple[str, str], ...] = (
    (
        ">=",
        r"\+(?![\w+])|\sor (?:more|greater|over|above|higher|longer)(?!\w)|\s(?:and|or) (?:upwards?|over)(?!\w)",
    ),
    ("<=", r"\sor (?:less|fewer|under|below|lower)(?!\w)"),
    (
        "~",
        r"\sor so(?!\w)|\s(?:or )?thereabouts|,? (?:approximately|approx\.|more or less)(?![\w ])",
    ),
    (
        "-",
        r"\sbelow (?:mean )?(?:sea[- ]level|zero|freezing|the (?:sea|surface))|\s(?:b\.s\.l\.|bsl(?!\w))",
    ),
)
_SUFFIX = "|".join(f"(?:{pattern})" for _, pattern in _BEHIND)
_CHANGES = "increas|decreas|ris|rose|grew|grow|fell|fall|drop|declin|rais|reduc|cut|gain|expand|shr[aiu]nk|went"
# What stands before or after a number and makes another of it, in a way that is not computed.
_OTHER_BEFORE = re.compile(
    r"(?:\b(?:half(?: of)?|twice|double|triple|third of|quarter of|not|another|additional|further|extra|out of|times"
    r"|per|between|from|either|either of|of every|in every|every|number|no\.|nos\.|minus|negative|plus)|(?:loss|losses"
    r"|deficit|shortfall|decrease|decline|reduction|increase|rise|growth|drop|fall)(?:es|s)? of"
    rf"|(?:{_CHANGES})\w*"
    r"(?: \w+){0,3} by|\blost)\s+(?:only |just |about |some |around |approximately |over )?$|[×±/^#+]\s?$"
    r"|[0-9]\s?[-–—/:]\s?$|[0-9]\s(?:to|and|or|x)\s$|[0-9]\sout of (?:the )?$",
    re.IGNORECASE,
)
_CHANGE = re.compile(rf"(?:{_CHANGES})\w*(?: \w+){{0,3}}\s+$", re.IGNORECASE)
_LOSS = re.compile(r"\b(?:loss|losses|deficit|shortfall|lost)\b[^.;]{0,12}$", re.IGNORECASE)
_OTHER_BEHIND = re.compile(
    r"\s?[×±^/:]|\s(?:x|by)\s[0-9]|\sto the\b|(?:\s|-)(?:times|fold|more|additional|further|fewer|less|others?|dozen"
    r"|hundreds?|thousands?|millions?|billions?|trillions?|lakhs?|crores?|score|and a half|point|odd|plus|minus)(?!\w)"
    r"|\s(?:out of|per|in every|of every)\s|\.[0-9]|,[0-9]|[0-9]|\s?[-–—]\s?[0-9]|\s(?:to|or)\s[0-9$€£]"
    r"|\s[0-9]{3}(?![0-9])|(?:st|nd|rd|th|s)(?!\w)|\s?[½¼¾⅓⅔⅛⅜⅝⅞²³]|\s[1-9]/[2-9](?![0-9])",
)
_COUNTED = re.compile(r"\s(?P<noun>[^\W\d_]{3,}(?:-[^\W\d_]+)?)")
_NO_NOUN = re.compile(
    r"(?:hundred|thousand|lakh|million|crore|billion|trillion|dozen|score|hal[fv]|third|quarter)"
    r"|(?:times|per|point|plus|odd|and|noon|season|seasons|to|or|by|in|of|the|was|were|is|are|minus|with|from|for)\b"
)
# 12m: millions?
_DOUBTFUL = re.compile(r"(?<![0-9,])[1-9][0-9]{0,2}\.[0-9]{3}(?![0-9])(?!\s?[×x])|[0-9][ms]$")


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], tuple[tuple[re.Pattern[str], int], ...]]:
    """Return the patterns of one number, of a whole expression, and of compound ones."""
    one = re.compile(_of_one(""))
    whole = re.compile(
        rf"(?<![\w.,/^:'’])(?P<about>{_ABOUT})?(?P<bound>{_BOUND})?(?P<about_too>{_ABOUT})?(?:(?P<between>between\s)|(?P<from>from\s))?"
        rf"(?P<first>{_unnamed(_of_one(''))})"
        rf"(?:(?(between)\sand\s|(?:\s?[-–—]\s?|\sto\s))(?P<second>{_unnamed(_of_one(''))}))?(?P<suffix>{_SUFFIX})?",
        re.IGNORECASE,
    )
    compounds = tuple(
        (
            re.compile(
                rf"(?P<high>{_WHOLE})[\s-]?(?P<high_unit>{high})(?:,? and |,\s?|\s)?(?P<low>[0-9]+(?:\.[0-9]+)?)[\s-]?"
                rf"(?P<low_unit>{low})(?!\w)"
            ),
            size,
        )
        for high, low, size in _COMPOUND
    )
    return one, whole, compounds


def _unnamed(pattern: str) -> str:
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


def quantity_of(text: str, counts_anything: bool = False) -> Quantity | None:
    """Return the quantity of a text, all of which says it.

    `counts_anything`: number words count, and nouns may be units ("24 episodes").

    >>> quantity_of("US$ 3.2 billion"), quantity_of("6 ft 7 in")
    (Quantity(number='3200000000', unit='US$', about=False, bound='', to='', is_counted=False), \
Quantity(number='79', unit='in', about=False, bound='', to='', is_counted=False))
    >>> quantity_of("more than 5,000").bound, quantity_of("40–50 kg").to, quantity_of("410 m below sea level").number
    ('>', '50', '-410')
    """
    text = text.strip()
    if len(text) > LONGEST:
        return None
    compound = _compound(text)
    if compound:
        return compound
    found = _patterns()[1].match(text)
    if not found:
        return None
    if found.end() == len(text):
        quantity = _quantity(found, counts_anything)
        is_doubtful = quantity and not quantity.unit and re.search("[0-9] [0-9]{3}", text)
        return None if is_doubtful else quantity
    noun = (
        _COUNTED.fullmatch(text, found.end()) if counts_anything and not found["suffix"] else None
    )
    if not noun:
        return None
    if not noun["noun"].islower():
        return None
    if _NO_NOUN.match(noun["noun"]):
        return None
    number = _quantity(found, counts_anything)
    if number is None or number.unit:
        return None
    return replace(number, unit=noun["noun"], is_counted=True)


def quantity_around(text: str, start: int, end: int) -> Span:
    """Return the quantity to which characters [start, end) belong, with what the words around make
    of it.

    >>> text = "It has more than 5,000 people, and about 40."
    >>> [text[slice(*quantity_around(text, *place)[1:])] for place in ((17, 22), (41, 43))]
    ['more than 5,000', '40']
    """
    first = max(0, start - AROUND)
    window = text[first : end + AROUND]
    begin = start - first
    stop = end - first
    for pattern, _ in _patterns()[2]:
        for found in pattern.finditer(window):
            if found.start() <= begin and stop <= found.end():
                quantity = _compound(found[0])
                is_other = _is_other(window, found.start(), found.end())
                return Span(
                    None if is_other else quantity, first + found.start(), first + found.end()
                )
    for found in _patterns()[1].finditer(window):
        if found.start() <= begin < found.end():
            last = max(stop, found.end())  # perhaps with a noun
            quantity = quantity_of(window[found.start() : last], True)
            is_other = _is_other(window, found.start(), last)
            if found["from"]:  # grew from 5 to 6
                is_other = is_other or bool(_CHANGE.search(window[: found.start()]))
            begins = next(place for name in _BEGIN if (place := found.start(name)) >= 0)
            return Span(None if is_other else quantity, first + begins, first + last)
    return Span(quantity_of(text[start:end], True), start, end)


# Parts of an expression at the first of which it begins: not at "about".
_BEGIN = ("bound", "between", "from", "first")


def _is_other(window: str, begin: int, stop: int) -> bool:
    """Whether the words before or behind a quantity make another one of it."""
    return bool(_OTHER_BEFORE.search(window[:begin]) or _OTHER_BEHIND.match(window, stop))


def says_a_loss(before: str) -> bool:
    """Whether the words before an amount make it one that is lost."""
    return bool(_LOSS.search(before))


def meaning(quantity: Quantity) -> tuple[object, ...]:
    """Return what a quantity means, equal for 40 m and 40 metres, 1 km and 1000 m, 5 % and 5
    percent, 5 and 5 people.

    >>> meaning(Quantity("40", "m")) == meaning(Quantity("0.04", "kilometres"))
    True
    """
    noun = "" if quantity.is_counted else quantity.unit
    dimension, factor = _units().get(quantity.unit, (noun, Decimal(1)))
    ends = [Decimal(number) for number in (quantity.number, quantity.to) if number]
    sizes = [end if factor == 1 else _ROUNDED.multiply(end, factor) for end in ends]
    return (dimension, quantity.bound, *(_EXACT.normalize(size) for size in sizes))


def as_measure(quantity: Quantity, measures: Sequence[Measure]) -> Quantity | None:
    """Return a quantity as one of these measures, or None if its unit measures something else.

    What is a unit elsewhere may be a word: 450 day pupils, 5,000 in "the town".

    >>> as_measure(Quantity("90", "m"), ["length"]), as_measure(Quantity("412", "tons"), ["length"])
    (Quantity(number='90', unit='m', about=False, bound='', to='', is_counted=False), None)
    >>> as_measure(Quantity("450", "day"), ["count"]).unit, as_measure(Quantity("450", "days"), ["count"])
    ('', None)
    """
    measured = measures_of(quantity.unit)
    if not measures or not measured or measured & {*measures}:
        return quantity
    is_word = quantity.unit == "in" or ("count" in measures and quantity.unit in _KINDS)
    return replace(quantity, unit="") if is_word else None


def measures_of(unit: str) -> frozenset[str]:
    """Return what a unit of the table measures, or nothing for a noun and for no unit, which may
    stand for any measure.

    >>> sorted(measures_of("pounds")), sorted(measures_of("years")), sorted(measures_of("episodes"))
    (['mass', 'money'], ['time'], [])
    """
    dimension = _units().get(unit, ("",))[0]
    if _is_currency(dimension):
        return frozenset({"money"})
    return frozenset(_MEASURES.get(dimension, {dimension} - {""}))


def spellings_of(unit: str) -> list[str]:
    """Return a unit, and how else it may be written.

    >>> spellings_of("metres"), spellings_of("episodes")
    (['metres', 'm', 'metre', 'meter', 'meters'], ['episodes'])
    """
    known = _units().get(unit)
    others = [form for form, meant in _units().items() if meant == known and form != unit]
    return [unit, *others]


def _compound(text: str) -> Quantity | None:
    for pattern, size in _patterns()[2]:
        found = pattern.fullmatch(text)
        if found and Decimal(found["low"]) < size:
            number = int(re.sub(r"\D", "", found["high"])) * size + Decimal(found["low"])
            return Quantity(_plain(number), _SIGNS.get(found["low_unit"], found["low_unit"]))
    return None


_SCALED = re.compile(rf"\s({'|'.join(_SCALES)})\b", re.IGNORECASE)
_SIGNS = {'"': "in", "”": "in", "″": "in", "''": "in"}


def _quantity(found: re.Match[str], counts_anything: bool) -> Quantity | None:
    """Return the quantity of a whole expression."""
    first = _one(found["first"], counts_anything)
    second = None
    if found["second"]:
        second = _one(found["second"], counts_anything)
    if first is None or (found["second"] and second is None):
        return None
    bound, about, sign = _words_of(found)
    if sign:
        first = replace(first, number=_negative(first.number))
    if second is None:
        return (
            None if found["between"] or found["from"] else replace(first, bound=bound, about=about)
        )
    scaled = (
        _one(f"{found['first']} {scale[1]}", counts_anything)
        if (scale := _SCALED.search(found["second"]))
        else None
    )
    # 3 to 4 million, but 500,000 to 1 million.
    if scaled and Decimal(scaled.number) < Decimal(second.number):
        first = scaled
    if bound:
        return None
    return _range(first, second, about)


def _words_of(found: re.Match[str]) -> tuple[Bound, bool, bool]:
    """Return the bound, whether there is an "about", and whether the words make the number
    negative.
    """
    before = found["bound"] or ""
    behind = found["suffix"] or ""
    bounds = [bound for bound, pattern in _BOUNDS if re.fullmatch(pattern, before, re.IGNORECASE)]
    suffix = next(
        (sign for sign, pattern in _BEHIND if re.fullmatch(pattern, behind, re.IGNORECASE)), ""
    )
    bound: Bound = bounds[0] if bounds else ""
    if suffix in (">=", "<="):
        bound = ">=" if suffix == ">=" else "<="
    return bound, bool(found["about"] or found["about_too"]) or suffix == "~", suffix == "-"


def _range(first: Quantity, second: Quantity, about: bool) -> Quantity | None:
    """Return the range from one quantity to another: the unit, and a scale, may stand once."""
    unit = second.unit or first.unit
    if first.unit and second.unit and first.unit != second.unit:
        return None
    low = Decimal(first.number)
    high = Decimal(second.number)
    if not first.unit and 0 < 1000 * low <= high:  # 10-12,000 may begin with 10,000
        return None
    if low < high:
        return Quantity(first.number, unit, about, to=second.number)
    return None


def _one(text: str, counts_anything: bool) -> Quantity | None:
    """Return the quantity of one number with its unit."""
    found = _patterns()[0].fullmatch(text)
    if not found or _DOUBTFUL.search(text):
        return None
    if found["words"] and not counts_anything:
        return None
    if found["money"] and found["unit"]:
        return None
    if found["letter"] and not found["money"]:
        return None
    value = _value(found)
    if value is None:
        return None
    power = _SCALES.get((found["scale"] or "").lower(), 0) + _LETTERS.get(found["letter"] or "", 0)
    number = _plain(_EXACT.scaleb(value, power))
    if found["sign"] or found["minus"]:
        number = _negative(number)
    return Quantity(number, (found["money"] or found["unit"] or "").strip())


def _value(found: re.Match[str]) -> Decimal | None:
    """Return the number before its scale and sign."""
    if found["words"]:
        words = _number_of_words(found["words"].lower())
        if words is None:
            return None
        return Decimal(words)
    if found["alone"]:
        return Decimal(_FRACTIONS[found["alone"]])
    value = Decimal(re.sub(r"[^0-9]", "", found["whole"]) + (found["part"] or ""))
    fraction = (found["fraction"] or "").strip()
    if fraction:
        if found["part"]:
            return None
        parts = fraction.split("/")
        share = (
            Decimal(_FRACTIONS[fraction])
            if len(parts) == 1
            else Decimal(parts[0]) / Decimal(parts[1])
        )
        value = _EXACT.add(value, share)
    raised = found["power"] or found["raised"] or "0"
    return _EXACT.scaleb(value, int(raised.translate(_SUPERSCRIPTS)))


def _number_of_words(text: str) -> int | None:
    """Return the number that words say: two hundred and fifty.

    >>> _number_of_words("two hundred and fifty-one thousand"), _number_of_words("two three")
    (251000, None)
    """
    total = group = 0
    # Each part must be smaller than the one before it.
    last = 100
    last_scale = 10**12
    for word in re.split(r"[\s-]+", re.sub(r"^an?\s", "one ", text).replace(" and ", " ")):
        if word == "hundred":
            if not 0 < group < 10:
                return None
            group = group * 100
            last = 100
        elif word in _SCALES:
            size = 10 ** _SCALES[word]
            if not 0 < group < 1000 or size >= last_scale:
                return None
            total = total + group * size
            group = 0
            last = 100
            last_scale = size
        else:
            if word in _TENS:
                size = 10 * (_TENS.index(word) + 2)
            else:
                size = _ONES.index(word)
            if size >= last or (size == 0 and text != "zero"):
                return None
            group = group + size
            last = 10 if word in _TENS else 0
    return total + group


def _negative(number: str) -> str:
    return (
        number if number == "0" else number.removeprefix("-") if number[0] == "-" else f"-{number}"
    )


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text
