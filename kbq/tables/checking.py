"""Checking: the values in a table are compared with the text, which agrees, also says, contradicts, or is silent."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from kbq.dump.page_directory import PageValue, Titles
from kbq.tables import dates
from kbq.tables.claims import Claim, DateValue
from kbq.tables.dates import date_of_cell
from kbq.tables.relations import Relation
from kbq.tables.values import agree
from kbq.text.letters import normalised

Verdict = Literal["agrees", "also said", "contradicts", "not found"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
TextsOf = Callable[[str], Sequence[str]]  # gives the paragraphs of a page by its id


def verdict_on(
    present: str, relation: Relation, claims: Sequence[Claim], titles: Titles, texts: TextsOf
) -> tuple[Verdict, Claim | None]:
    """Return the verdict on a value, and the claim that it rests on.

    A value on the same page as the one that was found may be as right ("actress and inventor"), so only a value that
    the page lacks is contradicted; where several values may be right, none contradicts.
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
    """Whether a text has the words of a value, one after the other."""
    words = f" {normalised(value)} "
    return any(words in f" {normalised(text)} " for text in texts)


def is_same(present: str, claim: Claim, titles: Titles) -> bool:
    """Whether a claim has a value: the same text, page or quantity, or a date that agrees as far as both go."""
    if agree(present, claim.value):
        return True
    if isinstance(claim.normal, DateValue):  # which may rest on the words around the value
        own = date_of_cell(present)
        return own is not None and dates.agree(own, claim.normal)
    return isinstance(claim.normal, PageValue) and titles.page(present) == claim.normal
