"""Choices: what competes in each term, and what should win."""

import numpy as np

from kbq.tuning.labels import phrases_of
from kbq.tuning.loop import choices


def test_a_row_of_several_phrases_competes_once_and_is_right_if_one_of_them_is() -> None:
    phrases = phrases_of([(0, 1, 2), (0, 1, 5), (0, 3, 5), (1, 3, 5)])
    chosen = choices(phrases, np.array([False, True, False, False]))
    assert {term: (counted.tolist(), right.tolist()) for term, (counted, right) in chosen.items()} == {
        "joint": ([True] * 4, [False, True, False, False]),
        "start": ([True, False, True, True], [True, False, False, False]),  # the first two start at the same row
        "end": ([True, True, False, True], [False, True, False, False]),
    }


def test_no_phrases_have_no_choices() -> None:
    for counted, right in choices(phrases_of([]), np.zeros(0, bool)).values():
        assert (counted.tolist(), right.tolist()) == ([], [])
