"""Other queries: made from a knowledge base's own text, for what a query encoder is not tuned on.

They are slots, questions and mentions of things that the knowledge base names; whether it answers them does not matter.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from kbq.dump.shards import Shard
from kbq.model.queries import QueryTokenizer
from kbq.search.spans import reach
from kbq.text.markers import mention_in, slot_of

Kind = Literal["slot", "question", "mention"]
TURNS: tuple[Kind, ...] = ("slot", "question", "slot", "mention")
NAMES = """
    place of birth, date of birth, place of death, cause of death, spouse, child, father, mother, sibling, country
    of citizenship, ethnic group, religion, occupation, employer, educated at, academic degree, doctoral advisor,
    student of, field of work, notable work, award received, position held, political party, military branch,
    military rank, conflict, residence, native language, languages spoken, nickname, participant in, sport, position
    played, sports team, league, coach, home venue, captain, country, capital, continent, located in, shares border
    with, population, area, elevation, highest point, official language, currency, head of state, head of
    government, anthem, flag, time zone, mouth of the river, tributary, source of the river, mountain range, island
    group, author, publisher, genre, language of the work, main subject, characters, narrative location, followed
    by, preceded by, part of the series, based on, director, producer, screenwriter, cast member, composer,
    lyricist, performer, record label, instrument, voice type, release date, distributor, production company,
    original network, number of episodes, presenter, country of origin, creator, architect, architectural style,
    date of opening, owner, operator, named after, material, depicts, movement, collection, manufacturer, designer,
    developer, programming language, operating system, platform, license, industry, founder, year of foundation,
    headquarters location, chief executive officer, parent company, subsidiary, product, number of employees, stock
    exchange, chairperson, member of, subclass of, instance of, part of, has part, opposite of, used for, cause,
    effect, symptom, treatment, discoverer, year of discovery, chemical formula, atomic number, taxon rank, parent
    taxon, habitat, diet, conservation status, orbits around, crew, launch site, launch date, length, height,
    weight, top speed, fuel, route number, adjacent station, terminus, winner, runner-up, participants, host, date,
    location, organizer, number of deaths, commander, ally, jurisdiction, writing system, number of speakers,
    dialect of, patron saint, deity of, feast day, burial place, coat of arms, twin town, airport, postal code,
    motto
"""
RELATIONS = tuple(" ".join(NAMES.split()).split(", "))
QUESTIONS = (
    "what is the {relation} of {subject}?",
    "who is the {relation} of {subject}?",
    "which {relation} does {subject} have?",
    "where is the {relation} of {subject}?",
    "when was the {relation} of {subject}?",
    "{subject} {relation}",
)
EVERY = 5  # one relation in so many is watched; the others are learned not to be forgotten
NAMED_BY_TITLE = 0.5  # of the subjects; the others are phrases of the text
LONGEST_SUBJECT = 4  # rows of a phrase
AROUND = 60  # characters on either side of a mention
TRIES = 20  # for each query: the encoder reads some texts only


def other_queries(
    shards: Sequence[Shard],
    tokenizer: QueryTokenizer,
    tuned: Sequence[str],
    count: int,
    seed: int,
    watched: bool = False,
) -> list[str]:
    """Make queries of other relations than the `tuned` queries have and, unless these are slots, of other kinds.

    There are fewer than `count` only where the encoder reads hardly any text of the knowledge base. `watched`: of
    relations that all other queries leave out.
    """
    kinds = {_kind_of(text) for text in tuned} - {"slot"}
    wanted = [kind for kind in TURNS if kind not in kinds]
    known = {slot[1].casefold() for slot in map(slot_of, tuned) if slot}
    names = [relation for place, relation in enumerate(RELATIONS) if (place % EVERY == 0) == watched]
    relations = [name for name in names if name.casefold() not in known] or names  # if all are tuned on
    pages_of = [(shard, np.flatnonzero(shard.live_pages())) for shard in shards if len(shard)]
    pages_of = [(shard, pages) for shard, pages in pages_of if len(pages)]
    source = np.random.default_rng([seed, watched])
    made: list[str] = []
    for number in range(count * TRIES):
        shard, pages = pages_of[source.integers(len(pages_of))]
        page = int(pages[source.integers(len(pages))])
        text = _query(wanted[number % len(wanted)], shard, page, relations, source)
        if tokenizer.accepts(text):
            made.append(text)
        if len(made) == count:
            break
    return made


def _kind_of(text: str) -> Kind:
    return "slot" if slot_of(text) else "mention" if mention_in(text) else "question"


def _query(kind: Kind, shard: Shard, page: int, relations: list[str], source: np.random.Generator) -> str:
    """Make a query of this kind, perhaps too long or malformed; empty where no phrase can be drawn from the page."""
    text, start, end = _phrase(shard, page, source)
    if start == end:
        return ""
    if kind == "mention":
        before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
        return f"{before}[START_ENT] {text[start:end]} [END_ENT]{after}"
    subject = shard.titles[page] if source.random() < NAMED_BY_TITLE else text[start:end]
    relation = relations[source.integers(len(relations))]
    if kind == "slot":
        return f"{subject} [SEP] {relation}"
    return QUESTIONS[source.integers(len(QUESTIONS))].format(subject=subject, relation=relation)


def _phrase(shard: Shard, page: int, source: np.random.Generator) -> tuple[str, int, int]:
    """Draw a paragraph, and the characters [start, end) of a phrase in it; (0, 0) where it has none."""
    first, stop = np.searchsorted(shard.paragraph_pages, [page, page + 1])
    paragraph = int(source.integers(first, max(first + 1, stop)))
    rows = shard.rows_of(paragraph) if first < stop else np.empty(0, np.int64)
    starts = np.flatnonzero(shard.opens(rows))
    if not len(starts):
        return "", 0, 0
    place = int(starts[source.integers(len(starts))])
    size = min(LONGEST_SUBJECT, int(reach(shard, rows[[place]])[0]))
    ends = place + np.flatnonzero(shard.closes(rows[place : place + size]))
    if not len(ends):
        return "", 0, 0
    end = int(ends[source.integers(len(ends))])
    return shard.texts[paragraph], int(shard.starts[rows[place]]), int(shard.ends[rows[end]])
