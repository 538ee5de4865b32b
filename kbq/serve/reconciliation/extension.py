"""Extension: pages and relations become the cells of new columns, in the protocol's form."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kbq.corpus.pages import Page
from kbq.dump.page_directory import PageValue
from kbq.errors import KbqError
from kbq.serve.bounds import refuse_long
from kbq.serve.filling import SlotFiller
from kbq.tables.cells import subject_of
from kbq.tables.claims import Claim, DateValue, written
from kbq.tables.relations import Slot, relation_named

DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
Content = Literal["value", "probability", "sentence", "place"]
CONTENTS: dict[Content, str] = {
    "value": "Value",
    "probability": "Probability",
    "sentence": "Sentence",
    "place": "Page, paragraph, characters",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a column; OpenRefine may send numbers as texts. `described_settings` says what they mean."""

    limit: Annotated[int, Meta(ge=0)] = 1
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    content: Content = "value"


@dataclass(frozen=True, slots=True)
class Column:
    """A relation that becomes a column."""

    id: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> Settings:
        """The settings; a field that was left empty has its default. Raises KbqError if one has no meaning."""
        given = {name: value for name, value in self.settings.items() if value not in ("", None)}
        try:
            return msgspec.convert(given, Settings, strict=False)
        except msgspec.ValidationError as error:
            raise KbqError(f"the settings of {self.id!r:.80} have no meaning: {error}") from None


@dataclass(frozen=True, slots=True)
class Extension:
    """A request of the protocol: which columns to add to which pages."""

    ids: list[str]
    properties: list[Column] = field(default_factory=list)


def described_settings(min_probability: float) -> list[dict[str, Any]]:
    """Describe `Settings` as the protocol does.

    Args:
        min_probability: of a value, below which a cell stays empty by default.
    """
    names = "name", "label", "type", "default", "help_text"
    probability = "From 0 to 1: cells whose values are less likely right stay empty"
    settings: list[tuple[Any, ...]] = [
        ("limit", "Values", "number", 1, "How many values a cell has at most; 0 for all that are likely enough"),
        ("probability", "Probability", "number", min_probability, probability),
        ("content", "Content", "select", "value", "The value, or what is known of it"),
    ]
    described = [dict(zip(names, one, strict=True)) for one in settings]
    described[-1]["choices"] = [{"value": value, "name": name} for value, name in CONTENTS.items()]
    return described


async def extended(request: Extension, pages: Sequence[Page], filler: SlotFiller) -> dict[str, Any]:
    """Answer a request. Every id has every column, an empty list where nothing is likely enough.

    Args:
        pages: those of the ids that exist.

    Raises:
        KbqError: a relation cannot be asked for.
    """
    columns = []
    for one in request.properties:
        chosen = one.chosen
        named = relation_named(one.id, "one" if chosen.limit == 1 else "many")
        columns.append((one.id, replace(named, min_probability=chosen.probability), chosen))
    asked = [(page, *column) for page in pages for column in columns]
    refuse_long([page.title for page in pages], [one.id for one in request.properties])
    claims = await filler.claims([Slot(subject_of(page.title), relation) for page, _, relation, _ in asked])
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {
        page_id: {column: [] for column, _, _ in columns} for page_id in request.ids
    }
    for (page, column, _, chosen), said in zip(asked, claims, strict=True):
        accepted = [claim for claim in said if claim.accepted][: chosen.limit or None]
        rows[page.id][column] = [_cell(claim, chosen.content) for claim in accepted]
    return {"meta": [{"id": column, "name": column} for column, _, _ in columns], "rows": rows}


def _cell(claim: Claim, content: Content) -> dict[str, Any]:
    """Return a value, or its evidence or probability, in the form of the protocol."""
    if content == "sentence":
        return {"str": claim.sentence}
    if content == "place":
        return {"str": f"{claim.page_id}, paragraph {claim.paragraph}, characters {claim.start}-{claim.end}"}
    if content == "probability":
        return {} if claim.probability is None else {"float": claim.probability}
    if isinstance(claim.normal, PageValue):
        return {"id": claim.normal.page_id, "name": claim.normal.title}
    # A date of OpenRefine is a moment: a day is, a year or a Julian date would become one that nobody has said.
    iso = written(claim, "iso")
    return {"date": f"{iso}T00:00:00Z"} if isinstance(claim.normal, DateValue) and DAY.fullmatch(iso) else {"str": iso}
