"""Options: turn the options that records declare into those of commands; define those that several
commands share.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperGroup
from typer.models import ParameterInfo

import kbq
from kbq.answers import IndexKind
from kbq.commands import terminal
from kbq.commands.terminal import Styled, note, show
from kbq.errors import KbqError, QueryError
from kbq.options import Declared, declared
from kbq.search.options import WORDS_ALONE, Backend

# Panels of the help.
ASK = "Ask"
FILL = "Fill"
SERVE = "Serve"
TEACH = "Teach"
MEASURE = "Measure (KILT)"
MAINTAIN = "Maintain"

ONE_AT_A_TIME = "give one at a time"
ONE_FOLDER = "put several files into one folder, and give that"
EXTRA = {  # what to do about an argument too many, by command; a missing option is named anyway
    "build": ONE_FOLDER,
    "update": ONE_FOLDER,
    "sync": ONE_FOLDER,
    "compact": ONE_AT_A_TIME,
    "verify": ONE_AT_A_TIME,
    "info": ONE_AT_A_TIME,
    "explain": "put quotes around a query of several words",
    "pages": "put quotes around several words",
    "fill": "the columns to fill go after --relations",
    "export": "give one file of claims; the format goes after --to",
    "evaluate-table": "a column to score goes after --relation",
    "evaluate": (
        "--csv takes no file, so redirect what it prints; predictions of a second system go after "
        "--compare"
    ),
    "predict": "the knowledge base goes after --kb",
    "errors": "the knowledge base goes after --kb",
    "validate": "the KILT file goes after --inputs, the knowledge base after --kb",
    "index vectors": "the kind of index goes after --kind, a file of queries after --queries",
}

KB_ARGUMENTS = {"kb", "kbs", "folder", "corpus"}  # arguments that may be a knowledge base
PLAINER = (  # words of the library that reads a command line, and those of kbq
    ("^Value error, ", ""),
    (r"Input should be greater than or equal to (\S+)", r"must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"must be \1 or less"),
    ("Input should be a valid integer.*", "must be a whole number"),
    ("Input should be a valid number.*", "must be a number"),
)
HELP = (
    'ask for a property, such as "Marie Curie [SEP] place of birth", or a question; ↑ brings back '
    "earlier queries"
)


def output_path(path: Path | None) -> Path | None:
    """Refuse a name that cannot be that of a new file or folder."""
    if path is not None and str(path) == "-":
        raise typer.BadParameter("- stands for standard input: give a name to write to")
    if path is not None and path.suffix.lower() in (".gz", ".xz", ".bz2"):
        raise typer.BadParameter(f"{path.name} would not be compressed: leave out {path.suffix}")
    return path


Json = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:n.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Head of a Ray cluster that does the work; `local` starts one here.",
    ),
]
Kb = Annotated[Path, typer.Argument(help="A knowledge base.")]
TunedModel = Annotated[
    str | None, typer.Option(help="A query encoder tuned for this knowledge base.")
]
MovedModel = Annotated[
    str | None, typer.Option(help="The knowledge base's model, if it has moved.")
]
IndexName = Annotated[
    IndexKind | None, typer.Option(help="The index to search; by default, the one built last.")
]


def takes(
    record: Any, *names: str, without: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Any]:
    """Replace a command's parameter of this type by the options of the record: `names` or all,
    `without` some.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(command).parameters.values()
        (record_name,) = (
            parameter.name for parameter in parameters if parameter.annotation is record
        )
        parts = {
            name: part
            for name, part in _parts(record).items()
            if name in (names or (name,)) and name not in without
        }
        options = _parameters(record, parts)
        expanded: list[inspect.Parameter] = []

        for taken in parameters:
            expanded += (
                options if taken.name == record_name else [taken.replace(kind=taken.KEYWORD_ONLY)]
            )

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            command(**given, **{record_name: _made(record, parts, values)})

        run.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in expanded}
        return run

    return decorate


def _parts(record: Any) -> dict[str, Any]:
    """Return the types of a record's options, as a command's parameters have them, and those of the
    records in it.
    """
    types = {option.name: typer_option(option) for option in declared(record)}
    for name, hint in get_type_hints(record, include_extras=True).items():
        # A record that only commands have.
        if any(isinstance(note, ParameterInfo) for note in get_args(hint)):
            types[name] = hint
        elif held := [
            kind for kind in get_args(hint) if isinstance(kind, type) and is_dataclass(kind)
        ]:
            types[name] = held[0]
    return {field.name: types[field.name] for field in fields(record) if field.name in types}


def _parameters(record: Any, parts: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return parts of a record as parameters of a command; a record in it becomes its own."""
    parameters = list[inspect.Parameter]()
    kind = inspect.Parameter.KEYWORD_ONLY
    for field in fields(record):
        part = parts.get(field.name)
        if is_dataclass(part):
            parameters += _parameters(part, _parts(part))
        elif part is not None:
            if field.default is MISSING:
                default = inspect.Parameter.empty
            else:
                default = field.default
            parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=part))
    return parameters


def _made(record: Any, parts: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """Make a record, and the records in it, of the values of a command's parameters."""
    made = {
        name: _made(part, _parts(part), values)
        for name, part in parts.items()
        if is_dataclass(part)
    }
    return record(**made, **{name: values[name] for name in parts if name not in made})


def typer_option(declaration: Declared) -> Any:
    """Return the type of a parameter with what Typer has to know about it."""
    option = declaration.option
    flags = (
        [option.flag or f"--{declaration.name.replace('_', '-')}"]
        if option.flag or declaration.type is bool
        else []
    )
    return Annotated[
        declaration.annotation,
        typer.Option(
            *flags,
            help=option.help,
            min=option.least,
            max=option.most,
            metavar=option.metavar,
            envvar=option.env,
            show_default=option.default or True,
        ),
    ]


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record by their names; a field that is a record stays one."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def option_of(record: Any, name: str) -> Any:
    """Return the type of a command's parameter for one option of a record."""
    return next(typer_option(option) for option in declared(record) if option.name == name)


def refuse_given(context: typer.Context, option: str, others: Sequence[str]) -> None:
    for name in others:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"has no effect {option}: leave it out", param_hint=f"--{name.replace('_', '-')}"
            )


class Commands(TyperGroup):
    """A group of commands that shows them by topic."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by topic, each with the beginning of its help."""
        topics: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            topic = getattr(command, "rich_help_panel", None)
            if not isinstance(topic, str):
                topic = "Commands"
            rows = topics.setdefault(topic, [])
            rows.append((name, command.help or ""))
        for topic, rows in topics.items():
            room = formatter.width - max(len(name) for name, _ in rows) - len("    ")
            with formatter.section(topic):
                formatter.write_dl([(name, summary(text, room)) for name, text in rows])


def summary(text: str, room: int) -> str:
    """Return the first sentence of a help; if it takes more than `room` characters, leave out its
    last clauses.

    >>> summary("Tune the query encoder on triples; the knowledge base stays as it is. It takes minutes.", 60)
    'Tune the query encoder on triples'
    """
    sentence = re.split(r"\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0]
    part = re.match("[^:;]*", sentence)[0]  # type: ignore[index]  # after it, commas divide lists
    ends = [*(comma.start() for comma in re.finditer(", ", part)), len(part), len(sentence)]
    return sentence[: max((end for end in ends if end <= room), default=ends[0])]


def explained(error: Any) -> str:
    """Return the message of an error in a command line, with the right one where it is known."""
    message = plainer(str(error.message))
    context = error.ctx
    if context is None:
        return str(message)
    problem, _, similar = message.rstrip(".").partition(" Did you mean")
    if message.startswith("Got unexpected extra argument") and (
        advice := EXTRA.get(_name(context))
    ):
        return f"{problem}: {advice}"

    arguments = {parameter.name for parameter in context.command.params}
    if re.match("No such option: --kb(?!-|[a-z])", message) and arguments & KB_ARGUMENTS:
        return f"{problem}: give the knowledge base as an argument"

    is_of_group = (
        context.parent is not None and message.startswith("No such command") and not similar
    )
    return (
        f"{problem}: choose from {', '.join(context.command.commands)}"
        if is_of_group
        else str(message)
    )


def plainer(message: str) -> str:
    """Say in the words of kbq what a value must be.

    >>> plainer("Value error, 'bm52' is not one of 'auto'."), plainer("Input should be greater than or equal to 1")
    ("'bm52' is not one of 'auto'.", 'must be 1 or more')
    >>> plainer("Input should be a valid integer, unable to parse string as an integer")
    'must be a whole number'
    """
    for foreign, own in PLAINER:
        message = re.sub(foreign, own, message)
    return message


def _name(context: Any) -> str:
    """Return the name of a command, such as "index vectors"."""
    if context.parent:
        return f"{_name(context.parent)} {context.info_name}".strip()
    return ""


@dataclass(frozen=True, slots=True)
class AskedKb:
    """Options: the knowledge base that a command asks, and how it is searched."""

    kb: Annotated[
        Path | None, typer.Option(help="A knowledge base; by default the bundled sample.")
    ] = None
    pages: Annotated[
        Path | None,
        typer.Option(help="Answer only from these pages: a file of page ids, one per line."),
    ] = None
    model: TunedModel = None
    index: IndexName = None
    ray: Ray = None
    workers: Annotated[
        int,
        typer.Option(
            min=1, max=256, help="Processes that answer; each holds a copy of what a GPU searches."
        ),
    ] = 1
    device: Device = "auto"

    def open(self, lazy: bool = False) -> "kbq.KnowledgeBase":
        """Open it; the bundled sample is built on first use. `lazy`: as for `KnowledgeBase.open`."""
        where: Any = {
            "index": self.index,
            "ray": self.ray,
            "workers": self.workers,
            "device": self.device,
            "lazy": lazy or self.pages is not None,  # opened once, when its pages are chosen
        }
        if self.kb is None:
            kb = kbq.KnowledgeBase.sample(self.model, note=note, **where)
        else:
            kb = kbq.KnowledgeBase.open(self.kb, self.model, **where)

        if self.pages is not None:
            kb = kb.with_pages(self.pages)
        if not lazy:
            note_place(kb)
        return kb

    def note_sample(self) -> None:
        if self.kb is None:
            note("no --kb is given, so the bundled sample is used")


def note_place(kb: "kbq.KnowledgeBase") -> None:
    """Say why vectors are searched where they are, if there is a GPU."""
    place = kb.searcher.place
    if kb.model.device.type == "cuda" and place is not None:
        note(f"searching {place.why}")


def refuse_idle(context: typer.Context, backend: Backend, reader: str | None) -> None:
    """Refuse options of a reader, or of an index, if none is used."""
    if reader is None:
        refuse_given(context, "without --reader", ("depth", "retrieval_weight"))
    if backend in WORDS_ALONE:
        refuse_given(context, f"with --backend {backend}", ("index", "ray"))


def names_kb(text: object) -> bool:
    """Whether a word of a command line is the folder of a knowledge base."""
    from kbq.dump.manifest import is_knowledge_base

    with suppress(OSError, ValueError):  # a query may be too long for a path, or hold a null
        return is_knowledge_base(Path(str(text)))
    return False


def refuse_swapped(command: str, kb: Path, *others: object) -> None:
    """Refuse a knowledge base that stands behind what it must stand before."""
    other = next(filter(names_kb, others), None)
    if other is not None and not names_kb(kb):
        raise KbqError(f"the knowledge base comes first: kbq {command} {other} {kb}", is_usage=True)


def read_queries(texts: Sequence[str], source: str | None) -> list[tuple[str, str]]:
    """Return queries with their places: those of a file with "file:line", others with an empty
    text.

    Raises QueryError if there is none, or if some are malformed; it names all of these.
    """
    from kbq.model.queries import readable_queries
    from kbq.storage.lines import read_lines, source_name

    if len(texts) > 2 and not any(" " in text for text in texts):
        note("each word is asked by itself: put quotes around a query of several words")
    for text in texts:
        if names_kb(text):
            raise QueryError(
                f"{text} is a knowledge base, not a query: ask it with --kb {text}", is_usage=True
            )

    queries = [("", text) for text in texts]
    if source is not None:
        name = source_name(source)
        lines = list(read_lines(source, QueryError))
        for number, text in lines:
            if text.strip():
                queries.append((f"{name}:{number}", text))
        if not queries:
            raise QueryError(f"{name} holds no query: write one per line")

    if not queries:
        raise QueryError(
            'there is no query: write kbq query "subject [SEP] relation", or give a --file with '
            "one per line"
        )

    # What no model can read is reported before one is loaded.
    places = [place for place, _ in queries]
    read = readable_queries([text for _, text in queries], (), places)
    return [(place, query.text) for place, query in zip(places, read, strict=True)]


def typed_lines() -> Iterator[str]:
    """Yield the lines that a person types at a prompt, until Ctrl-D or Ctrl-C."""
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


def note_untuned(relations: Sequence[str]) -> None:
    if relations:
        note(
            f"the query encoder was not tuned on {len(relations)} of the relations: "
            f"{terminal.some(relations)}"
        )
