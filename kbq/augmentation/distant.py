"""Distant: queries whose answers are known become examples on the paragraphs that a search finds.

A found paragraph that holds an answer, as whole words, counts as one that states it, though nobody has said so.
Source: distant supervision of the reader in arXiv 2009.13013, section 4.
"""

from collections.abc import Iterator, Sequence

from kbq.augmentation.slots import Question, answers
from kbq.corpus import content_start
from kbq.kb import KnowledgeBase
from kbq.kilt.reading.records import Gold
from kbq.options import Backend
from kbq.searching.search import BATCH


def found_paragraphs(
    kb: KnowledgeBase, golds: Sequence[Gold], depth: int, backend: Backend = "auto"
) -> Iterator[tuple[str, str, list[Question]]]:
    """Title, text and questions of the `depth` best paragraphs of each query; without an answer there, no question.

    Raises:
        QueryError: a query cannot be read, or the knowledge base does not have what the backend asks for.
    """
    queries = [(gold, gold.input) for gold in golds if gold.input]
    for first in range(0, len(queries), BATCH):
        part = queries[first : first + BATCH]
        results = kb.search([text for _, text in part], depth, "paragraph", backend)
        for (gold, text), hits in zip(part, results, strict=True):
            for hit in hits:
                content = hit.context[content_start(hit.context) :]
                stated = answers(gold, content)
                question: Question = {"id": gold.id, "question": text, "answers": stated}
                yield hit.phrase.title, content, [question] if stated else []
