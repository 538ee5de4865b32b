"""Features: what search and reranker know of each phrase becomes numbers that say whether it is right.

They compare a phrase with the others of its query, or are shares, so that they mean the same in every knowledge base.
Source: arXiv 2006.09462, section 4.1 (what a calibrator reads), arXiv 2203.10623 (of retriever and reader together).
"""

import math
import re
from collections.abc import Sequence

import numpy as np

from kbq.array_types import Floats
from kbq.reading.countries import meanings
from kbq.reading.reranker import Look
from kbq.text.answer_scores import normalise
from kbq.text.markers import slot_of

FEATURES = (
    "share",  # log odds of what it means, all phrases that mean this together, against all others and none
    "margin",  # over the best phrase that means something else
    "judged",  # by the reranker alone
    "searched",  # score of the search
    "behind",  # the best score of the search by so much
    "agreed",  # it means what the best phrase of the search means
    "support",  # logarithm of how many phrases mean the same
    "subject in title",  # share of the subject's words
    "subject in text",
    "subject is title",
    "page",  # share of the phrases that are on pages of this title
    "words",  # logarithm of their number
    "proposed",  # by the reader
    "slot",  # the query is one; else it is a question
)
POINTS = 10.0  # of the search: about as much as a logit
NEAR = 300  # characters on either side of a phrase, where the subject is looked for
WORD = re.compile(r"\w+")
QUESTION_WORDS = re.compile(
    r"(?:an?|and|are|as|at|be|by|did|do|does|for|from|had|has|have|how|in|is|it|of|on|that|the|this|to|was|were|what|"
    r"when|where|which|who|whom|whose|why|with)"
)


def features(text: str, looks: Sequence[Look]) -> Floats:
    """The features of each phrase that was found for a query. Shape: (phrases, features)."""
    slot = slot_of(text)
    subject = slot[0] if slot else text
    words = _words(subject) if slot else [word for word in _words(text) if not QUESTION_WORDS.fullmatch(word)]
    names = [normalise(look.answer.text) for look in looks]
    means = meanings(text, [look.answer for look in looks])
    titles = [normalise(look.answer.title) for look in looks]
    scores = np.array([look.score for look in looks])
    best, _, first_name = max(
        ((look.searched, not look.is_proposed, meaning) for look, meaning in zip(looks, means, strict=True)),
        default=(0.0, True, ""),
    )
    rows = []
    for look, name, meaning, title in zip(looks, names, means, titles, strict=True):
        answer = look.answer
        same = np.array([name in pair for pair in zip(names, means, strict=True)])
        rivals = ~same if name == meaning else ~same | (np.array(means) == meaning)  # a name is before its adjective
        others = np.append(scores[rivals], 0.0)  # none is right
        rows.append(
            (
                _log_sum(scores[same]) - _log_sum(others),
                scores[same].max() - others.max(),
                look.judged,
                look.searched / POINTS,
                (look.searched - best) / POINTS,
                name == first_name,
                math.log(same.sum()),
                _share(words, answer.title),
                _share(words, answer.context[max(0, answer.start - NEAR) : answer.end + NEAR]),
                normalise(subject) == title,
                titles.count(title) / len(titles),
                math.log(max(1, len(_words(name)))),
                look.is_proposed,
                slot is not None,
            )
        )
    return np.array(rows, np.float32).reshape(-1, len(FEATURES))


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _share(words: Sequence[str], text: str) -> float:
    """The share of words that occur in a text; all of none."""
    inside = frozenset(_words(text))
    return sum(word in inside for word in words) / len(words) if words else 1.0


def _log_sum(scores: Floats) -> float:
    return float(np.logaddexp.reduce(scores))
