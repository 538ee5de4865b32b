"""Ask: `kbq build`, `query`, `explain` and `info`."""

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbq.answers import CONTEXT, WORDS_ALONE, CorpusColumns, DocumentOptions, SearchOptions, WordBackend
from kbq.commands import terminal
from kbq.commands.options import (
    ASK,
    AskedKb,
    Device,
    Json,
    MovedModel,
    Ray,
    fields_of,
    note_unknown,
    note_untuned,
    output_path,
    read_queries,
    refuse_given,
    refuse_idle,
    takes,
    typed_lines,
)
from kbq.commands.terminal import Styled, note, print_answers_json, print_error, show, tell
from kbq.dump.options import BuildOptions
from kbq.errors import KbqError
from kbq.progress import Bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbq.answers import Result
    from kbq.kb import KnowledgeBase

PREVIEWED = 200  # characters of a document
app = typer.Typer()
BUILD, COLUMNS, DOCUMENTS, SEARCH, KB = BuildOptions(), CorpusColumns(), DocumentOptions(), SearchOptions(), AskedKb()
Evidence = Annotated[
    int, typer.Option(min=0, help="With --json: characters of the paragraph on either side of an answer.")
]


@app.command(rich_help_panel=ASK)
@takes(BuildOptions)
@takes(CorpusColumns)
@takes(DocumentOptions)
def build(
    context: typer.Context,
    corpus: Annotated[str, typer.Argument(help="A file or folder, or - for standard input.")],
    kb: Annotated[
        Path | None, typer.Argument(callback=output_path, help="Folder of the new knowledge base.", show_default=False)
    ] = None,
    columns: CorpusColumns = COLUMNS,
    documents: DocumentOptions = DOCUMENTS,
    model: Annotated[
        str | None,
        typer.Option(
            show_default="default; with --append, that of KB", help="`default`, a model folder, or a hub name."
        ),
    ] = None,
    options: BuildOptions = BUILD,
    preview: Annotated[
        int | None,
        typer.Option(min=1, help="Only show what will be read of N documents of each kind.", metavar="N"),
    ] = None,
    ray: Ray = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Make a knowledge base from a corpus. A killed build resumes."""
    if preview is not None:
        _preview(corpus, preview, options, columns, documents, as_json)
        return
    if kb is None:
        raise typer.BadParameter("name the folder of the new knowledge base", param_hint="KB")
    if options.sparta is None:
        refuse_given(context, "without --sparta", ("terms",))
    if options.append:
        refuse_given(context, "with --append", ("bm25",))
    if ray is not None:
        refuse_given(context, "with --ray", ("workers",))
    from kbq.kb import KnowledgeBase
    from kbq.storage.files import folder_bytes

    with Bar(f"building {kb}") as bar:
        built = KnowledgeBase.build(
            corpus, kb, model, ray=ray, device=device, lazy=True, report=bar.pages, report_stage=bar.stage, note=note,
            **fields_of(options) | {"columns": columns, "documents": documents},
        )  # fmt: skip
    counts, size = built.counts, folder_bytes(kb)
    kept = counts.rows / max(1, counts.tokens)
    tell(
        {"kb": str(kb), **counts.facts, "index": built.index.kind, "bytes": size, "bad_lines": built.bad_lines},
        as_json,
        f"{kb}: {counts.pages:,} pages, {counts.paragraphs:,} paragraphs, {counts.tokens:,} tokens",
        f"kept {counts.rows:,} token vectors ({kept:.0%}), {terminal.size(size)} on disk",
    )


def _preview(
    corpus: str, most: int, options: BuildOptions, columns: CorpusColumns, documents: DocumentOptions, as_json: bool
) -> None:
    from kbq.corpus.readers import preview

    for one in preview(corpus, most, options.format, columns, note, documents):
        left_out = ", ".join(f"{reason} ({count:,})" for reason, count in one.left_out.items())
        words = textwrap.shorten(one.words, PREVIEWED, placeholder=" …")
        tell(
            one._asdict(),
            as_json,
            f"{one.id}: {one.title}",
            f"  {words}",
            *([f"  left out: {left_out}"] if left_out else []),
        )


@app.command(rich_help_panel=ASK)
@takes(SearchOptions)
@takes(AskedKb)
def query(
    click: typer.Context,
    texts: Annotated[
        list[str] | None, typer.Argument(help='"subject [SEP] relation", or a question; any number of them.')
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="File with one query per line; - for standard input.")
    ] = None,
    asked: AskedKb = KB,
    options: SearchOptions = SEARCH,
    context: Evidence = CONTEXT,
    as_json: Json = False,
) -> None:
    """Answer queries with phrases, their pages and exact places; without a query, ask at a prompt."""
    refuse_idle(click, options.backend, options.reader)
    if not as_json:
        refuse_given(click, "without --json", ("context",))
    is_typed = not texts and file is None and sys.stdin is not None and sys.stdin.isatty()
    queries = [] if is_typed else read_queries(texts or [], file)
    kb = asked.open()
    evidence = context if as_json else None
    _answer(queries, kb, options, evidence)
    for line in typed_lines() if is_typed else ():
        try:
            _answer(read_queries([line], None), kb, options, evidence)
        except KbqError as error:
            print_error(error)


def _answer(
    queries: "Sequence[tuple[str, str]]", kb: "KnowledgeBase", options: SearchOptions, evidence: int | None
) -> None:
    """Print the answers to queries, given with their places, as they are found; then name what may be mistyped.

    `evidence`: characters on either side of an answer, as JSON; None: lines for a person.
    """
    places, texts = [place for place, _ in queries], [text for _, text in queries]
    results = kb.ask(texts, options, places, spell=True)
    note_untuned(kb.model.config.untuned_relations(texts))
    nowhere: dict[str, None] = {}
    for place, result in zip(places, results, strict=True):
        if len(nowhere) <= terminal.NAMED:  # no more are named
            nowhere |= dict.fromkeys(terminal.unknown_word(place, word) for word in result.unknown_words)
        if evidence is None:
            _print_answers(result, options)
        else:
            query = {"id": place} if place else {}
            print_answers_json(query | result.facts(evidence), (answer.to_dict(evidence) for answer in result.likely))
    note_unknown(list(nowhere))


def _print_answers(result: "Result", options: SearchOptions) -> None:
    answers, guess = result.likely, result.best_guess
    show(Styled(result.query, bold=True))
    is_judged = any(answer.probability is not None for answer in answers)
    for rank, answer in enumerate(answers, start=1):
        show(*terminal.answer_lines(rank, answer, is_judged))
    if guess is not None:
        show(*terminal.guess_lines(guess))
    elif options.min_probability:
        pass
    elif not answers and options.backend in WORDS_ALONE:
        note("nothing is found: no paragraph shares a term with the query")
    elif len(answers) < options.k:
        note(f"{len(answers)} of the {options.k} answers asked for were found")
    show("")


@app.command(rich_help_panel=ASK)
def explain(
    click: typer.Context,
    text: Annotated[str, typer.Argument(help="A query.")],
    kb: Annotated[Path | None, typer.Option(help="A knowledge base; by default the bundled sample.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many paragraphs.")] = 3,
    backend: Annotated[WordBackend, typer.Option(help="Which index of words.")] = "bm25",
    model: MovedModel = None,
    context: Evidence = CONTEXT,
    as_json: Json = False,
) -> None:
    """Show which terms of a query found the best paragraphs, and how much each adds to their scores."""
    if not as_json:
        refuse_given(click, "without --json", ("context",))
    ((_, asked),) = read_queries([text], None)
    explained = AskedKb(kb, model=model, device="cpu").open().explain(asked, k, backend)
    if as_json:
        paragraphs = (answer.to_dict(context) | {"terms": terms} for answer, terms in explained)
        print_answers_json({"query": asked, "backend": backend}, paragraphs)
        return
    if not explained:
        note(f"no paragraph shares a term with {text!r}: nothing is found")
    for answer, terms in explained:
        show(*terminal.explanation_lines(answer, terms))


@app.command(rich_help_panel=ASK)
def info(
    folder: Annotated[
        Path, typer.Argument(help="A knowledge base, a model, a reader…; `default` is the bundled model.")
    ],
    as_json: Json = False,
) -> None:
    """Describe a knowledge base, a model or another network."""
    from kbq.description import describe, describe_indexes

    facts = describe(folder)
    shown = {name: value for name, value in facts.items() if name != "indexes"}
    indexes, width = describe_indexes(folder) if "indexes" in facts else (), max(map(len, shown))
    tell(
        facts,
        as_json,
        *(f"{name.replace('_', ' '):{width}}  {terminal.fact(value)}" for name, value in shown.items()),
        *(f"{'index':{width}}  {terminal.index_line(one)}" for one in indexes),
    )
