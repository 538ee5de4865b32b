"""Visible: escape text from anywhere for a terminal or HTML.

Corpora, predictions, names of files and other people's knowledge bases may hold characters that move the cursor, rename
the window, reorder what is read, or hide. They are shown as escapes, `\\x1b` or `\\u202e`. All other text stays.

Joiners and variation selectors are part of ordinary text: Persian, Indic scripts and emoji need them. They stay where
they join or select something, and are shown as escapes elsewhere: between Latin letters, or many in a row.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable

HARMFUL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # controls, among them the escape that begins a sequence; a tab is harmless
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, overrides and isolates that reorder text
    "\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # without width
    "\u2028\u2029"  # ends of lines and paragraphs
    "\ud800-\udfff"  # no characters at all
    "\U000e0000-\U000e00ff"  # tags, which can carry hidden text
    "\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]"  # joiners and variation selectors
)
JOINERS = "\u200c\u200d"
JOINED = ("Lo", "Lm", "Mn", "Mc", "So", "Sk")  # letters of scripts without capitals, marks, and symbols such as emoji

QUIET = "color:#767676;font-size:90%"  # readable on white and on black
BAR = "#3b82c4"


def visible(text: str) -> str:
    r"""Return a text on one line, in which characters that control a terminal are escapes.

    >>> print(visible("Łódź \x1b[2J\u202egnp.exe\n نمی\u200cخواهم 👩\u200d🚀"))
    Łódź \x1b[2J\u202egnp.exe\n نمی‌خواهم 👩‍🚀
    """
    return _escaped(text, lambda character: character.encode("unicode_escape").decode())


def visible_json(document: object) -> str:
    r"""JSON on one line, in which the same characters are escapes: it means the same to the last character.

    >>> print(visible_json({"title": "a\u202eb\x9b é"}))
    {"title": "a\u202eb\u009b é"}
    """
    return _escaped(json.dumps(document, ensure_ascii=False), lambda character: json.dumps(character)[1:-1])


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    def shown(match: re.Match[str]) -> str:
        return match[0] if _is_in_place(text, match.start()) else escape(match[0])

    return HARMFUL.sub(shown, text)


def _is_in_place(text: str, place: int) -> bool:
    """Return whether a joiner follows what it may join, or a variation selector what it may select."""
    before = text[place - 1 : place]
    if not before:
        return False
    if text[place] in JOINERS:
        return unicodedata.category(before) in JOINED
    is_selector = unicodedata.name(text[place], "").startswith("VARIATION SELECTOR")
    return is_selector and not unicodedata.name(before, "").startswith("VARIATION SELECTOR") and before not in " \t\n"


def element(name: str, *content: str, style: str = "", title: str = "") -> str:
    """Return an element whose content is HTML already; texts go through `text` before.

    >>> element("b", text("<x> & y"), style="color:red")
    '<b style="color:red">&lt;x&gt; &amp; y</b>'
    """
    given = "".join(f' {key}="{text(value)}"' for key, value in (("style", style), ("title", title)) if value)
    return f"<{name}{given}>{''.join(content)}</{name}>"


def text(words: object) -> str:
    from html import escape  # on demand: the help does without

    return escape(str(words).encode("utf-8", "replace").decode())


def bar(share: float, words: str) -> str:
    """Return a share from 0 to 1 as a bar, with words for it."""
    full = element("span", style=f"display:inline-block;height:.4em;width:{4 * share:.2f}em;background:{BAR}")
    track = element("span", full, style="display:inline-block;width:4em;background:#8884;line-height:.4em")
    return element("span", track, " ", element("span", text(words), style=QUIET), style="white-space:nowrap")


def marked(before: str, words: str, behind: str) -> str:
    """Return a sentence in which some words are marked."""
    return text(before) + element("mark", text(words)) + text(behind)


def table(header: Iterable[str], rows: Iterable[Iterable[str]], caption: str = "") -> str:
    """Return a table; the cells of rows are `td` elements already."""
    head = element("thead", element("tr", *(element("th", text(name), style="text-align:left") for name in header)))
    body = element("tbody", *(element("tr", *row) for row in rows))
    return element("table", element("caption", text(caption)) if caption else "", head, body)
