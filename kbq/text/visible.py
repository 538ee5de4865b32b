"""Visible texts: escape characters that would control a terminal or hide."""

import json
import re
import unicodedata
from collections.abc import Callable

HARMFUL = re.compile(
    # controls, among them the escape that begins a sequence; a tab is harmless.
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"
    # marks, overrides and isolates that reorder text.
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # characters without width
    "\u2028\u2029"  # ends of lines and paragraphs
    "\ud800-\udfff"  # surrogates are no characters
    "\U000e0000-\U000e00ff"  # tags, which can carry hidden text
    "\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]"  # joiners and variation selectors
)
JOINERS = "\u200c\u200d"
# Letters of scripts without capitals, marks, and symbols such as emoji.
JOINED = ("Lo", "Lm", "Mn", "Mc", "So", "Sk")


def visible(text: str) -> str:
    r"""Return a text on one line, in which characters that control a terminal are escapes; all
    others stay.

    Corpora, predictions, names of files and other people's knowledge bases may hold characters that
    move the cursor, rename the window, reorder what is read, or hide. Joiners and variation
    selectors are part of ordinary text (of Persian, Indic scripts and emoji), and are escapes only
    where they join or select nothing.

    >>> print(visible("Łódź \x1b[2J\u202egnp.exe\n نمی\u200cخواهم 👩\u200d🚀"))
    Łódź \x1b[2J\u202egnp.exe\n نمی‌خواهم 👩‍🚀
    """
    return _escaped(text, lambda character: character.encode("unicode_escape").decode())


def visible_json(document: object) -> str:
    r"""JSON on one line, in which the same characters are escapes: it means the same to the last
    character.

    >>> print(visible_json({"title": "a\u202eb\x9b é"}))
    {"title": "a\u202eb\u009b é"}
    """
    return _escaped(
        json.dumps(document, ensure_ascii=False), lambda character: json.dumps(character)[1:-1]
    )


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    def shown(match: re.Match[str]) -> str:
        if _is_in_place(text, match.start()):
            return match[0]
        return escape(match[0])

    return HARMFUL.sub(shown, text)


def _is_in_place(text: str, place: int) -> bool:
    """Return whether a joiner follows what it may join, or a variation selector what it may select."""
    before = text[place - 1 : place]
    if not before:
        return False
    if text[place] in JOINERS:
        return unicodedata.category(before) in JOINED
    is_selector = unicodedata.name(text[place], "").startswith("VARIATION SELECTOR")
    return (
        is_selector
        and not unicodedata.name(before, "").startswith("VARIATION SELECTOR")
        and before not in " \t\n"
    )
