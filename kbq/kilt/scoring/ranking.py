"""Ranking: predicted pages against gold pages become R-precision and precision, recall, success at k."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kbq.kilt.reading.records import GoldOutput

COMPLETE, IRRELEVANT = -1, -2


@dataclass(frozen=True, slots=True)
class EvidenceRank:
    """Where the evidence sets of one query are complete in a ranking of pages."""

    positions: tuple[int, ...]  # of complete sets, from 1, ascending
    sets: int  # distinct evidence sets; 0 also where no page was predicted

    def precision(self, k: int) -> float:
        """Complete sets among the first k positions, per position."""
        return self._complete(k) / k

    def recall(self, k: int) -> float:
        """Complete sets among the first k positions, per evidence set."""
        return self._complete(k) / self.sets if self.sets else 0.0

    def success(self, k: int) -> float:
        """Whether any set is complete among the first k positions."""
        return float(self._complete(k) > 0)

    def _complete(self, k: int) -> int:
        return sum(1 for position in self.positions if position <= k)


def r_precision(pages: Sequence[str], outputs: Iterable[GoldOutput]) -> float:
    """Share of an output's R pages among the first R predicted pages, the best over the outputs."""
    return max(share_found(pages, output.pages) for output in outputs)


def share_found(pages: Sequence[str], gold_pages: Sequence[str]) -> float:
    """Share of the gold pages among as many predicted pages; both are distinct.

    >>> share_found(["1", "3", "2"], ["1", "2"])
    0.5
    """
    if not gold_pages:
        return 0.0
    return len(set(pages[: len(gold_pages)]) & set(gold_pages)) / len(gold_pages)


def evidence_sets(outputs: Iterable[GoldOutput], count_empty: bool = True) -> list[frozenset[str]]:
    """Distinct evidence sets in order; an empty provenance list is one, unless `count_empty` is off."""
    given = dict.fromkeys(output.evidence for output in outputs if output.evidence is not None)
    return [evidence for evidence in given if evidence or count_empty]


def rank_evidence(pages: Sequence[str], sets: Sequence[frozenset[str]]) -> EvidenceRank:
    """Rank evidence sets instead of pages: a set stands where its last page stands.

    Each page takes a position for every set that it belongs to, or one if it belongs to none. A set's earlier
    positions are freed when another of its pages comes. So a page in two sets takes two positions, and a set
    whose pages come 1st and 6th is complete at the 5th: the official behaviour, against the paper's text.
    """
    if not pages:
        return EvidenceRank((), 0)
    missing = [set(evidence) for evidence in sets]
    rank: list[int] = []  # the number of a set that is not complete yet, or a mark
    for page in pages:
        holding = [number for number, pages_left in enumerate(missing) if page in pages_left]
        for number in holding:
            if number in rank:
                rank.remove(number)
            missing[number].remove(page)
            rank.append(number if missing[number] else COMPLETE)
        if not holding:
            rank.append(IRRELEVANT)
    return EvidenceRank(tuple(position for position, mark in enumerate(rank, 1) if mark == COMPLETE), len(sets))
