"""Coordination: a phrase that is one of several in "an actress, inventor and film producer" becomes all of them.

Only what is written is read: a list of like items whose last one follows "and" or "or". Nothing is parsed.
"""

import re

MOST_WORDS = 5  # of an item
COMMA, LAST = r"\s*,\s+", r"\s*,?\s+(?:and|or|as well as)\s+|\s*&\s*"
SEPARATOR = re.compile(rf"{LAST}|{COMMA}")
ENDS_A_LIST = re.compile(LAST)
WORD = r"[^\s,;:.!?()\[\]\"“”&]+(?:(?<=\b[A-Z])\.)?"  # with the full stop of an initial
ITEM = re.compile(rf"{WORD}(?:[ \u00a0]{WORD}){{0,{MOST_WORDS - 1}}}")
PARTICLES = "(?:of|the|de|del|van|von|der|la|le|du|al|bin)"
NAME = re.compile(rf"{WORD}(?:[ \u00a0](?:{PARTICLES} )*(?=[^a-z]){WORD})*")
# No item begins with these: what follows is another clause, or says more of what was before.
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
WORDS_BEFORE = re.compile(rf"(?:{WORD}[ \u00a0])*{WORD}\Z")


def conjuncts(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return characters [start, end) of all items of the list that a phrase is or belongs to; without a list, its own.

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
    """Return the items of a phrase that is itself a list; else the phrase."""
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
    """Whether a text is an item beside one that begins with a capital letter, or does not."""
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
