"""QuickStatements: accepted claims become commands for Wikidata, with reference and quotation (version 1).

Sources: magnusmanske/quickstatements, WikiMovimentoBrasil/quickstatements3 (parsers of V1).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from kbq.dump.page_directory import PageValue
from kbq.errors import KbqError
from kbq.storage.records import json_line
from kbq.tables.cells import guarded
from kbq.tables.claims import Claim, DateValue, QuantityValue, Source, write_lines
from kbq.tables.relations import Relation, known_property, known_relations
from kbq.tables.wikidata import NoNumberError, number_of, p_number, subject_number, value_number
from kbq.text.letters import clean_text

LONGEST = 1500  # characters of a text in Wikidata
LANGUAGE = "en"  # of the text, as Wikidata calls it
# Sourcing circumstances: circa, presumably.
CIRCUMSTANCES = {"~": ("P1480", "Q5727902"), "?": ("P1480", "Q18122778")}


def write_quickstatements(
    path: Path, claims: Iterable[Claim], source: Source, relations: Iterable[Relation], ids: Mapping[str, str]
) -> tuple[int, int, int]:
    """Write a command for each accepted claim; count commands, claims left out, and names without a Q-number.

    Claims that cannot be written go to PATH.left-out.jsonl, with a `reason` each. Names that lack a Q-number go to
    PATH.ids-todo.tsv, those of most claims first: with its column `id` filled in, it is a file of ids (see `read_ids`).
    """
    by_name = {relation.name: relation for relation in relations}
    commands: dict[str, None] = {}  # in order, each once
    left_out: list[str] = []
    lacking: Counter[str] = Counter()
    for claim in (claim for claim in claims if claim.accepted):
        try:
            commands[command(claim, source, by_name.get(claim.relation), ids)] = None
        except KbqError as reason:
            left_out.append(json_line({"reason": str(reason)} | claim.to_dict()))
            if isinstance(reason, NoNumberError):
                lacking.update(map(_one_line, _lacking(claim, by_name.get(claim.relation), ids)))
    write_lines(path, commands)
    write_lines(path.with_name(f"{path.name}.left-out.jsonl"), left_out)
    rows = (f"{guarded(name)}\t\t{count}" for name, count in lacking.most_common())
    write_lines(path.with_name(f"{path.name}.ids-todo.tsv"), ["name\tid\tclaims", *rows])
    return len(commands), len(left_out), len(lacking)


def _lacking(claim: Claim, relation: Relation | None, ids: Mapping[str, str]) -> list[str]:
    """Return all names of a claim without a Q-number, so that none turns up only once another has got one."""
    names = [] if subject_number(claim, ids) else [claim.subject]
    try:
        if relation:
            _value(claim, relation, ids)
    except NoNumberError as reason:
        names.append(reason.name)
    except KbqError:  # no Q-number helps
        pass
    return list(dict.fromkeys(names))


def command(claim: Claim, source: Source, relation: Relation | None, ids: Mapping[str, str]) -> str:
    """Return the line of a claim. Raises KbqError, which says why, if it cannot be written."""
    subject = subject_number(claim, ids)
    if not subject:
        raise NoNumberError(f"subject {claim.subject!r:.80}", claim.subject)
    number = p_number(relation.property) if relation else ""
    if not relation or not number:
        is_known = any(claim.relation == known.name for known in known_relations())
        advice = f"property of the relation{f', or ask for @{claim.relation}' if is_known else ''}"
        raise KbqError(f"relation {claim.relation!r} has no P-number: write it as {advice}")
    fields = [subject, number, _value(claim, relation, ids)]
    if isinstance(claim.normal, DateValue):
        fields += CIRCUMSTANCES.get(claim.normal.edtf[-1], ())
    if claim.by_hand:  # the text does not say it, so it is no reference
        return "\t".join(fields)
    url = claim.metadata.get("url")
    if isinstance(url, str) and re.fullmatch(r"https?://[^\s/][^\s\"]*", url):
        fields += ["S854", f'"{url}"', "S813", f"+{source.time[:10]}T00:00:00Z/11"]
    return "\t".join([*fields, "S1683", f'{LANGUAGE}:"{_quotation(claim)}"'])


def _value(claim: Claim, relation: Relation, ids: Mapping[str, str]) -> str:
    if isinstance(claim.normal, DateValue):
        return time_of(claim.normal)
    if isinstance(claim.normal, QuantityValue):
        number, unit = claim.normal.number, claim.normal.unit
        if unit and not number_of(unit, ids):
            raise NoNumberError(f"unit {unit!r}", unit)
        return number + (number_of(unit, ids).replace("Q", "U") if unit else "")
    known = known_property(relation.property)
    takes_text = relation.type == "text" and not (known and known.type == "page")
    if (number := value_number(claim, ids)) and not takes_text:
        return number
    if isinstance(claim.normal, PageValue):
        raise NoNumberError(f"page {claim.normal.title!r} ({claim.normal.page_id})", claim.normal.title)
    if relation.type == "page" or (known and known.type == "page"):
        raise NoNumberError(f"value {claim.value!r:.80}", claim.value)
    if relation.type != "text":
        raise KbqError(
            f"value {claim.value!r:.60} is not certainly a page, date or quantity, {relation.name!r} not of type text"
        )
    return f'"{_one_line(claim.value)}"'


def time_of(date: DateValue) -> str:
    """Return a date as QuickStatements has it: unknown parts are 00, and there is no year 0.

    >>> [time_of(DateValue(*date)) for date in (("1867-11-07", 11), ("-0043~", 9, True), ("199X", 8), ("18XX", 7))]
    ['+1867-11-07T00:00:00Z/11', '-0044-00-00T00:00:00Z/9/J', '+1990-00-00T00:00:00Z/8', '+1801-00-00T00:00:00Z/7']
    """
    sign, digits, month, day = re.match("(-?)([0-9X]{4})(?:-([0-9]{2}))?(?:-([0-9]{2}))?", date.edtf).groups()  # type: ignore[union-attr]
    # A century has the second of its years, which belongs to it by every way of counting.
    year = int(digits.replace("XX", "01").replace("X", "0"))
    if "X" not in digits and (sign or not year):
        sign, year = "-", year + 1
    return f"{sign or '+'}{year:04}-{month or '00'}-{day or '00'}T00:00:00Z/{date.precision}{'/J' * date.julian}"


def _quotation(claim: Claim) -> str:
    """Return the sentence; of a long one, the part around the value."""
    before, value, behind = claim.parts
    beside = max(0, LONGEST - len(value)) // 2
    return _one_line((before[-beside:] if beside else "") + value + behind[:beside])[:LONGEST].strip()


def _one_line(text: str) -> str:
    """Return a text without tabs and line ends, which end a field."""
    return " ".join(clean_text(text).split())
