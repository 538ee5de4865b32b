"""Consistency: rows in which values exclude each other."""

import pytest

from kbq.tables.claims import Claim
from kbq.tables.consistency import consistent


def claim(subject: str, relation: str, value: str, probability: float | None, start: int = 0) -> Claim:
    return Claim(
        subject=subject, relation=relation, value=value, probability=probability, accepted=(probability or 0) >= 0.5,
        page_id="P", title="T", paragraph=0, start=start, end=start + len(value), sentence=value, sentence_start=start,
    )  # fmt: skip


def likely(one: Claim) -> bool:
    return (one.probability or 0.0) >= 0.5


@pytest.mark.parametrize(
    ("claims", "kept"),
    [
        ([("father", "Ann Lee", 0.6, 0), ("spouse", "Ann  lee", 0.9, 30)], [0.06, 0.9]),  # 0.6 of the 0.1 that are left
        ([("father", "Ann Lee", 0.6, 0), ("employer", "Ann Lee", 0.9, 0)], [0.6, 0.9]),  # no rivals
        ([("father", "Ann Lee", 0.6, 0), ("spouse", "Bo Kim", 0.9, 0)], [0.6, 0.9]),
        ([("Date of birth", "1900", 0.8, 0), ("date of death", "1900", 0.7, 40)], [0.8, 0.14]),
        ([("place of birth", "Bonn", 0.8, 0), ("place of death", "Bonn", 0.7, 0)], [0.8, 0.14]),
        ([("place of birth", "Bonn", 0.8, 0), ("place of death", "Bonn", 0.7, 60)], [0.8, 0.7]),  # said twice
        ([("place of birth", "Bonn", 0.95, 0), ("place of death", "Bonn", 0.92, 0)], [0.95, 0.92]),  # of both
        ([("father", "Ann Lee", None, 0), ("spouse", "Ann Lee", None, 0)], [None, None]),
    ],
)
def test_a_value_belongs_to_one_rival(
    claims: list[tuple[str, str, float | None, int]], kept: list[float | None]
) -> None:
    found = consistent([claim("Eve", *one) for one in claims], likely)
    assert [one.probability for one in found] == kept
    assert [one.accepted for one in found] == [(chance or 0) >= 0.5 for chance in kept]


def test_subjects_do_not_exclude_each_other() -> None:
    rows = [claim("Eve", "father", "Ann Lee", 0.6), claim("Ada", "spouse", "Ann Lee", 0.9)]
    assert consistent(rows, likely) == rows
