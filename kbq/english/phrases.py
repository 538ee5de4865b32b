"""Phrases: cut an answer to the value that it states: an item of a list, a whole name, a noun that
others narrow.

A list in the text is like items, the last of them after "and" or "or"; sentences are not parsed.
What may be the name of one thing ("Bosnia and Herzegovina", "Vane & Lorimer", "Joel and Ethan
Coen") is no list.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from kbq.answers import Answer, is_likely
from kbq.english.countries import ADJECTIVES, NAMES, countries_of_the_world
from kbq.english.dates import date_around
from kbq.english.quantities import Measure, as_measure, quantity_around
from kbq.text.answer_scores import normalise_answer
from kbq.text.normal_forms import normalised

# Kinds of things that a relation may have.
Things: TypeAlias = Literal["places", "kin", "persons", "others"]
IsName: TypeAlias = Callable[[str], bool]  # whether a text is the title of a page

FIXED_NAMES = Path(__file__).with_name("names_with_and.txt")
# Nouns of organisations: two of them are two organisations, but "Food and Drug Administration" is
# one.
HEADS = re.compile(
    r"(?:Academ|Administration|Agenc|Alliance|Association|Bank|Board|Bureau|Cent(?:er|re)|Church|Club|College|Commission"
    r"|Committee|Compan|Conservator|Corporation|Council|Department|Foundation|Hospital|Institut|Laborator|Librar"
    r"|Ministr|Museum|Office|Part(?:y|ies)|School|Service|Societ|Trust|Union|Universit)\w*\Z"
)
AROUND = 40  # characters around a sign that may hold the names it joins
BLANKS = re.compile(r"[ \u00a0]")

MOST_WORDS = 5  # words of an item
COMMA = r"\s*,\s+"
LAST = r"\s*,?\s+(?:and|or|as well as)\s+|\s+&\s+"
SEPARATOR = re.compile(rf"{LAST}|{COMMA}")
ENDS_A_LIST = re.compile(LAST)
WORD = r"[^\s,;:.!?()\[\]\"“”&]+(?:(?<=\b[A-Z])\.)?"  # includes the full stop of an initial
ITEM = re.compile(rf"{WORD}(?:[ \u00a0]{WORD}){{0,{MOST_WORDS - 1}}}")
PARTICLES = "(?:of|the|de|del|van|von|der|la|le|du|al|bin)"
NAME = re.compile(rf"{WORD}(?:[ \u00a0](?:{PARTICLES} )*(?=[^a-z]){WORD})*")
LAST_NAME = re.compile(rf"(?<!\S)(?=[^a-z\s]){NAME.pattern}\Z")
LAST_PARTICLE = re.compile(r"\b(?:of|de|den|van|von|der|la|le|du|al|bin|ibn|ter|zu)[ \u00a0]\Z")
LAST_FIXED_NAME = re.compile(r"[^\s_]+_(?:and|[+]|['’]?n['’]?)_\S+\Z")
# These begin no item, but another clause, or more about the last one.
OPENS_NO_ITEM = re.compile(
    r"(?:was|were|is|are|had|has|have|he|she|it|they|who|whom|whose|which|that|where|when|while|then|later|also|but|"
    r"became|began|made|went|left|won|wrote|taught|gave|took|born|in|on|at|of|for|with|by|from|to|as|his|her|its|their|"
    r"\w+ed|\w+ly)\b"
)
ENDS_AN_ITEM = re.compile(
    r"(?:[ \u00a0]|\A)(?:in|on|at|of|for|with|by|from|to|as|who|whom|whose|which|that|where|when|while|was|were|"
    r"is|are|had|has|through|into|between|over|across|via|about|like|including|include|includes|"
    r"during|after|before|since|until|under|best|known|born)(?=[ \u00a0])"
)
ARTICLE = re.compile(r"(?:an?|the)[ \u00a0]")
ANY_ARTICLE = re.compile(r"\b(?:an?|the)[ \u00a0]")
SEPARATOR_BEFORE = re.compile(rf"(?:{LAST}|{COMMA})(?:(?:an?|the)[ \u00a0])?\Z")
# Or an adjective that may narrow one.
NOUN = re.compile(r"(?!\w+ly\b)(?!(?!mixed)\w+ed\b)[a-z]+(?:-[a-z]+)*")
NO_NOUN = re.compile(
    r"and|or|of|in|on|at|for|with|by|from|to|as|into|under|over|like|including|both|either|another|other|such|some|"
    r"this|that|would|he|she|it|they|his|her|its|their|who|which|was|were|is|are|been|has|had|one|two|three|several|"
    r"brother|sister|wife|husband|son|daughter|father|mother|met|saw|left|won|wrote|taught|went|made|took|found|then|"
    r"later|not|also|when|while|before|during|through|rules"  # "rules" of Australian rules football
)
OPENS_A_NOUN = re.compile(
    r"an?|the|former|retired|current|young|prominent|famous|noted|notable|renowned|celebrated|leading|influential|"
    r"prolific|successful|important|acclaimed|eminent|distinguished|respected|pioneering|versatile|male|female|"
    r"last|only|original|able|best|greatest|largest|smallest|oldest|youngest|finest|earliest|biggest|richest|.*-born",
    re.IGNORECASE,
)
# Behind "first", these are a rank, a post or a place in a game, and otherwise it says nothing.
RANKED = re.compile(
    r"(?:base|basem[ae]n|lady|lieutenant|lord|mate|minister|officer|row|sea|secretary|sergeant|violin|violinist)\b",
    re.IGNORECASE,
)
# Ends of nouns for what somebody does, and some that have none of these.
DOER = re.compile(
    r"(?:er|or|ar|ist|ian|man|woman|men|person|ant|ent|ess|eur|ect|lete|ate|[^ae]ic|ot|yst|eon|ard|wright|smith|naut|crat"
    r"|mat|ee|ath|ast|poet|chef|cook|coach|judge|monk|nun|priest|bishop|model|nurse|king|queen|prince|knight|clerk|chief"
    r"|host|spy|jockey|captain|colonel|general|admiral|marshal|pope|rabbi|imam|saint|star|guide|aide|rebel|executive"
    r"|official|socialite|secretary|attorney|mason)s?\Z"
)
NO_DOERS = frozenset(("character", "computer", "popular", "soccer", "theater", "water", "winter"))
MOST_NOUNS = 3  # nouns before the last of an occupation
WORDS = re.compile(r"\S+\s+")
BARE = re.compile(r"the\s+(?=[^\W\d_a-z])")
WORDS_BEFORE = re.compile(rf"(?:{WORD}[ \u00a0])*{WORD}\Z")
CONVERTED = re.compile(r"(?P<quantity>[^()]*[0-9][^()]*[^\s()])\s*\(\s*[^()]*[0-9][^()]*\)")
# Share of a probability for the other items of a list, some of which belong to another verb.
ITEM_SHARE = 0.95
ORDINAL = r"(?:\d+(?:st|nd|rd|th)|First|Second|Third)"
REST_OF_A_NAME = re.compile(
    rf"\s?,?\s(?:Jr|Sr)\b\.?|\s?,\s{ORDINAL}(?: of(?= [A-Z])| [A-Z][\w'’-]+)+"
)
# Article before a word, not before "1".
_ARTICLE = re.compile(r"\A(?:the|an?)\s+(?=\S*[^\W\d_]{2})", re.IGNORECASE)
_AND = re.compile(r"\s*&\s*|(?<=\w)\s+(?:['’`´]n['’`´]?|n['’`´])\s+(?=\w)", re.IGNORECASE)


def conjuncts(
    text: str, start: int, end: int, things: Things = "others", is_name: IsName = bool
) -> list[tuple[int, int]]:
    """Return characters [start, end) of all items of the list that a phrase is or belongs to, or of
    the phrase alone.

    A phrase that is a part of one name becomes the whole name.

    >>> text = "She was an actress, inventor and film producer."
    >>> [text[slice(*place)] for place in conjuncts(text, 11, 18)]
    ['actress', 'inventor', 'film producer']
    >>> text = "He married Ann Lee and moved to Bonn."
    >>> [text[slice(*place)] for place in conjuncts(text, 11, 18)]
    ['Ann Lee']
    >>> text = "It is in Bosnia and Herzegovina."
    >>> [text[slice(*place)] for place in conjuncts(text, 9, 15)]
    ['Bosnia and Herzegovina']
    """
    start, end = whole_fixed_name(text, start, end)
    hidden = with_names_as_words(text, things)
    is_upper = text[start].isupper()
    before = _items_before(hidden, start, is_upper)
    behind = _items_behind(hidden, end, is_upper)
    found = [*before, *_within(hidden, start, end), *behind]
    if len(found) < 2 or not ENDS_A_LIST.search(hidden, found[0][0], found[-1][1]):
        return [(start, end)]
    items = [text[slice(*place)] for place in found]
    if _share_a_noun(items):
        return [(min(start, found[0][0]), max(end, found[-1][1]))]
    if is_upper and things == "persons" and _share_a_surname(items, text, found[0][0]):
        return [(found[0][0], found[-1][1])]
    if not is_upper or _are_items(items, things, is_name):
        return found
    return [(start, end)]


def _share_a_surname(items: Sequence[str], text: str, start: int) -> bool:
    """Whether these are the names of two with one surname: Joel, Ethan Coen.

    The first, which begins at `start`, may be the end of a longer name, or a surname itself.

    >>> [_share_a_surname(["Bo", "Ann Lee"], text, text.rindex("Bo")) for text in ("by Bo and", "by Al Bo. Bo and")]
    [True, False]
    """
    if [bool(BLANKS.search(item)) for item in items] != [False, True]:
        return False
    # "Al Bo", "Al of Bo", "(Al Bo".
    whole = re.search(rf"\b[A-Z][\w.'’-]*[ \u00a0](?:{PARTICLES} )*{re.escape(items[0])}\b", text)
    return whole is None and not LAST_PARTICLE.search(text, 0, start)


def _share_a_noun(items: Sequence[str]) -> bool:
    """Whether the first items narrow the noun of the last, an occupation: film, television actor.

    >>> _share_a_noun(["film", "television actor"]), _share_a_noun(["singer", "television actor"])
    (True, False)
    """
    *others, last = items
    is_narrowed = bool(BLANKS.search(last)) and last[0].islower() and _is_doer(last)
    return is_narrowed and not any(_is_doer(other) for other in others)


def _is_doer(item: str) -> bool:
    word = BLANKS.split(item)[-1]
    return word not in NO_DOERS and bool(DOER.search(word))


def _are_items(items: Sequence[str], things: Things, is_name: IsName) -> bool:
    """Whether capitalised items are each a thing, and not together the name of one."""
    if things == "places":
        return True
    if all(_is_known(item) or is_name(item) for item in items):
        return True
    are_long = [bool(BLANKS.search(item)) for item in items]
    if all(are_long):
        have_heads = [bool(HEADS.search(item)) for item in items]
        return things != "others" or all(have_heads) or not have_heads[-1]
    if things == "kin":
        return not any(are_long)
    return things == "others" and len(items) > 2


def _is_known(item: str) -> bool:
    words = normalise_answer(item)
    return words in NAMES or words in ADJECTIVES


def whole_fixed_name(text: str, start: int, end: int) -> tuple[int, int]:
    """Return characters [start, end) of the name with "and" in it to which a phrase belongs, or its
    own.
    """
    for name in _fixed_names().finditer(text):
        if name.start() <= start and end <= name.end():
            return name.span()
    return start, end


def with_names_as_words(text: str, things: Things) -> str:
    """Return a text, as long as before, in which each name with "and" or "&" in it is one word."""
    text = _fixed_names().sub(lambda name: re.sub(r"[\s,&.]", "_", name[0]), text)
    for sign in re.finditer(" & ", text):
        left = text[max(0, sign.start() - AROUND) : sign.start()].split(" ")[-2:]
        right = text[sign.end() : sign.end() + AROUND].split(" ")[:2]
        is_full = len(left) == len(right) == 2 and all(
            word[:1].isupper() for word in (*left, *right)
        )
        is_name = left[-1][:1].isupper() or right[0][:1].isupper()
        if is_name and not (is_full and things in ("kin", "persons")):
            text = f"{text[: sign.start()]}_&_{text[sign.end() :]}".replace("_&_", "_+_")
    return text


@cache
def _fixed_names() -> re.Pattern[str]:
    """Return what matches names with "and" in them, also written with "&" or "'n'"."""
    lines = FIXED_NAMES.read_text("utf-8").splitlines()
    names = [line for line in lines if not line.startswith("#")]
    countries = [
        name for country in countries_of_the_world() for name in country.names if " and " in name
    ]
    forms = []
    for name in sorted({*names, *countries}, key=len, reverse=True):
        words = re.escape(name).replace(r"\ and\ ", r"\s+(?:and|&|['’]?n['’]?)\s+")
        forms.append(words.replace(r"\ ", r"\s+"))
    return re.compile(rf"\b(?:{'|'.join(forms)})\b", re.IGNORECASE)


def _within(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the items of a phrase that is a list, or else the phrase."""
    places = []
    begin = start
    for separator in SEPARATOR.finditer(text, start, end):
        places.append((begin, separator.start()))
        begin = separator.end()
    places.append((begin, end))
    is_list = ENDS_A_LIST.search(text, start, end) and all(
        _is_item(text[slice(*place)], text[start].isupper()) for place in places
    )
    if is_list and not _share_a_noun([text[slice(*place)] for place in places]):
        return [_without_article(text, *place) for place in places]
    return [(start, end)]


def _items_behind(text: str, end: int, is_upper: bool) -> list[tuple[int, int]]:
    """Return the places of the items of a list that follow a phrase."""
    items: list[tuple[int, int]] = []
    is_last = False
    while not is_last and (separator := SEPARATOR.match(text, end)):
        begin, _ = _without_article(text, separator.end(), len(text))
        pattern = ITEM
        if is_upper:
            pattern = NAME
        item = pattern.match(text, begin)
        stops = [
            found.start()
            for form in (ENDS_A_LIST, ENDS_AN_ITEM)
            if item and (found := form.search(item.group()))
        ]
        stop = begin
        if item:
            stop = begin + min([len(item.group()), *stops])
        if not _is_item(text[begin:stop], is_upper):
            break
        items.append((begin, stop))
        end = stop
        is_last = bool(ENDS_A_LIST.fullmatch(separator.group()))

    return items if is_last else []


def _items_before(text: str, start: int, is_upper: bool) -> list[tuple[int, int]]:
    """Return the places of the items of a list that precede a phrase."""
    items: list[tuple[int, int]] = []
    while separator := SEPARATOR_BEFORE.search(text[:start]):
        stop = separator.start()
        words = WORDS_BEFORE.search(text[:stop])
        begin = words.start() if words else stop
        for form in (ENDS_AN_ITEM, ANY_ARTICLE):
            for found in form.finditer(text, max(0, begin - 1), stop):
                begin = max(begin, found.end() + (form is ENDS_AN_ITEM))

        pattern = LAST_FIXED_NAME
        if is_upper:
            pattern = LAST_NAME
        last = pattern.search(text, begin, stop)
        begin = last.start() if last else begin
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
    if article:
        start = article.end()
    return start, end


def each_of_several(
    answer: Answer, threshold: float, things: Things = "others", is_name: IsName = bool
) -> Iterator[Answer]:
    """Yield an answer or, if it is a likely list or an item of one, all items, the others with less
    probability.

    `things`: what the relation may have. `is_name`: whether a text is the title of a page.
    """
    own = answer.start, answer.end
    places = (
        conjuncts(answer.context, *own, things, is_name) if is_likely(answer, threshold) else [own]
    )
    if len(places) == 1:
        yield _cut(answer, *places[0])
        return
    if own in places:
        yield answer
    for start, end in places:
        if (start, end) != own:
            if answer.probability is None:
                chance = None
            else:
                chance = ITEM_SHARE * answer.probability
            yield replace(_cut(answer, start, end), probability=chance)


def first_of_several(answer: Answer) -> Answer:
    """Return the first item of an answer that is a list, or the answer.

    A capitalised item of one word is no item: it is part of a name, as in "Simon and Garfunkel".
    """
    hidden = with_names_as_words(answer.context, "persons")
    item = _cut(answer, *_within(hidden, answer.start, answer.end)[0])
    if item.end < answer.end and (item.text[0].islower() or " " in item.text):
        return item
    return answer


def whole_name_with_and(answer: Answer) -> Answer:
    """Return the whole name with "and" in it of which an answer is a part: "rock and roll" instead
    of "rock".
    """
    place = whole_fixed_name(answer.context, answer.start, answer.end)
    if place == (answer.start, answer.end):
        return answer
    return _cut(answer, *place)


def with_nouns(answer: Answer) -> Answer:
    """Return an occupation or a class with the nouns that narrow it: "racing driver" instead of
    "driver".

    They begin after an article, an adjective of a nationality, or one that says nothing of it.
    """
    words = WORDS.findall(answer.context, max(0, answer.start - 100), answer.start)
    following = answer.text
    for nouns, word in enumerate(map(str.strip, reversed(words))):
        opens = bool(OPENS_A_NOUN.fullmatch(word)) or word.casefold().split("-")[-1] in ADJECTIVES
        opens = opens or (word == "first" and not RANKED.match(following))
        following = word
        if opens or NO_NOUN.fullmatch(word) or not NOUN.fullmatch(word):
            start = answer.start - len("".join(words[len(words) - nouns :]))
            if opens and 0 < nouns <= MOST_NOUNS:
                return _cut(answer, start, answer.end)
            return answer
    return answer


def whole_name(answer: Answer) -> Answer:
    """Return a person with the rest of the name: "George Howard, 6th Earl of Carlisle", "Hank
    Williams, Jr.".
    """
    rest = REST_OF_A_NAME.match(answer.context, answer.end)
    if rest:
        return _cut(answer, answer.start, rest.end())
    return answer


def whole_quantity(answer: Answer, measures: Sequence[Measure] = ()) -> Answer:
    """Return a quantity with all that belongs to it: "more than 5,000", "3.2 million", "410 m below
    sea level", but without its conversion: "277 miles" of "277 miles (446 km)".

    `measures`: what its unit measures, or anything; other units are left out.
    """
    converted = CONVERTED.fullmatch(answer.text)
    if converted:
        answer = _cut(answer, answer.start, answer.start + converted.end("quantity"))
    found = quantity_around(answer.context, answer.start, answer.end)
    if found.quantity is None or as_measure(found.quantity, measures) != found.quantity:
        return answer
    if found.start > answer.start:
        return answer
    if found.end < answer.end:
        return answer
    return _cut(answer, found.start, found.end)


def whole_date(answer: Answer) -> Answer:
    """Return a day with all that says it: "7–8 May 1945", "7 November [O.S. 26 October] 1867"."""
    return _cut(answer, *date_around(answer.context, answer.start, answer.end))


def bare_name(answer: Answer) -> Answer:
    """Return an answer without the article of a name: "United States" instead of "the United
    States".
    """
    article = BARE.match(answer.context, answer.start, answer.end)
    if article:
        return _cut(answer, article.end(), answer.end)
    return answer


def _cut(answer: Answer, start: int, end: int) -> Answer:
    if (start, end) == (answer.start, answer.end):
        return answer
    return replace(answer, text=answer.context[start:end], start=start, end=end, unit=(start, end))


def compared_words(text: str) -> str:
    """Return the words of a value as they are compared: without a leading article, with "and" for
    "&" and "'n'".

    >>> compared_words("The Beatles"), compared_words("Simon & Garfunkel"), compared_words("Grade A")
    ('beatles', 'simon and garfunkel', 'grade a')
    """
    if "&" in text:
        text = html.unescape(text.strip())
    else:
        text = text.strip()
    return normalised(_ARTICLE.sub("", _AND.sub(" and ", text), count=1))
