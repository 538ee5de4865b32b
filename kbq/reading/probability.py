"""Probability: estimate by logistic regression how likely each judged phrase is to be right.

Features compare a phrase with the others of its query, or are shares, so that they mean the same in
every knowledge base. A calibration, a file of a few kB, holds for the model and the way of
searching that it was fitted with, and says which these are. Source: arXiv 2006.09462, section 4.1
(features of a calibrator), arXiv 2203.10623 (of retriever and reader together).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from msgspec import Meta, Struct

from kbq.answers import Answer
from kbq.array_types import Bools, Doubles, Floats
from kbq.errors import ModelError
from kbq.model.model import Model
from kbq.model.model_folder import local_folder
from kbq.reading.reader import POINTS
from kbq.reading.reranker import MOST_LOGIT, Candidate, meanings
from kbq.search.options import Purpose
from kbq.storage.reading import reading_problem
from kbq.storage.records import OtherFormatError, read_record, write_record
from kbq.storage.writing import writing_to
from kbq.text.answer_scores import normalise_answer
from kbq.text.queries import Query
from kbq.text.whole_words import whole_words
from kbq.words.names import LEAD, NOWHERE, Naming, SubjectName

FEATURES = (
    "share",  # log odds of its meaning, with all phrases that share it, against all others and none
    "margin",  # distance to the best phrase that means something else
    "judged",  # the reranker's odds alone
    "searched",  # score of the search
    "behind",  # distance from the best score of the search
    "agreed",  # it has the meaning of the best phrase of the search
    "support",  # logarithm of how many phrases mean the same
    "subject in title",  # share of the subject's words
    "subject in text",
    "subject is title",
    "page",  # share of the phrases that are on pages of this title
    "words",  # logarithm of their number
    "proposed",  # the reader's own phrase
    "slot",  # the query is one; else it is a question
    "named here",  # the subject's whole name stands near the phrase
    "short name here",  # only the family name does, or an acronym that the page explains
    "named close by",  # 1 at either name, 1/2 at a distance of 50 characters; 0: there is none
    "mentions",  # logarithm of how often the page has the whole name
    "named early",  # 1 at the beginning of the page, 1/2 after 100 bytes; 0: nowhere
    "namesakes",  # logarithm of how many pages have the name
)
CLOSE_BY = 50  # characters between a phrase and a name
SURROUNDINGS = 300  # characters on either side of a phrase, where the subject is looked for
WORD = re.compile(r"\w+")
QUESTION_WORDS = re.compile(
    r"(?:an?|and|are|as|at|be|by|did|do|does|for|from|had|has|have|how|in|is|it|of|on|that|the|this|to|was|were|what|"
    r"when|where|which|who|whom|whose|why|with)"
)

CALIBRATION = "calibration.json"
CALIBRATION_OF_CELLS = "calibration-of-cells.json"  # optional: the other one holds for cells, too
FORMAT = 2  # 2: phrases that mean the same support each other
PENALTY = 1.0  # price of half the sum of squared weights
# Price of half their squared distance from those of another calibration, if there is one.
BELIEF = 30.0
# Limits of Newton's method: most steps, and the change of weights after the last.
STEPS = 100
CLOSE = 1e-9
Number = Annotated[float, Meta(ge=-1e9, le=1e9)]


def features(query: Query, candidates: Sequence[Candidate], naming: Naming = NOWHERE) -> Floats:
    """Compute the features of each phrase that was found for a query. Shape: (phrases, features).

    `naming`: the pages that name the query's subject.
    """
    subject = query.subject if query.is_slot else query.text
    words = _words(subject)
    if not query.is_slot:
        words = [word for word in words if not QUESTION_WORDS.fullmatch(word)]
    names = [normalise_answer(candidate.answer.text) for candidate in candidates]
    means = meanings(query, [candidate.answer for candidate in candidates])
    titles = [normalise_answer(candidate.answer.title) for candidate in candidates]
    scores = np.array([candidate.score for candidate in candidates])
    searched = [
        (candidate.searched, not candidate.is_proposed, meaning)
        for candidate, meaning in zip(candidates, means, strict=True)
    ]
    best, _, first_name = max(searched, default=(0.0, True, ""))
    means_of = np.array(means)
    rows: list[tuple[float, ...]] = []
    title_shares = {
        candidate.answer.title: _share(words, candidate.answer.title) for candidate in candidates
    }
    subject = normalise_answer(subject)
    name_of_subject = SubjectName(query.subject)

    for candidate, name, meaning, title in zip(candidates, names, means, titles, strict=True):
        answer = candidate.answer
        same = np.array([name in pair for pair in zip(names, means, strict=True)])
        # A name is before its adjective.
        rivals = ~same if name == meaning else ~same | (means_of == meaning)
        own = scores[same]
        others = np.append(scores[rivals], 0.0)  # none is right
        support = float(np.logaddexp.reduce(own)) - float(np.logaddexp.reduce(others))
        of_scores = (
            support,
            own.max() - others.max(),
            candidate.judged,
            candidate.searched / POINTS,
            (candidate.searched - best) / POINTS,
            name == first_name,
            math.log(len(own)),
        )
        first = max(0, answer.start - SURROUNDINGS)
        around = answer.context[first : answer.end + SURROUNDINGS]
        of_page = (
            title_shares[answer.title],
            _share(words, around),
            subject == title,
            titles.count(title) / len(titles),
        )
        of_phrase = (math.log(max(1, len(_words(name)))), candidate.is_proposed, query.is_slot)
        rows.append((*of_scores, *of_page, *of_phrase, *_named(name_of_subject, answer, naming)))

    return np.array(rows, np.float32).reshape(-1, len(FEATURES))


def _named(name: SubjectName, answer: Answer, naming: Naming) -> tuple[float, ...]:
    """Return the features that say where a subject is named: near a phrase, and on its page."""
    page = naming.pages.get(answer.page_id)
    begin = max(0, answer.start - SURROUNDINGS)
    window = answer.context[begin : answer.end + SURROUNDINGS]
    whole = name.places(window)
    short_names = {name.family_name}
    if page:
        short_names.add(page.acronym)
    short_names.discard("")
    short = (
        [start for short_name in short_names for start in whole_words(window, short_name)]
        if page
        else []
    )
    places = [begin + start for start in whole or short]
    distances = [max(answer.start - place, place - answer.end, 0) for place in places]
    distance = min(distances, default=math.inf)
    mentions = 0.0
    lead = 0.0
    if page:
        mentions = math.log1p(page.mentions)
        lead = 1 / (1 + page.first / LEAD)

    return (
        bool(whole),
        bool(short) and not whole,
        1 / (1 + distance / CLOSE_BY),
        mentions,
        lead,
        math.log1p(len(naming.pages)),
    )


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _share(words: Sequence[str], text: str) -> float:
    """Return the share of words that occur in a text; all of none."""
    inside = frozenset(_words(text))
    if words:
        return sum(word in inside for word in words) / len(words)
    return 1.0


class SearchMode(Struct, frozen=True, rename={"n_reranked": "second_look"}):  # names in files
    """All that decides the scores that a calibration reads."""

    query_encoder: str  # its fingerprint
    reader: str  # the digest of its file
    scores: str  # their parts, with weights
    n_reranked: int  # phrases of a query that are judged again

    def differences(self, other: Self) -> list[str]:
        """Name the differences."""
        pairs = (
            (name, getattr(self, name), getattr(other, name)) for name in self.__struct_fields__
        )
        words = {"query_encoder": "query encoder", "n_reranked": "rerank"}
        return [
            f"{words.get(name, name)} {mine}, not {theirs}"
            for name, mine, theirs in pairs
            if mine != theirs
        ]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic regression over `FEATURES`, as written into a file."""

    mode: SearchMode
    # Weight of each feature; one that an earlier calibration lacks has no effect.
    weights: dict[str, Number]
    intercept: Number
    queries: int  # queries that it was fitted on
    right: int  # how many of these answers are right
    thresholds: dict[str, float | None]  # chance above which each precision can be promised, if any
    facts: dict[str, object]  # command, data, versions, scores on relations that were left out
    purpose: Purpose | None = None  # None: unknown, in files of before there were two

    def __post_init__(self) -> None:
        if not self.weights or set(self.weights).difference(FEATURES):
            raise ValueError(
                f"it has weights for {', '.join(self.weights)}, not for {', '.join(FEATURES)}"
            )

    def fits(self, mode: SearchMode) -> bool:
        """Whether it gives probabilities to what a search finds in this way."""
        return self.mode == mode

    @property
    def all_weights(self) -> list[float]:
        """The weight of each of `FEATURES`."""
        return [self.weights.get(name, 0.0) for name in FEATURES]

    def applied(
        self, query: Query, candidates: Sequence[Candidate], naming: Naming = NOWHERE
    ) -> list[Candidate]:
        """Give the phrases found for a query, best first, their probabilities; none exceeds one
        before it.
        """
        rows = features(query, candidates, naming).astype(np.float64)
        chances = np.minimum.accumulate(chances_of(rows, self.all_weights, self.intercept)).tolist()
        return [
            candidate._replace(answer=replace(candidate.answer, probability=chance))
            for candidate, chance in zip(candidates, chances, strict=True)
        ]

    def write(self, path: Path) -> None:
        """Replace a file. Raises ModelError if it cannot be written."""
        with writing_to(path, ModelError):
            write_record(path, self, FORMAT)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file. Raises ModelError if it is missing, damaged, or of another format version."""
        again = "calibrate again with `kbq calibrate`"
        try:
            return read_record(path, cls, FORMAT)
        except FileNotFoundError:
            raise ModelError(f"{path} does not exist: make it with `kbq calibrate`") from None
        except OtherFormatError as error:
            if error.found is None:
                raise ModelError(
                    f"{path} is not a calibration: make one with `kbq calibrate`"
                ) from None
            raise ModelError(
                f"{path} has format version {error.found}, this kbq reads {FORMAT}: {again}"
            ) from None
        except (OSError, ValueError) as error:
            raise ModelError(reading_problem(path, error, again)) from None


def own_calibration(model: Model, purpose: Purpose = "query") -> Calibration | None:
    """Read the calibration in the model's folder or, if its query encoder was tuned, in that of its
    base.

    Raises ModelError if it is damaged.
    """
    names = (CALIBRATION,) if purpose == "query" else (CALIBRATION_OF_CELLS, CALIBRATION)
    sources = [source for source in (model.source, model.config.base) if source]
    for source in sources:
        for name in names:
            path = local_folder(source) / name
            if path.is_file():
                return Calibration.read(path)
    return None


def chances_of(rows: Doubles, weights: Sequence[float], intercept: float) -> Doubles:
    """Apply a logistic regression. Shapes: rows (items, features), result (items,)."""
    logits = np.clip(rows @ np.asarray(weights) + intercept, -MOST_LOGIT, MOST_LOGIT)
    chances: Doubles = 1 / (1 + np.exp(-logits))  # none is 0 or 1
    return chances


def fit(
    rows: Doubles, right: Bools, before: Calibration | None = None
) -> tuple[list[float], float]:
    """Fit the weights and the intercept of a logistic regression with an L2 penalty on standardised
    features.

    Newton's method, in float64. Weights are drawn to those of the calibration `before`, or to 0:
    few items change little of it. Shape of `rows`: (items, features).
    """
    if before is not None and not len(rows):
        return before.all_weights, before.intercept
    means = rows.mean(axis=0)
    scales = np.maximum(rows.std(axis=0), 1e-9)
    inputs = np.column_stack([(rows - means) / scales, np.ones(len(rows))])
    goal = right.astype(np.float64)
    if before is None:
        expected = np.zeros(inputs.shape[1])
        penalty = np.diag([PENALTY] * rows.shape[1] + [0.0])
    else:
        weights = np.array(before.all_weights)
        expected = np.append(weights * scales, before.intercept + weights @ means)
        penalty = BELIEF * np.eye(len(expected))

    solution = expected.copy()
    for _ in range(STEPS):
        chances = chances_of(inputs, solution.tolist(), 0.0)
        slope = inputs.T @ (chances - goal) + penalty @ (solution - expected)
        curvature = (inputs.T * (chances * (1 - chances))) @ inputs + penalty
        change = np.linalg.solve(curvature, slope)
        solution -= change
        if np.abs(change).max() < CLOSE:
            break

    found = solution[:-1] / scales
    return found.tolist(), float(solution[-1] - found @ means)
