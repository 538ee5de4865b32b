"""Choices: what competes in each term, and what should win."""

import numpy as np

from kbq.kb import KnowledgeBase
from kbq.tuning.labels import phrases_of
from kbq.tuning.query_side import Competing

PLACES = [(0, 1, 2), (0, 1, 5), (0, 3, 5), (1, 3, 5)]


def test_a_row_of_several_phrases_competes_once_and_is_right_if_one_of_them_is(
    own_kb: KnowledgeBase,
) -> None:
    competing = Competing(
        own_kb.searcher, [phrases_of(PLACES), phrases_of([]), phrases_of(PLACES[:2])]
    )
    chosen = competing.choices(np.array([False, True, False, False, False, False]))
    assert {
        term: (counted.tolist(), right.tolist()) for term, (counted, right) in chosen.items()
    } == {
        "joint": ([True] * 6, [False, True, False, False, False, False]),
        # The first two start at the same row; the last two are those of another query.
        "start": (
            [True, False, True, True, True, False],
            [True, False, False, False, False, False],
        ),
        "end": ([True, True, False, True, True, True], [False, True, False, False, False, False]),
    }


def test_phrases_lie_side_by_side(own_kb: KnowledgeBase) -> None:
    competing = Competing(
        own_kb.searcher, [phrases_of(PLACES[:1]), phrases_of([]), phrases_of(PLACES[:3])]
    )
    assert competing.side_by_side(np.arange(1, 5)).tolist() == [[1, 0, 0], [0, 0, 0], [2, 3, 4]]


def test_no_phrases_have_no_choices(own_kb: KnowledgeBase) -> None:
    for counted, right in (
        Competing(own_kb.searcher, [phrases_of([])]).choices(np.zeros(0, bool)).values()
    ):
        assert (counted.tolist(), right.tolist()) == ([], [])
