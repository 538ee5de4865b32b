"""MCP: `kbq mcp`, which a language model's host starts."""

from pathlib import Path
from typing import Annotated

import typer

from kbq.commands.asking import AskedKb
from kbq.commands.options import SERVE, Device, IndexName, TunedModel
from kbq.commands.serve import NEEDS_SERVE
from kbq.errors import KbqError

app = typer.Typer()


@app.command(rich_help_panel=SERVE)
def mcp(
    kb: Annotated[
        Path | None, typer.Argument(metavar="[KB]", help="A knowledge base; by default the bundled sample.")
    ] = None,
    model: TunedModel = None,
    index: IndexName = None,
    device: Device = "auto",
) -> None:
    """Give a language model tools to look up facts: an MCP server on standard input and output."""
    try:
        from kbq.serve.knowledge_bases import Folder, ServedKb
        from kbq.serve.tools import serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kbq"):
            raise
        raise KbqError(f"kbq mcp {NEEDS_SERVE}") from None
    name = "sample" if kb is None else kb.resolve().name
    serve_stdio(ServedKb(name, Folder(kb or AskedKb().open().folder, model or "", index, device)))
