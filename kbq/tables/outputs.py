"""Outputs: write claims as a long table, RDF, QuickStatements or a page for review.

`kbq fill` writes claims, and with them a file with their origin and the relations that were asked
for; an export is a view of them. Sources: RDF 1.1 N-Triples (W3C); magnusmanske/quickstatements and
WikiMovimentoBrasil/quickstatements3 (parsers of V1).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from urllib.parse import quote

from kbq.answers import counted
from kbq.dump.page_directory import PageValue
from kbq.english.dates import DateValue, gregorian
from kbq.english.quantities import spellings_of
from kbq.english.split_dates import split_date
from kbq.errors import KbqError
from kbq.storage.lines import read_json_lines
from kbq.storage.paths import as_path
from kbq.storage.records import read_object
from kbq.storage.rows import NEEDS_PYARROW, SUFFIXES, RowFormat
from kbq.storage.writing import replacing, writing_to
from kbq.tables.claims import (
    CLAIMS,
    RUN,
    Alternative,
    Claim,
    NormalForm,
    QuantityValue,
    Source,
    write_json_lines,
    write_lines,
)
from kbq.tables.relations import (
    WIKIDATA,
    NoNumberError,
    Relation,
    from_table,
    known_property,
    known_relations,
    number_of,
    p_number,
    property_iri,
    read_ids,
    relations_of,
    subject_number,
    value_number,
)
from kbq.tables.tables import Table, guarded, refuse_unwritable, write_table
from kbq.tables.values import normal_form
from kbq.text.normal_forms import clean_text, without_surrogates

if TYPE_CHECKING:
    import pyarrow

XSD = "http://www.w3.org/2001/XMLSchema#"
EDTF = "http://id.loc.gov/datatypes/edtf/EDTF"
# Types of XML Schema, by the length of an ISO date.
DATE_TYPES = {4: "gYear", 7: "gYearMonth", 10: "date"}

_NOT_IN_LITERALS = re.compile('[\x00-\x1f\x7f"\\\\\ufffe\uffff]')
_SHORT = {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r", '"': r"\"", "\\": r"\\"}

LONGEST = 1500  # characters of a text in Wikidata
LANGUAGE = "en"  # language of the text, as Wikidata calls it
# Sourcing circumstances: circa, presumably.
CIRCUMSTANCES = {"~": ("P1480", "Q5727902"), "?": ("P1480", "Q18122778")}

# Properties of Wikidata whose values are texts in a language: names, titles, mottoes.
MONOLINGUAL = frozenset(
    (
        "P1448", "P1449", "P1451", "P1476", "P1477", "P1549", "P1559", "P1635", "P1680", "P1705",
        "P1813", "P1843", "P2441", "P2561", "P2562",
    )
)  # fmt: skip
_HEADS = re.compile(r"\A(?:[^.!?–]{1,80} – )+(?=\S|\Z)")  # headings that a paragraph begins with

ExportFormat = Literal["rdf", "quickstatements", "long", "review"]
WITH_IDS = ("rdf", "quickstatements")  # things have Q-numbers there
COLUMNS = {  # columns of the long table, with Arrow's types
    "subject": "string",
    "relation": "string",
    "value": "string",
    "probability": "double",
    "accepted": "bool",
    "type": "string",
    "normal": "string",
    "unit": "string",
    "page_id": "string",
    "title": "string",
    "paragraph": "int64",
    "start": "int64",
    "end": "int64",
    "sentence": "string",
    "says_the_same": "int64",
}
BROWSER = Path(__file__).with_name("browser")
SCRIPTS = (  # scripts that the page of `kbq serve` has, too
    "decisions.js", "evidence.js", "facets.js", "claims_list.js", "table_view.js", "past.js",
    "spreadsheet.js", "review.js",
)  # fmt: skip
_ENDS_A_SCRIPT = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def ntriples(
    claims: Iterable[Claim], relations: Iterable[Relation], ids: Mapping[str, str]
) -> Iterable[str]:
    """Return the lines of an N-Triples file: the accepted claims as facts, each once.

    Args:
        relations: named by their property, a P-number of Wikidata or an IRI, or else by URNs.
        ids: Q-numbers of Wikidata by subject, page id or title; things without one are named by
            URNs.
    """
    properties = {relation.name: relation.property for relation in relations if relation.property}
    return dict.fromkeys(fact(claim, properties, ids) + " ." for claim in claims if claim.accepted)


def fact(claim: Claim, properties: Mapping[str, str], ids: Mapping[str, str]) -> str:
    """Return a claim as a triple of RDF."""
    subject = _thing(claim.subject, subject_number(claim, ids))
    is_text = p_number(properties.get(claim.relation, "")) in MONOLINGUAL
    value = (
        f"{_literal(claim.value)}@{LANGUAGE}"
        if is_text and claim.normal is None
        else _object(claim, ids)
    )
    return f"{subject} {_property(claim.relation, properties)} {value}"


def _thing(name: str, number: str) -> str:
    """Name a subject, or a page as a value, by its Q-number or else, so that the two meet, by its
    title.
    """
    if number:
        return f"<{WIKIDATA}/entity/{number}>"
    return f"<urn:kbq:thing:{_quoted(name)}>"


def _property(relation: str, properties: Mapping[str, str]) -> str:
    """Return the IRI of a relation. Raises KbqError if its property is not one."""
    if relation not in properties:
        return f"<urn:kbq:relation:{_quoted(relation)}>"
    iri = property_iri(properties[relation])
    if iri:
        return f"<{iri}>"
    raise KbqError(
        f"the property of relation {relation!r} is {properties[relation]!r}: write a P-number of "
        "Wikidata, or an IRI"
    )


def _object(claim: Claim, ids: Mapping[str, str]) -> str:
    """Return the value of a claim as RDF: a thing, or a literal with its datatype."""
    normal = claim.normal
    if isinstance(normal, PageValue):
        return _thing(normal.title, value_number(claim, ids))
    if isinstance(normal, DateValue):
        # The versions of XML Schema disagree on the year 0, and none has decades, centuries and
        # "circa".
        edtf = gregorian(normal)
        is_plain = re.fullmatch("[0-9-]+", edtf) and edtf[0] != "-" and edtf[:4] != "0000"
        datatype = f"<{EDTF}>"
        if is_plain:
            datatype = f"<{XSD}{DATE_TYPES[len(edtf)]}>"
        return _literal(edtf, datatype)

    if (
        isinstance(normal, QuantityValue)
        and normal.is_exact
        and not normal.about
        and not normal.unit
    ):
        return _literal(normal.number, f"<{XSD}decimal>")

    if isinstance(normal, QuantityValue) and normal.about:
        return _literal(f"about {claim.value}")
    number = "" if normal else value_number(claim, ids)

    if number:
        return _thing(claim.value, number)
    return _literal(claim.value)


def _quoted(name: str) -> str:
    return quote(without_surrogates(name), safe="")


def _literal(text: str, datatype: str = "") -> str:
    r"""Return a literal with the escapes of canonical N-Triples.

    >>> print(_literal('a "b"\n\\'), _literal("1867", "xsd:gYear"))
    "a \"b\"\n\\" "1867"^^xsd:gYear
    """
    escaped = _NOT_IN_LITERALS.sub(
        lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}", without_surrogates(text)
    )
    if datatype:
        return f'"{escaped}"^^{datatype}'
    return f'"{escaped}"'


class QuickStatements(NamedTuple):
    """Commands for Wikidata, and what there is no command for."""

    lines: list[str]
    left_out: list[dict[str, Any]]  # claims, each with the `reason`
    lacking: dict[str, int]  # claims by the name that has no Q-number, most frequent first


def quickstatements(
    claims: Iterable[Claim], source: Source, relations: Iterable[Relation], ids: Mapping[str, str]
) -> QuickStatements:
    """Make a command for each accepted claim, or give the reason why there is none."""
    by_name = {relation.name: relation for relation in relations}
    commands: dict[str, None] = {}  # ordered, each once
    left_out: list[dict[str, Any]] = []
    lacking: Counter[str] = Counter()
    for claim in (claim for claim in claims if claim.accepted):
        try:
            commands[command(claim, source, by_name.get(claim.relation), ids)] = None
        except KbqError as reason:
            left_out.append({"reason": str(reason)} | claim.to_dict())
            if isinstance(reason, NoNumberError):
                lacking.update(map(_one_line, _lacking(claim, by_name.get(claim.relation), ids)))

    return QuickStatements(list(commands), left_out, dict(lacking.most_common()))


def write_quickstatements(
    path: Path,
    claims: Iterable[Claim],
    source: Source,
    relations: Iterable[Relation],
    ids: Mapping[str, str],
) -> tuple[int, int, int]:
    """Write a command for each accepted claim; count commands, claims left out, and names without a
    Q-number.

    Other claims go to PATH.left-out.jsonl, each with a `reason`. Names without a Q-number go to
    PATH.ids-todo.tsv, most frequent first; with its column `id` filled in, this is a file of ids
    (see `read_ids`).
    """
    made = quickstatements(claims, source, relations, ids)
    write_lines(path, made.lines)
    write_json_lines(path.with_name(f"{path.name}.left-out.jsonl"), made.left_out)
    rows = (f"{guarded(name)}\t\t{count}" for name, count in made.lacking.items())
    write_lines(path.with_name(f"{path.name}.ids-todo.tsv"), ["name\tid\tclaims", *rows])
    return len(made.lines), len(made.left_out), len(made.lacking)


def _lacking(claim: Claim, relation: Relation | None, ids: Mapping[str, str]) -> list[str]:
    """Return all names of a claim without a Q-number, so that none turns up only after another one
    has got its own.
    """
    names = []
    if not subject_number(claim, ids):
        names.append(claim.subject)
    try:
        if relation:
            _value(claim, relation, ids)
    except NoNumberError as reason:
        names.append(reason.name)
    except KbqError:  # a Q-number does not help here
        pass
    return list(dict.fromkeys(names))


def command(claim: Claim, source: Source, relation: Relation | None, ids: Mapping[str, str]) -> str:
    """Return the command of a claim. Raises KbqError with the reason if there is none."""
    subject = subject_number(claim, ids)
    if not subject:
        raise NoNumberError(f"subject {claim.subject!r:.80}", claim.subject)
    number = p_number(relation.property) if relation else ""
    if not relation or not number:
        is_known = any(claim.relation == known.name for known in known_relations())
        advice = "property of the relation"
        if is_known:
            advice += f", or ask for @{claim.relation}"
        raise KbqError(f"relation {claim.relation!r} has no P-number: write it as {advice}")

    fields = [subject, number, _value(claim, relation, ids)]
    if isinstance(claim.normal, DateValue):
        fields += CIRCUMSTANCES.get(claim.normal.edtf[-1], ())
    if isinstance(claim.normal, QuantityValue) and claim.normal.about:
        fields += CIRCUMSTANCES["~"]
    if claim.by_hand:  # the text does not say it, so it is no reference
        return "\t".join(fields)
    url = claim.metadata.get("url")
    if isinstance(url, str) and re.fullmatch(r"https?://[^\s/][^\s\"]*", url):
        fields += ["S854", f'"{url}"', "S813", f"+{source.time[:10]}T00:00:00Z/11"]

    return "\t".join([*fields, "S1683", f'{LANGUAGE}:"{_quotation(claim)}"'])


def _value(claim: Claim, relation: Relation, ids: Mapping[str, str]) -> str:
    """Return the value of a claim as QuickStatements reads it."""
    if isinstance(claim.normal, DateValue):
        return time_of(claim.normal)
    if isinstance(claim.normal, QuantityValue):
        number = claim.normal.number
        unit = claim.normal.unit
        if not claim.normal.is_exact:
            raise KbqError(f"value {claim.value!r:.60} is a bound or a range, not one number")
        if not unit:
            return number
        numbers = (number_of(spelling, ids) for spelling in spellings_of(unit))
        unit_number = next(filter(None, numbers), "")
        if not unit_number:
            raise NoNumberError(f"unit {unit!r}", unit)
        return number + unit_number.replace("Q", "U")

    known = known_property(relation.property)
    takes_text = relation.type == "text" and not (known and known.type == "page")
    number = value_number(claim, ids)
    if number and not takes_text:
        return number
    if isinstance(claim.normal, PageValue):
        raise NoNumberError(
            f"page {claim.normal.title!r} ({claim.normal.page_id})", claim.normal.title
        )

    if relation.type == "page" or (known and known.type == "page"):
        raise NoNumberError(f"value {claim.value!r:.80}", claim.value)
    if relation.type != "text":
        raise KbqError(
            f"value {claim.value!r:.60} is not certainly a page, date or quantity, "
            f"{relation.name!r} not of type text"
        )

    text = f'"{_one_line(claim.value)}"'

    if p_number(relation.property) in MONOLINGUAL:
        return f"{LANGUAGE}:{text}"
    return text


def time_of(date: DateValue) -> str:
    """Return a date in the form of QuickStatements: unknown parts are 00, and there is no year 0.

    >>> [time_of(DateValue(*date)) for date in (("1867-11-07", 11), ("-0043~", 9, True), ("199X", 8), ("18XX", 7))]
    ['+1867-11-07T00:00:00Z/11', '-0044-00-00T00:00:00Z/9/J', '+1990-00-00T00:00:00Z/8', '+1801-00-00T00:00:00Z/7']
    """
    sign, digits, month, day = re.match(
        "(-?)([0-9X]{4})(?:-([0-9]{2}))?(?:-([0-9]{2}))?", date.edtf
    ).groups()  # type: ignore[union-attr]
    # A century is given by its second year, which belongs to it by every way of counting.
    year = int(digits.replace("XX", "01").replace("X", "0"))
    if "X" not in digits and (sign or not year):
        sign = "-"
        year = year + 1
    return f"{sign or '+'}{year:04}-{month or '00'}-{day or '00'}T00:00:00Z/{date.precision}{'/J' * date.julian}"


def _quotation(claim: Claim) -> str:
    """Return the sentence as it stands, without headings; if it is long, the part around the value."""
    before, value, after = claim.parts
    if claim.sentence_start == 0:
        before = _HEADS.sub("", before)
    around = max(0, LONGEST - len(value)) // 2
    return _one_line((before[-around:] if around else "") + value + after[:around])[
        :LONGEST
    ].strip()


def _one_line(text: str) -> str:
    """Return a text without tabs and line ends, which would end a field."""
    return " ".join(clean_text(text).split())


@dataclass(frozen=True, slots=True)
class ExportCounts:
    """Numbers of claims, and of what the accepted ones became."""

    claims: int
    accepted: int
    commands: int = 0  # commands for QuickStatements
    left_out: int = 0  # claims that QuickStatements cannot express
    lacking: int = 0  # names without a Q-number
    formulas: int = 0  # values that got an apostrophe, as a spreadsheet would compute them


def export(
    claims: str | Path,
    to: ExportFormat,
    out: str | Path,
    *,
    relations: Iterable[str | Relation] = (),
    ids: str | Path | None = None,
) -> ExportCounts:
    """Write the claims of a filled table in another form: `kbq export`.

    Args:
        claims: a file of claims from `kbq fill`.
        to: `rdf`, accepted claims as N-Triples; `quickstatements`, commands for Wikidata; `long`, a
            table with a row for each claim, in the format of the ending of `out`; `review`, a page
            for a browser.
        out: a file, which is replaced.
        relations: with their properties; by default those that the table was filled with.
        ids: a table of names and Q-numbers, for RDF and QuickStatements.

    Raises:
        KbqError: a file cannot be read or written, or `to` is unknown.
    """
    source_path = as_path(claims, "the file of claims")
    path = as_path(out, "out")
    if to not in get_args(ExportFormat):
        raise KbqError(
            f"cannot export to {to!r:.40}: choose from {', '.join(get_args(ExportFormat))}",
            is_usage=True,
        )

    if ids is not None and to not in WITH_IDS:
        raise KbqError(
            f"{to} has no Q-numbers, so ids have no effect: leave them out", is_usage=True
        )

    if path.exists() and source_path.exists() and path.samefile(source_path):
        raise KbqError(f"{path} is the file of claims itself: choose another --out")
    wanted = list(relations)
    numbers = {} if ids is None else read_ids(as_path(ids, "ids"))
    found = read_claims(source_path)
    source, known = origin_of(source_path)
    known = relations_of(wanted) if wanted else known
    counts = ExportCounts(len(found), sum(claim.accepted for claim in found))
    if to == "rdf":
        write_lines(path, ntriples(found, known, numbers))
    elif to == "quickstatements":
        commands, left_out, lacking = write_quickstatements(path, found, source, known, numbers)
        counts = dataclasses.replace(counts, commands=commands, left_out=left_out, lacking=lacking)
    elif to == "review":
        write_review(path, found, source, known)
    else:
        counts = dataclasses.replace(counts, formulas=write_long(path, found, table_format(path)))

    return counts


def read_claims(path: Path) -> list[Claim]:
    """Read a file of claims. Raises KbqError if it cannot be read, or names all lines that are no
    claims.
    """
    beside = path.with_suffix(CLAIMS)
    if not path.name.endswith(CLAIMS) and beside.is_file():
        raise KbqError(f"{path} is the table: its claims are in {beside}")
    claims = list[Claim]()
    problems = list[str]()
    for number, fields in read_json_lines(
        str(path), KbqError, lambda problem: problems.append(problem.typed)
    ):
        try:
            claims.append(Claim.from_dict(fields))
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")

    if problems:
        raise KbqError(
            f"{path} is no file of claims, as `kbq fill` writes it: {counted(len(problems), 'line')} of another kind",
            problems,
        )

    return claims


def origin_of(claims: Path) -> tuple[Source, list[Relation]]:
    """Return the origin of a file of claims, and the relations that were asked for, from the file
    beside it.

    Without that file, the relations are unknown, and the claims are as old as their file. Raises
    KbqError if it is damaged.
    """
    run = claims.with_name(claims.name.removesuffix(CLAIMS) + RUN)
    try:
        facts = {}
        if claims.name.endswith(CLAIMS) and run.exists():
            facts = read_object(run)
        names = "version of kbq", "query encoder", "knowledge base", "command", "begun"
        version, model, kb, command, begun = (str(facts.get(name, "")) for name in names)
        relations = [from_table(one["name"], one) for one in facts.get("relations", ())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise KbqError(
            f"{run} is damaged ({error!r:.80}): fill the table again, or remove this file"
        ) from None

    written = datetime.fromtimestamp(claims.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return Source(version, model, kb, command, begun or written), relations


def table_format(path: Path) -> RowFormat:
    """Return the format of a table by the ending of its file. Raises KbqError if no format has it."""
    if path.suffix.lower() not in SUFFIXES:
        views = "RDF, QuickStatements and the page for review are exports: see `kbq export`"
        raise KbqError(f"{path} ends like no table: end it in {', '.join(SUFFIXES)}; {views}")
    return SUFFIXES[path.suffix.lower()]


def long_table(claims: Iterable[Claim]) -> Table:
    """Return a row for each claim; all cells count as filled, so that none is a formula in a
    spreadsheet.
    """
    return Table(tuple(COLUMNS), [_row(claim) for claim in claims]).all_filled()


def write_long(path: Path, claims: Sequence[Claim], format: RowFormat) -> int:
    """Replace a file by the long table; return the number of texts with an apostrophe, as
    `write_table` does.
    """
    table = long_table(claims)
    if format != "tsv":  # lines of TSV have blanks in place of line ends
        refuse_unwritable(table, format)
    if format != "parquet":
        return write_table(table, path, format)
    arrow = to_arrow(claims)
    import pyarrow.parquet

    with writing_to(path, KbqError), replacing(path) as partial:
        pyarrow.parquet.write_table(arrow, partial)
    return 0


def to_arrow(claims: Iterable[Claim]) -> pyarrow.Table:
    """Return the long table for pandas, polars and duckdb. Raises KbqError if pyarrow is missing."""
    try:
        import pyarrow
    except ImportError:
        raise KbqError(f"Arrow {NEEDS_PYARROW}") from None

    schema = pyarrow.schema(
        [(name, pyarrow.type_for_alias(type)) for name, type in COLUMNS.items()]
    )
    rows = [
        {
            name: without_surrogates(value) if isinstance(value, str) else value
            for name, value in _row(claim).items()
        }
        for claim in claims
    ]

    return pyarrow.Table.from_pylist(rows, schema)


def _row(claim: Claim) -> dict[str, Any]:
    """Return a claim as a row, with the type and the normal form of its value."""
    row: dict[str, Any] = {name: getattr(claim, name, None) for name in COLUMNS}
    match claim.normal:
        case PageValue(page_id=page_id):
            return row | {"type": "page", "normal": page_id}
        case DateValue(edtf=edtf):
            return row | {"type": "date", "normal": edtf}
        case QuantityValue(number=number, unit=unit, about=about, bound=bound, to=to):
            normal = f"{'~' * about}{bound}{number}"
            if to:
                normal += f"/{to}"
            return row | {"type": "quantity", "normal": normal, "unit": unit or None}
    return row


def write_review(
    path: Path, claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()
) -> None:
    """Write a page on which people review all claims, and from which they download their decisions.

    The claims are data, not HTML, and the page's policy forbids every script but its own, so no
    text of a corpus runs.
    """
    page, review, style, *scripts = (
        (BROWSER / name).read_text("utf-8")
        for name in ("file.html", "review.html", "review.css", *SCRIPTS, "file.js")
    )
    page = page.replace("REVIEW", review)
    for name, content in (("STYLE", style), ("SCRIPT", "".join(scripts))):
        digest = hashlib.sha256(content.encode()).digest()
        page = page.replace(f"{name}-HASH", f"sha256-{base64.b64encode(digest).decode()}")
        page = page.replace(f">{name}<", f">{content}<")

    before, after = page.split(">DATA<")
    write_lines(
        path, [f"{before}>{described(claims, source, relations)}<{after}".removesuffix("\n")]
    )


def described(claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()) -> str:
    """Return the data of the page as JSON without any character that could end it in HTML."""
    by_name = {relation.name: relation for relation in relations}
    types = {
        name: {"values": relation.values, "type": relation.type}
        for name, relation in by_name.items()
    }
    rows: list[dict[str, object]] = []
    texts = []
    for claim in claims:
        rows.append({"id": claim.digest} | claim.to_dict())
        texts.append(views(claim, by_name.get(claim.relation), {}))

    content = {
        "source": dataclasses.asdict(source),
        "relations": types,
        "claims": rows,
        "views": texts,
    }

    return json.dumps(content, ensure_ascii=False).translate(_ENDS_A_SCRIPT)


def _normal_of(other: Alternative, relation: Relation | None) -> NormalForm | None:
    """Return the date or the quantity of an alternative, or None."""
    if relation is None or relation.type not in ("date", "quantity"):
        return None
    is_dated = relation.type == "date" and other.sentence
    split = None
    if is_dated:
        split = split_date(other.sentence, *other.within)
    if split:
        return split.date
    return normal_form(other.value, relation.type, measures=relation.measures)


def views(claim: Claim, relation: Relation | None, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a claim, and then each of its alternatives with its `normal` form, as a `fact` in
    N-Triples.
    """
    properties = {}
    if relation and relation.property:
        properties = {relation.name: relation.property}
    found: list[dict[str, Any]] = [{"fact": f"{fact(claim, properties, ids)} ."}]
    for other in claim.alternatives:
        normal = _normal_of(other, relation)
        place = {name: getattr(other, name) for name in Alternative.__slots__}
        instead = dataclasses.replace(claim, **place, normal=normal, alternatives=(), metadata={})
        found.append(
            {
                "fact": f"{fact(instead, properties, ids)} .",
                "normal": instead.to_dict().get("normal"),
            }
        )

    return found
