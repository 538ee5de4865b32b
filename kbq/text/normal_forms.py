"""Normal forms: fold texts that look the same to one.

Compatibility forms (ﬁ, full width) become the letters they stand for, apostrophes one apostrophe,
digits those of ASCII; invisible characters (soft hyphens, joiners) disappear. Case, accents and
strokes make no difference; marks that make another letter do: バ is not パ.
Source: Unicode Standard Annex 15.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]
SHORT_TEXT = 1000  # characters of a text that any order is quick for
MARKS = 32  # marks of a run that is ordered here: no language has this many
APOSTROPHES = "'`´‘’‛′‵ʹʺʻʼʽʾʿˈˊˋꞋꞌ＇՚׳"
STROKES = {
    "ł": "l",
    "ø": "o",
    "đ": "d",
    "ħ": "h",
    "ŧ": "t",
    "ı": "i",
    "æ": "ae",
    "œ": "oe",
    "ð": "d",
    "þ": "th",
    "ŀ": "l",
    "ƚ": "l",
    "ɨ": "i",
    "ƀ": "b",
    "ɖ": "d",
    "ɗ": "d",
    "ɓ": "b",
    "ɠ": "g",
    "ƙ": "k",
    "ŋ": "n",
    "ẞ": "ss",
}
STROKES |= {"ё": "е", "ѐ": "е", "ѝ": "и", "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ς": "σ"}
# Signs that few keyboards have, and what people type instead.
SIGNS = {"−": "-", "×": "x", "♯": "#"}
# Accents, vowel points of Hebrew and Arabic: left out by many writers. All other marks make another
# letter.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\ufe20-\ufe2f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed]"
)
_CYRILLIC = range(0x0400, 0x0530)
# Letters without width.
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u3164\uffa0"
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0000, 0xE1000))  # selectors of variants; tags
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_HIDDEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_LIGATURE = re.compile("[ﬀ-ﬆ]")

GUESSES = 8  # guesses of the place that a character of a folded text had
SHORT_RUN = 16  # letters of a run that is remembered: most come again
_POWER = re.compile("(?<=[0-9])(?=[⁰¹²³⁴-⁹₀-₉])")  # 10² is not 102, though m² is m2
_PART = re.compile("[\x00-\x7f]?[^\x00-\x7f]+")
_FRACTION = re.compile("(?<=[0-9])(?=[¼-¾⅐-⅞↉])")  # 1½ is not 11/2
_PUNCTUATION_KEPT = "#*%@‰"  # it tells names and numbers apart: C#, A*, 5 %
# Marks of numbers while punctuation is looked for: of private use.
_MINUS = "\ue000"
_POINT = "\ue001"
# -5; the blood groups O-, AB-.
_NEGATIVE = re.compile(r"(?<![\w.,)])-(?=[0-9])|(?<=^[^\W\d_])-$|(?<=^[^\W\d_]{2})-$")
_DECIMAL = re.compile(r"(?<![0-9.,])([0-9]+)(?:\.([0-9]+)|,([0-9]{1,2}))(?![0-9.,]?[0-9])")
_INITIALS = re.compile(r"(?<!\w)[^\W\d_](?:\. ?[^\W\d_])+\.?(?!\w)")
# A.C., U.S.A; of capitals alone also J. R. R., but no end of a sentence before "A".
_ACRONYM = re.compile(
    r"(?<![\w.])[^\W\d_](?:\.[^\W\d_])+\.?(?!\w)|(?<![\w.])[A-Z]\.(?: [A-Z]\.)+(?!\w)"
)

# What cells without a value hold.
EMPTY = ("NA", "N/A", "#N/A", "<NA>", "NaN", "null", "None", "-", "–", "—", "?")

IN_BRACKETS = re.compile(r"\s*\([^()]*\)$")  # end of a title: "Georgia (country)"


def clean_text(text: str) -> str:
    r"""Normalise text to NFC and replace characters that cannot be written or displayed.

    After NFC, control characters other than line feed and tab become spaces, and lone surrogates
    become U+FFFD, one for one, so that character positions stay the same.

    >>> clean_text("Cafe\u0301\x00\r\n")
    'Café  \n'
    """
    return without_surrogates(_CONTROL.sub(" ", normal_form("NFC", text)))


def without_surrogates(text: str) -> str:
    """Replace each half of a surrogate pair, which cannot be written, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


class _Seen(dict[int, str | int]):
    """The letter of a code point, or nothing if it is invisible; filled on demand."""

    def __missing__(self, code: int) -> str | int:
        is_unseen = unicodedata.category(chr(code)) == "Cf" or any(
            code in each for each in _SELECTORS
        )
        if is_unseen or chr(code) in _FILLERS:
            self[code] = ""
        else:
            self[code] = code
        return self[code]


class _Plain(_Seen):
    """The usual letter of a code point; digits of all scripts become those of ASCII."""

    def __missing__(self, code: int) -> str | int:
        digit = unicodedata.decimal(chr(code), None)
        if digit is None:
            self[code] = super().__missing__(code)
        else:
            self[code] = str(digit)
        return self[code]


_SEEN = _Seen()
_PLAIN = _Plain(
    {ord(letter): "'" for letter in APOSTROPHES}
    | {ord(sign): usual for sign, usual in SIGNS.items()}
)


def seen(text: str) -> str:
    """Remove invisible characters: soft hyphens, joiners, marks of direction, selectors of
    variants.
    """
    if text.isascii():
        return text
    return text.translate(_SEEN)


def tidy(text: str) -> str:
    r"""Return a text as values leave kbq: one blank for any white space, without soft hyphens and
    the like, ligatures.

    Joiners stay, which Persian and emoji need.

    >>> tidy("Hei\u00addel\u00adberg,  \n Pﬁzer ")
    'Heidelberg, Pfizer'
    """
    if not text.isascii():
        text = _LIGATURE.sub(
            lambda found: unicodedata.normalize("NFKC", found[0]), _HIDDEN.sub("", text)
        )
    return " ".join(text.split())


def plain(text: str) -> str:
    """Return a text in usual letters, with its case and accents; its length may change.

    >>> plain("Pﬁzer’s Hei\\u00addel\\u00adberg, Kaʻahumanu, 10² m²"), plain("AT&amp;T")
    ("Pfizer's Heidelberg, Ka'ahumanu, 10^2 m2", 'AT&T')
    """
    return _in_parts(_plain_part, text)


def folded(text: str) -> str:
    """Return a text as words are compared: plain, without case, accents and strokes.

    >>> folded("Łódź, Œuvre, Straße, Ёлка, バ")
    'lodz, oeuvre, strasse, елка, バ'
    """
    return _in_parts(_folded_part, text).casefold()


def joined(text: str) -> str:
    """Return a text in which letters with full stops are one word, as they are without: A.C. Milan
    is AC Milan.

    >>> joined("N.A.S.A. and A.C. Milan, by J. R. R. Tolkien."), joined("Plan A. The 3.5 of Dr. B. Ann")
    ('NASA and AC Milan, by JRR Tolkien.', 'Plan A. The 3.5 of Dr. B. Ann')
    """
    if "." not in text:
        return text
    # A letter has its marks.
    return _ACRONYM.sub(lambda found: re.sub("[. ]", "", found[0]), normal_form("NFC", text))


def place_before(change: Callable[[str], str], text: str, place: int) -> int:
    """Return the character of a text from which on `change` makes what it makes from character
    `place` on.

    The guess is mended by as many characters as are left too many. Where one character becomes
    many, that may not end; then a place nearby is returned.

    >>> folded("Œuvre: Ann"), place_before(folded, "Œuvre: Ann", folded("Œuvre: Ann").index("ann"))
    ('oeuvre: ann', 7)
    """
    wanted = len(change(text)) - place
    start = min(place, len(text))
    for _ in range(GUESSES):
        surplus = len(change(text[start:])) - wanted
        if not surplus:
            break
        start = max(0, min(start + surplus, len(text)))
    return start


def _in_parts(change: Callable[[str], str], text: str) -> str:
    """Change the runs of letters of a text that are not ASCII, with the one before them: the others
    stay.
    """
    if "&" in text and ";" in text:
        text = html.unescape(text)
    if not text.isascii():
        cached = _cached(change)
        text = _PART.sub(
            lambda part: (cached if part.end() - part.start() <= SHORT_RUN else change)(part[0]),
            text,
        )
    return text.replace("`", "'")


@cache
def _cached(change: Callable[[str], str]) -> Callable[[str], str]:
    return lru_cache(2**13)(change)


def _plain_part(part: str) -> str:
    part = part.translate(_PLAIN)
    return (
        part
        if is_normal("NFKC", part)
        else normal_form("NFKC", _FRACTION.sub(" ", _POWER.sub("^", part)))
    )


def _folded_part(part: str) -> str:
    letters = _plain_part(part).casefold()
    return (
        letters
        if letters.isascii()
        else normal_form("NFKC", normal_form("NFKC", letters).translate(_BARE))
    )


class _Bare(dict[int, str]):
    """The letter of a code point without its accent; filled on demand."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        parts = unicodedata.normalize("NFD", letter)
        bare = _ACCENTS.sub("", parts)
        is_another = bare == parts or (len(parts) > 1 and code in _CYRILLIC)
        self[code] = letter if is_another else bare
        return self[code]


_BARE = _Bare({ord(letter): bare for letter, bare in STROKES.items()})


@lru_cache(2**14)  # the relations of a subject have the same values proposed, from the same pages
def normalised(text: str) -> str:
    """Return a text as values are compared: without case, diacritics, punctuation and superfluous
    blanks.

    Apostrophes and the points of initials are dropped, other punctuation counts as a blank, except
    `#*%@‰`, the sign of a number, and its decimal point; a text that is punctuation alone stays.
    Source of the rules: LM-KBC 2026.

    >>> normalised("O’Brien & Søn: “Café”, Łódź"), normalised("!!!"), normalised("C#")
    ('obrien son cafe lodz', '!!!', 'c#')
    >>> normalised("Washington, D. C."), normalised("J.R.R. Tolkien"), normalised("-3,5"), normalised("3/5")
    ('washington dc', 'jrr tolkien', '-3.5', '3 5')
    """
    letters = folded(text)
    marked = _NEGATIVE.sub(_MINUS, letters.replace("'", ""))
    marked = _DECIMAL.sub(lambda number: f"{number[1]}{_POINT}{number[2] or number[3]}", marked)
    marked = _INITIALS.sub(lambda initials: re.sub("[. ]", "", initials[0]), marked)
    words = "".join(map(_of_word, marked)).replace(_MINUS, "-").replace(_POINT, ".").split()
    if any(map(_is_word, words)):
        return " ".join(words)
    return " ".join(letters.split())


def _is_word(text: str) -> bool:
    return any(map(str.isalnum, text))


@lru_cache(2**12)
def _of_word(letter: str) -> str:
    if letter in _PUNCTUATION_KEPT or unicodedata.category(letter)[0] != "P":
        return letter
    return " "


def normal_form(form: Form, text: str) -> str:
    """`unicodedata.normalize`, in time that grows with the length of the text alone.

    Python puts the marks after a letter in order by insertion, which takes hours for a letter with
    a million marks: such runs are ordered before it sees them.

    >>> normal_form("NFC", "Cafe\\u0301")
    'Café'
    """
    return unicodedata.normalize(form, _in_order(form, text))


def is_normal(form: Form, text: str) -> bool:
    """`unicodedata.is_normalized`, in time that grows with the length of the text alone."""
    return (
        unicodedata.is_normalized(form, text)
        if len(text) < SHORT_TEXT
        else text == normal_form(form, text)
    )


def _in_order(form: Form, text: str) -> str:
    """Return a text of the same normal form, in which long runs of marks are decomposed and in
    order.
    """
    if len(text) < SHORT_TEXT or text.isascii():
        return text
    decomposition: Form = "NFKD" if "K" in form else "NFD"
    parts = {letter: unicodedata.normalize(decomposition, letter) for letter in set(text)}
    marks = "".join(letter for letter, part in parts.items() if unicodedata.combining(part[0]))
    if not marks:
        return text

    def ordered(run: re.Match[str]) -> str:
        return "".join(sorted("".join(map(parts.__getitem__, run[0])), key=unicodedata.combining))

    return re.sub(f"[{re.escape(marks)}]{{{MARKS},}}", ordered, text)


def is_abbreviated(words: Sequence[str], name: Sequence[str]) -> bool:
    """Whether words are those of a name, some of the first ones shortened to initials.

    >>> is_abbreviated(["l", "meitner"], ["lise", "meitner"]), is_abbreviated(["l", "m"], ["lise", "meitner"])
    (True, False)
    """
    pairs = list(zip(words, name, strict=False))
    fits = all(word == full or (len(word) == 1 and full.startswith(word)) for word, full in pairs)
    return len(words) == len(name) > 1 and fits and words[-1] == name[-1] and len(words[-1]) > 1
