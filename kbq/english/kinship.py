"""Kinship: tell whose kin the words around a name make it."""

import re
from collections.abc import Sequence

from kbq.text.normal_forms import IN_BRACKETS, normalised

RELATIVES = frozenset(
    {"spouse", "partner", "father", "mother", "parent", "child", "sibling", "relative"}
)
KIN_WORDS = RELATIVES | {"son", "daughter", "wife", "husband", "brother", "sister", "twin"}

TITLES = frozenset(
    {"mr", "mrs", "ms", "miss", "dr", "prof", "professor", "sir", "dame", "lord", "lady"}
)

_PARENTS = ("father", "mother", "parent")
_SPOUSES = ("spouse", "partner")
KINSHIP = (  # nouns, the relations of a person who is named after "NOUN of", and of who is the NOUN
    (r"\w+\s?-\s?in\s?-\s?laws?|nephews?|nieces?|uncles?|aunts?|cousins?", (), ()),
    (
        r"(?:grand|god)\s?-?\s?(?:sons?|daughters?|child|children|fathers?|mothers?|parents?|nephews?|nieces?)",
        (),
        (),
    ),
    (r"(?:step)?(?:sons?|daughters?|child|children)|heir(?:ess)?", _PARENTS, ("child",)),
    (r"father|mother|parents?", ("child",), _PARENTS),
    (r"brothers?|sisters?|siblings?|twin", ("sibling",), ("sibling",)),
    (r"husband|wife|wives|spouse|widow|widower|consort", _SPOUSES, _SPOUSES),
)
_NOUNS = f"(?:{'|'.join(f'({noun})' for noun, _, _ in KINSHIP)})"
_NAME_WORD = r"(?:[A-Z]\.|St\.|[A-Z][\w'’-]*)"
NAME = rf"{_NAME_WORD}(?:\s(?:(?:of|de|van|von|der|la|the)\s)*{_NAME_WORD})*"
KIN_OF = re.compile(  # perhaps with words and titles before the name: "son of the late King"
    rf"\b{_NOUNS}\s+of\s+(?:[a-z-]+\s+){{0,4}}(?:[A-Z][a-z]+\.?\s+){{0,2}}\Z"
)
# Text after a name whose kin is named: ", whose daughter Ann"; "'s son-in-law, Bo"; ". Their son Bo".
HAS_KIN = re.compile(
    r"(?:,?\s(?:and\s|with\s)?(?:whose|his|her|their)|\.\sTheir|['’]s?)"
    rf"\s(?:[a-z]+\s){{0,2}}?{_NOUNS},?\s(?P<name>{NAME})"
)
# Text after a name that is somebody's kin: ", was a cousin of Ann".
IS_KIN = re.compile(
    rf",?\s(?:was|is|became)\s(?:an?\s|the\s)?(?:[a-z]+\s){{0,2}}?{_NOUNS}\sof\s(?P<name>{NAME})"
)
# Text after a parent: "the child of Ann and Bo".
OTHER_PARENT = re.compile(r"\s*(?:\([^()]*\)\s*)?and\s")


def is_own_name(subject: str, value: Sequence[str]) -> bool:
    """Whether the words of a value, perhaps after a title, are words of the subject's own name, in
    its order.
    """
    name = normalised(IN_BRACKETS.sub("", subject)).split()
    words = list(value)
    if words[0] in TITLES and len(words) > 1:
        words = words[1:]
    return any(name[first : first + len(words)] == words for first in range(len(name)))


def is_kin_behind(subject: str, relation: str, behind: str) -> bool | None:
    """Whether the text after a name says this relation of the subject, or another one, if it says
    whose kin the subject is.

    >>> is_kin_behind("Una Holm", "mother", ", whose daughter Una sang")
    True
    >>> is_kin_behind("Una Holm", "child", ", whose daughter Una sang"), is_kin_behind("Bo", "child", " and Una")
    (False, None)
    """
    if relation == "relative":
        return None
    for form, of_whom in ((HAS_KIN, 1), (IS_KIN, 2)):
        named = form.match(behind)
        name = normalised(named["name"]).split() if named else []
        if named and name and is_own_name(subject, name):
            return relation in KINSHIP[_noun_of(named)][of_whom]
    return None


def is_other_kin(relation: str, before: str, behind: str) -> bool:
    """Whether the text around a name says another kinship than this relation. Two parents may be a
    couple.
    """
    kin = KIN_OF.search(before)
    if kin is None or relation == "relative":
        return False
    allowed = KINSHIP[_noun_of(kin)][1]
    is_couple = (
        "parent" in allowed and relation in ("spouse", "partner") and OTHER_PARENT.match(behind)
    )
    return relation not in allowed and not is_couple


def _noun_of(found: re.Match[str]) -> int:
    """Return the place in `KINSHIP` of the noun that a pattern found."""
    return next(number for number in range(len(KINSHIP)) if found[number + 1])
