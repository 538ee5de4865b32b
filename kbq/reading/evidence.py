"""Evidence taken out: paragraphs lose the sentences that hold an answer, so pages discuss a subject and are silent.

So any query whose answer is known becomes one that is not answered. Source: arXiv 1806.03822 (questions that a
paragraph seems to answer, and does not).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kbq.answers import Answer
from kbq.text.sentences import sentence_bounds, whole_words


def without_evidence(phrases: Sequence[Answer], answers: Sequence[str]) -> Iterator[Answer]:
    """The phrases that stand in no sentence with an answer, in paragraphs without these sentences."""
    texts = {phrase.place[:2]: phrase.context for phrase in phrases}
    rests = {place: without_sentences(text, answers) for place, text in texts.items()}
    for phrase in phrases:
        if left := _moved(phrase, *rests[phrase.place[:2]]):
            yield left


def without_sentences(text: str, answers: Sequence[str]) -> tuple[str, list[tuple[int, int, int]]]:
    """A text without the sentences that hold an answer, and the characters left: [start, end) and their new start.

    >>> without_sentences("Ada was a poet. She died in 1852. Her father was Byron.", ["1852"])
    ('Ada was a poet. Her father was Byron.', [(0, 16, 0), (34, 55, 16)])
    """
    found = [start for answer in answers if answer.strip() for start in whole_words(text, answer, in_any_case=True)]
    bounds = sentence_bounds(text)
    kept, rest = [], ""
    for (start, _), stop in zip(bounds, [*(start for start, _ in bounds[1:]), len(text)], strict=True):
        if not any(start <= place < stop for place in found):
            kept.append((start, stop, len(rest)))
            rest += text[start:stop]
    return rest, kept


def _moved(phrase: Answer, rest: str, kept: Sequence[tuple[int, int, int]]) -> Answer | None:
    """The phrase in what is left of its paragraph; None where it is not left."""
    for start, stop, begin in kept:
        if start <= phrase.start and phrase.end <= stop:
            place = phrase.start - start + begin, phrase.end - start + begin
            return replace(phrase, context=rest, start=place[0], end=place[1], unit=place)
    return None
