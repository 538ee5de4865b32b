"""Deciding: the answers to a slot become its claims: distinct values, each with its normal form, likely or not."""

from __future__ import annotations

import math
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
from kbq.tables.relations import Relation
from kbq.tables.slots import Slot
from kbq.tables.values import normal_form
from kbq.text.letters import normalised
from kbq.text.markers import relation_key

AROUND = 80  # characters on either side of a value that may say "about" or "BC"
RELATIVES = frozenset({"spouse", "partner", "father", "mother", "parent", "child", "sibling", "relative"})
KIN = RELATIVES | {"son", "daughter", "wife", "husband", "brother", "sister", "twin"}
ABOUT_NAMES = ("name", "surname", "title", "label", "pseudonym", "called", "nickname")
ITEM_SHARE = 0.95  # of a probability, for the other items of a list: some belong to another verb
DEMANDED = {"date": DateValue, "quantity": QuantityValue}  # types that a value without this form cannot have


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
        """The claims that are accepted or, where none is, the best guess; none where nothing was found.

        Args:
            answers: to each wording, best first.
        """
        relation = slot.relation
        decisions = self._decisions.get((slot.subject, relation.name), {})
        decided = {value: decision.choice for value, decision in decisions.items()}
        threshold = self._threshold(relation)
        ranked = sorted(chain.from_iterable(map(_ranked, answers)), key=lambda pair: -pair[0])
        said = [one for _, one in ranked if normalised(one.text) in decided or not is_no_value(slot, one.text)]
        if relation.values == "many":
            said = [each for answer in said for each in each_of_several(answer, threshold)]
        meant = zip(said, meanings(slot.queries[0], said), strict=True)
        values = [value for value in self._distinct(meant, relation) if decided.get(value.key) != "reject"]
        demanded = DEMANDED.get(relation.type or "", object)
        possible = [value for value in values if isinstance(value.normal, demanded)]
        chosen = [value for value in values if decided.get(value.key) == "accept"]
        if relation.values == "many":
            chosen += [value for value in possible if value not in chosen and is_likely(value.answer, threshold)]
        elif not chosen:
            chosen = [value for value in possible[:1] if is_likely(value.answer, threshold)]
        shown, is_accepted = (chosen, True) if chosen else ((possible or values)[:1], False)
        others = [value.answer for value in values if value not in shown][: self._top]
        alternatives = tuple(map(self._alternative, others))
        return [self._claim(slot, value, is_accepted, alternatives if value is shown[0] else ()) for value in shown]

    def accepts(self, claim: Claim, relation: Relation) -> bool:
        """Whether a claim fills its cell: it is likely, and of the declared type."""
        is_of_type = isinstance(claim.normal, DEMANDED.get(relation.type or "", object))
        return is_of_type and (claim.probability or 0.0) >= self._threshold(relation)

    def _threshold(self, relation: Relation) -> float:
        return self._min_probability if relation.min_probability is None else relation.min_probability

    def _distinct(self, answers: Iterable[tuple[Answer, str]], relation: Relation) -> list[_Value]:
        """The values in the order of their first answers; equal texts, meanings, or normal forms are one value."""
        by_key: dict[object, _Value] = {}
        values: list[_Value] = []
        for answer, meaning in answers:
            around = answer.context[max(0, answer.start - AROUND) : answer.start], answer.context[answer.end :][:AROUND]
            normal = self.normal(answer.text, relation, *around)
            keys: list[object] = [normalised(answer.text), ("means", meaning), *([] if normal is None else [normal])]
            value = next((by_key[key] for key in keys if key in by_key), None)
            if value is None:
                value = _Value(answer, normal)
                values.append(value)
            value.places.add(answer.place)
            by_key |= {key: value for key in keys if key not in by_key}
        return values

    def normal(self, text: str, relation: Relation, before: str = "", behind: str = "") -> NormalForm | None:
        """What a value of a relation certainly is, with what stands before and behind it."""
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

    def _claim(self, slot: Slot, value: _Value, is_accepted: bool, alternatives: tuple[Alternative, ...]) -> Claim:
        answer = value.answer
        first, last = self._sentences(answer.context).around(answer.start, answer.end)
        return Claim(
            subject=slot.subject,
            relation=slot.relation.name,
            value=answer.text,
            probability=_rounded(answer.probability),
            accepted=is_accepted,
            page_id=answer.page_id,
            title=answer.title,
            paragraph=answer.paragraph,
            start=answer.start,
            end=answer.end,
            sentence=answer.context[first:last],
            sentence_start=first,
            normal=value.normal,
            says_the_same=len(value.places),
            alternatives=alternatives,
            metadata=answer.metadata,
        )


def is_no_value(slot: Slot, text: str) -> bool:
    """Whether a value says nothing: it is the subject itself, or what the subject is to somebody ("the only child of").

    >>> occupation, work = Relation("occupation", ("occupation",)), Relation("notable work", ("notable work",))
    >>> is_no_value(Slot("Ada Lovelace", occupation), "only child"), is_no_value(Slot("Wright", work), "Native Son")
    (True, False)
    """
    return names_subject(slot, text) or (text == text.lower() and not KIN.isdisjoint(text.split()[-1:]))


def names_subject(slot: Slot, text: str) -> bool:
    """Whether a value is the subject of a slot itself: nothing is its own employer, and a family name is no relative.

    >>> spouse, capital = Relation("spouse", ("spouse",)), Relation("capital", ("capital",))
    >>> names_subject(Slot("Marie Curie", spouse), "Curie"), names_subject(Slot("Kuwait City", capital), "Kuwait")
    (True, False)
    """
    subject, value = normalised(slot.subject).split(), normalised(text).split()
    names = {relation_key(name) for name in (slot.relation.name, *slot.relation.query)}
    if any(word in name.split() for name in names for word in ABOUT_NAMES):
        return False
    return value == subject or (bool(names & RELATIVES) and value in (subject[: len(value)], subject[-len(value) :]))


def each_of_several(answer: Answer, threshold: float) -> Iterator[Answer]:
    """A likely answer that is in a list as all items, the others a little less likely than it; another one itself."""
    places = [(answer.start, answer.end)]
    if is_likely(answer, threshold):
        places = conjuncts(answer.context, answer.start, answer.end)
    for start, end in sorted(places, key=lambda place: place != (answer.start, answer.end)):
        if (start, end) == (answer.start, answer.end):
            yield answer
        else:
            chance = None if answer.probability is None else ITEM_SHARE * answer.probability
            text = answer.context[start:end]
            yield replace(answer, text=text, start=start, end=end, unit=(start, end), probability=chance)


def _ranked(answers: Sequence[Answer]) -> Iterator[tuple[float, Answer]]:
    """The answers to a wording, with what they are compared by with those to another: none comes before a better one.

    That is the probability or, without one, the score: the reranker's are logarithms of odds.
    """
    least = math.inf
    for answer in answers:
        least = min(least, answer.score if answer.probability is None else answer.probability)
        yield least, answer


def _rounded(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 4)
