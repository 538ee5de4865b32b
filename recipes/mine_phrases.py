"""Write the phrases, right and wrong, that a knowledge base finds for queries with known answers.

    python recipes/mine_phrases.py KB QUERIES.jsonl… OUT.jsonl

QUERIES are KILT lines, or tables of triples; if no answer is given, nothing is right. OUT has the
20 best phrases in the order of the search, without reranking; recipes/teach_second_look.py reads
it. The `meta` of a KILT line may have the `values` of a cell, each with its forms, and `is_kept`:
see `MinedQuery`. If it has the `page` of a cell, eight of the phrases are from there, though the
search put them further down; if it has `alone`, other pages that name the subject give none, since
nobody has read whether they say more.

A line of OUT is `{"query", "answers", "pages", "paragraphs": [{"page_id", "title", "number",
"text"}], "phrases": [[paragraph, start, end, score]], "values",
"is_kept"}`. The phrases are sorted, the best first, and name their paragraph by its place in
`paragraphs`, counted from 0.
Source: arXiv 2010.10757 (a second model learns from the mistakes of the first).
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from kbq.answers import Answer
from kbq.errors import KbqError, TrainingError
from kbq.kb import KnowledgeBase
from kbq.search.search import BATCH
from kbq.storage.lines import read_json_lines
from kbq.storage.records import as_record
from kbq.storage.writing import writing_to
from kbq.text.queries import Query
from kbq.text.whole_words import whole_words
from kbq.training.batches import Files, as_paths
from kbq.tuning.calibrate import without_evidence
from kbq.tuning.relation_judge import Label, labels_of
from kbq.tuning.triples import pages_of, read_triples

PHRASES = 20
DEEPER = 80  # phrases that are looked through for those of a cell's page
OF_PAGE = 8  # phrases of a cell's page, at least, if so many are found


@dataclass(frozen=True, slots=True)
class MinedQuery:
    """A query, its right answers, and the phrases that a search found, best first."""

    text: str
    answers: tuple[str, ...]  # without one, nothing is right
    # Ids or titles of the pages where an answer is right; without one, it is right anywhere.
    pages: tuple[str, ...]
    phrases: tuple[Answer, ...]
    values: tuple[
        tuple[str, ...], ...
    ] = ()  # the answers by what they mean, the usual form of each first
    is_kept: bool = False  # a reader that judges already should keep its judgement

    def is_on_page(self, phrase: Answer) -> bool:
        """Return whether an answer would be right at the place of this phrase."""
        return not self.pages or phrase.page_id in self.pages or phrase.title in self.pages

    def label(self, phrase: Answer) -> Label:
        """Return how right a phrase is."""
        return labels_of([phrase], self.answers, self.pages)[0]

    def with_pages_hidden(self) -> Self:
        """Return the query without the phrases of its pages, so that none is right, if there are
        others.
        """
        others = tuple(phrase for phrase in self.phrases if not self.is_on_page(phrase))
        return replace(self, phrases=others or self.phrases)

    def with_evidence_removed(self) -> Self:
        """Return the query as if no sentence held an answer; if no phrase is left, hide its pages
        instead.
        """
        phrases = tuple(without_evidence(self.phrases, self.answers))
        return replace(self, phrases=phrases) if phrases else self.with_pages_hidden()

    def with_few_phrases(self, most: int, deep: int, rng: random.Random) -> Self:
        """Return the query with its best phrases, `deep` of which give way to any that were ranked
        below them.

        If none of these is right, the last gives way to the first right one.
        """
        best, others = self.phrases[: most - deep], self.phrases[most - deep :]
        best = (
            *best,
            *sorted(rng.sample(others, min(deep, len(others))), key=lambda phrase: -phrase.score),
        )
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
    values: tuple[tuple[str, ...], ...] = ()
    is_kept: bool = False


def as_line(query: MinedQuery) -> dict[str, object]:
    """Return the JSON object of a line."""
    paragraphs = {phrase.place[:2]: phrase for phrase in query.phrases}
    numbers = {place: number for number, place in enumerate(paragraphs)}
    return {
        "query": query.text,
        "answers": query.answers,
        "pages": query.pages,
        "paragraphs": [
            {
                "page_id": one.page_id,
                "title": one.title,
                "number": one.paragraph,
                "text": one.context,
            }
            for one in paragraphs.values()
        ],
        "phrases": [
            (numbers[one.place[:2]], one.start, one.end, one.score) for one in query.phrases
        ],
        "values": query.values,
        "is_kept": query.is_kept,
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
                    f"{path}:{number}: is not a query with phrases ({error}): write them with "
                    "recipes/mine_phrases.py"
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
        answer = (
            text[start:end],
            score,
            paragraph.page_id,
            paragraph.title,
            paragraph.number,
            start,
            end,
            text,
        )
        phrases.append(Answer(*answer, unit=(start, end)))
    return MinedQuery(
        line.query, line.answers, line.pages, tuple(phrases), line.values, line.is_kept
    )


# Mining


def chosen_phrases(hits: Sequence[Answer], query: str, meta: Mapping[str, Any]) -> list[Answer]:
    """Choose the phrases of a query among those found, best first. `meta`: of its KILT line."""
    page, subject = meta.get("page"), Query.of(query).subject
    usable = [
        hit
        for hit in hits
        if not meta.get("alone")
        or hit.page_id == page
        or not whole_words(hit.context, subject, in_any_case=True)
    ]
    own = [hit for hit in usable if hit.page_id == page][:OF_PAGE]
    others = [hit for hit in usable if hit not in own][: PHRASES - len(own)]
    return sorted([*own, *others], key=lambda hit: -hit.score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("queries", type=Path, nargs="+")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    try:
        mine(options.kb, options.queries, options.out, options.device)
    except KbqError as error:
        sys.exit(str(error))


def mine(folder: Path, queries: list[Path], out: Path, device: str) -> None:
    """Ask all queries that are short enough, a batch at a time."""
    kb = KnowledgeBase.open(folder, device=device)
    golds = [gold for path in queries for gold in read_triples(path, unanswered=True)]
    asked = [
        (gold.input or "", gold)
        for gold in golds
        if kb.model.query_tokenizer.accepts(gold.input or "")
    ]
    with writing_to(out, KbqError), out.open("w", encoding="utf-8") as file:
        for first in range(0, len(asked), BATCH):
            batch = asked[first : first + BATCH]
            found = kb.query([text for text, _ in batch], DEEPER, "phrase", rerank=0)
            for (text, gold), hits in zip(batch, found, strict=True):
                answers, pages = sorted(gold.answers), sorted(pages_of(gold))
                meta: Any = gold.meta
                phrases = chosen_phrases(hits, text, meta)
                values = tuple(map(tuple, meta.get("values", ())))
                is_kept = meta.get("is_kept", False)
                line = as_line(
                    MinedQuery(text, tuple(answers), tuple(pages), tuple(phrases), values, is_kept)
                )
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            print(f"{first + len(batch)} of {len(asked)} queries", file=sys.stderr)
    print(f"{out}: {len(asked)} queries, {len(golds) - len(asked)} were too long")


if __name__ == "__main__":
    main()
