"""ROUGE-L, by hand and against the package `rouge` where it is installed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbq.text.answer_scores import best_rouge_l, common_words, sentences

PERFECT = 0.999999995


def f_score(shared: int, guess: int, gold: int) -> float:
    precision, recall = shared / guess, shared / gold
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


@pytest.mark.parametrize(
    ("guess", "gold", "score"),
    [
        ("a b c", "a b c", PERFECT),
        ("a a b", "a b", PERFECT),  # words are a set
        ("Paris", "paris", 0.0),  # case counts
        ("one two. three four", "three four. one two", PERFECT),  # sentences in any order
        ("a b c d", "a x c y", f_score(2, 4, 4)),
        ("b a", "a b", f_score(1, 2, 2)),
        ("x", "y", 0.0),
        ("...", "x", 0.0),  # no sentence
        ("x", "", 0.0),
        (". .", ". .", PERFECT),  # one empty word on either side
        ("a b. c", "c a b", f_score(3, 3, 3)),  # union over the sentence pairs
        ("U.S.", "U.S.", PERFECT),
    ],
)
def test_rouge_l(guess: str, gold: str, score: float) -> None:
    assert best_rouge_l(guess, [gold]) == score


def test_a_sentence_of_blanks_is_one_empty_word() -> None:
    assert list(sentences("a  b. .")) == [["a", "b"], [""]]


def test_of_several_common_subsequences_the_walk_back_goes_left_first() -> None:
    assert common_words(["a", "b"], ["b", "a"]) == {"b"}
    assert common_words(["b", "a"], ["a", "b"]) == {"a"}
    # An unmatched gold word is skipped only after going left as far as the length allows.
    assert common_words(["a", "b", "x"], ["b", "a"]) == {"b"}


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", ".", "e.", "..", " "]), max_size=14).map(
    " ".join
)


@settings(derandomize=True, deadline=None, database=None, max_examples=400)
@given(guess=WORDS, gold=WORDS)
def test_equals_the_package_rouge(guess: str, gold: str) -> None:
    package = pytest.importorskip("rouge", reason="the package rouge is the oracle of this test")
    try:
        expected = package.Rouge(metrics=["rouge-l"]).get_scores(guess, gold, avg=True)["rouge-l"][
            "f"
        ]
    except ValueError:  # no sentence
        expected = 0.0
    assert best_rouge_l(guess, [gold]) == expected
