"""Serve: the commands that answer until they are stopped, `kbq serve` or `kbq mcp`."""

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbq.answers import IndexKind
from kbq.commands.options import (
    SERVE,
    AskedKb,
    Device,
    IndexName,
    Json,
    Ray,
    TunedModel,
    fields_of,
    refuse_given,
    takes,
)
from kbq.commands.terminal import note, tell
from kbq.errors import KbqError
from kbq.serve.settings import SERVICE, ServeSettings, ServiceOptions

if TYPE_CHECKING:
    from kbq.serve.knowledge_bases import Folder

app = typer.Typer()


@app.command(rich_help_panel=SERVE)
@takes(ServiceOptions)
def serve(
    context: typer.Context,
    kbs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KB", help="Folders, or NAME=FOLDER; by default the bundled sample."
        ),
    ] = None,
    options: ServiceOptions = SERVICE,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            envvar="KBQ_ALLOW_ORIGIN",
            help="Origin whose scripts may call the API in a browser; repeat it.",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="KBQ_API_KEY_FILE",
            help="File with one key per line; all but /healthz and /readyz need one.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A query encoder tuned for a knowledge base: FOLDER, or NAME=FOLDER; repeat it."
        ),
    ] = None,
    index: IndexName = None,
    ray: Ray = None,
    device: Device = "auto",
    decisions: Annotated[
        Path | None,
        typer.Option(
            envvar="KBQ_DECISIONS",
            help="Folder for people's decisions on the page: NAME.decisions.jsonl for each KB.",
        ),
    ] = None,
    edit: Annotated[
        bool,
        typer.Option(
            "--edit", help="Let the page make knowledge bases of documents; only on this machine."
        ),
    ] = False,
    folder: Annotated[
        Path,
        typer.Option(
            envvar="KBQ_FOLDER",
            help="With --edit: folder of these knowledge bases and their documents.",
        ),
    ] = Path("knowledge-bases"),
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Answer people and programs over HTTP, by a page to ask and to fill tables, and by an API.
    Ctrl-C ends it.
    """
    if not edit:
        refuse_given(context, "without --edit", ("folder",))
    try:
        from kbq.serve.app import serve as serve_until_told
        from kbq.serve.editing import built_in
        from kbq.serve.guard import read_keys
        from kbq.serve.knowledge_bases import open_knowledge_bases
    except ModuleNotFoundError as error:
        raise _missing("kbq serve", error) from None

    settings = ServeSettings(
        **fields_of(options),
        allow_origin=tuple(allow_origin or ()),
        keys=read_keys(api_key_file) if api_key_file else (),
        decisions=decisions or (folder if edit else None),
        edit=folder if edit else None,
    )
    made = {} if not edit else built_in(folder)
    given = [*(kbs or []), *(f"{name}={path}" for name, path in made.items())]
    served = open_knowledge_bases(_folders(given, model or [], index, device, ray))

    def started(address: str) -> None:
        names = [served_kb.name for served_kb in served]
        tell({"address": address, "kbs": names}, as_json, f"{address}  serves {', '.join(names)}")
        if edit:
            note(f"new knowledge bases: {address}new, which keeps them in {folder.absolute()}")
        if open_browser and not webbrowser.open(f"{address}new" if edit and not given else address):
            note("no browser could be opened")

    serve_until_told(served, settings, started)


@app.command(rich_help_panel=SERVE)
def mcp(
    kb: Annotated[
        Path | None,
        typer.Argument(metavar="KB", help="A knowledge base; by default the bundled sample."),
    ] = None,
    model: TunedModel = None,
    index: IndexName = None,
    device: Device = "auto",
) -> None:
    """Give a language model tools to look up facts: an MCP server on standard input and output."""
    try:
        from kbq.serve.app import serve_stdio
        from kbq.serve.knowledge_bases import Folder, ServedKb
    except ModuleNotFoundError as error:
        raise _missing("kbq mcp", error) from None
    if kb is None:
        name = "sample"
    else:
        name = kb.resolve().name
    serve_stdio(ServedKb(name, Folder(kb or AskedKb().open().folder, model or "", index, device)))


def _missing(command: str, error: ModuleNotFoundError) -> Exception:
    """Return an error that names the packages a command needs, or the given one if a module of kbq
    is missing.
    """
    if (error.name or "").startswith("kbq"):
        return error
    return KbqError(
        f"{command} needs further packages: pip install '.[serve]' in the checkout of kbq"
    )


def _folders(
    kbs: Sequence[str], models: Sequence[str], index: IndexKind | None, device: str, ray: str | None
) -> "dict[str, Folder]":
    """Return the knowledge bases to serve by name, or the sample if none is given."""
    from kbq.serve.knowledge_bases import Folder

    if kbs:
        paths = dict(map(_named, kbs))
    else:
        paths = {"sample": str(AskedKb().open().folder)}
    if kbs and len(paths) < len(kbs):
        raise typer.BadParameter("two have one name: write NAME=FOLDER", param_hint="KB")
    tuned = dict(map(_named, models))
    others = sorted(set(tuned) - set(paths))
    if len(paths) == 1 and len(models) == 1 and others and "=" not in models[0]:
        tuned = {next(iter(paths)): models[0]}
        others = []

    if others:
        raise typer.BadParameter(
            f"no knowledge base is named {others[0]!r}: write NAME=FOLDER", param_hint="--model"
        )

    return {
        name: Folder(Path(path), tuned.get(name, ""), index, device, ray)
        for name, path in paths.items()
    }


def _named(text: str) -> tuple[str, str]:
    """Return a name, by default that of the folder, and the folder.

    >>> _named("people=kbs/p"), _named("kbs/places"), _named("kbs/a=b")
    (('people', 'kbs/p'), ('places', 'kbs/places'), ('a=b', 'kbs/a=b'))
    """
    name, given, folder = text.partition("=")
    if given and "/" not in name:
        return name, folder
    return Path(text).resolve().name, text
