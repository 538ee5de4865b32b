"""The command line: `kbq COMMAND`, assembled from the groups in kbq/commands/, a file for each
topic.
"""

from typing import Annotated

import typer

import kbq
from kbq.commands import ask, fill, maintain, measure, serve, teach
from kbq.commands.options import Commands

app = typer.Typer(
    name="kbq",
    cls=Commands,
    help=(
        "Turn a text corpus into a dense knowledge base of phrases, and answer slot queries from "
        "it."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (ask, fill, serve, teach, measure, maintain):
    app.add_typer(group.app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(kbq.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
