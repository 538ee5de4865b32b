"""Passages: score retrieved texts by whether they contain an answer, and export them for readers.

Source: arXiv 2109.08133 (top-k accuracy, MRR@20, P@20) and arXiv 2004.04906 (containment, and the exported JSON, which
DPR and Fusion-in-Decoder read).
"""

import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from kbq.errors import EvaluationError
from kbq.kilt import records
from kbq.kilt.analysis import Cell, ScoreTable
from kbq.storage.records import json_line
from kbq.text.letters import normal_form

DEPTH = 20  # of MRR and of precision


@dataclass(frozen=True, slots=True)
class RetrievedPassage:
    """A retrieved text, in the fields of readers."""

    id: str
    title: str
    text: str
    score: float  # or 1/rank, if the prediction has none
    has_answer: bool


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answers and the retrieved passages, best first, in the fields of readers."""

    id: str
    question: str
    answers: tuple[str, ...]
    ctxs: tuple[RetrievedPassage, ...]


@dataclass(frozen=True, slots=True)
class PassageScores:
    """Means over all questions, from 0 to 1."""

    count: int
    accuracy: tuple[tuple[int, float], ...]  # k, and the share of questions with an answer in the top k
    mrr_at_20: float  # 1 / rank of the first passage with an answer, or 0
    precision_at_20: float  # passages with an answer among the first 20, divided by 20

    def table(self) -> ScoreTable:
        """Return a row for each score."""
        rows: list[tuple[Cell, ...]] = [(f"top-{k} accuracy", share) for k, share in self.accuracy]
        rows += [("MRR@20", self.mrr_at_20), ("P@20", self.precision_at_20)]
        return ScoreTable(f"passages, {self.count:,} questions", {"score": "text", "mean": "percent"}, rows)

    def to_dict(self) -> dict[str, object]:
        """Return the scores as JSON: `accuracy` by k."""
        return asdict(self) | {"accuracy": dict(self.accuracy)}


def evaluate_passages(
    predictions: Path, gold: Path, ks: Sequence[int] = (1, 5, 20, 100), export: Path | None = None
) -> PassageScores:
    """Score the texts of predicted provenance, and write them for readers to `export`."""
    records.check_paths([predictions, gold], [export], is_read_twice=False)
    questions = read_questions(gold, predictions)
    if not questions:
        raise EvaluationError(f"{gold} holds no record: is it the file you mean?")
    if not any(passage.text for question in questions for passage in question.ctxs):
        raise EvaluationError(f"{predictions} holds no text in its provenance: make it with kbq predict --with-text")
    if export is not None:
        export_for_readers(questions, export)
    return score_passages(questions, ks)


def score_passages(questions: Sequence[Question], ks: Sequence[int] = (1, 5, 20, 100)) -> PassageScores:
    """Score retrieved passages by the answers that they contain."""
    hits = dict.fromkeys(sorted(ks), 0)
    reciprocal_ranks = precisions = 0.0
    for question in questions:
        ranks = [rank for rank, passage in enumerate(question.ctxs, 1) if passage.has_answer]
        for k in hits:
            hits[k] += any(rank <= k for rank in ranks)
        top = [rank for rank in ranks if rank <= DEPTH]
        reciprocal_ranks += 1 / top[0] if top else 0.0
        precisions += len(top) / DEPTH
    total = max(len(questions), 1)
    accuracy = tuple((k, found / total) for k, found in hits.items())
    return PassageScores(len(questions), accuracy, reciprocal_ranks / total, precisions / total)


def read_questions(gold_path: Path, guess_path: Path) -> list[Question]:
    """Read questions in gold order with the passages of their predictions."""
    problems = records.Problems()

    def ranking(record_id: str, line: int, record: records.JsonObject) -> tuple[str, Sequence[records.JsonObject]]:
        return record_id, records.provenance_items(records.only_output(record, "provenance"))

    rankings = dict(records.parse_records(guess_path, problems, ranking))
    questions = []
    for gold in records.read_golds(gold_path, problems):
        if gold.id in rankings:
            answers = tuple(sorted(gold.answers))
            passages = (_passage(item, rank, answers) for rank, item in enumerate(rankings[gold.id], 1))
            questions.append(Question(gold.id, gold.input or "", answers, tuple(passages)))
        else:
            problems.add(gold_path, gold.line, gold.id, f"has no prediction in {guess_path}")
    problems.raise_if_any(f"reading the passages of {guess_path}")
    return questions


def _passage(item: records.JsonObject, rank: int, answers: Iterable[str]) -> RetrievedPassage:
    title, text = (value if isinstance(value := item.get(key), str) else "" for key in ("title", "text"))
    score = records.score_of(item)
    return RetrievedPassage(
        records.page_of(item), title, text, 1 / rank if score is None else score, contains_answer(text, answers)
    )


def export_for_readers(questions: Iterable[Question], path: Path) -> int:
    """Write the JSON array that DPR and Fusion-in-Decoder read, and return the number of questions."""
    entries = (json_line(asdict(question)) for question in questions)
    lines = ("," * bool(number) + entry for number, entry in enumerate(entries))
    return records.write_lines(path, chain("[", lines, "]")) - 2


def word_string(text: str) -> str:
    """Put blanks around words and symbols, in lower case and NFD, so that containment is a substring test.

    >>> word_string("New York's 2nd_album")
    " new york ' s 2nd _ album "
    """
    words: list[str] = _word_pattern().findall(normal_form("NFD", text).lower())
    return f" {' '.join(words)} "


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether the text contains any of the answers, word by word; an answer without words is never contained.

    >>> contains_answer("He was born in New York City.", ["new york"])
    True
    >>> contains_answer("Yorkshire", ["York"])
    False
    """
    plain = normal_form("NFD", text).lower()
    wanted = [words for words in map(word_string, answers) if words.strip()]
    likely = [words for words in wanted if all(word in plain for word in words.split())]
    if not likely:  # spares most passages the splitting into words
        return False
    words = word_string(text)
    return any(answer in words for answer in likely)


@cache
def _word_pattern() -> re.Pattern[str]:
    """Match a run of letters, digits and marks, or one other character that is neither blank nor control."""
    categories = {chr(code): unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)}
    marks = "".join(character for character, kind in categories.items() if kind[0] == "M")
    unseen = "".join(
        character for character, kind in categories.items() if kind[0] in "ZC" and kind not in ("Co", "Cn")
    )
    return re.compile(rf"(?:[^\W_]|[{marks}])+|[^\s{re.escape(unseen)}]")
