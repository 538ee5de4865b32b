"""Triples: the queries to tune with, from KILT lines, a table, or the knowledge base's text.

A table is CSV or TSV with a header, or JSON lines: `subject`, `relation`, `object`, and perhaps
`aliases` (other names of the object; in CSV and TSV with `|` between them) and `page` (id or
title). Equal subject and relation are one query. Of lines with a `decision`, as the review of
claims writes them, the last on a value counts, and is a triple if it accepts the value. A cell that
is to stay empty is a query without an answer. The `meta` of a record that decisions alone give says
that it is `decided`.

Other queries are slots, questions and mentions of things that the knowledge base names; it need not
answer them.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Literal, Self

import numpy as np

from kbq.answers import counted
from kbq.dump.shards import Shard
from kbq.errors import TrainingError
from kbq.kilt.open_questions import has_open_questions
from kbq.kilt.records import HARMLESS, Gold, GoldOutput, Problems, gold_of, read_golds
from kbq.kilt.scores import relation_of
from kbq.model.queries import QueryTokenizer
from kbq.search.spans import reach
from kbq.storage.reports import Note, unheard
from kbq.storage.rows import Rows, empty_markers, read_rows
from kbq.text.normal_forms import clean_text, normalised
from kbq.text.queries import Query, mention_in, slot_of

COLUMNS = ("subject", "relation", "object")
MORE_COLUMNS = ("aliases", "page")
DECISIONS = ".decisions.jsonl"  # the end of a file to which `kbq serve` may be writing
DECIDED = "decided"  # key in the `meta` of a record
MARKERS = empty_markers()  # marks of an empty object
LIKENESS = 0.7  # likeness to one of these: "page_id" and "alias" are alike enough, "image" is not
# Examples set aside to score on.
DEV_SHARE = 0.1
MOST_DEV = 500

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
EVERY = 5  # every fifth relation is held out to measure forgetting
NAMED_BY_TITLE = 0.5  # share of the subjects; the others are phrases of the text
LONGEST_SUBJECT = 4  # rows of a phrase
AROUND = 60  # characters on either side of a mention
TRIES = 20  # tries for each query: the encoder reads some texts only


@dataclass(frozen=True, slots=True)
class GoldQuery:
    """A gold record with its query, which has been parsed."""

    gold: Gold
    query: Query

    @classmethod
    def of(cls, gold: Gold) -> Self:
        """Parse the input of a record."""
        return cls(gold, Query.of(gold.input or ""))


def read_triples(path: Path, unanswered: bool = False, note: Note = unheard) -> list[Gold]:
    """Read the gold records of a file; unless `unanswered`, leave out records with neither an
    answer nor a page.

    `note` is told of what is left out of decisions to which a service is writing.

    Raises TrainingError if a column is missing, a line is malformed (all of them are named), or
    there is no triple.
    """
    if has_open_questions(path):
        return [gold for gold in _kilt(path) if unanswered or gold.answers]
    problems: list[str] = []
    grows = path.name.endswith(DECISIONS)
    rows = read_rows(
        str(path),
        TrainingError,
        lambda problem: problems.append(problem.typed),
        note=note,
        grows=grows,
    )
    first = next(rows.numbered, (0, {}))
    numbered = rows.numbered
    if first[0]:
        numbered = chain([first], numbered)
    if not rows.columns and "input" in first[1]:
        golds = _kilt(path)
    else:
        golds = _merged(path, _triples(path, rows, numbered, unanswered), problems, unanswered)

    golds = [gold for gold in golds if unanswered or gold.answers or pages_of(gold)]
    if not golds:
        raise TrainingError(f"{path} has no triple with an answer")
    return golds


def subject_of(gold: Gold) -> str:
    """Return the subject of a slot query; any other query is its own subject."""
    slot = slot_of(gold.input or "")
    if slot:
        return slot[0]
    return gold.input or ""


def pages_of(gold: Gold) -> frozenset[str]:
    """Return all pages that support an answer."""
    return frozenset(page for output in gold.outputs for page in output.pages)


def sample_at_random(golds: Sequence[Gold], count: int, seed: int) -> list[Gold]:
    """Draw `count` records, each as likely; a larger sample of the same seed holds the smaller
    ones.
    """
    return random.Random(seed).sample(golds, len(golds))[:count]


def sample_by_relation(golds: Sequence[Gold], count: int, seed: int) -> list[Gold]:
    """Draw `count` records, each relation with its share; a larger sample of the same seed holds
    the smaller ones.
    """
    rng = random.Random(seed)
    groups: dict[str, list[Gold]] = defaultdict(list)
    for gold in golds:
        groups[relation_of(gold)].append(gold)
    ranked = []
    for group in groups.values():
        rng.shuffle(group)
        ranked += [
            ((rank + rng.random()) / len(group), gold.id, gold) for rank, gold in enumerate(group)
        ]
    return [gold for _, _, gold in sorted(ranked, key=lambda item: item[:2])[:count]]


def split(golds: Sequence[Gold], seed: int) -> tuple[list[Gold], list[Gold]]:
    """Set aside about a tenth of the records (at most 500, and the rest of the last page) to score
    on.

    No subject is in both parts, and no page (of a query with several, the first by name): a query
    encoder learns by heart which page it saw in tuning. Records that share the subject of a dev
    record, but not its page, are left out.
    """
    pages: dict[str, list[Gold]] = defaultdict(list)
    for gold in golds:
        pages[min(pages_of(gold), default=subject_of(gold))].append(gold)
    count = min(MOST_DEV, max(1, round(len(golds) * DEV_SHARE)))
    order = random.Random(seed).sample(sorted(pages), len(pages))
    dev: list[Gold] = []
    while len(dev) < count and order:
        dev += pages[order.pop()]
    subjects = {subject_of(gold) for gold in dev}
    tuned = []
    for page in order:
        tuned += [gold for gold in pages[page] if subject_of(gold) not in subjects]
    if not tuned:
        raise TrainingError(
            "one subject or page is not enough to tune and to score: give more triples, or a "
            "--dev file"
        )

    return tuned, dev


def _kilt(path: Path) -> list[Gold]:
    problems = Problems()
    golds = list(read_golds(gold_of(path), problems))
    messages = [str(problem) for problem in problems.found if problem.kind not in HARMLESS]
    for gold in golds:
        if not gold.input:
            messages.append(f"{path}:{gold.line}: has no input")
    if messages:
        raise TrainingError(
            f"{path} has {counted(len(messages), 'line')} that cannot be used", messages
        )

    return [  # normalised as the texts of a knowledge base are
        replace(
            gold,
            input=clean_text(gold.input or ""),
            outputs=tuple(
                replace(output, answer=clean_text(output.answer)) for output in gold.outputs
            ),
        )
        for gold in golds
    ]


Row = tuple[int, Mapping[str, object]]  # line number, and the columns by name


def _triples(path: Path, rows: Rows, numbered: Iterator[Row], unanswered: bool) -> Iterator[Row]:
    decided: dict[tuple[str, ...], Row] = {}
    if rows.columns:
        _check_columns(path, 1, [name.strip().lower() for name in rows.columns])
    for number, row in numbered:
        fields = (
            {name.strip().lower(): value for name, value in row.items()} if rows.columns else row
        )
        if not rows.columns:
            _check_columns(path, number, fields)
        if not any(str(value).strip() for value in fields.values()):
            continue
        for name in (*COLUMNS, "page"):
            if isinstance(fields.get(name), list | dict):
                raise TrainingError(
                    f"{path}:{number}: {name} is a list or an object, must be one text"
                )

        if not fields.get("decision"):
            yield number, fields
            continue

        subject, relation, value = (_text(fields.get(name)) for name in COLUMNS)
        key = subject, relation, normalised(value)  # the form in which a fill compares values
        decided.pop(key, None)
        if fields["decision"] == "accept" and (value or unanswered):
            decided[key] = number, fields

    yield from decided.values()


def _check_columns(path: Path, number: int, columns: Sequence[str] | Mapping[str, object]) -> None:
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise TrainingError(
            f"{path}:{number}: column {missing[0]!r} is missing, there are {', '.join(columns)}: "
            f"write KILT lines, or {', '.join(COLUMNS)} and perhaps {', '.join(MORE_COLUMNS)}, as "
            "JSON lines or with commas or tabs between them"
        )

    repeated = [name for name in columns if list(columns).count(name) > 1]
    if repeated:
        raise TrainingError(
            f"{path}:{number}: there are two columns {repeated[0]!r}: leave one of them out"
        )

    for name, meant in _likely(frozenset(columns)):
        raise TrainingError(
            f"{path}:{number}: column {name!r} is not read: if it is {meant!r}, call it so"
        )


@cache
def _likely(columns: frozenset[str]) -> list[tuple[str, str]]:
    """Return columns that are not known, each with one that it may stand for."""
    missing = sorted({*MORE_COLUMNS} - columns)
    unknown = sorted(columns - {*COLUMNS, *MORE_COLUMNS})
    return [
        (name, meant) for name in unknown for meant in get_close_matches(name, missing, 1, LIKENESS)
    ]


def _merged(path: Path, rows: Iterator[Row], problems: list[str], unanswered: bool) -> list[Gold]:
    """Make one record of each subject and relation; `problems`: errors so far; reading `rows` may
    add some.
    """
    merged: dict[str, tuple[int, list[GoldOutput]]] = {}
    undecided: set[str] = set()
    for number, fields in rows:
        subject, relation, answer = (_text(fields.get(name)) for name in COLUMNS)
        answer = "" if answer in MARKERS else answer
        if not (subject and relation and (answer or unanswered)):
            what = "subject or relation is empty"
            if subject and relation:
                what = "object is empty, which `kbq calibrate` takes as a slot without an answer"
            problems.append(f"{path}:{number}: {what}")
            continue

        page = _text(fields.get("page"))
        pages, evidence = ((page,), frozenset([page])) if page else ((), None)
        query = f"{subject} [SEP] {relation}"
        outputs = merged.setdefault(query, (number, []))[1]
        if not fields.get("decision"):
            undecided.add(query)
        aliases = fields.get("aliases")
        names = map(
            _text,
            (answer, *(aliases if isinstance(aliases, list) else str(aliases or "").split("|"))),
        )
        for text in names:
            if text and answer:
                outputs.append(GoldOutput(text, pages, evidence, ()))

    if problems:
        raise TrainingError(
            f"{path} has {counted(len(problems), 'line')} that cannot be used", problems
        )
    return [
        Gold(
            f"{path.name}:{number}",
            number,
            text,
            {} if text in undecided else {DECIDED: True},
            tuple(outputs),
        )
        for text, (number, outputs) in merged.items()
    ]


def _text(value: object) -> str:
    if value not in (None, ""):
        return clean_text(str(value)).strip()
    return ""


def other_queries(
    shards: Sequence[Shard],
    tokenizer: QueryTokenizer,
    tuned: Sequence[str],
    count: int,
    seed: int,
    watched: bool = False,
) -> list[str]:
    """Make queries of other relations than the `tuned` queries have and, unless these are slots, of
    other kinds.

    There are fewer than `count` only if the encoder reads hardly any text of the knowledge base.
    `watched` ones are of relations that all others leave out.
    """
    kinds = {"mention" if mention_in(text) else "question" for text in tuned if not slot_of(text)}
    missing = [kind for kind in TURNS if kind not in kinds]
    known = {slot[1].casefold() for slot in map(slot_of, tuned) if slot}
    names = [relation for rank, relation in enumerate(RELATIONS) if (rank % EVERY == 0) == watched]
    # All of them, where all are tuned on.
    relations = [name for name in names if name.casefold() not in known] or names
    pages_of = [(shard, np.flatnonzero(shard.live_pages())) for shard in shards if len(shard)]
    pages_of = [(shard, pages) for shard, pages in pages_of if len(pages)]
    source = np.random.default_rng([seed, watched])
    made: list[str] = []

    for number in range(count * TRIES):
        shard, pages = pages_of[source.integers(len(pages_of))]
        page = int(pages[source.integers(len(pages))])
        text = _query(missing[number % len(missing)], shard, page, relations, source)
        if tokenizer.accepts(text):
            made.append(text)
        if len(made) == count:
            break

    return made


def _query(
    kind: Kind, shard: Shard, page: int, relations: list[str], source: np.random.Generator
) -> str:
    """Make a query of this kind, perhaps too long or malformed, or empty if no phrase can be drawn
    from the page.
    """
    text, start, end = _phrase(shard, page, source)
    if start == end:
        return ""
    if kind == "mention":
        before = text[max(0, start - AROUND) : start]
        after = text[end : end + AROUND]
        return f"{before}[START_ENT] {text[start:end]} [END_ENT]{after}"

    if source.random() < NAMED_BY_TITLE:
        subject = shard.titles[page]
    else:
        subject = text[start:end]
    relation = relations[source.integers(len(relations))]
    if kind == "slot":
        return f"{subject} [SEP] {relation}"
    return QUESTIONS[source.integers(len(QUESTIONS))].format(subject=subject, relation=relation)


def _phrase(shard: Shard, page: int, source: np.random.Generator) -> tuple[str, int, int]:
    """Draw a paragraph, and the characters [start, end) of a phrase in it, or (0, 0) if it has
    none.
    """
    first, stop = np.searchsorted(shard.paragraph_pages, [page, page + 1])
    paragraph = int(source.integers(first, max(first + 1, stop)))
    if first < stop:
        rows = shard.rows_of(paragraph)
    else:
        rows = np.empty(0, np.int64)
    starts = np.flatnonzero(shard.opens(rows))
    if not len(starts):
        return "", 0, 0
    opening = int(starts[source.integers(len(starts))])
    size = min(LONGEST_SUBJECT, int(reach(shard, rows[[opening]])[0]))
    ends = opening + np.flatnonzero(shard.closes(rows[opening : opening + size]))
    if not len(ends):
        return "", 0, 0
    end = int(ends[source.integers(len(ends))])
    return shard.texts[paragraph], int(shard.starts[rows[opening]]), int(shard.ends[rows[end]])
