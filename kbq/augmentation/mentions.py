"""Mentions: the spans of a paragraph that a question may ask for. Source: arXiv 2012.12624, section 4.1.

The paper asks for named entities. spaCy finds them (extra `augment`); without it, names and numbers are found by their
spelling, in languages that write names with capitals.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from kbq.errors import TrainingError
from kbq.model.tokenizer import opens_sentence

Span = tuple[int, int]  # characters [start, end)
FindMentions = Callable[[str], list[Span]]
MARKS = "".join(letter for letter in map(chr, range(0x300, 0x1E000)) if unicodedata.category(letter)[0] == "M")
LETTERS = rf"\w[\w{MARKS}]*"
WORD = re.compile(rf"{LETTERS}(?:['’.\-]{LETTERS}|,\d{{3}}\b)*")
OPENING_WORDS = (
    "A After All Although An And As At Because Before Both But By During Each For From He Her His However If In It Its "
    "Many Most No Of On One Or Other She Since So Some That The Their Then There These They This Those Through Thus To "
    "Two Under Until Upon We When Where Which While Who With You"
)
OPENERS = frozenset(OPENING_WORDS.split())
JOINED_BY = re.compile(r" (?:(?:of|the|de|la|le|du|da|di|del|von|van|der|den|al|el|bin|ibn|y|&) )*")


def written_mentions(text: str) -> list[Span]:
    """Find runs of words that begin with a capital or a digit.

    A single capitalised word that opens a sentence counts only if it is capitalised elsewhere, too.

    >>> text = "Born in Łódź, she met the Duke of York. The city was rebuilt by 7 November 1945."
    >>> [text[start:end] for start, end in written_mentions(text)]
    ['Łódź', 'Duke of York', '7 November 1945']
    """
    words = [match for match in WORD.finditer(text) if match[0][0].isupper() or match[0][0].isdigit()]
    opening = {match.start() for match in words if opens_sentence(text, match.start())}
    words = [match for match in words if match.start() not in opening or match[0] not in OPENERS]
    inside = {match[0] for match in words if match.start() not in opening}
    spans: list[list[int]] = []
    for match in words:
        if spans and JOINED_BY.fullmatch(text, spans[-1][1], match.start()):
            spans[-1][1] = match.end()
        else:
            spans.append([match.start(), match.end()])
    return [
        (start, end)
        for start, end in spans
        if start not in opening or not WORD.fullmatch(text, start, end) or text[start:end] in inside
        or text[start].isdigit()
    ]  # fmt: skip


def entity_finder(pipeline: str) -> FindMentions:
    """Return the function that finds mentions: a spaCy pipeline by its name, or `written`.

    Raises TrainingError if spaCy, or the pipeline, is not installed.
    """
    if pipeline == "written":
        return written_mentions
    try:
        import spacy
    except ImportError:
        raise TrainingError(
            f"the entities of {pipeline} need spaCy: pip install spacy, or leave out --entities"
        ) from None
    try:
        language: Any = spacy.load(pipeline)
    except OSError:
        raise TrainingError(
            f"spaCy has no pipeline {pipeline}: python -m spacy download {pipeline}, or leave out --entities"
        ) from None
    return lambda text: [(entity.start_char, entity.end_char) for entity in language(text).ents]
