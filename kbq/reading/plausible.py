"""Plausible: answers that no slot can have, whatever a network thinks of them. Every door leaves the same ones out."""

import re

from kbq.answers import Answer
from kbq.reading.countries import ADJECTIVES
from kbq.text.answer_scores import normalise
from kbq.text.letters import normalised
from kbq.text.markers import relation_key, slot_of

RELATIVES = frozenset({"spouse", "partner", "father", "mother", "parent", "child", "sibling", "relative"})
KIN = RELATIVES | {"son", "daughter", "wife", "husband", "brother", "sister", "twin"}
ABOUT_NAMES = ("name", "surname", "title", "label", "pseudonym", "called", "nickname")
PRONOUNS = re.compile(  # not "US", nor the novel "It"
    r"[Hh]e|[Ss]he|it|[Tt]hey|[Hh]im(?:self)?|[Hh]ers?|herself|[Hh]is|its|itself|them|themselves|[Tt]heirs?"
    r"|th(?:is|at|ese|ose)|who|whom|whose"
)
DIRECTIONS = r"(?:north|south|east|west)(?:-?(?:east|west))?(?:ern)?"
NEAR = re.compile(  # "Döbling near": the place is Döbling; "born near Vienna" names no other one
    rf"[A-Z][\w'’.-]+,? (?:near|close to|not far from|just outside|outside of|{DIRECTIONS} of) (?:the )?$"
)
IS_SAID_OF_IT = re.compile(r"\b(?:is|was|are|were)\s+(?:an?|the|one of the)\s+(?:[\w'’-]+,?\s+){0,3}$")
BEFORE = 80  # characters of the text before an answer


def says_nothing(query: str, answer: Answer) -> bool:
    """Return whether an answer to a slot query says nothing, going by its words and those before it.

    Pronouns name nobody, nothing is its own employer, and a family name is no relative. "The only child of …" tells
    whose child the subject is, not its occupation. A place that lies near another is not where something is. On the
    page of a town, "an Austrian writer" does not give the town's country. Answers to questions always say something.

    >>> def says(query: str, text: str, before: str = "") -> bool:
    ...     context = before + text
    ...     answer = Answer(text, 0.0, "1", "T", 0, len(before), len(context), context, (0, 1))
    ...     return not says_nothing(query, answer)
    >>> says("Ada Lovelace [SEP] occupation", "only child"), says("Ada Lovelace [SEP] occupation", "mathematician")
    (False, True)
    >>> says("Kuwait City [SEP] capital of", "Kuwait"), says("Marie Curie [SEP] spouse", "Curie")
    (True, False)
    >>> says("A [SEP] residence", "Vienna", "in Döbling near "), says("A [SEP] residence", "Vienna", "near ")
    (False, True)
    """
    slot = slot_of(query)
    if slot is None:
        return False
    text, relation = answer.text, relation_key(slot[1])
    if PRONOUNS.fullmatch(text) or (text == text.lower() and not KIN.isdisjoint(text.split()[-1:])):
        return True
    before = answer.context[max(0, answer.start - BEFORE) : answer.start]
    if NEAR.search(before):
        return True
    if relation == "country" and normalise(text) in ADJECTIVES and not IS_SAID_OF_IT.search(before):
        return True
    subject, value = normalised(slot[0]).split(), normalised(text).split()
    if not value or any(word in relation.split() for word in ABOUT_NAMES):
        return False
    return value == subject or (relation in RELATIVES and value in (subject[: len(value)], subject[-len(value) :]))
