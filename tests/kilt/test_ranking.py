"""R-precision and the rank of evidence sets: every score on empty, partial, overlapping and full
rankings.
"""

import pytest

from kbq.kilt.records import GoldOutput
from kbq.kilt.scores import EvidenceRank, evidence_sets, r_precision, rank_evidence


def output(*pages: str) -> GoldOutput:
    return GoldOutput("", pages, frozenset(pages), ())


NO_PROVENANCE = GoldOutput("x", (), None, ())
EMPTY = GoldOutput("x", (), frozenset(), ())


@pytest.mark.parametrize(
    ("pages", "outputs", "expected"),
    [
        ([], [output("1")], 0.0),
        (["1"], [NO_PROVENANCE], 0.0),
        (["1"], [EMPTY], 0.0),
        (["1"], [output("1")], 1.0),
        (["2", "1"], [output("1")], 0.0),
        (["2", "1"], [output("1", "3")], 0.5),
        (["2", "1"], [output("1", "2", "3")], 2 / 3),
        (["2", "1"], [output("1"), output("2")], 1.0),
        (["1"], [output("1", "2")], 0.5),
    ],
)
def test_r_precision(pages: list[str], outputs: list[GoldOutput], expected: float) -> None:
    assert r_precision(pages, outputs) == expected


@pytest.mark.parametrize(
    ("pages", "outputs", "positions", "sets"),
    [
        ([], [output("1")], (), 0),  # no page: not even the sets are counted
        (["1"], [NO_PROVENANCE], (), 0),
        (["1"], [EMPTY], (), 1),
        (["1"], [EMPTY, EMPTY, output("1")], (1,), 2),
        (["9", "1"], [output("1")], (2,), 1),
        (["1", "2"], [output("1", "2"), output("2", "1")], (1,), 1),  # equal sets are one
        (["1", "9", "2"], [output("1", "2")], (2,), 1),
        (["1", "4"], [output("1", "2"), output("1", "3"), output("4")], (3,), 3),
        (["1", "2", "3"], [output("1", "2"), output("1", "3")], (1, 2), 2),
        (["1"], [output("1"), output("1", "2")], (1,), 2),
        (["1"], [output("1", "2"), output("1")], (2,), 2),  # the order of the sets matters
    ],
)
def test_rank_evidence(
    pages: list[str], outputs: list[GoldOutput], positions: tuple[int, ...], sets: int
) -> None:
    assert rank_evidence(pages, evidence_sets(outputs)) == EvidenceRank(positions, sets)


def test_scores_at_k() -> None:
    rank = EvidenceRank(positions=(2, 3), sets=4)
    assert [rank.complete(k) for k in (1, 2, 3, 5)] == [0, 1, 2, 2]
    assert [rank.recall(k) for k in (1, 2, 3, 5)] == [0.0, 0.25, 0.5, 0.5]


def test_an_empty_rank_scores_zero() -> None:
    rank = EvidenceRank((), 0)
    assert (rank.complete(5), rank.recall(5)) == (0, 0.0)


def test_r_precision_of_no_gold_pages_is_zero() -> None:
    assert r_precision(["1"], [output()]) == 0.0
    assert r_precision(["1", "3", "2"], [output("1", "2")]) == 0.5
