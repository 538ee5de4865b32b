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

KINSHIP = (  # nouns, and the relations of a person who is named after "NOUN of"
    (r"\w+\s?-\s?in\s?-\s?laws?|nephews?|nieces?|uncles?|aunts?|cousins?", ()),
    (
        r"(?:grand|god)\s?-?\s?(?:sons?|daughters?|child|children|fathers?|mothers?|parents?|nephews?|nieces?)",
        (),
    ),
    (r"(?:step)?(?:sons?|daughters?|child|children)|heir(?:ess)?", ("father", "mother", "parent")),
    (r"father|mother|parents?", ("child",)),
    (r"brothers?|sisters?|siblings?|twin", ("sibling",)),
    (r"husband|wife|wives|spouse|widow|widower|consort", ("spouse", "partner")),
)
KIN_OF = re.compile(  # perhaps with words and titles before the name: "son of the late King"
    rf"\b(?:{'|'.join(f'({noun})' for noun, _ in KINSHIP)})\s+of\s+(?:[a-z-]+\s+){{0,4}}(?:[A-Z][a-z]+\.?\s+){{0,2}}\Z"
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


def is_other_kin(relation: str, before: str, behind: str) -> bool:
    """Whether the text around a name says another kinship than this relation. Two parents may be a
    couple.
    """
    kin = KIN_OF.search(before)
    if kin is None or relation == "relative":
        return False
    allowed = KINSHIP[(kin.lastindex or 1) - 1][1]
    is_couple = (
        "parent" in allowed and relation in ("spouse", "partner") and OTHER_PARENT.match(behind)
    )
    return relation not in allowed and not is_couple
