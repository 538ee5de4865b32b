"""Claims: a value of a slot, with its probability, at its place; a file has one per line."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import jsonlines
import msgspec

from kbq.answers import percentage
from kbq.dump.page_directory import PageValue
from kbq.english.dates import DAY, DateValue, date_of_cell, day_in_words
from kbq.errors import KbqError
from kbq.storage.records import as_record, digest_of_bytes, json_bytes
from kbq.storage.writing import replacing, writing_to
from kbq.tables.options import Dates
from kbq.text import html
from kbq.text.normal_forms import tidy

# Endings of a file of claims, and of the file that says their origin.
CLAIMS = ".claims.jsonl"
RUN = ".run.json"
ValueType = Literal["text", "page", "date", "quantity"]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class QuantityValue(
    msgspec.Struct, frozen=True, tag_field="type", tag="quantity", omit_defaults=True
):
    """A number in decimal digits, and its unit as in the text, perhaps none; with words that make
    it less exact.
    """

    number: str
    unit: str
    about: bool = False
    bound: Literal["", ">", ">=", "<", "<="] = ""
    to: str = ""  # the upper end of a range

    @property
    def is_exact(self) -> bool:
        """Whether it is one number, perhaps approximate."""
        return not self.bound and not self.to


NormalForm = PageValue | DateValue | QuantityValue


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another, less likely value of the same cell."""

    value: str
    probability: Probability | None
    page_id: str
    title: str
    paragraph: Count = 0
    start: Count = 0
    end: Count = 0
    sentence: str = ""
    sentence_start: Count = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", tidy(self.value))

    @classmethod
    def of(cls, claim: "Claim") -> Self:
        """Turn a claim into an alternative."""
        return cls(*(getattr(claim, name) for name in cls.__slots__))

    @property
    def within(self) -> tuple[int, int]:
        """The characters [start, end) of `sentence` that are the value, untidied."""
        return self.start - self.sentence_start, self.end - self.sentence_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One value of one cell; `value` is the text of the source, paragraph[start:end], tidied (see
    `normal_forms`).

    In `sentence`, it is untidied: sentence[start - sentence_start : end - sentence_start].
    """

    subject: str
    relation: str
    value: str
    probability: Probability | None  # None if no calibration fits
    accepted: bool  # above the threshold of its relation: its cell is filled
    page_id: str
    title: str
    paragraph: Count
    start: Count
    end: Count
    sentence: str
    sentence_start: Count
    normal: NormalForm | None = None  # None if there is any doubt
    by_hand: bool = False  # typed by a person, without a page, as the text does not say it
    # Distinct places with the same value among the reranked ones, this one included.
    says_the_same: Count = 1
    alternatives: tuple[Alternative, ...] = ()
    # Metadata of the page, from its corpus.
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", tidy(self.value))

    @property
    def parts(self) -> tuple[str, str, str]:
        """The sentence in three parts: before the value, the value, and after it."""
        start = self.start - self.sentence_start
        end = self.end - self.sentence_start
        return self.sentence[:start], self.sentence[start:end], self.sentence[end:]

    def _repr_html_(self) -> str:
        cells = (
            html.text(self.subject),
            html.text(self.relation),
            html.element("b", html.text(self.value)),
        )
        probability = (
            ""
            if self.probability is None
            else html.bar(self.probability, percentage(self.probability))
        )
        row = [
            html.element("td", one)
            for one in (*cells, probability, html.marked(*self.parts), html.text(self.title))
        ]

        return html.table(
            ("subject", "relation", "value", "probability", "evidence", "page"), [row]
        )

    @property
    def digest(self) -> str:
        """A name that the same value from the same place has in every run."""
        parts = (
            self.subject,
            self.relation,
            self.value,
            self.page_id,
            self.paragraph,
            self.start,
            self.end,
        )
        return digest_of_bytes(repr(parts).encode("utf-8", "backslashreplace"))

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as a line of a file, without empty fields."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        may_lack = ("normal", "by_hand", "alternatives", "metadata")
        return {name: value for name, value in fields.items() if value or name not in may_lack}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the claim from `to_dict`.

        Raises ValueError if a field is missing, unknown or of another type, or the value is not at
        its place.
        """
        unknown = [name for name in fields if name not in cls.__slots__]
        if unknown:
            raise ValueError(f"field {unknown[0]!r} is unknown")
        claim = as_record(fields, cls)
        if claim.start < claim.sentence_start or tidy(claim.parts[1]) != claim.value:
            raise ValueError(f"value {claim.value!r:.60} is not at its place in the sentence")
        return claim


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of claims."""

    kbq_version: str
    model: str  # its digest
    knowledge_base: str  # digest of its content
    command: str
    time: str  # ISO 8601, UTC


def written(claim: Claim, dates: Dates) -> str:
    """Return a value as a table shows it.

    `dates`: `text`, as in the source; `edtf`; or `iso`, except for decades and "circa", which ISO
    cannot express. Julian dates always stay as in the source. A day whose year the source says
    elsewhere is written out.
    """
    if not isinstance(claim.normal, DateValue):
        return claim.value
    edtf = claim.normal.edtf
    if dates == "text" or claim.normal.julian:
        if _is_split(claim.value, claim.normal):
            return day_in_words(edtf)
        return claim.value
    return (
        edtf
        if dates == "edtf" or re.fullmatch(r"-?[0-9]{4}(-[0-9]{2}){0,2}", edtf)
        else claim.value
    )


def _is_split(value: str, normal: DateValue) -> bool:
    """Return whether a value is only a part of the day that it means, which its sentences say."""
    if normal.precision < DAY:
        return False
    own = date_of_cell(value)
    return own is None or own.precision < DAY


def write_claims(path: Path, claims: Iterable[Claim]) -> None:
    write_json_lines(path, (claim.to_dict() for claim in claims))


def write_json_lines(path: Path, rows: Iterable[object]) -> None:
    """Replace a file of JSON lines atomically."""
    with writing_to(path, KbqError), replacing(path) as partial, partial.open("wb") as file:
        jsonlines.Writer(file, dumps=json_bytes).write_all(rows)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    r"""Replace a text file atomically. Lone surrogates, which UTF-8 cannot encode, become the
    escapes \ud800.
    """
    with (
        writing_to(path, KbqError),
        replacing(path) as partial,
        partial.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
    ):
        file.writelines(f"{line}\n" for line in lines)
