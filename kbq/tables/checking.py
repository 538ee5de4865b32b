"""Checking: values that a table has are compared with what the text says: agrees, contradicts, or not found."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from kbq.tables import dates
from kbq.tables.claims import Claim, DateValue, PageValue
from kbq.tables.dates import date_of_cell
from kbq.tables.relations import Relation
from kbq.tables.slots import subject_of
from kbq.tables.tables import Row, Table, texts_of
from kbq.tables.titles import Titles
from kbq.tables.values import agree

Verdict = Literal["agrees", "contradicts", "not found"]
EVIDENCE = ("value", "probability", "page_id", "title", "paragraph", "start", "end", "sentence")
COLUMNS = ("subject", "relation", "present", "verdict", *EVIDENCE)


def checked(
    table: Table,
    subject: str,
    relations: Sequence[Relation],
    claims: Mapping[tuple[str, str], Sequence[Claim]],
    titles: Titles,
    markers: Collection[str] = (),
) -> list[Row]:
    """A row for each value that is present: its verdict, and what the text says, with its place.

    Args:
        claims: by subject and relation.
        markers: that stand for an empty cell.
    """
    rows: list[Row] = []
    for row in table.rows:
        name = subject_of(row.get(subject))
        for relation in relations:
            said = claims.get((name, relation.name), ())
            for present in texts_of(row.get(relation.name), markers) if said else ():
                verdict, claim = _judged(present, relation, said, titles)
                evidence = {key: getattr(claim, key) for key in EVIDENCE} if claim else dict.fromkeys(EVIDENCE)
                rows.append(
                    {"subject": name, "relation": relation.name, "present": present, "verdict": verdict} | evidence
                )
    return rows


def _judged(present: str, relation: Relation, claims: Sequence[Claim], titles: Titles) -> tuple[Verdict, Claim | None]:
    """The verdict on a value, and the claim that it rests on; where several values are right, none contradicts."""
    accepted = [claim for claim in claims if claim.accepted]
    for claim in accepted:
        if is_same(present, claim, titles):
            return "agrees", claim
    if accepted and relation.values == "one":
        return "contradicts", accepted[0]
    return "not found", None


def is_same(present: str, claim: Claim, titles: Titles) -> bool:
    """Whether a value is that of a claim: by its text, its page, its quantity, or its date, one perhaps more exact."""
    if agree(present, claim.value):
        return True
    if isinstance(claim.normal, DateValue):  # which may rest on what stands around the value
        own = date_of_cell(present)
        return own is not None and dates.agree(own, claim.normal)
    return isinstance(claim.normal, PageValue) and titles.page(present) == claim.normal
