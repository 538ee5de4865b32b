"""Slots: triples become slot queries on the paragraphs of a corpus that state them.

A paragraph states a triple when it holds the object, as whole words, on the triple's page. Of several, the first one
that names the subject, too, is taken, or else the first. A triple without a page is looked for on its subject's page.
"""

from collections import defaultdict
from collections.abc import Sequence

from kbq.finetuning.triples import pages_of, subject_of
from kbq.kilt.reading.records import Gold
from kbq.records import Document
from kbq.text.boundaries import whole_words

Question = dict[str, object]  # as in a training file


class Slots:
    """Triples by the page that they are about."""

    def __init__(self, golds: Sequence[Gold]) -> None:
        self._by_page: dict[str, list[Gold]] = defaultdict(list)
        for gold in golds:
            for page in pages_of(gold) or {subject_of(gold)}:
                self._by_page[page].append(gold)

    def of(self, document: Document) -> list[list[Question]]:
        """The questions of each paragraph of a page."""
        questions: list[list[Question]] = [[] for _ in document.paragraphs]
        golds = {gold.id: gold for key in (document.id, document.title) for gold in self._by_page.get(key, [])}
        texts = [paragraph.text[paragraph.begin :] for paragraph in document.paragraphs]
        for gold in golds.values():
            stated = [(place, spans) for place, text in enumerate(texts) if (spans := answers(gold, text))]
            if stated:
                place, spans = max(stated, key=lambda pair: (subject_of(gold) in texts[pair[0]], -pair[0]))
                questions[place].append({"id": gold.id, "question": gold.input, "answers": spans})
        return questions


def answers(gold: Gold, text: str) -> list[dict[str, object]]:
    """All places where an answer stands as whole words."""
    spans = {
        (start, start + len(answer)): answer for answer in sorted(gold.answers) for start in whole_words(text, answer)
    }
    return [{"text": answer, "answer_start": start} for (start, _), answer in sorted(spans.items())]
