"""Asking: what commands that ask a knowledge base share: which it is, their queries, and what may be mistyped."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbq.answers import WORDS_ALONE, Backend
from kbq.commands import printing
from kbq.commands.options import Device, IndexName, Ray, TunedModel, refuse_given
from kbq.commands.terminal import Styled, note, show
from kbq.errors import QueryError
from kbq.progress import Bar

if TYPE_CHECKING:
    from kbq.dump.shards import Counts
    from kbq.kb import KnowledgeBase

HELP = 'ask for a property, such as "Marie Curie [SEP] place of birth", or a question; ↑ brings back earlier queries'


@dataclass(frozen=True, slots=True)
class AskedKb:
    """The knowledge base that a command asks, and what searches it."""

    kb: Annotated[Path | None, typer.Option(help="A knowledge base; by default the bundled sample.")] = None
    pages: Annotated[
        Path | None, typer.Option(help="Answer only from these pages: a file of page ids, one per line.")
    ] = None
    model: TunedModel = None
    index: IndexName = None
    ray: Ray = None
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="Processes that answer; on a GPU, each has its own copy of the vectors.")
    ] = 1
    device: Device = "auto"

    def open(self) -> "KnowledgeBase":
        """Open it; the bundled sample is built on first use."""
        from kbq.kb import KnowledgeBase

        if self.kb is None:
            kb = KnowledgeBase.sample(
                self.model, index=self.index, ray=self.ray, workers=self.workers, device=self.device, building=_building
            )
        else:
            kb = KnowledgeBase.open(
                self.kb, self.model, index=self.index, ray=self.ray, workers=self.workers, device=self.device
            )
        return kb if self.pages is None else kb.with_pages(self.pages)

    def note_sample(self) -> None:
        """Say so if the bundled sample is asked."""
        if self.kb is None:
            note("no --kb is given, so the bundled sample is used")


@contextmanager
def _building(folder: Path) -> "Iterator[Callable[[Counts], None]]":
    note(f"building the sample knowledge base, once, in {folder}")
    with Bar("building") as bar:
        yield bar.pages


def refuse_idle(context: typer.Context, backend: Backend, reader: str | None) -> None:
    """Refuse options of a reader, or of an index, if none is used."""
    if reader is None:
        refuse_given(context, "without --reader", ("depth", "retrieval_weight"))
    if backend in WORDS_ALONE:
        refuse_given(context, f"with --backend {backend}", ("index", "ray"))


def read_queries(texts: Sequence[str], source: str | None) -> list[tuple[str, str]]:
    """Return the queries that are given, with an empty place, and those of a file, with "file:line".

    Raises QueryError if there is none, or names each one that is malformed.
    """
    from kbq.dump.manifest import MANIFEST
    from kbq.model.queries import refuse_unreadable
    from kbq.storage.lines import read_lines, source_name
    from kbq.text.letters import clean_text

    if len(texts) > 2 and not any(" " in text for text in texts):
        note("each word is asked by itself: put quotes around a query of several words")
    for text in texts:
        if os.path.isfile(os.path.join(text, MANIFEST)):  # noqa: PTH113, PTH118 - a path may raise OSError
            raise QueryError(f"{text} is a knowledge base, not a query: ask it with --kb {text}", is_usage=True)
    queries = [("", clean_text(text)) for text in texts]
    if source is not None:
        name, lines = source_name(source), list(read_lines(source, QueryError))
        queries += [(f"{name}:{number}", clean_text(text)) for number, text in lines if text.strip()]
        if not queries:
            raise QueryError(f"{name} holds no query: write one per line")
    if not queries:
        raise QueryError(
            'there is no query: write kbq query "subject [SEP] relation", or give a --file with one per line'
        )
    # What no model can read is reported before one is loaded.
    refuse_unreadable([text for _, text in queries], (), [place for place, _ in queries])
    return queries


def typed_lines() -> Iterator[str]:
    """Yield what a person types at a prompt, until Ctrl-D or Ctrl-C."""
    note("type a query, help, or Ctrl-D to end")
    with suppress(ImportError):  # Windows lacks it
        import readline  # noqa: F401 - edits lines, and keeps earlier ones
    while True:
        show(Styled("query: ", dim=True), err=True, nl=False)
        try:
            line = input()
        except (EOFError, KeyboardInterrupt):
            show("", err=True)
            return
        if line.strip() in ("help", "?"):
            note(HELP)
        elif line.strip():
            yield line


def note_unknown(words: Sequence[str]) -> None:
    """Name words that no page has: they may be mistyped."""
    if words:
        note(f"nowhere in the knowledge base, so maybe mistyped: {printing.some(words)}")


def note_untuned(relations: Sequence[str]) -> None:
    """Name relations that the query encoder was not tuned on."""
    if relations:
        note(f"the query encoder was not tuned on {len(relations)} of the relations: {printing.some(relations)}")
