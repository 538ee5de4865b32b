"""Deciding: merge the answers to a slot into distinct claims, accept the likely ones, and obey people's decisions.

Of relations of a subject that exclude each other, the likeliest keeps a value that several claim. A list in the text is
like items, the last of them behind "and" or "or"; sentences are not parsed.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from kbq.answers import Answer, is_likely
from kbq.dump.page_directory import Titles
from kbq.errors import KbqError
from kbq.reading.reranker import ADJECTIVES, NAMES, meanings
from kbq.search.spans import Sentences
from kbq.storage.rows import read_rows
from kbq.tables.claims import Alternative, Claim, DateValue, NormalForm, QuantityValue
from kbq.tables.relations import Relation, Slot
from kbq.tables.tables import subject_of
from kbq.tables.values import normal_form
from kbq.text.letters import normalised, relation_key

MOST_WORDS = 5  # of an item
COMMA, LAST = r"\s*,\s+", r"\s*,?\s+(?:and|or|as well as)\s+|\s+&\s+"
SEPARATOR = re.compile(rf"{LAST}|{COMMA}")
ENDS_A_LIST = re.compile(LAST)
WORD = r"[^\s,;:.!?()\[\]\"“”&]+(?:(?<=\b[A-Z])\.)?"  # with the full stop of an initial
ITEM = re.compile(rf"{WORD}(?:[ \u00a0]{WORD}){{0,{MOST_WORDS - 1}}}")
PARTICLES = "(?:of|the|de|del|van|von|der|la|le|du|al|bin)"
NAME = re.compile(rf"{WORD}(?:[ \u00a0](?:{PARTICLES} )*(?=[^a-z]){WORD})*")
# These begin no item, but another clause, or more about the last one.
OPENS_NO_ITEM = re.compile(
    r"(?:was|were|is|are|had|has|have|he|she|it|they|who|whom|whose|which|that|where|when|while|then|later|also|but|"
    r"became|began|made|went|left|won|wrote|taught|gave|took|born|in|on|at|of|for|with|by|from|to|as|his|her|its|their|"
    r"\w+ed|\w+ly)\b"
)
ENDS_AN_ITEM = re.compile(
    r"[ \u00a0](?:in|on|at|of|for|with|by|from|to|as|who|whom|whose|which|that|where|when|while|was|were|is|are|had|"
    r"has|through|into|between|over|across|via|about|like|including|include|includes|"
    r"during|after|before|since|until|under|best|known|born)[ \u00a0]"
)
ARTICLE = re.compile(r"(?:an?|the)[ \u00a0]")
ANY_ARTICLE = re.compile(r"\b(?:an?|the)[ \u00a0]")
SEPARATOR_BEFORE = re.compile(rf"(?:{LAST}|{COMMA})(?:(?:an?|the)[ \u00a0])?\Z")
NOUN = re.compile(r"(?!\w+ly\b)(?!(?!mixed)\w+ed\b)[a-z]+(?:-[a-z]+)*")  # or an adjective that may narrow one
NO_NOUN = re.compile(
    r"and|or|of|in|on|at|for|with|by|from|to|as|into|under|over|like|including|both|either|another|other|such|some|"
    r"this|that|would|he|she|it|they|his|her|its|their|who|which|was|were|is|are|been|has|had|one|two|three|several|"
    r"brother|sister|wife|husband|son|daughter|father|mother|met|saw|left|won|wrote|taught|went|made|took|found|then|"
    r"later|not|also|when|while|before|during|through|rules"  # of Australian rules football
)
OPENS_A_NOUN = re.compile(
    r"an?|the|former|retired|current|young|prominent|famous|noted|notable|renowned|celebrated|leading|influential|"
    r"prolific|successful|important|acclaimed|eminent|distinguished|respected|pioneering|versatile|.*-born",
    re.IGNORECASE,
)
MOST_NOUNS = 3  # before the last of an occupation
WORDS = re.compile(r"\S+\s+")
BARE = re.compile(r"the\s+(?=[^\W\d_a-z])")
WORDS_BEFORE = re.compile(rf"(?:{WORD}[ \u00a0])*{WORD}\Z")

Choice = Literal["accept", "reject", "undo"]
Cell: TypeAlias = tuple[str, str]  # subject and relation
LONGEST, LONGEST_ID = 4096, 64  # characters of a value, and of an id
HOW = "write subject, relation, value, and decision, which is accept, reject or undo"

AROUND = 80  # characters on either side of a value that may say "about" or "BC"
ITEM_SHARE = 0.95  # of a probability, for the other items of a list, some of which belong to another verb
DEMANDED = {"date": DateValue, "quantity": QuantityValue}  # a value of these types must have this form
RIVALS = (  # nothing is two of these to the same thing
    frozenset({"spouse", "partner", "father", "mother", "child", "sibling"}),
    frozenset({"date of birth", "date of death"}),
    frozenset({"start time", "end time"}),
    frozenset({"inception", "dissolved, abolished or demolished"}),
    frozenset({"follows", "followed by"}),
    frozenset({"parent organization", "subsidiary"}),
)
IN_ONE_PLACE = frozenset({"place of birth", "place of death", "residence"})  # both may be right if two places say so
IN_TIME = {  # a beginning, its end, and the most years between them
    ("date of birth", "date of death"): 120,
    ("inception", "dissolved, abolished or demolished date"): 3000,
    ("start time", "end time"): 3000,
}
OCCUPATION, SUBCLASS, LOCATED_IN = "P106", "P279", "P131"
UNITS = frozenset(
    {"georgia", "england", "scotland", "wales", "northern ireland", "puerto rico", "hong kong", "greenland"}
)
OF_SEVERAL = frozenset(  # persons, and occupations: of names of organisations and works, "and" is often a part
    ("P26", "P40", "P50", "P57", "P58", "P86", "P112", "P161", "P162", "P175", "P3373", "P674", OCCUPATION)
)
OF_PERSONS = OF_SEVERAL - {OCCUPATION} | {"P22", "P25"}  # with father and mother, of whom each is one
ORDINAL = r"(?:\d+(?:st|nd|rd|th)|First|Second|Third)"
REST_OF_A_NAME = re.compile(rf"\s?,?\s(?:Jr|Sr)\b\.?|\s?,\s{ORDINAL}(?: of(?= [A-Z])| [A-Z][\w'’-]+)+")
SURE = 0.9  # of both: "was born and died in Vienna"


def conjuncts(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return characters [start, end) of all items of the list that a phrase is or belongs to, or of the phrase alone.

    >>> text = "She was an actress, inventor and film producer."
    >>> [text[slice(*place)] for place in conjuncts(text, 11, 18)]
    ['actress', 'inventor', 'film producer']
    >>> text = "He married Ann Lee and moved to Bonn."
    >>> [text[slice(*place)] for place in conjuncts(text, 11, 18)]
    ['Ann Lee']
    """
    is_upper = text[start].isupper()
    found = [*_items_before(text, start, is_upper), *_within(text, start, end), *_items_behind(text, end, is_upper)]
    return found if len(found) > 1 and ENDS_A_LIST.search(text, found[0][0], found[-1][1]) else [(start, end)]


def _within(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the items of a phrase that is a list, or else the phrase."""
    places, begin = [], start
    for separator in SEPARATOR.finditer(text, start, end):
        places.append((begin, separator.start()))
        begin = separator.end()
    places.append((begin, end))
    is_list = ENDS_A_LIST.search(text, start, end) and all(
        _is_item(text[slice(*one)], text[start].isupper()) for one in places
    )
    return [_without_article(text, *one) for one in places] if is_list else [(start, end)]


def _items_behind(text: str, end: int, is_upper: bool) -> list[tuple[int, int]]:
    items: list[tuple[int, int]] = []
    is_last = False
    while not is_last and (separator := SEPARATOR.match(text, end)):
        begin, _ = _without_article(text, separator.end(), len(text))
        item = (NAME if is_upper else ITEM).match(text, begin)
        stops = [found.start() for form in (ENDS_A_LIST, ENDS_AN_ITEM) if item and (found := form.search(item.group()))]
        stop = begin + min([len(item.group()), *stops]) if item else begin
        if not _is_item(text[begin:stop], is_upper):
            break
        items.append((begin, stop))
        end, is_last = stop, bool(ENDS_A_LIST.fullmatch(separator.group()))
    return items if is_last else []


def _items_before(text: str, start: int, is_upper: bool) -> list[tuple[int, int]]:
    items: list[tuple[int, int]] = []
    while separator := SEPARATOR_BEFORE.search(text[:start]):
        stop = separator.start()
        words = WORDS_BEFORE.search(text[:stop])
        begin = words.start() if words else stop
        for form in (ENDS_AN_ITEM, ANY_ARTICLE):
            begin = max([begin, *(found.end() for found in form.finditer(text, max(0, begin - 1), stop))])
        if not _is_item(text[begin:stop], is_upper):
            break
        items.insert(0, (begin, stop))
        start = begin
    return items


def _is_item(item: str, is_upper: bool) -> bool:
    """Whether a text may be an item beside one with or without a capital letter at its beginning."""
    return bool(
        item
        and item[0].isupper() == is_upper
        and (NAME if is_upper else ITEM).fullmatch(item)
        and not OPENS_NO_ITEM.match(item)
        and not ENDS_AN_ITEM.search(item)
    )


def _without_article(text: str, start: int, end: int) -> tuple[int, int]:
    article = ARTICLE.match(text, start, end)
    return (article.end() if article else start), end


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision on a value; accepting "" leaves the cell empty, as the text does not state it."""

    subject: str
    relation: str
    value: str
    choice: Choice
    reviewer: str = ""
    time: str = ""  # of the reviewer's browser; the order of the file counts
    id: str = ""  # identifies a decision that is sent twice

    @property
    def cell(self) -> Cell:
        """The names of subject and relation."""
        return self.subject, self.relation


Decided: TypeAlias = Mapping[Cell, Mapping[str, Decision]]  # by value, as values are compared; the latest last


def decision_of(fields: Mapping[str, object]) -> Decision:
    """Return the decision in a JSON object, whose other fields are ignored. Raises KbqError if there is none."""
    texts = [fields.get(name) for name in ("subject", "relation", "value", "decision")]
    more = [fields.get(name, "") for name in ("reviewer", "time", "id")]
    if not all(isinstance(text, str) for text in (*texts, *more)) or texts[3] not in get_args(Choice):
        raise KbqError(f"is not a decision: {HOW}")
    subject, relation, value = map(subject_of, texts[:3])
    if not subject or not relation:
        raise KbqError(f"names no cell: {HOW}")
    longest = max(map(len, (subject, relation, value, *map(str, more))))
    if longest > LONGEST or len(str(more[2])) > LONGEST_ID:
        raise KbqError(f"has a text of {longest:,} characters: {LONGEST:,} at most are kept, {LONGEST_ID} of an id")
    return Decision(subject, relation, value, texts[3], *map(subject_of, more))  # type: ignore[arg-type]


def read_decisions(path: Path) -> dict[Cell, dict[str, Decision]]:
    """Return the valid decisions of a file of JSON lines. Raises KbqError if a line is none; all are named."""
    decisions: list[Decision] = []
    problems: list[str] = []
    for number, fields in read_rows(str(path)).numbered:
        try:
            decisions.append(decision_of(fields))
        except KbqError as error:
            problems.append(f"{path}:{number}: {error}")
    if problems:
        raise KbqError(f"{path} has {len(problems):,} lines that are not decisions: {HOW}", problems)
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


def disputed(decisions: Decided, many: Collection[str]) -> list[tuple[Decision, Decision]]:
    """Return the last two values accepted for each cell on which reviewers differ; the last of them counts.

    `many`: relations with several values in a cell, on which reviewers may differ.
    """
    disputes = []
    for (_, relation), values in decisions.items():
        accepted = [decision for decision in values.values() if decision.choice == "accept"]
        if len({decision.reviewer for decision in accepted}) > 1 and relation not in many:
            disputes.append((accepted[-2], accepted[-1]))
    return disputes


def obeyed(
    claims: Sequence[Claim], slot: Slot, decisions: Mapping[str, Decision],
    normal: Callable[[str, Relation], NormalForm | None],
) -> list[Claim]:  # fmt: skip
    """Return the claims of a cell with all values that people accepted, found or not.

    `claims`: without the rejected values. `normal`: returns the normal form of a value of a relation.
    """
    wanted = [decision for decision in decisions.values() if decision.choice == "accept"]
    if wanted and not wanted[-1].value:
        return [replace(claim, accepted=False) for claim in claims[:1]]
    wanted = [decision for decision in wanted if decision.value]
    wanted = wanted[-1:] if slot.relation.values == "one" else wanted
    if not wanted:
        return list(claims)
    found = {normalised(claim.value): claim for claim in claims}
    keys = [normalised(decision.value) for decision in wanted]
    chosen = [
        found[key] if key in found else by_hand(slot, decision.value, normal(decision.value, slot.relation))
        for key, decision in zip(keys, wanted, strict=True)
    ]
    left = [claim for key, claim in found.items() if key not in keys]
    also = [claim for claim in left if claim.accepted] if slot.relation.values == "many" else []
    alternatives = [other for claim in claims for other in claim.alternatives if normalised(other.value) not in keys]
    alternatives = [*(Alternative.of(claim) for claim in left if claim not in also), *alternatives]
    shown = [replace(claim, accepted=True, alternatives=()) for claim in (*chosen, *also)]
    return [replace(shown[0], alternatives=tuple(alternatives)), *shown[1:]]


def by_hand(slot: Slot, value: str, normal: NormalForm | None) -> Claim:
    """Return the claim of a typed value, which is its own evidence."""
    return Claim(
        subject=slot.subject, relation=slot.relation.name, value=value, probability=None, accepted=True, page_id="",
        title="", paragraph=0, start=0, end=len(value), sentence=value, sentence_start=0, normal=normal, by_hand=True,
    )  # fmt: skip


def without_cell(decisions: Decided, slots: Iterable[Slot]) -> list[Decision]:
    """Return the decisions on cells that are not asked for, which change nothing."""
    cells = {slot.cell for slot in slots}
    return [decision for cell, values in decisions.items() if cell not in cells for decision in values.values()]


def without_value(decisions: Mapping[str, Decision], texts: Iterable[str]) -> list[Decision]:
    """Return the rejections of values that were not found for their cell, which change nothing."""
    rejected = {value: decision for value, decision in decisions.items() if decision.choice == "reject"}
    found = [normalised(text) for text in texts] if rejected else []
    return [decision for value, decision in rejected.items() if not any(value in text for text in found)]


@dataclass(slots=True)
class _Value:
    """A value with its best answer and all its places."""

    answer: Answer
    normal: NormalForm | None
    places: set[tuple[str, int, int, int]] = field(default_factory=set)

    @property
    def key(self) -> str:
        return normalised(self.answer.text)


class Decider:
    """Makes claims of answers."""

    def __init__(self, titles: Titles, min_probability: float, top: int, decisions: Decided) -> None:
        """`top`: the number of alternatives to keep."""
        self._titles, self._min_probability, self._top, self._decisions = titles, min_probability, top, decisions
        self._sentences = lru_cache(256)(Sentences)

    def claims(self, slot: Slot, answers: Iterable[Sequence[Answer]]) -> list[Claim]:
        """Return the accepted claims or else the best guess, if any. `answers`: to each wording, best first."""
        relation = slot.relation
        decided = {value: one.choice for value, one in self._decisions.get(slot.cell, {}).items()}
        threshold = self._threshold(relation)
        ranked = sorted(chain.from_iterable(map(_ranked, answers)), key=lambda pair: -pair[0])
        said = [one for _, one in ranked]
        if relation.type == "page":
            said = [self._shaped(answer, bare_name, decided) for answer in said]
        if relation.values == "many":
            said = [each for answer in said for each in each_of_several(answer, threshold)]
        elif relation.property in OF_SEVERAL:
            said = [self._shaped(answer, first_of_several, decided) for answer in said]
        if relation.property in OF_PERSONS:
            said = [self._shaped(answer, whole_name, decided) for answer in said]
        meant = meanings(slot.queries[0], said)  # "racing driver" here, and "driver" there, are one value
        if relation.property in (OCCUPATION, SUBCLASS):
            said = [self._shaped(answer, with_nouns, decided) for answer in said]
        distinct = self._distinct(zip(said, meant, strict=True), relation)
        values = [value for value in distinct if decided.get(value.key) != "reject"]
        possible = [value for value in values if _may_be(value.answer.text, value.normal, relation)]
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

    def _shaped(self, answer: Answer, shape: Callable[[Answer], Answer], decided: Mapping[str, Choice]) -> Answer:
        """Return an answer in another form, unless a person decided on it as it is, or a page has its name."""
        other = shape(answer)
        if other is answer or normalised(answer.text) in decided:
            return answer
        return answer if self._titles.page(answer.text) and not self._titles.page(other.text) else other

    def consistent(self, claims: Sequence[Claim], relations: Iterable[Relation]) -> list[Claim]:
        """Return all claims, less probable if they contradict a likelier claim of the same subject."""
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
                    is_accepted = _may_be(claim.value, claim.normal, relation) and chance >= self._threshold(relation)
                    kept[number] = replace(claim, probability=chance, accepted=is_accepted)
        return kept

    def _threshold(self, relation: Relation) -> float:
        return self._min_probability if relation.min_probability is None else relation.min_probability

    def _distinct(self, answers: Iterable[tuple[Answer, str]], relation: Relation) -> list[_Value]:
        """Return the values in the order of their first answers; equal texts, meanings or normal forms are one."""
        by_key: dict[object, _Value] = {}
        values: list[_Value] = []
        for answer, meaning in answers:
            around = answer.context[max(0, answer.start - AROUND) : answer.start], answer.context[answer.end :][:AROUND]
            # As it stands there, perhaps with a narrow blank in a number.
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
        """Return the normal form of a value of a relation, given the text before and after it."""
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
    """Yield an answer or, if it is a likely list or an item of one, all items, the others with less probability."""
    own = answer.start, answer.end
    places = conjuncts(answer.context, *own) if is_likely(answer, threshold) else [own]
    if own in places:
        yield answer
    for start, end in places:
        if (start, end) != own:
            chance = None if answer.probability is None else ITEM_SHARE * answer.probability
            yield replace(_cut(answer, start, end), probability=chance)


def first_of_several(answer: Answer) -> Answer:
    """Return the first item of an answer that is a list, or the answer.

    A capitalised item of one word is no item: it is part of a name, as in "Simon and Garfunkel".
    """
    item = _cut(answer, *_within(answer.context, answer.start, answer.end)[0])
    return item if item.end < answer.end and (item.text[0].islower() or " " in item.text) else answer


def with_nouns(answer: Answer) -> Answer:
    """Return an occupation or a class with the nouns that narrow it: "racing driver" instead of "driver".

    They begin behind an article, an adjective of a nationality, or one that says nothing of it.
    """
    words = WORDS.findall(answer.context, max(0, answer.start - 100), answer.start)
    for nouns, word in enumerate(map(str.strip, reversed(words))):
        opens = bool(OPENS_A_NOUN.fullmatch(word)) or word.casefold().split("-")[-1] in ADJECTIVES
        if opens or NO_NOUN.fullmatch(word) or not NOUN.fullmatch(word):
            start = answer.start - len("".join(words[len(words) - nouns :]))
            return _cut(answer, start, answer.end) if opens and 0 < nouns <= MOST_NOUNS else answer
    return answer


def whole_name(answer: Answer) -> Answer:
    """Return a person with the rest of the name: "George Howard, 6th Earl of Carlisle", "Hank Williams, Jr."."""
    rest = REST_OF_A_NAME.match(answer.context, answer.end)
    return _cut(answer, answer.start, rest.end()) if rest else answer


def bare_name(answer: Answer) -> Answer:
    """Return an answer without the article of a name: "United States" instead of "the United States"."""
    article = BARE.match(answer.context, answer.start, answer.end)
    return _cut(answer, article.end(), answer.end) if article else answer


def _cut(answer: Answer, start: int, end: int) -> Answer:
    return replace(answer, text=answer.context[start:end], start=start, end=end, unit=(start, end))


def _ranked(answers: Sequence[Answer]) -> Iterator[tuple[float, Answer]]:
    """Yield the answers to a wording with a number that ranks them among others', never above a better one.

    It is the probability or, without one, the score; the reranker's scores are logarithms of odds.
    """
    least = math.inf
    for answer in answers:
        least = min(least, answer.score if answer.probability is None else answer.probability)
        yield least, answer


def _may_be(value: str, normal: NormalForm | None, relation: Relation) -> bool:
    """Whether a value may have a relation's type. No country is an administrative unit, but a part of one is."""
    name = normalised(value)
    if relation.property == LOCATED_IN and name in NAMES and name not in UNITS:
        return False
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
    """Whether two dates of a subject exclude each other: an end before its beginning, or too long after it."""
    dates = {relation_key(claim.relation): claim.normal for claim in (one, other)}
    for (first, last), longest in IN_TIME.items():
        begins, ends = (_years(dates.get(name)) for name in (first, last))
        if begins and ends:
            return ends[1] < begins[0] or ends[0] - begins[1] > longest
    return False


def _years(date: object) -> tuple[int, int] | None:
    """Return the first and the last possible year of a date, or None if it has none."""
    found = re.match(r"(-?)([0-9X]{4})", date.edtf) if isinstance(date, DateValue) else None
    if not found:
        return None
    years = sorted(int(found[1] + found[2].replace("X", digit)) for digit in "09")
    return years[0], years[1]


def _rounded(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 4)
