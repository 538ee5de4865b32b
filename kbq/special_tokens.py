"""Special tokens: the markers in a query, `subject [SEP] relation` or `… [START_ENT] mention [END_ENT] …`."""

import re

MARKERS = re.compile(r"\[(?:SEP|START_ENT|END_ENT)\]", re.IGNORECASE)
MENTION = re.compile(r"\[START_ENT\](.*?)\[END_ENT\]", re.DOTALL | re.IGNORECASE)
SEPARATOR = re.compile(r"\[SEP\]", re.IGNORECASE)


def slot_of(text: str) -> tuple[str, str] | None:
    """Subject and relation of a slot query; None for any other query.

    >>> slot_of("Nile [sep] length"), slot_of("how long is the Nile?")
    (('Nile', 'length'), None)
    """
    sides = SEPARATOR.split(text)
    return ("[SEP]".join(sides[:-1]).strip(), sides[-1].strip()) if len(sides) > 1 else None
