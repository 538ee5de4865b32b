"""Markers: those in a query, `subject [SEP] relation` or `… [START_ENT] mention [END_ENT] …`, and KILT's of lists."""

import re

MARKERS = re.compile(r"\[(?:SEP|START_ENT|END_ENT)\]", re.IGNORECASE)
START = re.compile(r"\[START_ENT\]", re.IGNORECASE)
MENTION = re.compile(START.pattern + r"(.*?)\[END_ENT\]", re.DOTALL | re.IGNORECASE)
SEPARATOR = re.compile(r"\[SEP\]", re.IGNORECASE)
KILT_MARKER = re.compile(r"\s*(Section::::[^\n]*|BULLET::::((-|\d+\.)(\s|$))?)\s*")
EMPTY = ("NA", "N/A", "#N/A", "<NA>", "NaN", "null", "None", "-", "–", "—", "?")  # what cells without a value hold


def mention_in(text: str) -> re.Match[str] | None:
    """Return the first marked mention, without its markers in group 1.

    Only the first `[START_ENT]` is tried, so that a text of nothing else is read once: what ends none of the later ones
    does not end the first.

    >>> mention_in("the [START_ENT] Nile [END_ENT] flows")[1], mention_in("[START_ENT]" * 3)
    (' Nile ', None)
    """
    first = START.search(text)
    return first and MENTION.match(text, first.start())


def relation_key(relation: str) -> str:
    """Return the same text for all ways to write a relation: in lower case, without a final question mark.

    >>> relation_key("Place of birth ?")
    'place of birth'
    """
    return relation.strip().removesuffix("?").strip().casefold()


def slot_of(text: str) -> tuple[str, str] | None:
    """Subject and relation of a slot query; None for any other query.

    >>> slot_of("Nile [sep] length"), slot_of("how long is the Nile?")
    (('Nile', 'length'), None)
    """
    sides = SEPARATOR.split(text)
    return ("[SEP]".join(sides[:-1]).strip(), sides[-1].strip()) if len(sides) > 1 else None


def content_start(text: str) -> int:
    """Return where a paragraph's content begins, after the list marker that a KILT knowledge source may have."""
    marker = KILT_MARKER.match(text)
    return marker.end() if marker else 0
