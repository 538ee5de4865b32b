"""Options of commands: those of a record, as `kbq.options` declares them, and some that only commands share."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbq.answers import IndexKind
from kbq.options import Declared, declared

if TYPE_CHECKING:
    from collections.abc import Sequence

ASK, FILL, SERVE, TEACH = "Ask", "Fill", "Serve", "Teach"  # panels of the help
MEASURE, MAINTAIN = "Measure (KILT)", "Maintain"


def output_path(path: Path | None) -> Path | None:
    """What is written is a plain file, or a folder, with a name."""
    if path is not None and str(path) == "-":
        raise typer.BadParameter("- stands for standard input: give a name to write to")
    if path is not None and path.suffix.lower() in (".gz", ".xz", ".bz2"):
        raise typer.BadParameter(f"{path.name} would not be compressed: leave out {path.suffix}")
    return path


Evidence = Annotated[
    int,
    typer.Option(
        min=0,
        help="Of --json: characters of the paragraph on either side of an answer; 1000000000 prints whole paragraphs.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
A_READER = "`default`, or a question-answering checkpoint (folder, hub name)"
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:n.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="The head of a Ray cluster whose machines do the work; `local` starts one here."
    ),
]
Kb = Annotated[Path | None, typer.Option(help="A knowledge base; without it the bundled sample is used.")]
TunedModel = Annotated[str | None, typer.Option(help="A query encoder tuned for this knowledge base.")]
Guess = Annotated[Path, typer.Argument(metavar="FILE", help="KILT predictions, plain or compressed.")]
Gold = Annotated[Path, typer.Argument(metavar="GOLD", help="The KILT file with the answers, plain or compressed.")]
TaskName = Annotated[
    str | None, typer.Option("--task", help="trex, nq, aidayago2…, a family (slot_filling…), or a task file.")
]
PagesOf = Annotated[Path | None, typer.Option("--kb", help="The knowledge base that the pages come from.")]
PageIds = Annotated[
    Path | None, typer.Option("--pages", help="File of page ids, one a line: answer from these pages only.")
]
IndexName = Annotated[IndexKind | None, typer.Option(help="Without it, the index built last is used.")]
Strict = Annotated[bool, typer.Option("--strict", help="Page ids must be integers, as on the leaderboard.")]


def takes(record: Any, *names: str, without: "Sequence[str]" = ()) -> Callable[[Callable[..., None]], Any]:
    """Give a command the options of a record, in place of its parameter of that type.

    Args:
        names: the options; by default all.
        without: options that the command has not.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(command).parameters.values()
        (place,) = (one.name for one in parameters if one.annotation is record)
        options = [one for one in declared(record) if one.name in (names or (one.name,)) and one.name not in without]
        expanded: list[inspect.Parameter] = []
        for one in parameters:
            expanded += [*map(_parameter, options)] if one.name == place else [one.replace(kind=one.KEYWORD_ONLY)]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            command(**given, **{place: record(**values)})

        run.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in expanded}
        return run

    return decorate


def _parameter(one: Declared) -> inspect.Parameter:
    """An option as the parameter of a command."""
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=typer_option(one)
    )


def typer_option(one: Declared) -> Any:
    """The type of a command's parameter for an option."""
    option = one.option
    flags = [option.flag or f"--{one.name.replace('_', '-')}"] if option.flag or one.type is bool else []
    return Annotated[
        one.annotation,
        typer.Option(
            *flags,
            help=option.help,
            min=option.least,
            max=option.most,
            metavar=option.metavar,
            show_default=option.default or True,
        ),
    ]


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record by their names, those of its own records unopened."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def option_of(record: Any, name: str) -> Any:
    """The type of a command's parameter for one option of a record."""
    return next(typer_option(one) for one in declared(record) if one.name == name)


def numbers(text: str, option: str) -> tuple[int, ...]:
    """The numbers of a list such as 1,5,20."""
    try:
        found = tuple(int(number) for number in text.split(","))
        if min(found) < 1:
            raise ValueError
        return found
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers like 1,5,20", param_hint=option) from None


def refuse_given(context: typer.Context, option: str, others: "Sequence[str]") -> None:
    """Refuse options that would be ignored: wrong usage."""
    for name in others:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"has no effect {option}: leave it out", param_hint=f"--{name.replace('_', '-')}")
