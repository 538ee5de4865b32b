"""Mined queries: JSON lines become queries with the phrases that a search found for them, some right, most wrong.

A line is `{"query", "answers", "pages", "paragraphs": [{"page_id", "title", "number", "text"}], "phrases": [[paragraph,
start, end, score]]}`: each phrase is in one of the paragraphs above it, counted from 0; the best comes first. Source:
arXiv 2010.10757 (a second model learns from the mistakes of the first).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from kbq.answers import Answer
from kbq.errors import TrainingError
from kbq.storage.lines import read_json_lines
from kbq.storage.records import as_record
from kbq.text.answer_scores import best_f1, normalise
from kbq.text.sentences import sentence_bounds, whole_words
from kbq.training.examples import Files, as_paths

NEARLY = 0.5  # F1 with an answer, from which a phrase is nearly right

Label = Literal[
    "right",
    "nearly",  # shares half of its words with an answer
    "elsewhere",  # the answer, on a page that is not named: it may be right or wrong
    "wrong",
]


@dataclass(frozen=True, slots=True)
class MinedQuery:
    """A query, its right answers, and the phrases that a search found, best first."""

    text: str
    answers: tuple[str, ...]  # none: nothing is right
    pages: tuple[str, ...]  # ids or titles of the pages where an answer is right; none: it is right anywhere
    phrases: tuple[Answer, ...]

    def is_on_page(self, phrase: Answer) -> bool:
        """Whether an answer would be right at the place of this phrase."""
        return not self.pages or phrase.page_id in self.pages or phrase.title in self.pages

    def label(self, phrase: Answer) -> Label:
        """Say how right a phrase is."""
        answers = {normalise(answer) for answer in self.answers} - {""}
        text, is_on_page = normalise(phrase.text), self.is_on_page(phrase)
        if text in answers:
            return "right" if is_on_page else "elsewhere"
        return "nearly" if answers and is_on_page and best_f1(text, answers) >= NEARLY else "wrong"

    def with_pages_hidden(self) -> Self:
        """Return the query without the phrases of its pages, so that none is right; unless there are no others."""
        others = tuple(phrase for phrase in self.phrases if not self.is_on_page(phrase))
        return replace(self, phrases=others or self.phrases)

    def with_evidence_removed(self) -> Self:
        """Return the query as if no sentence held an answer; where nothing would be left, hide its pages."""
        phrases = tuple(without_evidence(self.phrases, self.answers))
        return replace(self, phrases=phrases) if phrases else self.with_pages_hidden()

    def with_few_phrases(self, most: int) -> Self:
        """Return the query with its best phrases; if none is right, the last gives way to the first right one."""
        best, others = self.phrases[:most], self.phrases[most:]
        right = [phrase for phrase in others if self.label(phrase) == "right"]
        if right and all(self.label(phrase) != "right" for phrase in best):
            best = (*best[:-1], right[0])
        return replace(self, phrases=best)


@dataclass(frozen=True, slots=True)
class _Paragraph:
    page_id: str
    title: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class _Line:
    query: str
    answers: tuple[str, ...]
    pages: tuple[str, ...]
    paragraphs: tuple[_Paragraph, ...]
    phrases: tuple[tuple[int, int, int, float], ...]


def as_line(query: MinedQuery) -> dict[str, object]:
    """Return the JSON object of a line."""
    paragraphs = {phrase.place[:2]: phrase for phrase in query.phrases}
    numbers = {place: number for number, place in enumerate(paragraphs)}
    return {
        "query": query.text,
        "answers": query.answers,
        "pages": query.pages,
        "paragraphs": [
            {"page_id": one.page_id, "title": one.title, "number": one.paragraph, "text": one.context}
            for one in paragraphs.values()
        ],
        "phrases": [(numbers[one.place[:2]], one.start, one.end, one.score) for one in query.phrases],
    }


def read_mined(files: Files) -> Iterator[MinedQuery]:
    """Yield the queries of all files; equal texts of paragraphs take memory once.

    Raises TrainingError if a file cannot be read, or a line is not such an object.
    """
    texts: dict[str, str] = {}
    for path in as_paths(files):
        for number, fields in read_json_lines(str(path), TrainingError):
            try:
                yield _query(as_record(fields, _Line), texts)
            except ValueError as error:
                raise TrainingError(
                    f"{path}:{number}: is not a query with phrases ({error}): write them with recipes/mine_phrases.py"
                ) from None


def _query(line: _Line, texts: dict[str, str]) -> MinedQuery:
    phrases: list[Answer] = []
    for number, start, end, score in line.phrases:
        if not 0 <= number < len(line.paragraphs):
            raise ValueError(f"a phrase is in paragraph {number} of {len(line.paragraphs)}")
        paragraph = line.paragraphs[number]
        text = texts.setdefault(paragraph.text, paragraph.text)
        if not 0 <= start < end <= len(text):
            raise ValueError(f"a phrase has characters {start} to {end} of {len(text)}")
        answer = text[start:end], score, paragraph.page_id, paragraph.title, paragraph.number, start, end, text
        phrases.append(Answer(*answer, unit=(start, end)))
    return MinedQuery(line.query, line.answers, line.pages, tuple(phrases))


def without_evidence(phrases: Sequence[Answer], answers: Sequence[str]) -> Iterator[Answer]:
    """Yield the phrases that stand in no sentence with an answer, in paragraphs without these sentences.

    So pages discuss a subject and are silent, and any query becomes one that is not answered. Source: arXiv 1806.03822
    (questions that a paragraph seems to answer, and does not).
    """
    texts = {phrase.place[:2]: phrase.context for phrase in phrases}
    rests = {place: without_sentences(text, answers) for place, text in texts.items()}
    for phrase in phrases:
        if left := _moved(phrase, *rests[phrase.place[:2]]):
            yield left


def without_sentences(text: str, answers: Sequence[str]) -> tuple[str, list[tuple[int, int, int]]]:
    """Remove sentences that hold an answer; return the rest, with the characters kept: [start, end) and new start.

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
    """Return the phrase in the rest of its paragraph, None if it is not in the rest."""
    for start, stop, begin in kept:
        if start <= phrase.start and phrase.end <= stop:
            place = phrase.start - start + begin, phrase.end - start + begin
            return replace(phrase, context=rest, start=place[0], end=place[1], unit=place)
    return None
