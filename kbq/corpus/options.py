"""Options: how a corpus is read."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from kbq.errors import CorpusError
from kbq.options import Option, check
from kbq.text.encodings import check_encoding

CorpusFormat: TypeAlias = Literal[
    "auto", "kilt", "jsonl", "squad", "dpr", "msmarco", "text", "table"
]
TitleFrom: TypeAlias = Literal["auto", "heading", "metadata", "name"]


@dataclass(frozen=True, slots=True)
class CorpusColumns:
    """The names of the columns, or fields, of a corpus that hold the parts of a page."""

    id: Annotated[str, Option("For tables and jsonl: the column of page ids.")] = "id"
    title: Annotated[str, Option("For tables and jsonl: the column of titles.")] = "title"
    text: Annotated[str, Option("For tables and jsonl: the column of texts.")] = "text"


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """How documents are read. Raises CorpusError for invalid values."""

    title_from: Annotated[
        TitleFrom,
        Option("For documents: where titles come from; auto: metadata, heading, then name."),
    ] = "auto"
    encoding: Annotated[
        str | None, Option("For documents: encoding of text, such as windows-1252.")
    ] = None
    strict: Annotated[
        bool, Option("Stop at a document that cannot be read, instead of leaving it out.")
    ] = False
    seconds_per_document: Annotated[
        float, Option("For documents: longest time to read one, in seconds.", 0.1)
    ] = 30.0

    def __post_init__(self) -> None:
        check(self, CorpusError)
        if self.encoding is not None:
            check_encoding(self.encoding)
