"""Options that several commands share, and the refusal of those that would be ignored."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbq.answers import Backend, IndexKind

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_WEIGHT = 1e6  # of what is added to vectors' scores: beyond, these are lost in rounding
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
BackendName = Annotated[
    Backend,
    typer.Option(
        help="dense: vectors of phrases; bm25: words of paragraphs; sparta: word weights that a SPARTA model learned; "
        "hybrid: vectors and the words there are; auto: hybrid where words are indexed, else dense."
    ),
]
Bm25Weight = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=MOST_WEIGHT,
        show_default="8; default model: 4",
        help="Of hybrid: what a point of BM25 adds to a phrase's score.",
    ),
]
SpartaWeight = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=MOST_WEIGHT,
        show_default="4; default model: 2",
        help="Of hybrid: what a point of SPARTA adds to a phrase's score.",
    ),
]
Terms = Annotated[int, typer.Option(min=1, help="Strongest SPARTA impacts kept of each sentence.")]
A_READER = "`default`, or a question-answering checkpoint (folder, hub name)"
ReaderName = Annotated[str | None, typer.Option(help=f"Reads answers in the paragraphs found: {A_READER}.")]
Depth = Annotated[int, typer.Option(min=1, help="Of --reader: paragraphs that it reads for a query.")]
RetrievalWeight = Annotated[
    float, typer.Option(min=0.0, max=MOST_WEIGHT, help="Of --reader: what a point of the search adds to its score.")
]
Rerank = Annotated[
    int | None,
    typer.Option(
        min=0,
        show_default="10 where the model can",
        help="Phrases of a query that the model's own reader judges again; 0: none.",
    ),
]
MinProbability = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Leave out answers that are less likely to be right.")
]
CalibrationFile = Annotated[
    Path | None, typer.Option("--calibration", help="What `kbq calibrate` wrote, instead of the model's own.")
]
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
IdColumn = Annotated[str, typer.Option("--id", help="Of tables and jsonl: what holds the ids of pages.")]
TitleColumn = Annotated[str, typer.Option("--title", help="Of tables and jsonl: what holds their titles.")]
TextColumn = Annotated[str, typer.Option("--text", help="Of tables and jsonl: what holds their texts.")]
Strict = Annotated[bool, typer.Option("--strict", help="Page ids must be integers, as on the leaderboard.")]


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
