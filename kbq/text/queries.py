"""Queries: the text of a query becomes a record of what it asks.

The markers `[SEP]`, `[START_ENT]` and `[END_ENT]` are read in any case.
"""

import re
from dataclasses import dataclass
from typing import Self

from kbq.text.normal_forms import clean_text

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
    if len(sides) > 1:
        return "[SEP]".join(sides[:-1]).strip(), sides[-1].strip()
    return None


@dataclass(frozen=True, slots=True)
class Query:
    """A query that has been parsed: a slot, a question, or a text with a marked mention.

    >>> Query.of("Nile [sep] length").relation, Query.of("the [START_ENT] Nile [END_ENT]").mention
    ('length', ' Nile ')
    """

    text: str  # cleaned, with its markers
    # The parts of a slot.
    subject: str = ""
    relation: str = ""
    mention: str | None = None  # text between the markers; None: nothing is marked
    # Token ids for the query encoder; none: its tokenizer has not read the query yet.
    ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """Clean and parse a text."""
        text = clean_text(text)
        subject, relation = slot_of(text) or ("", "")
        marked = mention_in(text)
        mention = None
        if marked:
            mention = marked[1]
        return cls(text, subject, relation, mention)

    @property
    def is_slot(self) -> bool:
        """Whether it has a subject and a relation."""
        return bool(self.subject or self.relation)

    @property
    def name(self) -> str:
        """The part that a title may be: the mention, the subject, or else all of it."""
        if self.mention is not None:
            return self.mention
        if self.is_slot:
            return self.subject
        return self.text

    @property
    def words(self) -> str:
        """The text to look up: a marked mention alone, since its context would find the page it is
        from.

        >>> Query.of("it joins the [START_ENT] Nile [END_ENT]").words, Query.of("Nile [SEP] length").words
        (' Nile ', 'Nile   length')
        """
        if self.mention is None:
            return MARKERS.sub(" ", self.text)
        return self.mention
