"""Contexts: whether the text of a predicted item holds a gold answer or the title of a gold page."""

from dataclasses import dataclass

from kbq.kilt.reading.problems import UnfitError
from kbq.kilt.reading.records import Gold, Guess
from kbq.kilt.scoring.answers import normalise

NEVER = 2**62  # a position after every k


@dataclass(frozen=True, slots=True)
class FirstFound:
    """Positions, from 1, of the first items whose text holds what was looked for; NEVER if none does."""

    answer: int = NEVER
    entity: int = NEVER
    both: int = NEVER  # an answer and a title in the same item


def find_in_contexts(gold: Gold, guess: Guess, depth: int) -> FirstFound:
    """Look through the first `depth` items, as written, for normalised answers and titles as substrings.

    Raises:
        UnfitError: a text that the official evaluation reads is no string.
    """
    answers = [normalise(answer) for answer in gold.answers]
    titles = [normalise(title) for title in gold.titles]
    answer = entity = NEVER
    for item in guess.texts:
        if item.position > depth:
            break
        if item.text is None:
            raise UnfitError(f"has a text in provenance item {item.position} that is no string")
        text = normalise(item.text)
        has_answer = any(needle in text for needle in answers)
        has_title = any(needle in text for needle in titles)
        answer = min(answer, item.position) if has_answer else answer
        entity = min(entity, item.position) if has_title else entity
        if has_answer and has_title:
            return FirstFound(answer, entity, item.position)
    return FirstFound(answer, entity)


def is_entity_in_input(gold: Gold) -> bool:
    """Whether the normalised input holds the title of a gold page; False without an input."""
    if gold.input is None:
        return False
    text = normalise(gold.input)
    return any(normalise(title) in text for title in gold.titles)
