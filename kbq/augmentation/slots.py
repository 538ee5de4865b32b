"""Slots: triples become slot queries on the paragraphs of a corpus that state them.

A paragraph states a triple if it contains the object, as whole words, on the triple's page. Of several, the first one
that names the subject, too, is taken, or else the first. The page of a triple without one is that of its subject.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kbq.answers import Backend
from kbq.corpus.pages import Page
from kbq.kilt.records import Gold
from kbq.search.search import BATCH
from kbq.text.markers import content_start
from kbq.text.sentences import whole_words
from kbq.tuning.triples import pages_of, subject_of

if TYPE_CHECKING:
    from kbq.kb import KnowledgeBase

Question = dict[str, object]  # as in a training file


class SlotExamples:
    """Triples by the page that they are about."""

    def __init__(self, golds: Sequence[Gold]) -> None:
        self._by_page: dict[str, list[Gold]] = defaultdict(list)
        for gold in golds:
            for name in pages_of(gold) or {subject_of(gold)}:
                self._by_page[name].append(gold)

    def of(self, page: Page) -> list[list[Question]]:
        """The questions of each paragraph of a page."""
        questions: list[list[Question]] = [[] for _ in page.paragraphs]
        golds = {gold.id: gold for key in (page.id, page.title) for gold in self._by_page.get(key, [])}
        texts = [paragraph.text[paragraph.begin :] for paragraph in page.paragraphs]
        for gold in golds.values():
            stated = [(place, spans) for place, text in enumerate(texts) if (spans := answers(gold, text))]
            if stated:
                place, spans = max(stated, key=lambda pair: (subject_of(gold) in texts[pair[0]], -pair[0]))
                questions[place].append({"id": gold.id, "question": gold.input, "answers": spans})
        return questions


def answers(gold: Gold, text: str) -> list[dict[str, object]]:
    """All places of an answer, as whole words."""
    spans = {
        (start, start + len(answer)): answer for answer in sorted(gold.answers) for start in whole_words(text, answer)
    }
    return [{"text": answer, "answer_start": start} for (start, _), answer in sorted(spans.items())]


def found_paragraphs(
    kb: "KnowledgeBase", golds: Sequence[Gold], depth: int, backend: Backend = "auto"
) -> Iterator[tuple[str, str, list[Question]]]:
    """Title, text and questions of the `depth` best paragraphs of each query; no question without an answer there.

    Raises:
        QueryError: a query cannot be read, or the knowledge base does not have what the backend asks for.
    """
    queries = [(gold, gold.input) for gold in golds if gold.input]
    for first in range(0, len(queries), BATCH):
        part = queries[first : first + BATCH]
        results = kb.query([text for _, text in part], depth, "paragraph", backend)
        for (gold, text), hits in zip(part, results, strict=True):
            for hit in hits:
                content = hit.context[content_start(hit.context) :]
                stated = answers(gold, content)
                question: Question = {"id": gold.id, "question": text, "answers": stated}
                yield hit.title, content, [question] if stated else []
