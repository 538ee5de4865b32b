"""Deciding: the answers to a slot become distinct claims, the likely ones accepted.

Of relations of a subject that exclude each other, the likeliest keeps a value that several claim.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from kbq.answers import Answer, counted, is_likely
from kbq.dump.page_directory import Titles
from kbq.english.countries import ADJECTIVES, NAMES, PARTS_OF_OTHERS, country_of
from kbq.english.dates import DateValue, dates_agree
from kbq.english.phrases import (
    Things,
    bare_name,
    compared_words,
    each_of_several,
    first_of_several,
    whole_date,
    whole_name,
    whole_name_with_and,
    whole_quantity,
    with_nouns,
)
from kbq.english.quantities import ASKS_FOR_A_CHANGE
from kbq.english.split_dates import split_date
from kbq.english.statements import is_no_thing
from kbq.errors import KbqError
from kbq.reading.reranker import meanings
from kbq.search.spans import Sentences
from kbq.storage.reports import Note, unheard
from kbq.storage.rows import read_rows
from kbq.tables.claims import Alternative, Claim, NormalForm, QuantityValue
from kbq.tables.lessons import Judged, RelationLesson
from kbq.tables.relations import Relation, Slot, known_name
from kbq.tables.tables import subject_of
from kbq.tables.values import normal_form
from kbq.text.normal_forms import is_abbreviated, normalised
from kbq.text.queries import Query

Choice = Literal["accept", "reject", "undo"]
Cell: TypeAlias = tuple[str, str]  # subject and relation
# Characters of a value, and of an id.
LONGEST = 4096
LONGEST_ID = 64
HOW = "write subject, relation, value, and decision, which is accept, reject or undo"

AROUND = 80  # characters on either side of a value that may say "about" or "BC"
# A value of these types must have this form.
DEMANDED = {"date": DateValue, "quantity": QuantityValue}
# The rules name relations as known.toml does; a relation of any other name is known by its
# property.
EARLIER = ("replaces", "follows")
LATER = ("replaced by", "followed by")
RIVALS = (  # relations that exclude one another for the same pair
    frozenset({"spouse", "unmarried partner", "father", "mother", "child", "sibling"}),
    frozenset({"date of birth", "date of death"}),
    frozenset({"start time", "end time"}),
    frozenset({"inception", "dissolved, abolished or demolished date"}),
    *(frozenset(pair) for pair in product(EARLIER, LATER)),
    frozenset({"parent organization", "has subsidiary"}),
)
# Both may be right if two places say so.
IN_ONE_PLACE = frozenset({"place of birth", "place of death", "residence"})
IN_TIME = {  # a beginning, its end, and the most years between them
    ("date of birth", "date of death"): 120,
    ("inception", "dissolved, abolished or demolished date"): 3000,
    ("start time", "end time"): 3000,
}
OCCUPATION = "P106"
SUBCLASS = "P279"
LOCATED_IN = "P131"

# persons, and occupations: of names of organisations and works, "and" is often a part.
OF_SEVERAL = frozenset(
    (
        "P26", "P40", "P50", "P57", "P58", "P86", "P112", "P161", "P162", "P175", "P3373", "P674",
        OCCUPATION,
    )
)  # fmt: skip
KIN = frozenset({"P22", "P25", "P26", "P40", "P451", "P1038", "P3373"})
PLACES = frozenset(  # relations of places, countries, languages
    (
        "P17", "P19", "P20", "P27", "P30", "P36", "P37", "P47", "P103", "P131", "P159", "P190",
        "P205", "P276", "P282", "P364", "P407", "P495", "P551", "P706", "P840", "P937", "P1412",
        "P2936",
    )
)  # fmt: skip
# Of these, relations whose values are neither countries nor languages.
PROPER_PLACES = frozenset({"P19", "P20", "P131", "P159", "P276", "P551", "P706", "P840", "P937"})
OF_PERSONS = OF_SEVERAL - {OCCUPATION} | {"P22", "P25"}  # father and mother are one each
# Shapes of values that are the whole of something; that of a quantity depends on its measures.
WHOLE: Mapping[str, Callable[[Answer], Answer]] = {
    "page": bare_name,
    "date": whole_date,
}
# Words before the date that begins a span, or that ends one, by the relations that ask for it.
BEGINS_A_SPAN = re.compile(r"\bbetween (?:the )?\Z")
ENDS_A_SPAN = re.compile(
    r"\b(?:until|till|up to|between [^,.;()]{0,40}\band) (?:the )?(?:(?:end|close) of )?(?:the )?\Z"
)
BOUND_OF_TIME = {"P580": BEGINS_A_SPAN, "P582": ENDS_A_SPAN, "P576": ENDS_A_SPAN}
EXACT = 0.25  # share of a year's probability that a day of that year must have to take its place

SURE = 0.9  # chance of both: "was born and died in Vienna"


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision on a value; accepting "" leaves the cell empty, as the text does not
    state it.
    """

    subject: str
    relation: str
    value: str
    choice: Choice
    reviewer: str = ""
    time: str = ""  # clock of the reviewer's browser; the order of the file counts
    id: str = ""  # identifies a decision that is sent twice

    @property
    def cell(self) -> Cell:
        """The names of subject and relation."""
        return self.subject, self.relation


# Key: a value, as values are compared; the latest is last.
Decided: TypeAlias = Mapping[Cell, Mapping[str, Decision]]


def decision_of(fields: Mapping[str, object]) -> Decision:
    """Return the decision in a JSON object, whose other fields are ignored. Raises KbqError if
    there is none.
    """
    texts = [fields.get(name) for name in ("subject", "relation", "value", "decision")]
    more = [fields.get(name, "") for name in ("reviewer", "time", "id")]
    are_texts = all(isinstance(text, str) for text in (*texts, *more))
    if not are_texts or texts[3] not in get_args(Choice):
        raise KbqError(f"is not a decision: {HOW}")
    subject, relation, value = map(subject_of, texts[:3])
    if not subject or not relation:
        raise KbqError(f"names no cell: {HOW}")
    longest = max(map(len, (subject, relation, value, *map(str, more))))
    if longest > LONGEST or len(str(more[2])) > LONGEST_ID:
        raise KbqError(
            f"has a text of {longest:,} characters: {LONGEST:,} at most are kept, {LONGEST_ID} of "
            "an id"
        )
    return Decision(subject, relation, value, texts[3], *map(subject_of, more))  # type: ignore[arg-type]


def read_decisions(path: Path, note: Note = unheard) -> dict[Cell, dict[str, Decision]]:
    """Return the valid decisions of a file of JSON lines, to which a service may be writing: see
    `read_rows`.

    Raises KbqError if lines are not decisions; all are named.
    """
    decisions: list[Decision] = []
    problems: list[str] = []
    rows = read_rows(str(path), note=note, grows=True)
    if rows.columns and "decision" not in rows.columns:
        raise KbqError(f"{path} has no column 'decision', so it holds no decisions: {HOW}")
    for number, fields in rows.numbered:
        try:
            decisions.append(decision_of(fields))
        except KbqError as error:
            problems.append(f"{path}:{number}: {error.typed}")
    if problems:
        raise KbqError(
            f"{path} has {counted(len(problems), 'line')} without a decision: {HOW}", problems
        )
    return decided(decisions)


def decided(decisions: Iterable[Decision]) -> dict[Cell, dict[str, Decision]]:
    """Return the decisions that count of several in their order."""
    cells: dict[Cell, dict[str, Decision]] = {}
    for decision in decisions:
        values = cells.setdefault(decision.cell, {})
        values.pop(normalised(decision.value), None)
        if decision.choice != "undo":
            values[normalised(decision.value)] = decision
    return {cell: values for cell, values in cells.items() if values}


def judged_values(
    claims: Iterable[Claim], decisions: Mapping[str, Decision], takes_many: bool
) -> Iterator[Judged]:
    """Yield what people say of the values of a cell. Of many, one that nobody decided on may be
    right, too.
    """
    accepted = {value for value, decision in decisions.items() if decision.choice == "accept"}
    excludes_others = bool(accepted) and (not takes_many or accepted == {""})
    for claim in claims:
        decision = decisions.get(normalised(claim.value))
        if claim.probability is not None and (decision or excludes_others):
            is_right = decision is not None and decision.choice == "accept"
            yield Judged(claim.probability, is_right)


def disputed(decisions: Decided, many: Collection[str]) -> list[tuple[Decision, Decision]]:
    """Return the last two values accepted for each cell on which reviewers differ; the last of them
    counts.

    `many`: relations with several values in a cell, on which reviewers may differ.
    """
    disputes = []
    for (_, relation), values in decisions.items():
        accepted = [decision for decision in values.values() if decision.choice == "accept"]
        reviewers = {decision.reviewer for decision in accepted}
        if len(reviewers) > 1 and relation not in many:
            disputes.append((accepted[-2], accepted[-1]))
    return disputes


def obeyed(
    claims: Sequence[Claim],
    slot: Slot,
    decisions: Mapping[str, Decision],
    normal: Callable[[str, Relation], NormalForm | None],
) -> list[Claim]:
    """Return the claims of a cell with all values that people accepted, found or not.

    `claims`: without the rejected values. `normal`: returns the normal form of a value of a
    relation.
    """
    wanted = [decision for decision in decisions.values() if decision.choice == "accept"]
    if wanted and not wanted[-1].value:
        return [replace(claim, accepted=False) for claim in claims[:1]]
    wanted = [decision for decision in wanted if decision.value]
    if slot.relation.values == "one":
        wanted = wanted[-1:]
    if not wanted:
        return list(claims)
    found = {normalised(claim.value): claim for claim in claims}
    keys = [normalised(decision.value) for decision in wanted]
    chosen = []
    for key, decision in zip(keys, wanted, strict=True):
        claim = found.get(key)
        if claim is None:
            claim = by_hand(slot, decision.value, normal(decision.value, slot.relation))
        chosen.append(claim)
    left = [claim for key, claim in found.items() if key not in keys]
    also = []
    if slot.relation.values == "many":
        also = [claim for claim in left if claim.accepted]
    shown = [replace(claim, accepted=True, alternatives=()) for claim in (*chosen, *also)]
    alternatives = [Alternative.of(claim) for claim in left if claim not in also]
    for claim in claims:
        for other in claim.alternatives:
            if normalised(other.value) not in keys:
                alternatives.append(other)
    return [replace(shown[0], alternatives=tuple(alternatives)), *shown[1:]]


def obeyed_on_pages(
    claims: Sequence[Claim],
    slot: Slot,
    decisions: Mapping[str, Decision],
    normal: Callable[[str, Relation], NormalForm | None],
) -> list[Claim]:
    """Do what `obeyed` does where rows name pages of one name: a decision on a value that was found
    holds for the pages that it was found on, and any other decision for all of them.
    """
    of_pages: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        of_pages[claim.page_id].append(claim)
    found = {normalised(claim.value) for claim in claims}
    accepted = [value for value, decision in decisions.items() if decision.choice == "accept"]
    # A value that was typed before one that was found, where there can be one only.
    is_replaced = slot.relation.values == "one" and accepted and accepted[-1] in found
    of_all = {}
    if not is_replaced:
        of_all = {value: choice for value, choice in decisions.items() if value not in found}
    final = obeyed([], slot, of_all, normal)
    for own in of_pages.values():
        values = {normalised(claim.value) for claim in own} | set(of_all)
        concerned = {value: choice for value, choice in decisions.items() if value in values}
        final += [claim for claim in obeyed(own, slot, concerned, normal) if not claim.by_hand]
    return final


def by_hand(slot: Slot, value: str, normal: NormalForm | None) -> Claim:
    """Return the claim of a typed value, which is its own evidence."""
    return Claim(
        subject=slot.subject,
        relation=slot.relation.name,
        value=value,
        probability=None,
        accepted=True,
        page_id="",
        title="",
        paragraph=0,
        start=0,
        end=len(value),
        sentence=value,
        sentence_start=0,
        normal=normal,
        by_hand=True,
    )


def without_cell(decisions: Decided, slots: Iterable[Slot]) -> list[Decision]:
    """Return the decisions on cells that are not asked for, which change nothing."""
    cells = {slot.cell for slot in slots}
    useless: list[Decision] = []
    for cell, values in decisions.items():
        if cell not in cells:
            useless += values.values()
    return useless


def without_value(decisions: Mapping[str, Decision], texts: Iterable[str]) -> list[Decision]:
    """Return the rejections of values that were not found for their cell, which change nothing."""
    rejected = {
        value: decision for value, decision in decisions.items() if decision.choice == "reject"
    }
    if not rejected:
        return []
    found = [normalised(text) for text in texts]
    useless = []
    for value, decision in rejected.items():
        if not any(value in text for text in found):
            useless.append(decision)
    return useless


@dataclass(slots=True)
class _Value:
    """A value with its best answer and all its places."""

    answer: Answer
    normal: NormalForm | None
    said: tuple[int, int]  # characters of the answer's paragraph that say all of it
    places: set[tuple[str, int, int, int]] = field(default_factory=set)

    @property
    def key(self) -> str:
        return normalised(self.answer.text)


class Decider:
    """Makes claims of answers."""

    def __init__(
        self, titles: Titles, min_probability: float, top: int, decisions: Decided
    ) -> None:
        """`top`: the number of alternatives to keep."""
        self._titles = titles
        self._min_probability = min_probability
        self._top = top
        self._decisions = decisions
        self.lessons: Mapping[str, RelationLesson] = {}  # what decisions taught, by relation
        self._sentences = lru_cache(256)(Sentences)

    def claims(
        self, slot: Slot, answers: Iterable[Sequence[Answer]], page_id: str = ""
    ) -> list[Claim]:
        """Return the accepted claims or else the best guess, if any.

        Args:
            answers: to each wording, best first.
            page_id: the page of the subject, if several pages have its name; without it, none of
                their values is sure.
        """
        relation = slot.relation
        decisions = self._decisions.get(slot.cell, {})
        decided = {value: decision.choice for value, decision in decisions.items()}
        own = self._of_subject(slot, answers, page_id)
        ranked = sorted(chain.from_iterable(map(_ranked, own)), key=lambda pair: -pair[0])
        said = [answer for _, answer in ranked if not is_no_thing(answer.title, answer.context)]
        said = self._values_in(said, relation, decided)
        # "racing driver" here, and "driver" there, are one value.
        meant = meanings(Query.of(slot.queries[0]), said)
        if relation.property in (OCCUPATION, SUBCLASS):
            said = [self._shaped(answer, with_nouns, decided) for answer in said]
        distinct = self._distinct(zip(said, meant, strict=True), relation)
        left = [value for value in distinct if not self._is_rejected(value, decisions, relation)]
        values = _exact_dates(left, {key for key, choice in decided.items() if choice == "accept"})
        possible = [value for value in values if _may_be(value.answer.text, value.normal, relation)]
        shown = [value for value in values if decided.get(value.key) == "accept"]
        shown += self._likely(possible, shown, relation)
        is_accepted = bool(shown)
        if not is_accepted:
            shown = (possible or values)[:1]
        others = [value for value in values if value not in shown][: self._top]
        claims = [self._claim(slot, value, is_accepted) for value in shown]
        if claims:
            claims[0] = replace(claims[0], alternatives=tuple(map(self._alternative, others)))
        return claims

    def _of_subject(
        self, slot: Slot, answers: Iterable[Sequence[Answer]], page_id: str
    ) -> list[list[Answer]]:
        """Return the answers of a page, or as likely as they are if several pages have its name."""
        own = [list(of_query) for of_query in answers]
        lesson = self.lessons.get(slot.relation.name)
        if lesson is not None:
            own = [list(map(lesson.applied, of_query)) for of_query in own]
        if page_id:
            return [
                [answer for answer in of_query if answer.page_id == page_id] for of_query in own
            ]
        namesakes = len(self._titles.pages(slot.subject))
        if namesakes > 1:
            return [[_shared(answer, namesakes) for answer in of_query] for of_query in own]
        return own

    def _values_in(
        self, answers: Iterable[Answer], relation: Relation, decided: Mapping[str, Choice]
    ) -> list[Answer]:
        """Return answers in the form of a relation's values: a whole date, or an item of a list."""
        said = list(answers)
        whole = WHOLE.get(relation.type or "")
        if relation.type == "quantity":
            whole = partial(whole_quantity, measures=relation.measures)
        if whole is not None:
            said = [
                answer if _bounds_a_span(answer, relation) else self._shaped(answer, whole, decided)
                for answer in said
            ]
        if relation.values == "many":
            shape = self._threshold(relation), _things(relation), self._is_title
            said = [item for answer in said for item in each_of_several(answer, *shape)]
        elif relation.property in OF_SEVERAL:
            said = [self._shaped(answer, first_of_several, decided) for answer in said]
        else:
            said = [self._shaped(answer, whole_name_with_and, decided) for answer in said]
        if relation.property in OF_PERSONS:
            said = [self._shaped(answer, whole_name, decided) for answer in said]
        return said

    def _likely(
        self, possible: Sequence[_Value], chosen: Sequence[_Value], relation: Relation
    ) -> list[_Value]:
        """Return the likely values that fill a cell beside those that people chose."""
        if relation.values == "many":
            left = [value for value in possible if value not in chosen]
        elif chosen:
            left = []
        else:
            left = list(possible[:1])
        threshold = self._threshold(relation)
        likely = [value for value in left if is_likely(value.answer, threshold)]
        return [
            value
            for value in likely
            if not any(_is_part(value.answer, other.answer) for other in [*chosen, *likely])
        ]

    def _is_rejected(
        self, value: _Value, decisions: Mapping[str, Decision], relation: Relation
    ) -> bool:
        """Whether people rejected a value, perhaps in another form or, of a person, with initials."""
        if value.key in decisions:
            return decisions[value.key].choice == "reject"
        words = value.key.split()
        for key, decision in decisions.items():
            if decision.choice != "reject":
                continue
            normal = self.normal(decision.value, relation)
            if normal is not None and normal == value.normal:
                return True
            rejected = key.split()
            shortened = is_abbreviated(words, rejected) or is_abbreviated(rejected, words)
            if shortened and relation.property in OF_PERSONS:
                return True
        return False

    def _is_title(self, text: str) -> bool:
        return self._titles.page(text) is not None

    def _shaped(
        self, answer: Answer, shape: Callable[[Answer], Answer], decided: Mapping[str, Choice]
    ) -> Answer:
        """Return an answer in another form, unless a person decided on it as it is, or a page has
        its name.
        """
        other = shape(answer)
        if other is answer or normalised(answer.text) in decided:
            return answer
        if self._titles.page(answer.text) and not self._titles.page(other.text):
            return answer
        return other

    def consistent(
        self, claims: Sequence[Claim], relations: Iterable[Relation], apart: Collection[str] = ()
    ) -> list[Claim]:
        """Return all claims, less probable if they contradict a likelier claim of the same subject.

        None of their alternatives is likelier then. `apart`: subjects of whose name there are
        several pages, each of another one.
        """
        by_name = {relation.name: relation for relation in relations}
        rule_names = {name: known_name(relation) for name, relation in by_name.items()}
        of_subject: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, claim in enumerate(claims):
            page_id = ""
            if claim.subject in apart:
                page_id = claim.page_id
            of_subject[claim.subject, page_id].append(number)
        kept = list(claims)
        for numbers in of_subject.values():
            likeliest = sorted(numbers, key=lambda number: -(claims[number].probability or 0.0))
            for place, number in enumerate(likeliest):
                claim = claims[number]
                better = (claims[other] for other in likeliest[:place])
                rivals = (other for other in better if _exclude(other, claim, rule_names))
                rival = next(rivals, None)
                if rival is not None:
                    kept[number] = self._weakened(claim, rival, by_name[claim.relation])
        counts = Counter((claim.subject, claim.relation) for claim in claims)
        return [
            self._led(claim, by_name[claim.relation], counts[claim.subject, claim.relation])
            for claim in kept
        ]

    def _weakened(self, claim: Claim, rival: Claim, relation: Relation) -> Claim:
        """Return a claim that is right only if a likelier one, which excludes it, is wrong."""
        if claim.probability is None:
            return claim
        chance = round(claim.probability * (1 - (rival.probability or 0.0)), 4)
        may_be = _may_be(claim.value, claim.normal, relation)
        is_accepted = may_be and chance >= self._threshold(relation)
        return replace(claim, probability=chance, accepted=is_accepted)

    def _led(self, claim: Claim, relation: Relation, count: int) -> Claim:
        """Return a claim that no alternative of it is likelier than, unless a person accepted it.

        An empty cell shows the likeliest as its guess. What fills a cell stays: it was ranked
        above its alternatives, or they cannot be values of the relation. `count`: the number of
        the cell's claims.
        """
        decided = self._decisions.get((claim.subject, claim.relation), {}).values()
        if claim.probability is None:
            return claim
        if any(decision.choice == "accept" for decision in decided):
            return claim
        best = max(claim.alternatives, key=_chance, default=None)
        if best is None or _chance(best) <= claim.probability:
            return claim
        if claim.accepted or count > 1:
            limit = claim.probability
            others = [
                replace(other, probability=min(_chance(other), limit))
                for other in claim.alternatives
            ]
            return replace(claim, alternatives=tuple(others))
        others = [other for other in claim.alternatives if other is not best]
        others.insert(0, Alternative.of(claim))
        fields: dict[str, Any] = {name: getattr(best, name) for name in Alternative.__slots__}
        metadata = claim.metadata
        if best.page_id != claim.page_id:
            metadata = {}
        return replace(
            claim,
            **fields,
            normal=self._normal_of(best, relation),
            says_the_same=1,
            metadata=metadata,
            alternatives=tuple(sorted(others, key=_chance, reverse=True)),
        )

    def _threshold(self, relation: Relation) -> float:
        if relation.min_probability is None:
            return self._min_probability
        return relation.min_probability

    def _distinct(self, answers: Iterable[tuple[Answer, str]], relation: Relation) -> list[_Value]:
        """Return the values in the order of their first answers; equal texts, meanings or normal
        forms are one.
        """
        by_key: dict[object, _Value] = {}
        values: list[_Value] = []
        for answer, meaning in answers:
            place = answer.start, answer.end
            normal, said = self._normal_at(answer.context, place, relation)
            country = country_of(compared_words(answer.text), " ".join(relation.query))
            keys: list[object] = [normalised(answer.text), ("means", meaning)]
            if country:
                keys.append(("country", country))
            if normal is not None:
                keys.append(normal)
            if normal and said != place:  # the same words may be the day of another year
                keys = [normal]
            value = next((by_key[key] for key in keys if key in by_key), None)
            if value is None:
                value = _Value(answer, normal, said)
                values.append(value)
            value.places.add(answer.place)
            for key in keys:
                by_key.setdefault(key, value)
        return values

    def _normal_of(self, other: Alternative, relation: Relation) -> NormalForm | None:
        """Return the normal form of an alternative, in its sentence if that is known."""
        if not other.sentence:
            return self.normal(other.value, relation)
        return self._normal_at(other.sentence, other.within, relation)[0]

    def _normal_at(
        self, text: str, place: tuple[int, int], relation: Relation
    ) -> tuple[NormalForm | None, tuple[int, int]]:
        """Return the normal form of the value at a place in a text, and the place that says it."""
        start, end = place
        if relation.type == "date":
            split = split_date(text, start, end)
            if split:
                return split.date, (split.start, split.end)
        around = text[max(0, start - AROUND) : start], text[end : end + AROUND]
        # As it stands there, perhaps with a narrow blank in a number.
        return self.normal(text[start:end], relation, *around), place

    def normal(
        self, text: str, relation: Relation, before: str = "", behind: str = ""
    ) -> NormalForm | None:
        """Return the normal form of a value of a relation, given the text before and after it."""
        if relation.property in BOUND_OF_TIME:
            # The bound of a span is what is asked for, not a date that is unknown but for a bound.
            before = BOUND_OF_TIME[relation.property].sub("", before)
        if relation.type in ("date", "quantity"):
            if ASKS_FOR_A_CHANGE.search(" ".join(relation.query)):
                # A loss is what is asked for, not a negative amount.
                before = ASKS_FOR_A_CHANGE.sub("amount", before)
            return normal_form(text, relation.type, before, behind, relation.measures)
        if relation.type == "text":
            return None
        page = self._titles.page(text)
        if page or relation.type == "page":
            return page
        return normal_form(text, None, before, behind)

    def _alternative(self, value: _Value) -> Alternative:
        answer = value.answer
        first, last = self._sentences(answer.context).around(*value.said)
        place = answer.page_id, answer.title, answer.paragraph, answer.start, answer.end
        return Alternative(
            answer.text, _rounded(answer.probability), *place, answer.context[first:last], first
        )

    def _claim(self, slot: Slot, value: _Value, is_accepted: bool) -> Claim:
        """Return a value as a claim, with the sentence that says it."""
        answer = value.answer
        first, last = self._sentences(answer.context).around(*value.said)
        place: dict[str, Any] = {
            "page_id": answer.page_id,
            "title": answer.title,
            "paragraph": answer.paragraph,
            "start": answer.start,
            "end": answer.end,
            "metadata": answer.metadata,
        }
        sentence = answer.context[first:last]
        return Claim(
            subject=slot.subject,
            relation=slot.relation.name,
            value=answer.text,
            accepted=is_accepted,
            probability=_rounded(answer.probability),
            sentence=sentence,
            sentence_start=first,
            normal=value.normal,
            says_the_same=len(value.places),
            **place,
        )


def _is_part(answer: Answer, whole: Answer) -> bool:
    """Whether an answer is a part of another, which is no less likely: "veterinary" of "veterinary
    nurse".
    """
    if answer.place == whole.place or answer.place[:2] != whole.place[:2]:
        return False
    is_inside = whole.start <= answer.start and answer.end <= whole.end
    return is_inside and (answer.probability or 0.0) <= (whole.probability or 0.0)


def _bounds_a_span(answer: Answer, relation: Relation) -> bool:
    """Whether an answer is the start or the end of a span, whichever is asked for, with its year:
    it stays as it is.
    """
    bound = BOUND_OF_TIME.get(relation.property)
    if bound is None or not bound.search(answer.context, 0, answer.start):
        return False
    return normal_form(answer.text, "date") is not None


def _exact_dates(values: Sequence[_Value], accepted: Collection[str]) -> list[_Value]:
    """Return values without a date of which the same page has a more exact one, which is as
    probable then.

    "1867" gives way to "7 November 1867", if that is not much less likely by itself. What people
    accepted, by its key, stays, and so does a span or a part of a time.
    """
    kept = list(values)
    for value in values:
        if value.key in accepted:
            continue
        exact = next((other for other in kept if _is_more_exact(other, value)), None)
        if exact is not None:
            chances = [one.answer.probability or 0.0 for one in (exact, value)]
            exact.answer = replace(exact.answer, probability=max(chances))
            first = min(kept.index(exact), kept.index(value))
            kept = [one for one in kept if one is not exact and one is not value]
            kept.insert(first, exact)
    return kept


def _is_more_exact(other: _Value, value: _Value) -> bool:
    """Whether a value is a date on the same page that says more than another, does not contradict
    it, and is likely.
    """
    one = other.normal
    less = value.normal
    if not isinstance(one, DateValue) or not isinstance(less, DateValue):
        return False
    if one.precision <= less.precision or less.within:
        return False
    chance = other.answer.probability
    usual = value.answer.probability
    if chance is None or usual is None or chance < EXACT * usual:
        return False
    return other.answer.page_id == value.answer.page_id and dates_agree(less, one)


def _things(relation: Relation) -> Things:
    """Return what a relation may have, as far as lists of them differ."""
    if relation.property in PLACES:
        return "places"
    if relation.property in KIN:
        return "kin"
    if relation.property in OF_PERSONS:
        return "persons"
    return "others"


def _shared(answer: Answer, namesakes: int) -> Answer:
    """Return an answer that may be that of each of several subjects."""
    chance = answer.probability
    if chance is None:
        return answer
    return replace(answer, probability=chance / namesakes)


def _ranked(answers: Sequence[Answer]) -> Iterator[tuple[float, Answer]]:
    """Yield the answers to a wording with a number that ranks them among others', never above a
    better one.

    It is the probability or, without one, the score; the reranker's scores are logarithms of odds.
    """
    least = math.inf
    for answer in answers:
        worth = answer.probability
        if worth is None:
            worth = answer.score
        least = min(least, worth)
        yield least, answer


def _may_be(value: str, normal: NormalForm | None, relation: Relation) -> bool:
    """Whether a value may have a relation's type. No country is an administrative unit, but a part
    of one is, and no adjective of a country is a place.
    """
    name = normalised(value)
    if relation.property in PROPER_PLACES and name in ADJECTIVES and name not in NAMES:
        return False
    if relation.property == LOCATED_IN and name in NAMES and name not in PARTS_OF_OTHERS:
        return False
    return isinstance(normal, DEMANDED.get(relation.type or "", object))


def _exclude(better: Claim, claim: Claim, rule_names: Mapping[str, str]) -> bool:
    """Whether a claim cannot be right if a likelier one is. `rule_names`: of the relations, as
    rules name them.
    """
    dates = {rule_names[one.relation]: one.normal for one in (better, claim)}
    if _are_out_of_time(dates):
        return True
    names = set(dates)
    if len(names) < 2:
        return False
    if normalised(better.value) != normalised(claim.value):
        return False
    if any(names <= rivals for rivals in RIVALS):
        return True
    place = better.page_id, better.paragraph, better.start
    is_one_place = place == (claim.page_id, claim.paragraph, claim.start)
    return is_one_place and (claim.probability or 0.0) < SURE and names <= IN_ONE_PLACE


def _are_out_of_time(dates: Mapping[str, NormalForm | None]) -> bool:
    """Whether two dates of a subject exclude each other: an end before its beginning, or too long
    after it.
    """
    for (first, last), longest in IN_TIME.items():
        begins = _years(dates.get(first))
        ends = _years(dates.get(last))
        if begins and ends:
            return ends[1] < begins[0] or ends[0] - begins[1] > longest
    return False


def _years(date: object) -> tuple[int, int] | None:
    """Return the first and the last possible year of a date, or None if it has none."""
    found = None
    if isinstance(date, DateValue):
        found = re.match(r"(-?)([0-9X]{4})", date.edtf)
    if not found:
        return None
    years = sorted(int(found[1] + found[2].replace("X", digit)) for digit in "09")
    return years[0], years[1]


def _chance(one: Alternative) -> float:
    return one.probability or 0.0


def _rounded(probability: float | None) -> float | None:
    if probability is None:
        return None
    return round(probability, 4)
