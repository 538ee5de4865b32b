"""Adapters: the `input` of a benchmark's record becomes the query that the encoder reads.

An adapter takes the input and a test of whether the encoder reads a text whole; it cuts only where that says no.
"""

import re
from collections.abc import Callable, Mapping

from kbq.errors import KbqError
from kbq.text.markers import mention_in, slot_of

Fits = Callable[[str], bool]
Adapter = Callable[[str, Fits], str]
# Words with the blanks between them and the mention; in scripts without blanks, as many characters as a word may have.
WORDS_BEFORE, WORDS_AFTER = re.compile(r"\S{1,30}\s*"), re.compile(r"\s*\S{1,30}")


def question(text: str, fits: Fits) -> str:
    """Return a plain question; of a very long one, as much of the beginning as the encoder reads.

    >>> question("who wrote Emma?", lambda text: True)
    'who wrote Emma?'
    """
    return text if fits(text) else beginning(text, fits)


def slot(text: str, fits: Fits) -> str:
    """Return `subject [SEP] relation` as it is: the encoder reads the separator itself."""
    return text


def slot_with(templates: Mapping[str, str]) -> Adapter:
    """Make an adapter that puts slots into natural language where there is a template for the relation.

    Raises:
        KbqError: the templates are not texts.

    >>> slot_with({"author": "who wrote {subject}"})("Emma [SEP] author", lambda text: True)
    'who wrote Emma'
    """
    if not isinstance(templates, Mapping) or not all(isinstance(one, str) for one in templates.values()):
        raise KbqError(f"slot_with is given {templates!r:.60}: give a dict of templates by relation")

    def adapt(text: str, fits: Fits) -> str:
        subject, relation = slot_of(text) or ("", "")
        template = templates.get(relation)
        return text if template is None else template.format(subject=subject)

    return adapt


def mention(text: str, fits: Fits) -> str:
    """Return a marked mention with as much context around it, evenly, as the encoder reads.

    >>> mention("far away [START_ENT] Nile [END_ENT] flows north", lambda text: len(text.split()) <= 5)
    'away [START_ENT] Nile [END_ENT] flows'
    """
    if fits(text):
        return text
    marked = mention_in(text)
    if marked is None:
        return beginning(text, fits)
    before = WORDS_BEFORE.findall(text[: marked.start()])
    after = WORDS_AFTER.findall(text[marked.end() :].rstrip())  # of final blanks, each would be tried with all others

    def around(words: int) -> str:
        return "".join([*before[len(before) - min(words, len(before)) :], marked.group(), *after[:words]])

    most = around(_most(around, max(len(before), len(after)), fits))
    if fits(most):
        return most
    return f"[START_ENT] {beginning(marked[1], lambda part: fits(f'[START_ENT] {part} [END_ENT]'))} [END_ENT]"


def dialogue(text: str, fits: Fits) -> str:
    r"""Return the last turns of a dialogue (one per line) that the encoder reads whole.

    >>> dialogue("Hello.\nI like cats.\nWho owns one?", lambda text: len(text.split()) <= 6)
    'I like cats. Who owns one?'
    """
    turns = [turn.strip() for turn in text.split("\n") if turn.strip()] or [""]

    def last(count: int) -> str:
        return " ".join(turns[len(turns) - count :])

    most = _most(last, len(turns), fits)
    return last(most) if most else beginning(turns[-1], fits)


def beginning(text: str, fits: Fits) -> str:
    """Return as many of the first words as the encoder reads; if the first is too long, its first characters.

    >>> beginning("who owns one?", lambda text: len(text) <= 9)
    'who owns'
    >>> beginning("居里夫人出生在哪里", lambda text: len(text) <= 4)
    '居里夫人'
    """
    words = text.split()
    whole = " ".join(words[: _most(lambda count: " ".join(words[:count]), len(words), fits)])
    if whole or not words:
        return whole
    return words[0][: _most(lambda count: words[0][:count], len(words[0]), fits)]


def _most(cut: Callable[[int], str], largest: int, fits: Fits) -> int:
    """Return the largest number whose text fits; 0 where none does."""
    fitting, failing = 0, largest + 1
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        if fits(cut(middle)):
            fitting = middle
        else:
            failing = middle
    return fitting
