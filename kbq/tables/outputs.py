"""Exports: claims become RDF, commands for Wikidata, a table with a row for each claim, or a page for review.

The claims are the truth, and an export is a view of them. `kbq fill` writes them, and beside them a file with what they
come from and the relations that were asked for.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from kbq.dump.page_directory import PageValue
from kbq.errors import KbqError
from kbq.storage.files import as_path
from kbq.storage.lines import read_json_lines
from kbq.storage.parquet import NEEDS_PYARROW
from kbq.storage.records import read_object
from kbq.storage.rows import SUFFIXES, RowFormat
from kbq.storage.writing import replacing, writing_to
from kbq.tables.claims import CLAIMS, RUN, Alternative, Claim, DateValue, QuantityValue, Source, ValueType, write_lines
from kbq.tables.quickstatements import command, write_quickstatements
from kbq.tables.rdf import fact, ntriples
from kbq.tables.relations import Relation, relations_of
from kbq.tables.tables import Table, refuse_unwritable, write_table
from kbq.tables.values import normal_form
from kbq.tables.wikidata import read_ids
from kbq.text.letters import without_surrogates

if TYPE_CHECKING:
    import pyarrow

ExportFormat = Literal["rdf", "quickstatements", "long", "review"]
WITH_IDS = ("rdf", "quickstatements")  # things have Q-numbers there
COLUMNS = {  # of the long table, with Arrow's types
    "subject": "string", "relation": "string", "value": "string", "probability": "double", "accepted": "bool",
    "type": "string", "normal": "string", "unit": "string", "page_id": "string", "title": "string",
    "paragraph": "int64", "start": "int64", "end": "int64", "sentence": "string", "says_the_same": "int64",
}  # fmt: skip
BROWSER = Path(__file__).with_name("browser")
SCRIPTS = ("decisions.js", "evidence.js", "spreadsheet.js", "review.js")  # with the page of `kbq serve`
_ENDS_A_SCRIPT = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class ExportCounts:
    """How many claims there were, and what became of the accepted ones."""

    claims: int
    accepted: int
    commands: int = 0  # of QuickStatements
    left_out: int = 0  # claims that QuickStatements cannot express
    lacking: int = 0  # names whose Q-number is missing
    formulas: int = 0  # values that a spreadsheet would compute, written after an apostrophe


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
        claims: a file of claims, as `kbq fill` writes it.
        to: `rdf`, accepted claims as N-Triples; `quickstatements`, commands for Wikidata; `long`, a table with a row
            for each claim, in the format that the ending of `out` stands for; `review`, a page for a browser.
        out: a file, which is replaced.
        relations: with their properties; by default those that the claims were asked for by.
        ids: a table of names and Q-numbers, for RDF and QuickStatements.

    Raises:
        KbqError: a file cannot be read or written, or `to` is unknown.
    """
    source_path, path = as_path(claims, "the file of claims"), as_path(out, "out")
    if to not in get_args(ExportFormat):
        raise KbqError(f"cannot export to {to!r:.40}: choose from {', '.join(get_args(ExportFormat))}", is_usage=True)
    if ids is not None and to not in WITH_IDS:
        raise KbqError(f"{to} has no Q-numbers, so ids have no effect: leave them out", is_usage=True)
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
    """Read a file of claims. Raises KbqError if it cannot be read, or a line is none: all of these are named."""
    claims, problems = list[Claim](), list[str]()
    for number, fields in read_json_lines(str(path), KbqError, lambda problem: problems.append(str(problem))):
        try:
            claims.append(Claim.from_dict(fields))
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
    if problems:
        raise KbqError(f"{path} is no file of claims, as `kbq fill` writes it: {len(problems)} lines differ", problems)
    return claims


def origin_of(claims: Path) -> tuple[Source, list[Relation]]:
    """Return what a file of claims comes from, and the relations that were asked for, as the file beside it says.

    Without that file, the relations are unknown, and the claims are as old as their file. Raises KbqError if it is
    damaged.
    """
    run = claims.with_name(claims.name.removesuffix(CLAIMS) + RUN)
    try:
        facts = read_object(run) if claims.name.endswith(CLAIMS) and run.exists() else {}
        names = "version of kbq", "query encoder", "knowledge base", "command", "begun"
        version, model, kb, command, begun = (str(facts.get(name, "")) for name in names)
        relations = [Relation(**{**one, "query": tuple(one["query"])}) for one in facts.get("relations", ())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise KbqError(f"{run} is damaged ({error!r:.80}): fill the table again, or remove this file") from None
    written = datetime.fromtimestamp(claims.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return Source(version, model, kb, command, begun or written), relations


def table_format(path: Path) -> RowFormat:
    """Return the format of a table by the ending of its file. Raises KbqError if it is that of no table."""
    if path.suffix.lower() not in SUFFIXES:
        raise KbqError(f"{path} ends like no table: end it in {', '.join(SUFFIXES)}")
    return SUFFIXES[path.suffix.lower()]


def long_table(claims: Iterable[Claim]) -> Table:
    """Return a row for each claim; all of its cells count as filled, so that none is a formula in a spreadsheet."""
    return Table(tuple(COLUMNS), [_row(claim) for claim in claims]).all_filled()


def write_long(path: Path, claims: Iterable[Claim], format: RowFormat) -> int:
    """Replace a file by the long table; return how many texts got an apostrophe, as `write_table` does.

    Raises KbqError if it cannot be written, or pyarrow is missing.
    """
    refuse_unwritable(Table(tuple(COLUMNS), []), format)
    if format != "parquet":
        return write_table(long_table(claims), path, format)
    arrow = to_arrow(claims)
    import pyarrow.parquet

    with writing_to(path, KbqError), replacing(path) as partial:
        pyarrow.parquet.write_table(arrow, partial)
    return 0


def to_arrow(claims: Iterable[Claim]) -> pyarrow.Table:
    """Return the long table for pandas, polars and duckdb.

    Raises:
        KbqError: pyarrow is missing.
    """
    try:
        import pyarrow
    except ImportError:
        raise KbqError(f"Arrow {NEEDS_PYARROW}") from None
    schema = pyarrow.schema([(name, pyarrow.type_for_alias(type)) for name, type in COLUMNS.items()])
    rows = [
        {name: without_surrogates(value) if isinstance(value, str) else value for name, value in _row(claim).items()}
        for claim in claims
    ]
    return pyarrow.Table.from_pylist(rows, schema)


def _row(claim: Claim) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(claim, name, None) for name in COLUMNS}
    match claim.normal:
        case PageValue(page_id=page_id):
            return row | {"type": "page", "normal": page_id}
        case DateValue(edtf=edtf):
            return row | {"type": "date", "normal": edtf}
        case QuantityValue(number=number, unit=unit):
            return row | {"type": "quantity", "normal": number, "unit": unit or None}
    return row


def write_review(path: Path, claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()) -> None:
    """Write the page on which people review all claims, and from which they download a file of decisions.

    The claims are data, not HTML, and the page's policy forbids every script but its own, so that no text of a corpus
    can do anything.
    """
    page, review, style, *scripts = (
        (BROWSER / name).read_text("utf-8") for name in ("file.html", "review.html", "review.css", *SCRIPTS, "file.js")
    )
    page = page.replace("REVIEW", review)
    for name, content in (("STYLE", style), ("SCRIPT", "".join(scripts))):
        digest = hashlib.sha256(content.encode()).digest()
        page = page.replace(f"{name}-HASH", f"sha256-{base64.b64encode(digest).decode()}")
        page = page.replace(f">{name}<", f">{content}<")
    before, behind = page.split(">DATA<")
    write_lines(path, [f"{before}>{described(claims, source, relations)}<{behind}".removesuffix("\n")])


def described(claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()) -> str:
    """Return the data of the page: JSON without any character that could end it in HTML."""
    by_name, claims = {one.name: one for one in relations}, list(claims)
    content = {
        "source": dataclasses.asdict(source),
        "relations": {one.name: {"values": one.values} for one in by_name.values()},
        "claims": [{"id": claim.digest} | claim.to_dict() for claim in claims],
        "views": [views(claim, source, by_name.get(claim.relation)) for claim in claims],
    }
    return json.dumps(content, ensure_ascii=False).translate(_ENDS_A_SCRIPT)


def views(claim: Claim, source: Source, relation: Relation | None) -> list[dict[str, Any]]:
    """Return a claim, and each of its alternatives, as a `fact` in N-Triples and a `command` of QuickStatements.

    One that has no command has what it `lacks`; an alternative has its `normal` form, too.
    """
    properties = {relation.name: relation.property} if relation and relation.property else {}
    kind = relation.type if relation else None
    found = []
    for one in (claim, *(_instead_of(claim, other, kind) for other in claim.alternatives)):
        view: dict[str, Any] = {"fact": f"{fact(one, properties, {})} ."}
        try:
            view["command"] = command(one, source, relation, {})
        except KbqError as reason:
            view["lacks"] = str(reason)
        found.append(view | ({} if one is claim else {"normal": one.to_dict().get("normal")}))
    return found


def _instead_of(claim: Claim, other: Alternative, kind: ValueType | None) -> Claim:
    """Return the claim that an alternative would be."""
    normal = normal_form(other.value, kind) if kind in ("date", "quantity") else None
    place = {name: getattr(other, name) for name in Alternative.__slots__}
    return dataclasses.replace(claim, **place, normal=normal, alternatives=(), metadata={})
