"""Deciding: the answers to a slot become its claims: distinct values, each with its normal form, likely or not.

A value that several relations claim of one subject, though they exclude each other, stays with the likeliest.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

from kbq.answers import Answer, is_likely
from kbq.dump.page_directory import Titles
from kbq.reading.countries import meanings
from kbq.search.units import Sentences
from kbq.tables.claims import Alternative, Claim, DateValue, NormalForm, QuantityValue
from kbq.tables.coordination import conjuncts
from kbq.tables.decisions import Decided
from kbq.tables.relations import Relation, Slot
from kbq.tables.values import normal_form
from kbq.text.letters import normalised
from kbq.text.markers import relation_key

AROUND = 80  # characters on either side of a value that may say "about" or "BC"
ITEM_SHARE = 0.95  # of a probability, for the other items of a list: some belong to another verb
DEMANDED = {"date": DateValue, "quantity": QuantityValue}  # types that a value without this form cannot have
RIVALS = (  # one thing is not both of these to another
    frozenset({"spouse", "partner", "father", "mother", "child", "sibling"}),
    frozenset({"date of birth", "date of death"}),
    frozenset({"start time", "end time"}),
    frozenset({"inception", "dissolved, abolished or demolished"}),
    frozenset({"follows", "followed by"}),
    frozenset({"parent organization", "subsidiary"}),
)
IN_ONE_PLACE = frozenset({"place of birth", "place of death", "residence"})  # one thing may be both if it is said twice
IN_TIME = {  # what cannot be before the other, and how many years lie between them at most
    ("date of birth", "date of death"): 120,
    ("inception", "dissolved, abolished or demolished date"): 3000,
    ("start time", "end time"): 3000,
}
SURE = 0.9  # of both: "was born and died in Vienna"


@dataclass(slots=True)
class _Value:
    """A value, its best answer, and all places that have it."""

    answer: Answer
    normal: NormalForm | None
    places: set[tuple[str, int, int, int]] = field(default_factory=set)

    @property
    def key(self) -> str:
        return normalised(self.answer.text)


class Decider:
    """Makes claims of answers."""

    def __init__(self, titles: Titles, min_probability: float, top: int, decisions: Decided) -> None:
        """`top`: how many alternatives a cell keeps."""
        self._titles, self._min_probability, self._top, self._decisions = titles, min_probability, top, decisions
        self._sentences = lru_cache(256)(Sentences)

    def claims(self, slot: Slot, answers: Iterable[Sequence[Answer]]) -> list[Claim]:
        """Return the claims that are accepted or, if none is, the best guess; none if nothing was found.

        `answers`: to each wording, best first.
        """
        relation = slot.relation
        decided = {value: one.choice for value, one in self._decisions.get(slot.cell, {}).items()}
        threshold = self._threshold(relation)
        ranked = sorted(chain.from_iterable(map(_ranked, answers)), key=lambda pair: -pair[0])
        said = [one for _, one in ranked]
        if relation.values == "many":
            said = [each for answer in said for each in each_of_several(answer, threshold)]
        meant = zip(said, meanings(slot.queries[0], said), strict=True)
        values = [value for value in self._distinct(meant, relation) if decided.get(value.key) != "reject"]
        possible = [value for value in values if _is_of_type(value.normal, relation)]
        chosen = [value for value in values if decided.get(value.key) == "accept"]
        if relation.values == "many":
            chosen += [value for value in possible if value not in chosen and is_likely(value.answer, threshold)]
        elif not chosen:
            chosen = [value for value in possible[:1] if is_likely(value.answer, threshold)]
        shown, is_accepted = (chosen, True) if chosen else ((possible or values)[:1], False)
        others = [value.answer for value in values if value not in shown][: self._top]
        claims = [self._claim(slot, value, is_accepted) for value in shown]
        if claims:
            claims[0] = replace(claims[0], alternatives=tuple(map(self._alternative, others)))
        return claims

    def consistent(self, claims: Sequence[Claim], relations: Iterable[Relation]) -> list[Claim]:
        """Return all claims; one that contradicts a likelier claim of the same subject is less probable."""
        by_name = {relation.name: relation for relation in relations}
        of_subject: dict[str, list[int]] = defaultdict(list)
        for number, claim in enumerate(claims):
            of_subject[claim.subject].append(number)
        kept = list(claims)
        for numbers in of_subject.values():
            likeliest = sorted(numbers, key=lambda number: -(claims[number].probability or 0.0))
            for place, number in enumerate(likeliest):
                claim = claims[number]
                better = (claims[other] for other in likeliest[:place])
                rival = next((other for other in better if _exclude(other, claim)), None)
                if rival is not None and claim.probability is not None:
                    chance = round(claim.probability * (1 - (rival.probability or 0.0)), 4)
                    relation = by_name[claim.relation]
                    is_accepted = _is_of_type(claim.normal, relation) and chance >= self._threshold(relation)
                    kept[number] = replace(claim, probability=chance, accepted=is_accepted)
        return kept

    def _threshold(self, relation: Relation) -> float:
        return self._min_probability if relation.min_probability is None else relation.min_probability

    def _distinct(self, answers: Iterable[tuple[Answer, str]], relation: Relation) -> list[_Value]:
        """Return the values in the order of their first answers; equal texts, meanings, or normal forms are one."""
        by_key: dict[object, _Value] = {}
        values: list[_Value] = []
        for answer, meaning in answers:
            around = answer.context[max(0, answer.start - AROUND) : answer.start], answer.context[answer.end :][:AROUND]
            # As it is written there: a narrow blank in a number, say.
            normal = self.normal(answer.context[answer.start : answer.end], relation, *around)
            keys: list[object] = [normalised(answer.text), ("means", meaning), *([] if normal is None else [normal])]
            value = next((by_key[key] for key in keys if key in by_key), None)
            if value is None:
                value = _Value(answer, normal)
                values.append(value)
            value.places.add(answer.place)
            by_key |= {key: value for key in keys if key not in by_key}
        return values

    def normal(self, text: str, relation: Relation, before: str = "", behind: str = "") -> NormalForm | None:
        """Return what a value of a relation certainly is, given the text before and after it."""
        if relation.type in ("date", "quantity"):
            return normal_form(text, relation.type, before, behind)
        if relation.type == "text":
            return None
        page = self._titles.page(text)
        return page if page or relation.type == "page" else normal_form(text, None, before, behind)

    def _alternative(self, answer: Answer) -> Alternative:
        first, last = self._sentences(answer.context).around(answer.start, answer.end)
        place = answer.page_id, answer.title, answer.paragraph, answer.start, answer.end
        return Alternative(answer.text, _rounded(answer.probability), *place, answer.context[first:last], first)

    def _claim(self, slot: Slot, value: _Value, is_accepted: bool) -> Claim:
        answer = value.answer
        first, last = self._sentences(answer.context).around(answer.start, answer.end)
        return Claim(
            subject=slot.subject, relation=slot.relation.name, value=answer.text, accepted=is_accepted,
            probability=_rounded(answer.probability), page_id=answer.page_id, title=answer.title,
            paragraph=answer.paragraph, start=answer.start, end=answer.end, sentence=answer.context[first:last],
            sentence_start=first, normal=value.normal, says_the_same=len(value.places), metadata=answer.metadata,
        )  # fmt: skip


def each_of_several(answer: Answer, threshold: float) -> Iterator[Answer]:
    """Yield an answer or, if it is a likely list or item of one, all items, of which the others are less likely."""
    own = answer.start, answer.end
    places = conjuncts(answer.context, *own) if is_likely(answer, threshold) else [own]
    if own in places:
        yield answer
    for start, end in places:
        if (start, end) != own:
            chance = None if answer.probability is None else ITEM_SHARE * answer.probability
            text = answer.context[start:end]
            yield replace(answer, text=text, start=start, end=end, unit=(start, end), probability=chance)


def _ranked(answers: Sequence[Answer]) -> Iterator[tuple[float, Answer]]:
    """Yield the answers to a wording with the number that ranks them among those to others, never above a better one.

    That is the probability or, without one, the score: the reranker's scores are logarithms of odds.
    """
    least = math.inf
    for answer in answers:
        least = min(least, answer.score if answer.probability is None else answer.probability)
        yield least, answer


def _is_of_type(normal: NormalForm | None, relation: Relation) -> bool:
    """Whether a value may be one of a relation's declared type."""
    return isinstance(normal, DEMANDED.get(relation.type or "", object))


def _exclude(better: Claim, claim: Claim) -> bool:
    """Whether a claim cannot be right if a likelier one is."""
    names = {relation_key(better.relation), relation_key(claim.relation)}
    if _are_out_of_time(better, claim):
        return True
    if len(names) < 2 or normalised(better.value) != normalised(claim.value):
        return False
    if any(names <= rivals for rivals in RIVALS):
        return True
    is_one_place = (better.page_id, better.paragraph, better.start) == (claim.page_id, claim.paragraph, claim.start)
    return is_one_place and (claim.probability or 0.0) < SURE and names <= IN_ONE_PLACE


def _are_out_of_time(one: Claim, other: Claim) -> bool:
    """Whether two dates of a subject cannot both be right: an end before its beginning, or too long after it."""
    dates = {relation_key(claim.relation): claim.normal for claim in (one, other)}
    for (first, last), longest in IN_TIME.items():
        begins, ends = (_years(dates.get(name)) for name in (first, last))
        if begins and ends:
            return ends[1] < begins[0] or ends[0] - begins[1] > longest
    return False


def _years(date: object) -> tuple[int, int] | None:
    """Return the first and the last year that a date may be in, or None if it has none."""
    found = re.match(r"(-?)([0-9X]{4})", date.edtf) if isinstance(date, DateValue) else None
    if not found:
        return None
    years = sorted(int(found[1] + found[2].replace("X", digit)) for digit in "09")
    return years[0], years[1]


def _rounded(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 4)
