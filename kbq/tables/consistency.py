"""Consistency: the claims of a row, some of which exclude each other.

A value that several relations claim of one subject, though they exclude each other, stays with the likeliest.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from kbq.tables.claims import Claim
from kbq.text.letters import normalised
from kbq.text.markers import relation_key

FAMILY = frozenset({"spouse", "partner", "father", "mother", "child", "sibling"})
RIVALS = (  # one thing is not both of these to another
    FAMILY,
    frozenset({"date of birth", "date of death"}),
    frozenset({"start time", "end time"}),
    frozenset({"inception", "dissolved, abolished or demolished"}),
    frozenset({"follows", "followed by"}),
    frozenset({"parent organization", "subsidiary"}),
)
IN_ONE_PLACE = (frozenset({"place of birth", "place of death", "residence"}),)  # it may be, if the text says it twice
SURE = 0.9  # of both: "was born and died in Vienna"


def consistent(claims: Sequence[Claim], accepts: Callable[[Claim], bool]) -> list[Claim]:
    """The claims of all rows; those that contradict a likelier one of the same subject are less probable.

    Args:
        accepts: whether a claim fills its cell.
    """
    kept = _by_row(claims)
    return [
        claim if claim is before else replace(claim, accepted=accepts(claim))
        for before, claim in zip(claims, kept, strict=True)
    ]


def _by_row(claims: Sequence[Claim]) -> list[Claim]:
    """Claims of which those that contradict a likelier one of the same subject are improbable."""
    of_subject: dict[str, list[int]] = defaultdict(list)
    for number, claim in enumerate(claims):
        of_subject[claim.subject].append(number)
    kept = list(claims)
    for numbers in of_subject.values():
        likeliest = sorted(numbers, key=lambda number: -(claims[number].probability or 0.0))
        for place, number in enumerate(likeliest):
            better = (claims[other] for other in likeliest[:place])
            rival = next((other for other in better if _exclude(other, claims[number])), None)
            chance = claims[number].probability
            if rival is not None and chance is not None:
                kept[number] = replace(claims[number], probability=round(chance * (1 - (rival.probability or 0.0)), 4))
    return kept


def _exclude(better: Claim, claim: Claim) -> bool:
    """Whether a claim cannot be right where a likelier one is."""
    names = {relation_key(better.relation), relation_key(claim.relation)}
    if len(names) < 2 or normalised(better.value) != normalised(claim.value):
        return False
    if any(names <= rivals for rivals in RIVALS):
        return True
    is_one_place = (better.page_id, better.paragraph, better.start) == (claim.page_id, claim.paragraph, claim.start)
    return is_one_place and (claim.probability or 0.0) < SURE and any(names <= rivals for rivals in IN_ONE_PLACE)
