"""The commands: each one parses, calls one function of the library, and prints.

Results go to standard output (with --json nothing else does), notes and progress to standard error.
Exit status: 0 done, 1 the input is at fault, 2 wrong usage.
"""

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import kbq
from kbq.errors import KbqError

if TYPE_CHECKING:
    from kbq.records import Hit

app = typer.Typer(
    name="kbq",
    help="Turn a text corpus into a dense knowledge base of phrases, and answer slot queries from it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:n.")]
Kb = Annotated[Path | None, typer.Option(help="A knowledge base; without it the bundled sample answers.")]
ModelName = Annotated[str, typer.Option(help="`default`, a model folder, or a hub name.")]


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


@app.command()
def build(
    corpus: Annotated[str, typer.Argument(help="A file or folder, or - for standard input.")],
    kb: Annotated[Path, typer.Argument(help="Folder of the new knowledge base.")],
    format: Annotated[
        Literal["auto", "kilt", "jsonl", "squad", "dpr", "text"],
        typer.Option(help="What the corpus looks like."),
    ] = "auto",
    model: ModelName = "default",
    index: Annotated[
        Literal["auto", "exact", "approximate"],
        typer.Option(help="auto: exact up to about 2 million kept tokens."),
    ] = "auto",
    append: Annotated[bool, typer.Option("--append", help="Add to a knowledge base that is there.")] = False,
    skip_bad_lines: Annotated[bool, typer.Option("--skip-bad-lines", help="Report bad lines and go on.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Make a knowledge base from a corpus. A build that was killed goes on where it stopped."""
    from kbq import commands
    from kbq.progress import build_progress

    request = commands.BuildRequest(corpus, kb, format, model, index, append, skip_bad_lines, device)
    with build_progress(f"building {kb}") as report:
        outcome = commands.build(request, report, _note)
    if as_json:
        _print_json(dataclasses.asdict(outcome) | {"kb": str(kb)})
        return
    counts = outcome.counts
    print(f"{kb}: {counts.documents:,} pages, {counts.paragraphs:,} paragraphs, {counts.tokens:,} tokens")
    kept = counts.rows / max(1, counts.tokens)
    print(f"kept {counts.rows:,} token vectors ({kept:.0%}), {_size(outcome.bytes)} on disk")


@app.command()
def query(
    texts: Annotated[
        list[str] | None,
        typer.Argument(help='"subject [SEP] relation" or a question; several give several answers.'),
    ] = None,
    kb: Kb = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="One query per line; - for standard input.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many answers.")] = 5,
    unit: Annotated[
        Literal["phrase", "sentence", "paragraph", "document"],
        typer.Option(help="What is counted as one answer."),
    ] = "phrase",
    model: Annotated[str | None, typer.Option(help="A query encoder tuned for this knowledge base.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Answer queries with phrases, their pages and their exact places."""
    from kbq import commands

    asked = commands.read_queries(texts or [], file)
    opened = commands.open_kb(kb, model, device, _note)
    for text, hits in commands.ask(asked, opened, k, unit):
        if as_json:
            _print_json({"query": text, "answers": [_answer(hit) for hit in hits]})
        else:
            _print_answers(text, hits, k)


@app.command()
def train(
    examples: Annotated[list[Path], typer.Argument(help="SQuAD JSON, QED, or JSON lines of passages with questions.")],
    out: Annotated[Path, typer.Option(help="Folder of the new model.")],
    checkpoint: Annotated[str, typer.Option(help="A BERT-like encoder to start from: folder or hub name.")],
    dev: Annotated[Path | None, typer.Option(help="Examples to score on; else a twentieth is set aside.")] = None,
    epochs: Annotated[float, typer.Option(min=0.0)] = 3.0,
    batch_tokens: Annotated[int, typer.Option(min=64, help="Tokens of a batch's passages, with padding.")] = 4096,
    learning_rate: Annotated[float, typer.Option(min=0.0)] = 2e-4,
    pre_batches: Annotated[int, typer.Option(min=0, help="C: earlier batches that give negatives.")] = 2,
    tokens_weight: Annotated[
        float, typer.Option(min=0.0, help="Weight of negatives over all tokens; 0: the paper.")
    ] = 1.0,
    two_query_encoders: Annotated[
        bool, typer.Option("--two-query-encoders", help="As in the paper; else one with two heads.")
    ] = False,
    weights: Annotated[Literal["float32", "int8"], typer.Option(help="How weights are stored.")] = "float32",
    seed: int = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train phrase and query encoders from reading comprehension. Killed, it goes on from its last checkpoint."""
    from kbq.encoding.model import ModelConfig
    from kbq.progress import training_progress
    from kbq.training.loop import TrainingSettings
    from kbq.training.training import TrainingRequest, train_model

    settings = TrainingSettings(
        epochs, batch_tokens, learning_rate, pre_batches=pre_batches, tokens_weight=tokens_weight, seed=seed
    )
    config = ModelConfig(shared_query_encoder=not two_query_encoders)
    command = shlex.join(["kbq", *sys.argv[1:]])
    request = TrainingRequest(examples, out, checkpoint, dev, settings, config, weights, device, command)
    with training_progress(f"training {out}") as report:
        outcome = train_model(request, report)
    if as_json:
        _print_json(dataclasses.asdict(outcome) | {"out": str(out)})
        return
    scores = outcome.scores
    print(f"{out}: {outcome.steps:,} steps over {outcome.passages:,} passages with {outcome.queries:,} queries")
    print(f"reading, passage given    EM {scores.gold_em:.1f}  F1 {scores.gold_f1:.1f}  ({scores.queries:,} queries)")
    print(f"reading, all passages     EM {scores.open_em:.1f}  F1 {scores.open_f1:.1f}")
    print(f"the filter keeps {scores.kept:.0f} % of the tokens")


@app.command()
def info(
    folder: Annotated[Path, typer.Argument(help="A knowledge base or a model.")],
    as_json: Json = False,
) -> None:
    """Say what is in a knowledge base or a model."""
    from kbq import commands

    facts = commands.describe(folder)
    if as_json:
        _print_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:{width}}  {f'{value:,}' if isinstance(value, int) else value}")


def main() -> None:
    """Run the command line; every error of kbq is one message and exit status 1."""
    try:
        app()
    except KbqError as error:
        for problem in error.problems:
            _note(problem)
        typer.secho(f"error: {error}", err=True, fg=typer.colors.RED)
        sys.exit(1)
    except KeyboardInterrupt:
        _note("stopped; what is on the disk stays, the same command goes on")
        sys.exit(130)


def _answer(hit: "Hit") -> dict[str, Any]:
    phrase = hit.phrase
    return {
        "answer": phrase.text,
        "score": round(hit.score, 4),
        "document_id": phrase.document_id,
        "title": phrase.title,
        "paragraph": phrase.paragraph,
        "start": phrase.start,
        "end": phrase.end,
        "unit": {"start": hit.unit[0], "end": hit.unit[1]},
        "text": hit.context,
    }


def _print_answers(text: str, hits: "list[Hit]", k: int) -> None:
    typer.secho(text, bold=True)
    for rank, hit in enumerate(hits, start=1):
        phrase = hit.phrase
        place = f"page {phrase.document_id}, paragraph {phrase.paragraph}, characters {phrase.start}-{phrase.end}"
        answer = typer.style(phrase.text, fg=typer.colors.GREEN, bold=True)
        typer.echo(f"{rank:3}. {answer}  {hit.score:.2f}  {typer.style(phrase.title, bold=True)}  ({place})")
        typer.echo(f"     {_excerpt(hit)}")
    if len(hits) < k:
        _note(f"the knowledge base holds {len(hits)} of the {k} asked for")
    typer.echo()


def _excerpt(hit: "Hit", around: int = 160) -> str:
    """The unit, or what stands near the phrase, with the phrase marked."""
    start, end = hit.phrase.start, hit.phrase.end
    first = max(hit.unit[0] if hit.unit[0] < start else 0, start - around)
    last = min(hit.unit[1] if hit.unit[1] > end else len(hit.context), end + around)
    before, after = hit.context[first:start], hit.context[end:last]
    marked = typer.style(hit.phrase.text, fg=typer.colors.GREEN, bold=True)
    return " ".join(f"{'…' if first else ''}{before}«{marked}»{after}{'…' if last < len(hit.context) else ''}".split())


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def _note(text: str) -> None:
    typer.secho(text, err=True, dim=True)


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.2f} GB"
