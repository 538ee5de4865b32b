"""Labels: which phrases are right, by text and by page. Source: arXiv 2012.12624, Eq. 11; arXiv 2109.08133, Eq. 5.

A text is right where it equals an answer after KILT's normalisation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from kbq.array_types import Bools
from kbq.dump.shards import Shard
from kbq.finetuning.retrieval import Phrases, phrases_of
from kbq.finetuning.triples import pages_of
from kbq.indexing.candidates import ranges
from kbq.kilt.reading.records import Gold
from kbq.kilt.scoring.answers import normalise
from kbq.searching.spans import reach

Objective = Literal["kilt", "phrase", "page"]
MOST_GOLDS = 20  # occurrences of a query's answers on its gold pages

_normalise = lru_cache(2**16)(normalise)


@dataclass(frozen=True, slots=True)
class Labels:
    """What is right about each phrase of a query. Shapes: (phrases,)."""

    has_answer: Bools
    on_page: Bools
    page_known: bool  # the knowledge base has a gold page

    def positive(self, objective: Objective) -> Bools:
        """The phrases to prefer.

        phrase: the answer, wherever it stands (L_phrase). page: anything on a gold page (L_doc). kilt: the answer on a
        gold page, which is what KILT rewards; where there is none, anything on a gold page, and the answer anywhere
        only where the knowledge base has no gold page. Otherwise a common answer, whose words the filter dropped on
        many pages, would teach all its queries the one page that has it.
        """
        if objective == "phrase":
            return self.has_answer
        if objective == "page":
            return self.on_page
        both = self.has_answer & self.on_page
        if both.any():
            return both
        return self.on_page if self.page_known else self.has_answer


Kind = Literal[
    "on_page",  # an answer is a phrase of a gold page
    "dropped",  # an answer stands on a gold page, but as no phrase: the filter dropped its words
    "elsewhere",  # no answer stands on the gold pages that the knowledge base has
    "no_page",  # the knowledge base has none of the gold pages
    "unnamed",  # no page is named: an answer counts anywhere
]


@dataclass(frozen=True, slots=True)
class Findable:
    """Whether the answers of a query can be found; `phrases`: the answers on the gold pages, at most 20."""

    phrases: Phrases
    kind: Kind


class Labeller:
    """Reads phrases and pages of a knowledge base's shards."""

    def __init__(self, shards: list[Shard], pages: Iterable[str]) -> None:
        """`pages`: ids, or titles, of all pages that will be asked for."""
        self._shards = shards
        wanted = set(pages)
        self._documents: dict[str, list[tuple[int, int]]] = {page: [] for page in wanted}
        by_title: dict[str, list[tuple[int, int]]] = {}
        for number, shard in enumerate(shards):
            for document, (page, title) in enumerate(zip(shard.ids, shard.titles, strict=True)):
                if page in wanted:
                    self._documents[page].append((number, document))
                if title in wanted:
                    by_title.setdefault(title, []).append((number, document))
        for title, places in by_title.items():
            self._documents[title] = self._documents[title] or places

    def page_ids(self, page: str) -> list[str]:
        """The ids of the pages with this id or, where there is none, this title."""
        return [self._shards[number].ids[document] for number, document in self._documents[page]]

    def label(self, phrases: Phrases, gold: Gold) -> Labels:
        """Labels of the phrases found for a query."""
        answers = {normalise(answer) for answer in gold.answers} - {""}
        documents = {place for page in pages_of(gold) for place in self._documents[page]}
        has_answer, on_page = np.zeros(len(phrases), bool), np.zeros(len(phrases), bool)
        for number in np.unique(phrases.shards).tolist():
            indices = np.flatnonzero(phrases.shards == number)
            shard = self._shards[number]
            paragraphs = shard.paragraphs_of(phrases.starts[indices])
            texts = {paragraph: shard.texts[paragraph] for paragraph in np.unique(paragraphs).tolist()}
            begins, stops = shard.starts[phrases.starts[indices]], shard.ends[phrases.ends[indices]]
            for index, paragraph, begin, stop in zip(
                indices.tolist(), paragraphs.tolist(), begins.tolist(), stops.tolist(), strict=True
            ):
                has_answer[index] = _normalise(texts[paragraph][begin:stop]) in answers
                on_page[index] = (number, int(shard.paragraph_documents[paragraph])) in documents
        return Labels(has_answer, on_page, bool(documents))

    def find(self, gold: Gold) -> Findable:
        """The answers of a query on its gold pages."""
        answers = {normalise(answer) for answer in gold.answers} - {""}
        documents = sorted(place for page in pages_of(gold) for place in self._documents[page])
        spans: list[tuple[int, int, int]] = []
        in_text = False
        for number, document in documents:
            shard = self._shards[number]
            first, stop = np.searchsorted(shard.paragraph_documents, [document, document + 1])
            for paragraph in range(int(first), int(stop)):
                text = shard.texts[paragraph]
                present = {answer for answer in answers if answer in _normalise(text)}
                in_text = in_text or any(f" {answer} " in f" {_normalise(text)} " for answer in present)
                if present:
                    spans += [(number, start, end) for start, end in _occurrences(shard, paragraph, text, present)]
        otherwise: Kind = "no_page" if pages_of(gold) else "unnamed"
        kind: Kind = "on_page" if spans else "dropped" if in_text else "elsewhere" if documents else otherwise
        return Findable(phrases_of(spans[:MOST_GOLDS]), kind)


def _occurrences(shard: Shard, paragraph: int, text: str, answers: set[str]) -> list[tuple[int, int]]:
    """First and last row of every legal phrase whose text is an answer."""
    rows = shard.rows_of(paragraph)
    sizes = reach(shard, rows, np.arange(len(rows)))
    starts, ends = np.repeat(rows, sizes), ranges(rows, rows + sizes)
    begins, stops = shard.starts[starts], shard.ends[ends]
    shortest, longest = min(map(len, answers)), max(map(len, answers))
    lengths = stops - begins  # normalising drops articles and punctuation; lower case may be longer
    legal = shard.opens(starts) & shard.closes(ends)
    likely = np.flatnonzero(legal & (2 * lengths >= shortest) & (lengths <= 2 * longest + 8))
    return [
        (int(starts[i]), int(ends[i])) for i in likely if _normalise(text[int(begins[i]) : int(stops[i])]) in answers
    ]
