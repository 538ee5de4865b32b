"""Options: how to build a knowledge base from a corpus, or change one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from kbq.answers import WantedKind
from kbq.corpus.options import CorpusColumns, CorpusFormat, DocumentOptions
from kbq.errors import KnowledgeBaseError
from kbq.options import Option, check, refuse_unknown_options
from kbq.storage.paths import as_path
from kbq.storage.reports import Note, Report

if TYPE_CHECKING:
    from kbq.dump.shards import Counts

RECALL = 0.99  # share of the ten best phrases of exact search that an index must find
TERMS = 500  # kept for each sentence: in the paper, 500 reach an MRR of 0.77, and all terms 0.79


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How a knowledge base is built; an update uses some of it. Raises KnowledgeBaseError for
    invalid values.
    """

    format: Annotated[CorpusFormat, Option("Format of the corpus.")] = "auto"
    # What a table, or jsonl, calls the columns of ids, titles and texts.
    columns: CorpusColumns | None = None
    documents: DocumentOptions | None = None
    index: Annotated[
        WantedKind, Option("auto: exact up to about 2 million kept tokens, compact above.")
    ] = "auto"
    bm25: Annotated[
        bool,
        Option("Also index the words; --append does as the build did.", flag="--bm25/--no-bm25"),
    ] = True
    sparta: Annotated[
        Path | None, Option("A SPARTA model whose impacts to add, as `kbq index sparta` does.")
    ] = None
    terms: Annotated[
        int, Option("How many of each sentence's SPARTA impacts to keep.", least=1)
    ] = TERMS
    append: Annotated[bool, Option("Add to an existing knowledge base.")] = False
    skip_bad_lines: Annotated[bool, Option("Report bad lines and go on.")] = False
    workers: Annotated[
        int, Option("Processes that encode, each with one thread; they take turns on GPUs.", 1, 256)
    ] = 1

    def __post_init__(self) -> None:
        check(self, KnowledgeBaseError)


class CorpusKwargs(TypedDict, total=False):
    """The options of every method that reads a corpus; see `BuildOptions`.

    `report` is called after each block with the counts so far, `report_stage` with the progress of
    indexing, and `note` with each message for the user.
    """

    format: CorpusFormat
    columns: CorpusColumns | None
    documents: DocumentOptions | None
    workers: int
    report: "Callable[[Counts], None]"
    report_stage: Report
    note: Note


class SyncKwargs(CorpusKwargs, total=False):
    """The options of `KnowledgeBase.sync`."""

    dry_run: bool  # only compare; nothing is changed


class UpdateKwargs(SyncKwargs, total=False):
    """The options of `KnowledgeBase.update`."""

    skip_bad_lines: bool


class BuildKwargs(CorpusKwargs, total=False):
    """The options of `KnowledgeBase.build`."""

    skip_bad_lines: bool
    index: WantedKind
    bm25: bool
    sparta: str | Path | None
    terms: int
    append: bool


def build_options(keywords: Mapping[str, Any], known: type) -> tuple[BuildOptions, dict[str, Any]]:
    """Split the keywords of a method, whose names `known` declares, into options and others; paths
    may be texts.
    """
    refuse_unknown_options(keywords, known.__annotations__, KnowledgeBaseError)
    names = {field.name for field in fields(BuildOptions)}
    given, others = (
        {name: keywords[name] for name in keywords if (name in names) == is_one}
        for is_one in (True, False)
    )
    if given.get("sparta") is not None:
        given["sparta"] = as_path(given["sparta"], "a SPARTA model")
    return BuildOptions(**given), others
