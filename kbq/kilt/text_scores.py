"""Text scores: a predicted answer and the gold answers become accuracy, EM, F1 and ROUGE-L.

Source: arXiv 2009.02252 and the official evaluation.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


class AnswerScores(NamedTuple):
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


def rouge_l(guess: str, gold: str) -> float:
    """F score, slightly below 1 for a perfect match; 0 where either text has no sentence.

    >>> rouge_l("a a b", "a b")
    0.999999995
    """
    guess_sentences, gold_sentences = sentences(guess), sentences(gold)
    if not guess_sentences or not gold_sentences:
        return 0.0
    guess_words = {word for sentence in guess_sentences for word in sentence}
    gold_words = {word for sentence in gold_sentences for word in sentence}
    shared: set[str] = set()
    for gold_sentence in gold_sentences:
        for guess_sentence in guess_sentences:
            shared |= common_words(gold_sentence, guess_sentence)
    precision = len(shared) / len(guess_words)
    recall = len(shared) / len(gold_words)
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence; a sentence of blanks only is one empty word.

    >>> sentences("St. Ives")
    [['St'], ['Ives']]
    """
    return [piece.split() or [""] for piece in text.split(".") if piece]


def common_words(gold: list[str], guess: list[str]) -> set[str]:
    """The words of one longest common subsequence; of several, the one that the official walk back finds."""
    known = set(gold)
    guess = [word for word in guess if word in known]  # other words change neither the table nor the walk
    if not guess:
        return set()
    lengths = subsequence_lengths(gold, guess)
    words: set[str] = set()
    row, column = len(gold), len(guess)
    while row and column:
        if gold[row - 1] == guess[column - 1]:
            words.add(gold[row - 1])
            row, column = row - 1, column - 1
        elif lengths[row - 1][column] > lengths[row][column - 1]:
            row -= 1
        else:
            column -= 1
    return words


def subsequence_lengths(gold: list[str], guess: list[str]) -> list[list[int]]:
    """Length of the longest common subsequence of every two prefixes.

    Shape: (gold words + 1, guess words + 1).
    """
    present = set(guess)
    lengths = [[0] * (len(guess) + 1)]
    for word in gold:
        above = lengths[-1]
        if word not in present:
            lengths.append(above)
            continue
        row = [0]
        for column, other in enumerate(guess):
            row.append(above[column] + 1 if word == other else max(above[column + 1], row[column]))
        lengths.append(row)
    return lengths
