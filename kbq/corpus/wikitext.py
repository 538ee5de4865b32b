"""Wikitext: write the templates of a page of MediaWiki as the text that their arguments say.

Templates are not there to be expanded. A box becomes a paragraph for each argument,
`Birth place: Ashcombe`; dates, measures and marks of languages become their text; any other
template in a sentence says its arguments without names.
"""

import re
from calendar import month_name
from collections import Counter
from typing import Any

from kbq.errors import CorpusError

BOX = 2  # arguments with names that make a template a box, if it begins a line
# What is about the page, and not part of its text.
ASIDE = re.compile(
    r"(?:cite|citation|use|short|about|main|see|further|portal|commons|authority|default|sfn|efn|ref|r$|reflist|coord"
    r"|other uses|for$|hatnote|pp-|good article|featured|redirect|distinguish|more|refimprove|unreferenced|stub|clear"
    r"|flagicon|notelist|navbox|toc|anchor|dead link|webarchive|page needed|who|when|which|clarify|#|dts|sort)\b.*"
    r"|.*(?:-stub|needed)",
    re.IGNORECASE | re.DOTALL,
)
DATE = re.compile(
    r"(?:birth|death|start|end|film)[- _]?(?:date|year).*|date|b?da|[bd]date.*", re.IGNORECASE
)
SECOND = re.compile(
    r"lang(?:-\w+)?|transl|transliteration|script|color|font color|abbrlink|tooltip2", re.IGNORECASE
)
FIRST = re.compile(
    r"nihongo|zh|korean|abbr|tooltip|flag.*|nowrap|ill|interlanguage link", re.IGNORECASE
)
LISTS = ("plainlist", "flatlist", "ubl", "unbulleted list", "hlist", "flowlist")
SIGNS = dict.fromkeys(("ndash", "snd", "spnd", "–", "dash", "spaced ndash"), " – ")
SIGNS |= dict.fromkeys(("mdash", "—"), "—")
MONEY = {
    "usd": "$", "us$": "$", "gbp": "£", "eur": "€", "euro": "€", "jpy": "¥", "inr": "₹",
    "aud": "A$", "cad": "C$",
}  # fmt: skip
UNSEEN = re.compile(
    r"(?:^|_)(?:image|img|logo|photo|picture|caption|alt|map|size|width|module|embed|footnotes)\d*(?:_|$)"
    r"|imagesize|(?:title|header|body|label|data|above|below)style|^(?:name|title)$"
)
HIDDEN_LINK = re.compile(r"\s*:?(?:category|file|image|datei|bild|fichier)\s*:", re.IGNORECASE)
BREAK = re.compile(r"(?:\s*(?:<br\s*/?>|\n+\s*[*#:;]*)\s*)+")


def plain_wikitext(text: str, left_out: Counter[str]) -> tuple[str, str]:
    """Return wikitext without templates, categories and pictures, and the words in bold letters
    that it begins with.

    Raises CorpusError if the page only leads to another one.
    """
    import mwparserfromhell

    leads = re.match(r"\s*#\w+\s*:?\s*\[\[([^\]|]+)", text)
    if leads and text.lstrip("# ").lower().startswith(("redirect", "weiterleitung", "redirection")):
        raise CorpusError(f"it only leads to {leads[1].strip()!r}: it is no page of its own")
    code = mwparserfromhell.parse(text)
    _say_all(code, left_out)
    plain = str(code)
    bold = re.search(r"'''(.+?)'''", re.split(r"\n==", plain)[0])
    return plain, re.sub(
        r"''+|\[\[(?:[^\]|]*\|)?|\]\]|<[^>]*>", "", bold[1]
    ).strip() if bold else ""


def _say_all(code: Any, left_out: Counter[str]) -> None:
    """Put text in the place of each template, and remove what a reader of the page does not see in
    its text.
    """
    from mwparserfromhell.nodes import Template, Wikilink

    begins_line = True
    for node in list(code.nodes):
        if isinstance(node, Wikilink) and HIDDEN_LINK.match(str(node.title)):
            code.remove(node)
        elif isinstance(node, Template):
            code.replace(node, _said(node, begins_line, left_out))
        else:
            for inner in node.__children__():
                _say_all(inner, left_out)
        begins_line = str(node).endswith("\n")


def _said(template: Any, begins_line: bool, left_out: Counter[str]) -> str:
    """Return the text of a template."""
    for argument in template.params:
        _say_all(argument.value, left_out)
    name = " ".join(str(template.name).replace("_", " ").split())
    named = {
        str(parameter.name).strip(): str(parameter.value).strip()
        for parameter in template.params
        if parameter.showkey
    }
    unnamed = [
        str(parameter.value).strip() for parameter in template.params if not parameter.showkey
    ]
    said = ""
    if not ASIDE.fullmatch(name):
        is_box = begins_line and sum(map(bool, named.values())) >= BOX
        if is_box:
            said = _box(named)
        else:
            said = _inline(name, unnamed, named)
    left_out["templates"] += not said
    return said


def _box(named: dict[str, str]) -> str:
    """Return the arguments of a box, each a paragraph with its label."""
    lines = []
    for name, value in named.items():
        text = re.sub(r"^[*#:;,\s]+|[,\s]+$|(?<=,)\s*,", "", BREAK.sub(", ", value.strip("\n *")))
        if text and not UNSEEN.search(name.lower()):
            label = name.replace("_", " ").strip()
            lines.append(f"{label[:1].upper()}{label[1:]}: {text}")
    return "\n\n" + "\n\n".join(lines) + "\n\n"


def _inline(name: str, unnamed: list[str], named: dict[str, str]) -> str:
    """Return the text of a template within a sentence.

    >>> _inline("birth date", ["1881", "5", "7"], {}), _inline("convert", ["61", "m", "ft"], {})
    ('7 May 1881', '61 m')
    >>> _inline("circa", ["1881"], {}), _inline("lang", ["de", "Anna Holz"], {}), _inline("formatnum:12500", [], {})
    ('c. 1881', 'Anna Holz', '12500')
    """
    function, colon, argument = name.partition(":")
    if colon and function.lower() in ("formatnum", "lc", "uc", "lcfirst", "ucfirst", "nowrap"):
        return argument.strip()
    known = name.lower()
    if known in SIGNS:
        return SIGNS[known]
    if DATE.fullmatch(name):
        return _date(unnamed)
    if known in MONEY:
        return f"{MONEY[known]}{' '.join(unnamed[:1])}"
    if known in ("circa", "c.", "ca", "c"):
        return " ".join(["c.", *unnamed[:1]])
    if known in ("convert", "cvt"):
        return _measure(unnamed)
    if SECOND.fullmatch(name):
        return " ".join(unnamed[1:2] or unnamed)
    if FIRST.fullmatch(name):
        return " ".join(unnamed[:1])
    if known in LISTS:
        return ", ".join(BREAK.sub(", ", value.strip("\n *")) for value in unnamed if value)
    if known == "marriage":
        years = "–".join(value for value in unnamed[1:3] if value)
        if years:
            return f"{unnamed[0]} ({years})"
        return " ".join(unnamed[:1])

    return " ".join(value for value in unnamed if value) or named.get("1", "")


def _measure(unnamed: list[str]) -> str:
    """Return a measure in its first unit, and a range with its sign.

    >>> _measure(["2", "to", "5", "km", "mi"]), _measure(["2", "km"])
    ('2 to 5 km', '2 km')
    """
    if len(unnamed) > 3 and unnamed[1].strip("-–") in ("", "to", "and", "by", "x", "or"):
        sign = {"-": "–", "–": "–"}.get(unnamed[1], f" {unnamed[1]} ")
        return f"{unnamed[0]}{sign}{unnamed[2]} {unnamed[3]}"
    return " ".join(unnamed[:2])


def _date(unnamed: list[str]) -> str:
    """Return a date that its year, month and day give, or the text that stands in their place.

    >>> _date(["1950", "3", "4", "1881", "5", "7"]), _date(["1881", "5"]), _date(["in spring"])
    ('4 March 1950', 'May 1881', 'in spring')
    """
    numbers = [value for value in unnamed[:3] if re.fullmatch(r"\d+", value)]
    if len(numbers) != len(unnamed[:3]) or not numbers:
        return " ".join(unnamed[:1])
    year, *rest = numbers
    if rest and not 1 <= int(rest[0]) <= 12:
        return year
    month = []
    if rest:
        month = [month_name[int(rest[0])]]
    return " ".join([*map(str, map(int, rest[1:2])), *month, year])
