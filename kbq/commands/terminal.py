"""Terminal: print so that no text can control the terminal.

Results go to standard output (with --json nothing else does), notes, errors and progress to
standard error.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any, Self

import typer

from kbq.errors import MOST_PROBLEMS, KbqError
from kbq.text.visible import visible, visible_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Line = str | Sequence[str]  # a line, or its parts, of which some are `Styled`

AROUND = 160  # characters on either side of a phrase, and of a text that is shortened
# Characters shown of an answer that is a whole paragraph, and of each text that explains an error.
WHOLE = 2000
NAMED = 3  # names shown of a longer list


class Styled(str):
    """A part of a line that is printed in a style: `bold`, `dim`, or `fg`, a colour."""

    __slots__ = ("style",)
    style: dict[str, Any]

    def __new__(cls, text: str, **style: Any) -> Self:
        styled = super().__new__(cls, text)
        styled.style = style
        return styled


def show(*lines: Line, err: bool = False, nl: bool = True) -> None:
    """Print lines for a person, each on one line; a terminal obeys nothing in them but their own
    styles.
    """
    for line in lines:
        if isinstance(line, str):
            text = _shown(line)
        else:
            text = "".join(map(_shown, line))
        typer.echo(text, err=err, nl=nl)


def _shown(part: str) -> str:
    """Escape a part of a line, and style it if the terminal can and nobody minds
    (https://no-color.org).
    """
    has_styles = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return (
        typer.style(visible(part), **part.style)
        if isinstance(part, Styled) and has_styles
        else visible(part)
    )


def tell(document: Mapping[str, object], as_json: bool, *lines: Line) -> None:
    """Print the outcome of a command: one JSON document, or these lines."""
    if as_json:
        print_json(document)
    else:
        show(*lines)


def print_json(document: Mapping[str, object]) -> None:
    """Print a JSON document on one line, in which JSON escapes replace what a terminal would obey."""
    typer.echo(visible_json(document))


def print_answers_json(
    document: Mapping[str, object], answers: Iterable[Mapping[str, object]]
) -> None:
    """Print a JSON document on one line, with its list of answers one by one: many of them take no
    more memory.
    """
    typer.echo(visible_json(document).removesuffix("}") + ', "answers": [', nl=False)
    for number, answer in enumerate(answers):
        typer.echo(", " * (number > 0) + visible_json(answer), nl=False)
    typer.echo("]}")


def print_file(content: bytes) -> None:
    """Print the content of a file: unchanged for a program, escaped for a terminal."""
    if sys.stdout.isatty():
        show(*content.decode("utf-8", "replace").splitlines())
    else:
        typer.echo(content, nl=False)


def typed_command() -> str:
    return shlex.join(["kbq", *sys.argv[1:]])


def note(text: str) -> None:
    show(Styled(text, dim=True), err=True)


def print_error(error: KbqError) -> None:
    """Print an error below its problems, on standard error; do not repeat a single problem that its
    message quotes.
    """
    problems = error.typed_problems
    is_quoted = len(problems) == 1 and problems[0] in error.typed
    if not is_quoted:
        for problem in problems[:MOST_PROBLEMS]:
            note(problem)
    if len(problems) > MOST_PROBLEMS:
        note(f"… and {len(problems) - MOST_PROBLEMS:,} more")
    show(Styled(f"error: {error.typed}", fg=typer.colors.RED), err=True)


def shortened(text: str, width: int = AROUND) -> str:
    """Return a text on one line, of at most `width` characters."""
    # Joined by blanks, as this many words are too long already.
    line = " ".join(text.split(None, width)[:width])
    if len(line) <= width:
        return line
    return f"{line[: width - 1]}…"


def some(names: Sequence[str]) -> str:
    listed = ", ".join(names[:NAMED])
    if len(names) > NAMED:
        return f"{listed} …"
    return listed


def size(count: int) -> str:
    """Return a number of bytes with its unit."""
    if count < 1e9:
        return f"{count / 1e6:,.1f} MB"
    return f"{count / 1e9:,.2f} GB"
