"""Options of commands: those of a record, as `kbq.options` declares them, and some that only commands share."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ParameterInfo

from kbq.answers import IndexKind
from kbq.options import Declared, declared

ASK, FILL, SERVE, TEACH = "Ask", "Fill", "Serve", "Teach"  # panels of the help
MEASURE, MAINTAIN = "Measure (KILT)", "Maintain"


def output_path(path: Path | None) -> Path | None:
    """Refuse a name that cannot be that of a new file or folder."""
    if path is not None and str(path) == "-":
        raise typer.BadParameter("- stands for standard input: give a name to write to")
    if path is not None and path.suffix.lower() in (".gz", ".xz", ".bz2"):
        raise typer.BadParameter(f"{path.name} would not be compressed: leave out {path.suffix}")
    return path


Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:n.")]
Ray = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Head of a Ray cluster that does the work; `local` starts one here."),
]
Kb = Annotated[Path, typer.Argument(help="A knowledge base.")]
TunedModel = Annotated[str | None, typer.Option(help="A query encoder tuned for this knowledge base.")]
MovedModel = Annotated[str | None, typer.Option(help="The knowledge base's model, if it has moved.")]
IndexName = Annotated[IndexKind | None, typer.Option(help="The index to search; by default the one built last.")]


def takes(record: Any, *names: str, without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Any]:
    """Replace a command's parameter of this type by the options of the record: all, or `names`, `without` some."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(command).parameters.values()
        (place,) = (one.name for one in parameters if one.annotation is record)
        options = [one for one in _parameters(record) if one.name in (names or (one.name,)) and one.name not in without]
        expanded: list[inspect.Parameter] = []
        for one in parameters:
            expanded += options if one.name == place else [one.replace(kind=one.KEYWORD_ONLY)]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            command(**given, **{place: record(**values)})

        run.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in expanded}
        return run

    return decorate


def _parameters(record: Any) -> list[inspect.Parameter]:
    """Return the options of a record as parameters of a command."""
    types = {one.name: typer_option(one) for one in declared(record)}
    for name, hint in get_type_hints(record, include_extras=True).items():
        if any(isinstance(note, ParameterInfo) for note in get_args(hint)):  # of a record that only commands have
            types[name] = hint
    required, kind = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            one.name, kind, default=required if one.default is MISSING else one.default, annotation=types[one.name]
        )
        for one in fields(record)
        if one.name in types
    ]


def typer_option(one: Declared) -> Any:
    """Return the type of a command's parameter for an option."""
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
    """Return the fields of a record by their names, those of its own records unopened."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def option_of(record: Any, name: str) -> Any:
    """Return the type of a command's parameter for one option of a record."""
    return next(typer_option(one) for one in declared(record) if one.name == name)


def refuse_given(context: typer.Context, option: str, others: Sequence[str]) -> None:
    """Refuse options that would be ignored."""
    for name in others:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"has no effect {option}: leave it out", param_hint=f"--{name.replace('_', '-')}")
