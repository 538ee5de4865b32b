"""The help of every command, printed into docs/reference/commands.md.

    python docs/generate_commands.py            writes the page
    python docs/generate_commands.py --check    exit status 1 where the page is stale

Walks the command tree of the Typer application in cli.py, so that it knows every command and
sub-command.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "commands.md"
WIDTH = 100
HEAD = """<!-- Written by docs/generate_commands.py: do not edit. -->

# Commands

Every command has `--json`, which prints JSON and nothing else on standard output; notes and progress go to standard
error. The exit status is 0 when the work is done, 1 when the input is at fault (the first 100 problems are listed, with
file and line; `kbq validate` lists all), and 2 for wrong usage. [File formats](formats.md) describes what goes in and
comes out.
"""


def main() -> None:
    # Before rich and click look at the terminal
    os.environ.update(COLUMNS=str(WIDTH), TERMINAL_WIDTH=str(WIDTH), NO_COLOR="1", TERM="dumb")
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "_TYPER_FORCE_DISABLE_TERMINAL"):
        os.environ.pop(name, None)
    sys.path.insert(0, str(ROOT))
    page = "\n".join([HEAD, *sections()])
    if sys.argv[1:] == ["--check"]:
        if not PAGE.is_file() or PAGE.read_text("utf-8") != page:
            sys.exit(f"{PAGE.relative_to(ROOT)} is stale: run python docs/generate_commands.py")
    elif sys.argv[1:]:
        sys.exit("usage: python docs/generate_commands.py [--check]")
    else:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page, "utf-8")


def sections() -> Iterator[str]:
    """A heading and the help of each command, sub-commands behind their group."""
    import typer.main

    from cli import app

    for level, name, text in helps(typer.main.get_command(app), "kbq", None, 1):
        if level > 1:
            yield f"{'#' * level} {name}\n"
        yield f"```text\n{text}\n```\n"


def helps(command: Any, name: str, parent: Any, level: int) -> Iterator[tuple[int, str, str]]:
    """Level in the command tree, full name and help, group before members, in the order of the
    group's help.
    """
    context = command.context_class(
        command, info_name=name.split()[-1], parent=parent, max_content_width=WIDTH
    )
    context.terminal_width = WIDTH
    context.color = False
    yield level, name, plain_help(command, context)
    for member in command.list_commands(context) if hasattr(command, "list_commands") else ():
        found = command.get_command(context, member)
        if not found.hidden:
            yield from helps(found, f"{name} {member}", context, level + 1)


def plain_help(command: Any, context: Any) -> str:
    """The help as `--help` prints it: Typer's own, with panels, or click's."""
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(
        printed
    ):  # with rich markup Typer prints instead of returning a text
        text = command.get_help(context)
    lines = (printed.getvalue() or text).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


if __name__ == "__main__":
    main()
