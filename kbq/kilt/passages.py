"""Passages: score retrieved texts by whether they contain an answer.

Source: arXiv 2109.08133 (top-k accuracy, MRR@20, P@20) and arXiv 2004.04906 (containment, and the
exported JSON, which DPR and Fusion-in-Decoder read).
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from math import prod
from pathlib import Path

import regex

from kbq.errors import EvaluationError
from kbq.kilt import records
from kbq.kilt.analysis import Cell, ScoreTable
from kbq.kilt.evaluation import write_qrels, write_run
from kbq.storage.lines import read_lines
from kbq.storage.records import json_line
from kbq.text.answer_scores import normalise_answer
from kbq.text.normal_forms import normal_form

KS = (1, 5, 20, 100)  # depths of the top-k accuracy
DEPTH = 20  # depth of MRR and of precision
# Counted repeats of a regular expression, {9} or {0,9}, and how often they may repeat in all.
REPEATS = regex.compile(r"\{\s*([0-9]*)\s*,?\s*([0-9]*)\s*\}")
MOST_REPEATS = 100_000
SLOW = 0.5  # CPU seconds that a regular expression may take for a text
# Tokens of DrQA: runs, or single characters.
WORD = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
READ = ("id", "question", "answers", "ctxs")  # the fields of a question that readers know


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
    """A question with its gold answers and the retrieved passages, best first, in the fields of
    readers.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    ctxs: tuple[RetrievedPassage, ...]
    # Ranks of the predicted phrases that are right; None: none are given.
    exact_ranks: tuple[int, ...] | None = None
    # Rank of the passage with a gold place; 0: none has it; None: none is given.
    gold_rank: int | None = None


@dataclass(frozen=True, slots=True)
class PassageScores:
    """Means over all questions, from 0 to 1."""

    count: int
    # k, and the share of questions with an answer in the top k.
    accuracy: tuple[tuple[int, float], ...]
    mrr_at_20: float  # 1 / rank of the first passage with an answer, or 0
    precision_at_20: float  # passages with an answer among the first 20, divided by 20
    # k, and the share of questions with a right phrase among the first k.
    exact: tuple[tuple[int, float], ...] = ()
    # Share of questions whose first passage holds the gold place: ReQA's R@1.
    gold_first: float | None = None
    gold_mrr: float | None = None  # 1 / rank of the passage that holds it, or 0

    def table(self) -> ScoreTable:
        """Return a row for each score."""
        rows: list[tuple[Cell, ...]] = [(f"top-{k} accuracy", share) for k, share in self.accuracy]
        rows += [("MRR@20", self.mrr_at_20), ("P@20", self.precision_at_20)]
        rows += [(f"EM@{k}", share) for k, share in self.exact]
        if self.gold_mrr is not None:
            rows += [("gold passage, R@1", self.gold_first), ("gold passage, MRR", self.gold_mrr)]
        return ScoreTable(
            f"passages, {self.count:,} questions", {"score": "text", "mean": "percent"}, rows
        )

    def to_dict(self) -> dict[str, object]:
        """Return the scores as JSON: `accuracy` and `exact` by k."""
        return asdict(self) | {"accuracy": dict(self.accuracy), "exact": dict(self.exact)}


@dataclass(frozen=True, slots=True)
class PassageFiles:
    """Files for an evaluation of passages to write."""

    export: Path | None = None  # questions and passages, for readers
    trec_run: Path | None = None  # the retrieved paragraphs
    trec_qrels: Path | None = None  # the gold paragraphs


class Patterns:
    """Regular expressions as gold answers; one that takes too long on a text counts as absent from
    then on.
    """

    def __init__(self) -> None:
        self._compiled: dict[str, regex.Pattern[str]] = {}
        self.slow: list[str] = []

    def add(self, pattern: str) -> None:
        """Compile an answer. Raises UnfitError if it is no regular expression, or would take more
        memory than anybody has.
        """
        counts = [max(int(count or 0) for count in pair) for pair in REPEATS.findall(pattern)]
        if prod(count for count in counts if count) > MOST_REPEATS:
            raise records.UnfitError(
                f"has the answer {pattern!r:.80}, which repeats its parts more than "
                f"{MOST_REPEATS:,} times: write * or + instead"
            )
        try:
            self._compiled[pattern] = regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
        except regex.error as error:
            raise records.UnfitError(
                f"has the answer {pattern!r:.80}, no regular expression ({error})"
            ) from None

    def found(self, text: str, patterns: Iterable[str], at_start: bool = False) -> bool:
        """Return whether one of these is anywhere in a text or, `at_start`, at its beginning, as
        officially.
        """
        for pattern in patterns:
            if pattern in self.slow:
                continue
            compiled = self._compiled[pattern]
            try:
                if (compiled.match if at_start else compiled.search)(text, timeout=SLOW):
                    return True
            except TimeoutError:
                self.slow.append(pattern)
        return False


@dataclass(frozen=True, slots=True)
class Judging:
    """How retrieved texts and answers are compared with gold answers."""

    patterns: Patterns | None = None  # None: gold answers are texts
    candidates: frozenset[str] | None = None  # lower-case answers that count; None: all count

    @property
    def slow_patterns(self) -> list[str]:
        return self.patterns.slow if self.patterns else []

    def has_answer(self, text: str, golds: Sequence[str]) -> bool:
        return self.patterns.found(text, golds) if self.patterns else contains_answer(text, golds)

    def exact_ranks(self, answers: Sequence[str], golds: Sequence[str]) -> tuple[int, ...]:
        """Return the ranks, from 1, of the answers that are right as a whole."""
        allowed = [
            answer
            for answer in answers
            if self.candidates is None or answer.strip().lower() in self.candidates
        ]
        if self.patterns:
            right = [self.patterns.found(answer, golds, at_start=True) for answer in allowed]
        else:
            normal = {normalise_answer(gold) for gold in golds}
            right = [normalise_answer(answer) in normal for answer in allowed]
        return tuple(rank for rank, is_right in enumerate(right, 1) if is_right)


BY_TEXT = Judging()


def read_candidates(path: Path) -> frozenset[str]:
    """Read the answers that count, one per line, in lower case. Raises EvaluationError if there is
    none.
    """
    ids = frozenset(
        line.strip().lower() for _, line in read_lines(str(path), EvaluationError) if line.strip()
    )
    if not ids:
        raise EvaluationError(f"{path} holds no answer: write one per line")
    return ids


def evaluate_passages(
    predictions: Path,
    gold: Path,
    ks: Sequence[int] = KS,
    files: PassageFiles | None = None,
    judging: Judging = BY_TEXT,
) -> PassageScores:
    """Score the texts of predicted provenance, and write files of them."""
    files = files or PassageFiles()
    has_trec = files.trec_run is not None or files.trec_qrels is not None
    records.check_paths(
        [predictions, gold], [files.export, files.trec_run, files.trec_qrels], has_trec
    )
    gold_records = records.gold_of(gold)
    records.refuse_predictions_as_gold(predictions, gold_records)
    questions = read_questions(gold_records, predictions, judging)
    if not questions:
        raise EvaluationError(f"{gold} holds no record: is it the file you mean?")
    if not any(passage.text for question in questions for passage in question.ctxs):
        raise EvaluationError(
            f"{predictions} holds no text in its provenance: make it with kbq predict --with-text"
        )

    if files.export is not None:
        export_for_readers(questions, files.export)
    if files.trec_run is not None:
        write_run(predictions, files.trec_run, paragraph_of)
    if files.trec_qrels is not None:
        write_qrels(gold_records, files.trec_qrels, paragraph_of)

    return score_passages(questions, ks)


def paragraph_of(item: records.JsonObject) -> str:
    """Name the paragraph of a provenance item, or its page if it names no paragraph.

    >>> paragraph_of({"wikipedia_id": "7", "start_paragraph_id": 3}), paragraph_of({"wikipedia_id": "7"})
    ('7:3', '7')
    """
    paragraph = item.get("start_paragraph_id")
    page = records.page_of(item)
    return page if paragraph is None else f"{page}:{paragraph}"


def score_passages(questions: Sequence[Question], ks: Sequence[int] = KS) -> PassageScores:
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
    accuracy = tuple((k, count / total) for k, count in hits.items())
    exact: list[tuple[int, float]] = []
    if any(question.exact_ranks is not None for question in questions):
        first_ranks = [min(question.exact_ranks or (sys.maxsize,)) for question in questions]
        exact = [(k, sum(rank <= k for rank in first_ranks) / total) for k in hits]

    gold_ranks = [question.gold_rank for question in questions if question.gold_rank is not None]
    gold: tuple[float | None, float | None] = None, None
    if gold_ranks:
        first = sum(rank == 1 for rank in gold_ranks) / len(gold_ranks)
        gold = first, sum(1 / rank for rank in gold_ranks if rank) / len(gold_ranks)

    means = reciprocal_ranks / total, precisions / total
    return PassageScores(len(questions), accuracy, *means, tuple(exact), *gold)


def read_questions(
    gold: records.Source, guess_path: Path, judging: Judging = BY_TEXT
) -> list[Question]:
    """Read questions in gold order with the passages of their predictions."""
    problems = records.Problems()

    def ranking(
        record_id: str, line: int, record: records.JsonObject
    ) -> tuple[str, Sequence[records.JsonObject]]:
        return record_id, records.provenance_items(records.only_output(record, "provenance"))

    rankings = dict(records.parse_records(guess_path, problems, ranking))
    questions = []
    for read_gold in records.read_golds(gold, problems):
        if read_gold.id not in rankings:
            problems.add(gold, read_gold.line, read_gold.id, f"has no prediction in {guess_path}")
            continue
        try:
            for pattern in read_gold.answers if judging.patterns else ():
                judging.patterns.add(pattern)  # type: ignore[union-attr]
            questions.append(_question(read_gold, rankings[read_gold.id], judging))
        except records.UnfitError as error:
            problems.add(gold, read_gold.line, read_gold.id, str(error))

    problems.raise_if_any(f"reading the passages of {guess_path}")
    return questions


def _question(
    gold: records.Gold, items: Sequence[records.JsonObject], judging: Judging
) -> Question:
    golds = tuple(sorted(gold.answers))
    passages = tuple(_passage(item, rank, golds, judging) for rank, item in enumerate(items, 1))
    answers = [str(item["answer"]) for item in items if "answer" in item]
    exact = judging.exact_ranks(answers, golds) if answers else None
    rank = gold_rank(items, [place for output in gold.outputs for place in output.places])
    return Question(gold.id, gold.input or "", golds, passages, exact, rank)


def gold_rank(
    items: Sequence[records.JsonObject], golds: Sequence[records.EvidencePlace]
) -> int | None:
    """Return the rank of the first passage that holds a gold place, 0 if none does.

    Return None if the gold names no characters, or the items are pages, whose characters are those
    of a phrase.
    """
    named = [place for place in golds if place.characters]
    ranked = [
        (rank, records.place_of(item, ""), item.get("text")) for rank, item in enumerate(items, 1)
    ]
    passages: list[tuple[int, records.EvidencePlace]] = []
    for rank, place, text in ranked:
        if place.characters and isinstance(text, str):
            begin, end = place.characters
            if len(text) == end - begin:
                passages.append((rank, place))

    if not named or not passages:
        return None
    return next((rank for rank, place in passages if any(_holds(place, gold) for gold in named)), 0)


def _holds(passage: records.EvidencePlace, gold: records.EvidencePlace) -> bool:
    if (passage.page_id, passage.paragraph) != (gold.page_id, gold.paragraph):
        return False
    (start, end), (first, last) = passage.characters or (0, 0), gold.characters or (0, 0)
    return start <= first and last <= end


def _passage(
    item: records.JsonObject, rank: int, golds: Sequence[str], judging: Judging
) -> RetrievedPassage:
    title, text = (
        value if isinstance(value := item.get(key), str) else "" for key in ("title", "text")
    )
    score = records.score_of(item)
    has_answer = judging.has_answer(text, golds)
    return RetrievedPassage(
        records.page_of(item), title, text, 1 / rank if score is None else score, has_answer
    )


def export_for_readers(questions: Iterable[Question], path: Path) -> int:
    """Write the JSON array that DPR and Fusion-in-Decoder read, and return the number of questions."""
    entries = (
        json_line({name: value for name, value in asdict(question).items() if name in READ})
        for question in questions
    )
    lines = ("," * bool(number) + entry for number, entry in enumerate(entries))
    return records.write_lines(path, chain("[", lines, "]")) - 2


def word_string(text: str) -> str:
    """Put blanks around words and symbols, in lower case and NFD, so that containment is a
    substring test.

    >>> word_string("New York's 2nd_album")
    " new york ' s 2nd _ album "
    """
    words: list[str] = WORD.findall(normal_form("NFD", text).lower())
    return f" {' '.join(words)} "


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether the text contains any of the answers, word by word; an answer without words is never
    contained.

    >>> contains_answer("He was born in New York City.", ["new york"])
    True
    >>> contains_answer("Yorkshire", ["York"])
    False
    """
    plain = normal_form("NFD", text).lower()
    answer_words = [words for words in map(word_string, answers) if words.strip()]
    likely = [words for words in answer_words if all(word in plain for word in words.split())]
    if not likely:  # spares most passages the splitting into words
        return False
    words = word_string(text)
    return any(answer in words for answer in likely)
