"""Normalisation, accuracy, EM and F1, by hand."""

import pytest

from kbq.text.answer_scores import AnswerScores, best_f1, normalise_answer, score_answer


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("A-ha", "aha"),
        ("U.S.", "us"),
        ("naive–cafe", "naive–cafe"),  # an en dash is no ASCII punctuation
        ("a_b", "ab"),
        ("The The", ""),
        ("the\u0301 x", "\u0301 x"),  # a combining mark is no word character
        ("x\u00a0y\u200bz", "x y\u200bz"),
        ("İ", "i\u0307"),
        ("STRASSE ß", "strasse ß"),
        ("", ""),
    ],
)
def test_normalise(text: str, normal: str) -> None:
    assert normalise_answer(text) == normal


@pytest.mark.parametrize(
    ("guess", "gold", "f1"),
    [
        ("a b c", "b c d", 2 / 3),
        ("a a b", "a b b", 2 / 3),
        ("a", "b", 0.0),
        ("", "", 0.0),
        ("", "a", 0.0),
        ("x", "x y z", 0.5),
    ],
)
def test_f1_of_tokens(guess: str, gold: str, f1: float) -> None:
    assert best_f1(guess, [gold]) == pytest.approx(f1, abs=1e-15)


def test_every_score_takes_its_own_best_gold_answer() -> None:
    scores = score_answer("red brick", ["Red brick", "red brick wall house"])
    assert scores == AnswerScores(accuracy=0.0, em=1.0, f1=1.0, rougel=2 * (0.5 / (1.5 + 1e-8)))


def test_rouge_can_be_left_out() -> None:
    assert score_answer("x", ["x"], with_rouge=False) == AnswerScores(1.0, 1.0, 1.0, 0.0)
