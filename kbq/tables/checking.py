"""Checking: values that a table has are compared with what the text says: agrees, also said, contradicts, not found."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from kbq.dump.page_directory import PageValue, Titles
from kbq.tables import dates
from kbq.tables.claims import Claim, DateValue
from kbq.tables.dates import date_of_cell
from kbq.tables.relations import Relation
from kbq.tables.slots import subject_of
from kbq.tables.tables import Row, Table, texts_of
from kbq.tables.values import agree
from kbq.text.letters import normalised

Verdict = Literal["agrees", "also said", "contradicts", "not found"]
TextsOf: TypeAlias = Callable[[str], Sequence[str]]  # gives the paragraphs of a page by its id
EVIDENCE = ("value", "probability", "page_id", "title", "paragraph", "start", "end", "sentence")
COLUMNS = ("subject", "relation", "present", "verdict", *EVIDENCE)


def checked(
    table: Table,
    subject: str,
    relations: Sequence[Relation],
    claims: Mapping[tuple[str, str], Sequence[Claim]],
    titles: Titles,
    texts: TextsOf,
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
                verdict, claim = _judged(present, relation, said, titles, texts)
                evidence = {key: getattr(claim, key) for key in EVIDENCE} if claim else dict.fromkeys(EVIDENCE)
                rows.append(
                    {"subject": name, "relation": relation.name, "present": present, "verdict": verdict} | evidence
                )
    return rows


def _judged(
    present: str, relation: Relation, claims: Sequence[Claim], titles: Titles, texts: TextsOf
) -> tuple[Verdict, Claim | None]:
    """The verdict on a value, and the claim that it rests on.

    A value that stands on the page beside the one that was found may be as right ("actress and inventor"), so it is
    contradicted only where the page does not have it; where several values are right, none contradicts.
    """
    accepted = [claim for claim in claims if claim.accepted]
    for claim in accepted:
        if is_same(present, claim, titles):
            return "agrees", claim
    for claim in claims:
        others = (other.value for other in claim.alternatives)
        is_found = is_same(present, claim, titles) or any(agree(present, other) for other in others)
        if is_found or (claim.accepted and _stands(present, texts(claim.page_id))):
            return "also said", claim
    if accepted and relation.values == "one":
        return "contradicts", accepted[0]
    return "not found", None


def _stands(value: str, texts: Sequence[str]) -> bool:
    """Whether some text has the words of a value, one after the other."""
    words = f" {normalised(value)} "
    return any(words in f" {normalised(text)} " for text in texts)


VERDICTS = get_args(Verdict)


def is_same(present: str, claim: Claim, titles: Titles) -> bool:
    """Whether a value is that of a claim: by its text, its page, its quantity, or its date, one perhaps more exact."""
    if agree(present, claim.value):
        return True
    if isinstance(claim.normal, DateValue):  # which may rest on what stands around the value
        own = date_of_cell(present)
        return own is not None and dates.agree(own, claim.normal)
    return isinstance(claim.normal, PageValue) and titles.page(present) == claim.normal
