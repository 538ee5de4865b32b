"""Queries: find the markers that part a query, or mark its mention."""

import re

MARKERS = re.compile(r"\[(?:SEP|START_ENT|END_ENT)\]", re.IGNORECASE)
START = re.compile(r"\[START_ENT\]", re.IGNORECASE)
MENTION = re.compile(START.pattern + r"(.*?)\[END_ENT\]", re.DOTALL | re.IGNORECASE)
SEPARATOR = re.compile(r"\[SEP\]", re.IGNORECASE)


def mention_in(text: str) -> re.Match[str] | None:
    """Return the first marked mention, without its markers in group 1.

    Only the first `[START_ENT]` is tried, so that a text of many is read once: if nothing ends it,
    nothing ends a later one.

    >>> mention_in("the [START_ENT] Nile [END_ENT] flows")[1], mention_in("[START_ENT]" * 3)
    (' Nile ', None)
    """
    first = START.search(text)
    return first and MENTION.match(text, first.start())


def relation_key(relation: str) -> str:
    """Return the same text for all ways to write a relation: in lower case, without a final
    question mark.

    >>> relation_key("Place of birth ?")
    'place of birth'
    """
    return relation.strip().removesuffix("?").strip().casefold()


def slot_of(text: str) -> tuple[str, str] | None:
    """Return subject and relation of a slot query, or None for any other query.

    >>> slot_of("Nile [sep] length"), slot_of("how long is the Nile?")
    (('Nile', 'length'), None)
    """
    sides = SEPARATOR.split(text)
    return ("[SEP]".join(sides[:-1]).strip(), sides[-1].strip()) if len(sides) > 1 else None


def subject_of(text: str) -> str:
    """Return the subject of a slot query; of any other query, an empty text."""
    slot = slot_of(text)
    return slot[0] if slot else ""
