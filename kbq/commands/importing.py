"""Importing: `kbq import checkpoint`, `dump` and `index`, for what DensePhrases published."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbq.commands import printing
from kbq.commands.application import Commands
from kbq.commands.options import MAINTAIN, Device, Json, output_path
from kbq.commands.terminal import note, tell, typed_command
from kbq.progress import Bar

if TYPE_CHECKING:
    from kbq.importing.dump import Imported

app = typer.Typer()
importing = typer.Typer(
    cls=Commands, help="Import what DensePhrases published: checkpoints, phrase dumps, indexes.", no_args_is_help=True
)
app.add_typer(importing, name="import", rich_help_panel=MAINTAIN)
Dump = Annotated[Path, typer.Argument(help="The official folder dump/.")]
NewKb = Annotated[Path, typer.Argument(callback=output_path, help="Folder of the new knowledge base.")]
Checkpoint = Annotated[str, typer.Option(help="The checkpoint that made the vectors, or a model made of it.")]
Words = Annotated[bool, typer.Option("--bm25/--no-bm25", help="Also index the words.")]


@importing.command()
def checkpoint(
    source: Annotated[str, typer.Argument(help="A folder, or a hub name such as princeton-nlp/densephrases-multi.")],
    out: Annotated[Path, typer.Option(callback=output_path, help="Folder of the new model.")],
    vocabulary: Annotated[
        str | None, typer.Option(help="Folder or hub name with the word pieces, if the checkpoint lacks them.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="The model that the checkpoint was tuned from, if it only encodes queries.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a model of a checkpoint. It gives the vectors of the official code."""
    from kbq.importing.checkpoint import import_checkpoint

    made = import_checkpoint(source, out, vocabulary=vocabulary, base=base, command=typed_command())
    what = f"a query encoder for the model {made.base}" if made.base else "a model"
    tell(
        dataclasses.asdict(made) | {"folder": str(made.folder)},
        as_json,
        f"{made.folder}: {what}, {made.layers} layers, {made.dim} dimensions, {made.pieces:,} word pieces",
    )


@importing.command()
def dump(
    dump: Dump, kb: NewKb, model: Checkpoint, bm25: Words = True, device: Device = "auto", as_json: Json = False
) -> None:
    """Make a knowledge base of a phrase dump. Its vectors stay as they are. A killed run resumes."""
    from kbq.importing.dump import import_dump

    with Bar(f"importing {kb}") as bar:
        imported = import_dump(
            dump, kb, model, bm25=bm25, device=device, report=bar.pages, report_stage=bar.stage, note=note
        )
    _tell(imported, as_json)


@importing.command()
def index(
    dump: Dump,
    kb: NewKb,
    name: Annotated[str, typer.Option(help="Folder of the index in DUMP, such as start/1048576_flat_OPQ96.")],
    model: Checkpoint,
    bm25: Words = True,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Make a knowledge base of an index alone. Its codes stay where they are. A killed run resumes."""
    from kbq.importing.index import import_index

    with Bar(f"importing {kb}") as bar:
        imported = import_index(
            dump, kb, model, name, bm25=bm25, device=device, report=bar.pages, report_stage=bar.stage, note=note
        )
    _tell(imported, as_json)


def _tell(imported: "Imported", as_json: bool) -> None:
    """Say what a knowledge base holds, and how many tokens of the dump its text lacks."""
    from kbq.storage.files import folder_bytes

    counts, misfits, size = imported.manifest.counts, imported.misfits, folder_bytes(imported.folder)
    for problem in misfits.named:
        note(problem)
    if misfits.tokens:
        documents = f"{misfits.tokens:,} tokens of {misfits.documents:,} documents"
        note(f"no phrase opens or closes at {documents}, as their characters are not in one paragraph")
    facts = {"kb": str(imported.folder), **counts.facts, "index": imported.manifest.index.kind, "bytes": size}
    tell(
        facts | {"misfits": misfits.tokens, "documents_with_misfits": misfits.documents},
        as_json,
        f"{imported.folder}: {counts.pages:,} pages, {counts.paragraphs:,} paragraphs, {counts.tokens:,} tokens",
        f"{counts.rows:,} token vectors, {printing.size(size)} on disk",
    )
