"""Markdown: lines become a title, paragraphs and metadata; marks become blanks, so that character positions stay.

Headings are not paragraphs: the first of the highest level is the title, unless front matter (YAML between lines of
`---`, TOML between `+++`) names one. Other fields of front matter are metadata. Source: spec.commonmark.org.
"""

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbq.corpus.metadata import jsonable

LONGEST = 1000  # characters between two marks that belong together
DEEPEST_MATTER = 64 * 1024  # characters of front matter

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_BLOCK_MARKS = re.compile(r"\s*(?:>[ \t]?)*\s*(?:(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]+(?:\[[ xX]\][ \t]+)?|$))?")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_DEFINITION = re.compile(r" {0,3}\[(?!\^)[^\]]+\]:\s+\S+.*$")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_PRIVATE = 0xE000  # of Unicode's private use: stands for an escaped character while marks are looked for
_TEXT = rf"(?P<text>[^\[\]]{{0,{LONGEST}}})"
_INLINE = [
    re.compile(form, re.DOTALL)
    for form in (
        rf"<!--.{{0,{LONGEST}}}?-->",
        r"<(?P<text>(?:https?|mailto|ftp):[^\s<>]{1,1000})>",
        r"</?[A-Za-z][^<>]{0,1000}>",
        rf"`(?P<text>[^`\n]{{1,{LONGEST}}})`",
        r"\[\^[^\]\s]{1,100}\]:?",
        rf"!?\[{_TEXT}\]\([^()\s]{{0,1000}}(?:\([^()\s]{{0,1000}}\)[^()\s]{{0,1000}})?(?:\s+\"[^\"]{{0,1000}}\")?\s*\)",
        rf"!?\[{_TEXT}\]\[[^\[\]]{{0,1000}}\]",
        rf"\*\*\*(?=\S)(?P<text>.{{0,{LONGEST}}}?\S)\*\*\*",
        rf"\*\*(?=\S)(?P<text>.{{0,{LONGEST}}}?\S)\*\*",
        rf"\*(?=[^\s*])(?P<text>[^*]{{0,{LONGEST}}}?[^\s*])\*",
        rf"(?<!\w)(?P<mark>_{{1,3}})(?=[^\s_])(?P<text>.{{0,{LONGEST}}}?\S)(?P=mark)(?!\w)",
        rf"~~(?=\S)(?P<text>.{{0,{LONGEST}}}?\S)~~",
    )
]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a document."""

    title: str
    paragraphs: list[str]
    metadata: dict[str, object] = field(default_factory=dict)


def markdown_parts(lines: Sequence[str]) -> Parts:
    """Return the parts of a document; a paragraph has the characters of its source, marks as blanks.

    >>> markdown_parts(["# Stone Bridge", "It was *designed* by [Ann Aal](a.md)."])
    Parts(title='Stone Bridge', paragraphs=['It was  designed  by  Ann Aal       .'], metadata={})
    """
    metadata, lines = _front_matter(lines)
    headings: list[tuple[int, str]] = []
    paragraphs: list[list[str]] = [[]]
    fence = ""
    for place, line in enumerate(lines):
        found = _FENCE.match(line)
        if found and (not fence or found[1].startswith(fence)):
            fence = "" if fence else found[1]
            paragraphs.append([])
        elif fence:
            paragraphs[-1].append(line.translate(_AS_PRIVATE))  # code is kept as it is
        elif heading := _ATX.match(line):
            headings.append((len(heading[1]), heading[2] or ""))
            paragraphs.append([])
        elif (under := _SETEXT.match(line)) and len(paragraphs[-1]) == 1 and lines[place - 1].strip():
            headings.append((1 if under[1][0] == "=" else 2, paragraphs.pop()[0]))
            paragraphs.append([])
        elif not line.strip() or _RULE.match(line) or _DEFINITION.match(line):
            paragraphs.append([])
        else:
            paragraphs[-1].append(line)
    top = min((level for level, _ in headings), default=0)
    title = str(metadata.pop("title", "") or next((text for level, text in headings if level == top == 1), ""))
    texts = [_without_marks(paragraph) for paragraph in paragraphs if any(map(str.strip, paragraph))]
    return Parts(" ".join(_without_marks([title]).split()), texts, metadata)


_AS_PRIVATE = {ord(mark): chr(_PRIVATE + ord(mark)) for mark in "\\`*_[]<>|~!#-+>&"}
_BACK = {_PRIVATE + code: chr(code) for code in range(128)}


def _without_marks(lines: Sequence[str]) -> str:
    """Return the text of a paragraph, with as many blanks for each mark."""
    is_table = any("|" in line and _TABLE_RULE.match(line) for line in lines)
    kept = []
    for line in lines:
        if is_table:
            line = " " * len(line) if _TABLE_RULE.match(line) else line.replace("|", " ")
        marks = _BLOCK_MARKS.match(line)
        kept.append(" " * marks.end() + line[marks.end() :] if marks else line)
    text = _ESCAPE.sub(lambda found: " " + chr(_PRIVATE + ord(found[1])), "\n".join(kept))
    for form in _INLINE:
        text = form.sub(_blanked, text)
    return text.translate(_BACK)


def _blanked(found: re.Match[str]) -> str:
    """Return the text between marks, at its place; line ends stay."""
    groups = found.groupdict()
    begin, end = found.span("text") if groups.get("text") is not None else (found.start(), found.start())
    parts = found.string[found.start() : begin], found.string[begin:end], found.string[end : found.end()]
    blanks = [re.sub(r"[^\n]", " ", part) for part in parts]
    return blanks[0] + parts[1] + blanks[2]


def _front_matter(lines: Sequence[str]) -> tuple[dict[str, object], Sequence[str]]:
    """Return the fields of front matter, and the other lines; malformed front matter is text."""
    parsers: dict[str, Callable[[str], Any]] = {"---": _yaml, "+++": tomllib.loads}
    parse = parsers.get(lines[0].rstrip()) if lines else None
    if not parse:
        return {}, lines
    ends = (lines[0].rstrip(), "...") if parse is _yaml else (lines[0].rstrip(),)
    stop = next((place for place, line in enumerate(lines) if place and line.rstrip() in ends), 0)
    matter = "\n".join(lines[1:stop])
    if not stop or len(matter) > DEEPEST_MATTER:
        return {}, lines
    try:
        fields = parse(matter)
    except (ValueError, RecursionError):
        return {}, lines[stop + 1 :] if all(":" in line or not line.strip() for line in lines[1:stop]) else lines
    if fields is None:
        return {}, lines[stop + 1 :]
    return (jsonable(fields), lines[stop + 1 :]) if isinstance(fields, dict) else ({}, lines)


def _yaml(text: str) -> Any:
    """Parse YAML, whose values stay text as written. Raises ValueError, for aliases, too, which may mean any length."""
    import yaml  # imported on demand; transformers needs it, too

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.BaseLoader)):
            raise ValueError("it has aliases")
        return yaml.load(text, yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
