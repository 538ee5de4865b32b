"""Terminal: everything that commands print goes through here, so that no text from elsewhere controls the terminal.

Results go to standard output (with --json nothing else does), notes, errors and progress to standard error.
"""

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


class Styled(str):
    """A part of a line that is printed in a style: `bold`, `dim`, or `fg`, a colour."""

    __slots__ = ("style",)
    style: dict[str, Any]

    def __new__(cls, text: str, **style: Any) -> Self:
        styled = super().__new__(cls, text)
        styled.style = style
        return styled


def show(*lines: "Line", err: bool = False, nl: bool = True) -> None:
    """Print lines for a person, each on one line; a terminal obeys nothing in them but their own styles."""
    for line in lines:
        typer.echo("".join(map(_shown, [line] if isinstance(line, str) else line)), err=err, nl=nl)


def _shown(part: str) -> str:
    return typer.style(visible(part), **part.style) if isinstance(part, Styled) and has_styles() else visible(part)


def has_styles() -> bool:
    """Whether colours and the like are wanted (https://no-color.org), and a terminal understands them."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def tell(document: "Mapping[str, object]", as_json: bool, *lines: "Line") -> None:
    """Print the outcome of a command: one JSON document, or these lines."""
    if as_json:
        print_json(document)
    else:
        show(*lines)


def print_json(document: "Mapping[str, object]") -> None:
    """Print one JSON document on a line; escapes, which JSON reads as the same, replace what a terminal would obey."""
    typer.echo(visible_json(document))


def print_answers_json(document: "Mapping[str, object]", answers: "Iterable[Mapping[str, object]]") -> None:
    """Print one JSON document on a line, with its list of answers one by one: many of them take no more memory."""
    typer.echo(visible_json(document).removesuffix("}") + ', "answers": [', nl=False)
    for number, answer in enumerate(answers):
        typer.echo(", " * (number > 0) + visible_json(answer), nl=False)
    typer.echo("]}")


def print_file(content: bytes) -> None:
    """Print the content of a file: as it is for a program; at a terminal, what that would obey is escaped."""
    if sys.stdout.isatty():
        show(*content.decode("utf-8", "replace").splitlines())
    else:
        typer.echo(content, nl=False)


def typed_command() -> str:
    """Return the command as it was typed."""
    return shlex.join(["kbq", *sys.argv[1:]])


def note(text: str) -> None:
    """Print a line for the person at the terminal, on standard error."""
    show(Styled(text, dim=True), err=True)


def print_error(error: KbqError) -> None:
    """Print an error with its problems, on standard error; an only one that it names anyway is not repeated."""
    told = [] if len(error.problems) == 1 and error.problems[0] in str(error) else error.problems
    for problem in told[:MOST_PROBLEMS]:
        note(problem)
    if len(error.problems) > MOST_PROBLEMS:
        note(f"… and {len(error.problems) - MOST_PROBLEMS:,} more")
    show(Styled(f"error: {error}", fg=typer.colors.RED), err=True)
