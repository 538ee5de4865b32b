"""Answers: a predicted answer against the gold answers becomes accuracy, EM, F1 and ROUGE-L. Source: KILT."""

import re
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kbq.kilt.scoring.rouge import rouge_l

NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """How right an answer is, each from 0 to 1: the best over the gold answers."""

    accuracy: float = 0.0  # the text itself: case, punctuation and accents count
    em: float = 0.0
    f1: float = 0.0
    rougel: float = 0.0


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and surplus blanks. Unicode forms stay as they are.

    >>> normalise("The U.S.  naive–cafe, a_b")
    'us naive–cafe ab'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def token_f1(guess: str, gold: str) -> float:
    """F1 of the two bags of tokens, both texts normalised before; 0 if nothing is shared.

    >>> token_f1("red brick", "red brick house")
    0.8
    """
    guess_tokens, gold_tokens = guess.split(), gold.split()
    shared = (Counter(guess_tokens) & Counter(gold_tokens)).total()
    if shared == 0:
        return 0.0
    precision = shared / len(guess_tokens)
    recall = shared / len(gold_tokens)
    return (2 * precision * recall) / (precision + recall)


def score_answer(answer: str, gold_answers: Iterable[str], with_rouge: bool = True) -> AnswerScores:
    """Score a non-empty answer without outer blanks; there must be at least one gold answer."""
    normal = normalise(answer)
    normal_golds = {gold: normalise(gold) for gold in gold_answers}
    return AnswerScores(
        accuracy=float(answer in normal_golds),
        em=float(normal in normal_golds.values()),
        f1=max(token_f1(normal, gold) for gold in normal_golds.values()),
        rougel=max(rouge_l(answer, gold) for gold in normal_golds) if with_rouge else 0.0,
    )
