"""Statements: tell what the words around a value say of it: that it is so, that it is not, or of
whom it is so.

Sentences are not parsed: the rules are few, and say something only where a plain form of words
stands right before the value. A value that they rule out is no answer.
"""

import re

from kbq.answers import Answer
from kbq.english.countries import ADJECTIVES
from kbq.english.kinship import (
    KIN_WORDS,
    NAME,
    RELATIVES,
    is_kin_behind,
    is_other_kin,
    is_own_name,
)
from kbq.text.answer_scores import normalise_answer
from kbq.text.normal_forms import normalised
from kbq.text.queries import Query, relation_key

# Characters on either side of a value that may be its sentence, or its clause.
SENTENCE = 240
CLAUSE = 80

DENIED = (
    r"\b(?:not|never|no longer|neither|nor|cannot|\w+n['’]t|(?:refus|declin|fail)(?:ed|es|s|ing)? to"
    r"|den(?:ied|ies|ying)|turn(?:ed|s)? down|reject(?:ed|s)|instead of|rather than"
    # "Nor was it designed by"; not the title "Never Let Me Go".
    r"|(?:Nor|Neither|Never)\s(?:was|were|is|are|did|do|does|has|have|had|can|could|will|would)\b"
    r"(?:\s(?:he|she|it|they)\b)?)"
)
# "Not only", "not until 1990", "not far from": these deny nothing.
NO_DENIAL = r"(?!\s(?:only|just|merely|simply|until|till|long|later|earlier|far|least|less|more|fewer|without|to)\b)"
OTHER_CLAUSE = (
    r"but|although|though|until|till|before|except|because|since|after|while|whereas|only|yet|who|whom|whose|which"
    r"|where|when|that|whether|he|she|they|it|left|leave|leaving|lost|exceed(?:ed|s)?|stopped|ceased"
    # "He never married and worked for", not "it was not designed and built by".
    r"|and\s(?!raised|bred|educated|baptised|buried)(?:\w+ed|became|died|taught|went|took|wrote)(?!\sby\b)"
)
DENIAL = re.compile(rf"{DENIED}{NO_DENIAL}(?:\s(?!(?:{OTHER_CLAUSE})\b)[^\s.,;:!?()]+){{0,8}}\s\Z")
# "designed by Ann Dorn and not, as is often said, by".
DENIAL_ASIDE = re.compile(
    r"\b(?:not|never),\s(?:as|contrary|despite|whatever|though)\b[^,.;:!?]{2,60},\s(?:[a-z]+\s){0,3}\Z"
)
IN_DOUBT = re.compile(
    r"\b(?:unknown|unclear|uncertain|not known) (?:if|whether|where|when|who)\b[^.;:!?]*\Z"
)

KIN = (
    r"(?:(?:step|grand|god|great-grand)?(?:father|mother|parents?|son|sons|daughter|daughters)|brothers?|sisters?"
    r"|husband|wife|widow|widower|uncle|aunt|cousin|nephew|niece|twin)(?:-in-law)?"
)
PRONOUN = r"(?:[Hh]e|[Ss]he|[Ii]t|[Tt]hey|[Hh]is|[Hh]er|[Ii]ts|[Tt]heir)"
# "He was the son of Emil Dorn, who was born in": what follows is said of Emil Dorn.
RELATIVE_CLAUSE = re.compile(
    rf"(?P<main>[^.;:!?]*?)\b(?:{KIN}(?:\sof)?|married(?:\sto)?|met|by|with)\s(?P<name>{NAME}),?\s(?:who|whose)\s"
    r"(?P<clause>[^.,;:!?]*)\Z"
)
# "Her father, a merchant from"; "his wife Ann was born in".
OF_KIN = re.compile(
    rf"(?:(?P<apposed>{NAME}),\s)?(?<!\band )\b(?:[Hh]is|[Hh]er|[Tt]heir|[Ww]hose|[A-Z]\w*['’]s)"
    rf"\s(?:[a-z-]+\s){{0,2}}?{KIN}(?:,?\s(?P<name>{NAME}))?,?"
    r"\s(?:was|were|is|are|had been|has been|worked|died|lived|born|an?|the|who)\s(?P<clause>[^.,;:!?]{0,80})\Z"
)
# "Pia Holm was the first wife of": whose kin the value is.
KIN_OF_NAMED = re.compile(
    rf"(?:\A|[.!?]\s)(?P<name>{NAME})\s(?:was|is|became)\s(?:the\s|an?\s)?(?:[a-z]+\s){{0,2}}{KIN}"
    r"\sof\s(?:the\s(?:late\s)?)?\Z"
)
# "founded by Emil's father": by Emil, it was not.
KIN_OF_VALUE = re.compile(rf"['’]s?\s(?:[a-z-]+\s){{0,2}}?{KIN}\b")
# "Pia Holm was the first wife of Sven Dahl": of nobody else.
SPOUSE_OF_NAMED = re.compile(
    r"\s(?:was|is|became)\s(?:the\s|an?\s)?(?:[a-z]+\s){0,2}(?:wife|husband|widow|widower|spouse|consort)"
    rf"\sof\s(?:[a-z]+\s){{0,3}}(?P<name>{NAME})"
)
# "a daughter of Hubert and his wife": whose wife is named.
PARENTS_OF = re.compile(
    rf"\b(?:sons?|daughters?|child|children)\sof\s(?P<name>{NAME})(?:,[^,.;]*,)?\sand\s(?:his|her)"
    r"\s(?:[a-z]+\s){0,2}(?:wife|husband),?\s\Z"
)
# "the son of Emil and his wife Ann".
COUPLE = re.compile(r"\s*(?:\([^()]*\))?(?:,[^,.]*,)?\s*(?:and|by)\b")
AHEAD = 60  # characters after a value that may name the subject
# "the son of Emil Dorn, 3rd Baron Dorn, and his wife Ann Dorn".
HIS_WIFE = re.compile(
    rf"[^.;:!?]{{0,{AHEAD}}}?\b(?:and|by)\s(?:his|her)\s(?:[a-z]+\s){{0,2}}(?:wife|husband),?\s(?:the\sformer\s)?"
    rf"(?P<name>{NAME})"
)

EARLIER = frozenset(
    {"predecessor", "replaces", "follows", "preceded by", "previous", "after a work by"}
)
LATER = frozenset({"successor", "replaced by", "followed by", "succeeded by", "next"})
_TITLES = (
    r"(?:(?:the|his|her|its|Sir|Lord|Lady|Dr\.?|King|Queen|Bishop|Pope|Mr\.?|Mrs\.?|[a-z]+)\s){0,2}"
)
SAYS_EARLIER = re.compile(
    r"(?:(?<!was )(?<!were )(?<!is )(?<!be )(?<!been )\b(?:succeed(?:ed|s|ing)|replac(?:ed|es|ing)"
    r"|supersed(?:ed|es|ing))|\bsuccessor (?:of|to)|\btook over from|\bpreceded by"
    r"|\bpredecessor(?:,| was| is| had been)?)"
    rf"\s(?!by\b){_TITLES}\Z"
)
SAYS_LATER = re.compile(
    r"\b(?:(?:succeeded|replaced|followed|superseded) by|predecessor (?:of|to)|preced(?:ed|es|ing)(?! by)"
    rf"|handed (?:over|on) to|successor(?:,| was| is| would be)?)\s(?!of\b|to\b){_TITLES}\Z"
)
_SEVERAL = re.compile(  # what a name may mean
    r"\A.{0,120}?\b(?:(?:may|can|could|might) (?:also )?(?:refer|stand|be used) (?:to|for)"
    r"|(?:is|are) the names? of (?:several|two|three|many|a number of)|(?:has|have) several meanings)\b",
    re.DOTALL,
)
_NO_NAMES = frozenset(
    (
        "the", "he", "she", "it", "they", "his", "her", "in", "at", "a", "an", "mr", "mrs", "ms",
        "miss", "mlle", "mme", "dr", "prof", "sir", "dame", "lord", "lady", "king", "queen",
    )
)  # fmt: skip
_REDIRECT = re.compile(r"\A\s*#?\s?redirect(?:s|ion)?:?\s*(?:to\b|\[\[|→)", re.IGNORECASE)
PRONOUNS = re.compile(  # neither "US", nor the novel "It"
    r"[Hh]e|[Ss]he|it|[Tt]hey|[Hh]im(?:self)?|[Hh]ers?|herself|[Hh]is|its|itself|them|themselves|[Tt]heirs?"
    r"|th(?:is|at|ese|ose)|who|whom|whose"
)
DIRECTIONS = r"(?:north|south|east|west)(?:-?(?:east|west))?(?:ern)?"
NEAR_IT = re.compile(  # "Döbling near": the place is Döbling; "born near Vienna" names no other one
    rf"[A-Z][\w'’.-]+,? (?:near|close to|not far from|just outside|outside of|{DIRECTIONS} of) (?:the )?$"
)
IS_SAID_OF_IT = re.compile(
    r"\b(?:is|was|are|were)\s+(?:an?|the|one of the)\s+(?:[\w'’-]+,?\s+){0,3}$"
)
ABOUT_NAMES = ("name", "surname", "title", "label", "pseudonym", "called", "nickname")


def is_ruled_out(query: Query, answer: Answer) -> bool:
    """Whether an answer to a slot query cannot be right, going by its words and those around it.
    Answers to questions always may.

    >>> def is_possible(query: str, text: str, before: str = "") -> bool:
    ...     context = before + text
    ...     answer = Answer(text, 0.0, "1", "T", 0, len(before), len(context), context, (0, 1))
    ...     return not is_ruled_out(Query.of(query), answer)
    >>> is_possible("Ada Lovelace [SEP] occupation", "only child")
    False
    >>> is_possible("Marie Skłodowska-Curie [SEP] spouse", "Mrs Skłodowska")
    False
    >>> [is_possible("A [SEP] residence", "Vienna", before) for before in ("in Döbling near ", "near ")]
    [False, True]
    >>> context, query = "It was founded by Emil's late father.", Query.of("Acme [SEP] founded by")
    >>> is_ruled_out(query, Answer("Emil", 0.0, "1", "T", 0, 18, 22, context, (0, 1)))
    True
    >>> said = "Bo is the son of the late Queen "
    >>> [is_possible(f"Bo [SEP] {kin}", "Ann", said) for kin in ("mother", "child", "spouse")]
    [True, False, False]
    """
    if not query.is_slot:
        return False
    relation = relation_key(query.relation)
    is_kinship = relation in RELATIVES
    sentence = answer.context[max(0, answer.start - SENTENCE) : answer.start]
    clause = sentence[-CLAUSE:]
    behind = answer.context[answer.end : answer.end + SENTENCE]
    if is_nobody(answer.text) or is_subject(query.subject, relation, answer.text):
        return True
    if is_denied(sentence) or is_other_direction(relation, sentence) or NEAR_IT.search(clause):
        return True
    if relation == "country" and is_country_of_another(answer.text, clause):
        return True
    if is_kinship:
        is_kin = is_kin_behind(query.subject, relation, behind[:CLAUSE])
        if is_kin is not None:
            return not is_kin
        if is_other_kin(relation, clause, behind[:CLAUSE]):
            return not is_wife_named(query.subject, relation, behind)
    if KIN_WORDS.isdisjoint(relation.split()) and KIN_OF_VALUE.match(behind):
        return True
    return is_said_of_another(query.subject, relation, sentence, behind, is_kinship)


def is_nobody(text: str) -> bool:
    """Whether a text names nothing: a pronoun, or words for a kinship, which tell whose kin the
    subject is, not what.

    >>> [is_nobody(text) for text in ("she", "only child", "Only Child", "US")]
    [True, True, False, False]
    """
    is_kin = text == text.lower() and not KIN_WORDS.isdisjoint(text.split()[-1:])
    return is_kin or bool(PRONOUNS.fullmatch(text))


def is_country_of_another(text: str, before: str) -> bool:
    """Whether an adjective of a country is said of something that a text mentions: "an Austrian
    writer" on the page of a town.

    >>> [is_country_of_another("Austrian", before) for before in ("home of an ", "Linz is an ")]
    [True, False]
    """
    return normalise_answer(text) in ADJECTIVES and not IS_SAID_OF_IT.search(before)


def is_subject(subject: str, relation: str, text: str) -> bool:
    """Whether a value that is no name says no more than the subject itself or, of a relative, no
    more than a part of its name.

    >>> is_subject("Siemens", "employer", "Siemens"), is_subject("Siemens", "short name", "Siemens")
    (True, False)
    """
    value = normalised(text).split()
    if not value or any(word in relation.split() for word in ABOUT_NAMES):
        return False
    is_whole = value == normalised(subject).split()
    return is_whole or (relation in RELATIVES and is_own_name(subject, value))


def is_no_thing(title: str, text: str) -> bool:
    """Whether a page that begins so is none of a thing: it lists what a name may mean, or leads to
    another page.

    >>> is_no_thing("Mercury", "Mercury may refer to: Mercury (planet)"), is_no_thing("A", "#REDIRECT [[B]]")
    (True, True)
    >>> is_no_thing("Mercury (planet)", "Mercury is a planet. Its name may refer to a god.")
    False
    """
    first = text.partition("\n")[0]
    is_list = title.casefold().endswith("(disambiguation)")
    return is_list or bool(_REDIRECT.match(first) or (_SEVERAL.match(first.partition(". ")[0])))


def is_denied(before: str) -> bool:
    """Whether the words before a value deny it, or call it unknown.

    >>> [is_denied(text) for text in ("She never played for ", "He did not study at Oslo but at ", "not only in ")]
    [True, False, False]
    """
    return any(form.search(before) for form in (DENIAL, DENIAL_ASIDE, IN_DOUBT))


def is_said_of_another(
    subject: str, relation: str, before: str, behind: str, is_kinship: bool
) -> bool:
    """Whether the words before a value say it of somebody else than the subject, who is not named
    after it either.

    `is_kinship`: whether the relation is one, such as father or spouse.

    >>> is_said_of_another("Karl Dorn", "birthplace", "He was the son of Emil Dorn, who was born in ", "Riga.", False)
    True
    >>> is_said_of_another("Liv Dahl", "spouse", "Pia Holm was the first wife of ", "Sven Dahl.", True)
    True
    """
    own = normalised(subject).split()
    is_named_behind = _names(behind[:AHEAD].partition(".")[0], own, with_pronouns=False)
    if "name" in relation:
        return False
    if is_named_behind and (not is_kinship or COUPLE.match(behind)):
        return False
    if is_kinship:
        named = KIN_OF_NAMED.search(before)
        if relation in ("spouse", "partner"):
            named = named or SPOUSE_OF_NAMED.match(behind) or PARENTS_OF.search(before)
        return named is not None and _is_another(named["name"], own)

    clause = RELATIVE_CLAUSE.search(before)
    if clause and _is_another(clause["name"], own) and _names(clause["main"], own):
        return not _names(clause["clause"], own)
    kin = OF_KIN.search(before)
    if not kin or _names(kin["clause"], own):
        return False

    return all(_is_another(name, own) for name in (kin["apposed"], kin["name"]) if name)


def is_wife_named(subject: str, relation: str, behind: str) -> bool:
    """Whether the words after a value say that the subject is the wife or the husband.

    >>> is_wife_named("Ann Dorn", "spouse", ", 3rd Baron Dorn, and his second wife, Ann Dorn.")
    True
    """
    if relation not in ("spouse", "partner"):
        return False
    named = HIS_WIFE.match(behind)
    return named is not None and not _is_another(named["name"], normalised(subject).split())


def is_other_direction(relation: str, before: str) -> bool:
    """Whether the words before a value make it the successor where a predecessor is asked for, or
    the other way round.

    >>> is_other_direction("successor", "Ben Ashby succeeded "), is_other_direction("successor", "He was succeeded by ")
    (True, False)
    """
    if relation in LATER:
        return bool(SAYS_EARLIER.search(before))
    return relation in EARLIER and bool(SAYS_LATER.search(before))


def _is_another(name: str, own: list[str]) -> bool:
    """Whether a name begins with no word of the subject's, nor with the letter of an initial."""
    words = normalised(name).split()
    while words and words[0] in _NO_NAMES:
        words = words[1:]
    initials = {word[0] for word in own if len(word) == 1}
    return bool(words and own) and words[0] not in own and words[0][0] not in initials


def _names(text: str, own: list[str], with_pronouns: bool = True) -> bool:
    """Whether a text has a word of the subject's name, or a pronoun."""
    if with_pronouns and re.search(rf"\b{PRONOUN}\b", text):
        return True
    return not set(own).isdisjoint(normalised(text).split())
