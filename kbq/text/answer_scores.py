"""Text scores: how well a predicted answer agrees with gold.

Source: arXiv 2009.02252 and the official evaluation; by character, arXiv 1810.07366 (CMRC 2018) and
its evaluation.
"""

import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from kbq.text.whole_words import UNSPACED

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_BLANK = re.compile(r"\s")
SHORT_ANSWER = 100  # characters: of such texts, the last that were normalised are kept
# Characters of a long text that are split into words at a time: a word takes ten times its
# characters.
LONG_PART = 2**20
# CMRC's signs, which do not count; a letter of a script without blanks is a token, and so is any
# word beside these.
IDLE_SIGNS = frozenset("-:_*^/\\~`+=，。：？！“”；’《》…·、「」（）－～『』")
TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")


def normalise_answer(text: str) -> str:
    """Normalise an answer as KILT does: lower case, without ASCII punctuation, articles and surplus
    blanks.

    Unicode forms stay as they are.

    >>> normalise_answer("The U.S.  naive–cafe, a_b")
    'us naive–cafe ab'
    """
    if len(text) <= SHORT_ANSWER:
        return _normal_answer_before(text)
    return " ".join(filter(None, map(_normal_answer, parts(text))))


def _normal_answer(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


# The answers to a query are looked at several times.
_normal_answer_before = lru_cache(2**14)(_normal_answer)


def parts(text: str) -> Iterator[str]:
    """Yield a text in parts of about LONG_PART characters, which end at blanks."""
    first = 0
    while first < len(text):
        blank = _BLANK.search(text, first + LONG_PART)
        last = blank.end() if blank else len(text)
        yield text[first:last]
        first = last


class AnswerScores(NamedTuple):
    """How right an answer is, each from 0 to 1: the best over the gold answers."""

    accuracy: float = 0.0  # the text itself: case, punctuation and accents count
    em: float = 0.0
    f1: float = 0.0
    rougel: float = 0.0


def best_f1(guess: str, golds: Iterable[str]) -> float:
    """Return the best F1 of the guess's tokens with those of any of these texts, all normalised
    before.

    >>> best_f1("red brick", ["house", "red brick house"])
    0.8
    """
    guess_tokens = Counter[str]()
    for part in parts(guess):
        guess_tokens.update(part.split())
    return max(_f1(guess_tokens, gold.split()) for gold in golds)


def _f1(guess: Counter[str], gold: Collection[str]) -> float:
    shared = sum(min(count, guess[token]) for token, count in Counter(gold).items())
    if shared == 0:
        return 0.0
    precision = shared / guess.total()
    recall = shared / len(gold)
    return (2 * precision * recall) / (precision + recall)


def scores_by_character(answer: str, golds: Iterable[str]) -> tuple[float, float]:
    """Return EM and F1 of an answer in a script without blanks between words; the best over the
    gold answers.

    F1 counts the longest run of tokens that both have.

    >>> scores_by_character("韩国Nexon公司", ["韩国Nexon"])[1]
    0.75
    """
    plain_answer = _without_signs(answer)
    tokens = TOKEN.findall(plain_answer)
    em = f1 = 0.0
    for gold in map(_without_signs, golds):
        gold_tokens = TOKEN.findall(gold)
        shared = (
            SequenceMatcher(None, gold_tokens, tokens, autojunk=False).find_longest_match().size
        )
        em = max(em, float(gold == plain_answer))
        f1 = max(f1, 2 * shared / max(1, len(gold_tokens) + len(tokens)))
    return em, f1


def _without_signs(text: str) -> str:
    return "".join(letter for letter in text.lower().strip() if letter not in IDLE_SIGNS)


def score_answer(answer: str, gold_answers: Iterable[str], with_rouge: bool = True) -> AnswerScores:
    """Score a non-empty answer without outer blanks; there must be at least one gold answer."""
    normal = normalise_answer(answer)
    normal_golds = {gold: normalise_answer(gold) for gold in gold_answers}
    return AnswerScores(
        accuracy=float(answer in normal_golds),
        em=float(normal in normal_golds.values()),
        f1=best_f1(normal, normal_golds.values()),
        rougel=best_rouge_l(answer, normal_golds) if with_rouge else 0.0,
    )


def best_rouge_l(guess: str, golds: Iterable[str]) -> float:
    """Return the best ROUGE-L with any of these texts: slightly below 1 for a perfect match, 0
    without sentences.

    The guess, which may be long, is split once; of its words, those in none of the texts are only
    counted.

    >>> best_rouge_l("a a b", ["a b"])
    0.999999995
    """
    gold_sentences = [list(sentences(gold)) for gold in golds]
    known = {word: word for gold in gold_sentences for sentence in gold for word in sentence}
    guess_words: set[str] = set()
    guess_sentences: list[list[str]] = []
    for sentence in filter(None, guess.split(".")):
        guess_sentences.append([])
        for words in [[""]] if sentence.isspace() else map(str.split, parts(sentence)):
            guess_words.update(words)
            guess_sentences[-1] += [known[word] for word in words if word in known]
    return max(_rouge_l(guess_sentences, len(guess_words), gold) for gold in gold_sentences)


def _rouge_l(
    guess_sentences: list[list[str]], guess_words: int, gold_sentences: list[list[str]]
) -> float:
    """ROUGE-L of a guess of this many distinct words, of whose sentences the words that gold has
    are given.
    """
    if not guess_sentences or not gold_sentences:
        return 0.0
    gold_words = {word for sentence in gold_sentences for word in sentence}
    shared: set[str] = set()
    for gold_sentence in gold_sentences:
        for guess_sentence in filter(None, guess_sentences):
            shared |= common_words(gold_sentence, guess_sentence)
    precision = len(shared) / guess_words
    recall = len(shared) / len(gold_words)
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def sentences(text: str) -> Iterator[list[str]]:
    """Return the words of each sentence; a sentence of blanks only is one empty word.

    >>> list(sentences("St. Ives"))
    [['St'], ['Ives']]
    """
    return (piece.split() or [""] for piece in text.split(".") if piece)


def common_words(gold: list[str], guess: list[str]) -> set[str]:
    """Return the words of one longest common subsequence; of several, the one that the official
    walk back finds.
    """
    known = set(gold)
    # Other words change neither the table nor the walk.
    guess = [word for word in guess if word in known]
    if not guess:
        return set()
    lengths = subsequence_lengths(gold, guess)
    words: set[str] = set()
    row = len(gold)
    column = len(guess)

    while row and column:
        if gold[row - 1] == guess[column - 1]:
            words.add(gold[row - 1])
            row = row - 1
            column = column - 1
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
