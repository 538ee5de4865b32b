"""Ask: the commands `kbq build`, `query`, `explain`, `info`."""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import kbq
from kbq.answers import CONTEXT, Answer, Result, counted, percent, percentage
from kbq.commands import terminal
from kbq.commands.options import (
    ASK,
    AskedKb,
    Device,
    Json,
    MovedModel,
    Ray,
    fields_of,
    names_kb,
    note_untuned,
    output_path,
    read_queries,
    refuse_given,
    refuse_idle,
    takes,
    typed_lines,
)
from kbq.commands.terminal import (
    AROUND,
    WHOLE,
    Styled,
    note,
    print_answers_json,
    print_error,
    shortened,
    show,
    tell,
)
from kbq.errors import KbqError
from kbq.maintain.options import BuildOptions
from kbq.progress import Bar
from kbq.search.options import EXPLAINED, STRONGEST, WORDS_ALONE, SearchOptions, WordBackend

if TYPE_CHECKING:
    from kbq.commands.terminal import Line
    from kbq.description import IndexFacts
PREVIEWED = 200  # characters of a document
app = typer.Typer()
BUILD = BuildOptions()
SEARCH = SearchOptions()
KB = AskedKb()
Evidence = Annotated[
    int,
    typer.Option(
        min=0, help="With --json: characters of the paragraph on either side of an answer."
    ),
]


@app.command(rich_help_panel=ASK)
@takes(BuildOptions)
def build(
    context: typer.Context,
    corpus: Annotated[str, typer.Argument(help="A file or folder, or - for standard input.")],
    kb: Annotated[
        Path | None,
        typer.Argument(
            callback=output_path, help="Folder of the new knowledge base.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            show_default="default; with --append, that of KB",
            help="`default`, a model folder, or a hub name.",
        ),
    ] = None,
    options: BuildOptions = BUILD,
    preview: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Only show the text that is read from N documents of each kind.",
            metavar="N",
        ),
    ] = None,
    ray: Ray = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Make a knowledge base from a corpus. A killed build resumes."""
    if preview is not None:
        _preview(corpus, preview, options, as_json)
        return
    if kb is None:
        raise typer.BadParameter("name the folder of the new knowledge base", param_hint="KB")
    if names_kb(corpus) and kb.exists() and not names_kb(kb):
        raise KbqError(f"the corpus comes first: kbq build {kb} {corpus}", is_usage=True)
    if options.sparta is None:
        refuse_given(context, "without --sparta", ("terms",))
    if options.append:
        refuse_given(context, "with --append", ("bm25",))
    if ray is not None:
        refuse_given(context, "with --ray", ("workers",))
    from kbq.storage.folders import folder_bytes

    how = fields_of(options)
    with Bar(f"building {kb}", corpus=corpus) as bar:
        built = kbq.KnowledgeBase.build(
            corpus,
            kb,
            model,
            ray=ray,
            device=device,
            lazy=True,
            report=bar.pages,
            report_stage=bar.stage,
            note=note,
            **how,
        )

    counts = built.counts
    size = folder_bytes(kb)
    facts = {"kb": str(kb), **counts.facts, "index": built.index.kind, "bytes": size}
    kept = counts.rows / max(1, counts.tokens)
    pages = counted(counts.pages, "page")
    paragraphs = counted(counts.paragraphs, "paragraph")
    rows = f"{counted(counts.rows, 'token vector')} ({percent(kept)})"
    facts |= {"bad_lines": built.bad_lines}
    tokens = counted(counts.tokens, "token")
    lines = (
        f"{kb}: {pages}, {paragraphs}, {tokens}",
        f"kept {rows}, {terminal.size(size)} on disk",
    )
    tell(facts, as_json, *lines)


def _preview(corpus: str, most: int, options: BuildOptions, as_json: bool) -> None:
    from kbq.corpus.readers import preview

    for document in preview(corpus, most, options.format, options.columns, note, options.documents):
        left_out = ", ".join(f"{reason} ({count:,})" for reason, count in document.left_out.items())
        words = textwrap.shorten(document.words, PREVIEWED, placeholder=" …")
        lines = [
            f"{document.id}: {document.title}",
            f"  {words}",
            *([f"  left out: {left_out}"] if left_out else []),
        ]
        tell(document._asdict(), as_json, *lines)


@app.command(rich_help_panel=ASK)
@takes(SearchOptions)
@takes(AskedKb)
def query(
    click: typer.Context,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help='"subject [SEP] relation", or a question; any number of them.'),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="File with one query per line; - for standard input."),
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
    if is_typed:
        queries = []
    else:
        queries = read_queries(texts or [], file)
    kb = asked.open()
    evidence = context if as_json else None
    # Refuses options that do not fit, even before there is a query.
    _answer(queries, kb, options, evidence)
    for line in typed_lines() if is_typed else ():
        try:
            _answer(read_queries([line], None), kb, options, evidence)
        except KbqError as error:
            print_error(error)


def _answer(
    queries: Sequence[tuple[str, str]],
    kb: "kbq.KnowledgeBase",
    options: SearchOptions,
    evidence: int | None,
) -> None:
    """Print the answers to queries, given with their places, as they are found; then name what may
    be mistyped.

    `evidence`: characters on either side of an answer in JSON, or None to print lines for a person.
    """
    places = [place for place, _ in queries]
    texts = [text for _, text in queries]
    results = kb.ask(texts, options, places, spell=True)
    note_untuned(kb.model.config.untuned_relations(texts))
    nowhere: dict[str, None] = {}

    for place, result in zip(places, results, strict=True):
        if len(nowhere) <= terminal.NAMED:  # all of them are named
            nowhere |= {
                f"{shortened(word)} ({place})" if place else shortened(word): None
                for word in result.unknown_words
            }

        if evidence is None:
            show(*result_lines(result))
            _note_few(result, options)
            show("")
        else:
            query = {"id": place} if place else {}
            print_answers_json(
                query | result.facts(evidence),
                (answer.to_dict(evidence) for answer in result.likely),
            )

    if nowhere:
        note(f"nowhere in the knowledge base, so maybe mistyped: {terminal.some(list(nowhere))}")


def _note_few(result: Result, options: SearchOptions) -> None:
    """Say why there are fewer answers than were asked for, unless they were wanted to be likely."""
    if options.min_probability or len(result.answers) >= options.k:
        return
    if not result.answers and options.backend in WORDS_ALONE:
        note("nothing is found: no text shares a term with the query")
    else:
        note(f"{len(result.answers)} of the {options.k} answers asked for were found")


def result_lines(result: Result) -> "list[Line]":
    """Show a query and its likely answers, each with its place and the text around it, or the best
    guess in grey.
    """
    lines: list[Line] = [Styled(result.query, bold=True)]
    is_judged = any(answer.probability is not None for answer in result.likely)
    for rank, hit in enumerate(result.likely, start=1):
        # A score would mislead.
        if is_judged and hit.probability is None:
            value = "not judged"
        else:
            value = worth(hit)
        place = f"page {hit.page_id}, paragraph {hit.paragraph}, characters {hit.start}-{hit.end}"
        text = Styled(shortened(hit.text), fg=typer.colors.GREEN, bold=True)
        title = Styled(shortened(hit.title), bold=True)
        lines += [
            (f"{rank:3}. ", text, f"  {value}  ", title, f"  ({place})"),
            ("     ", *_excerpt(hit)),
        ]

    guess = result.best_guess
    if guess:
        said = (
            f"best guess: {shortened(guess.text)}, {worth(guess)}, {shortened(guess.title)}, page "
            f"{guess.page_id}"
        )
        lines.append(("     no answer  ", Styled(f"({said})", dim=True)))

    return lines


def worth(hit: Answer) -> str:
    """Return the probability of an answer or, if that is unknown, its score.

    >>> from dataclasses import replace
    >>> answer = Answer("Warsaw", 2.5, "1", "Marie Curie", 0, 0, 6, "Warsaw", (0, 6))
    >>> worth(answer), worth(replace(answer, probability=0.934)), worth(replace(answer, probability=0.9999))
    ('2.50', '93 %', '> 99 %')
    """
    if hit.probability is None:
        return f"{hit.score:.2f}"
    return percentage(hit.probability)


def _excerpt(hit: Answer) -> tuple[str, Styled, str]:
    """Return the unit, or the text near the phrase, in three parts: before the phrase, the phrase,
    and after it.
    """
    start = hit.start
    end = hit.end
    first = max(0, start - AROUND)
    last = min(len(hit.context), end + AROUND)
    if hit.unit[0] < start:
        first = max(hit.unit[0], first)
    if hit.unit[1] > end:
        last = min(hit.unit[1], last)
    before = f"{hit.context[first:start]}«"
    if first:
        before = f"…{before}"
    after = f"»{hit.context[end:last]}"
    if last < len(hit.context):
        after = f"{after}…"
    marked = Styled(shortened(hit.text, WHOLE), fg=typer.colors.GREEN, bold=True)
    return " ".join(before.split()), marked, " ".join(after.split())


@app.command(rich_help_panel=ASK)
def explain(
    click: typer.Context,
    text: Annotated[str | None, typer.Argument(help="A query, unless --page is given.")] = None,
    page: Annotated[
        str | None,
        typer.Option(help="Instead, show the strongest terms of this page's sentences: its id."),
    ] = None,
    kb: Annotated[
        Path | None, typer.Option(help="A knowledge base; by default the bundled sample.")
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "-k",
            min=1,
            help=f"How many paragraphs ({EXPLAINED}) or, with --page, terms ({STRONGEST}).",
        ),
    ] = None,
    backend: Annotated[WordBackend, typer.Option(help="The index of words to search.")] = "bm25",
    model: MovedModel = None,
    context: Evidence = CONTEXT,
    as_json: Json = False,
) -> None:
    """Show which terms of a query found the best paragraphs, and how much each adds to their
    scores.

    With --page, show the strongest terms of each of its sentences or, by bm25, of its paragraphs.
    """
    if not as_json:
        refuse_given(click, "without --json", ("context",))
    if (text is None) == (page is None):
        raise typer.BadParameter("give a query, or the id of a page with --page")
    opened = AskedKb(kb, model=model, device="cpu").open()
    if page is not None:
        terms_of = opened.strongest_terms(page, k or STRONGEST, backend)
        lines = [
            line
            for term in terms_of
            for line in (f"{term.paragraph}  {shortened(term.text)}", *_weights(term.terms))
        ]
        tell(
            {
                "page_id": page,
                "backend": backend,
                "sentences": [term._asdict() for term in terms_of],
            },
            as_json,
            *lines,
        )
        return

    ((_, asked),) = read_queries([text or ""], None)
    explained = opened.explain(asked, k or EXPLAINED, backend)
    if as_json:
        paragraphs = (answer.to_dict(context) | {"terms": terms} for answer, terms in explained)
        print_answers_json({"query": asked, "backend": backend}, paragraphs)
        return

    if not explained:
        note(f"no paragraph shares a term with {text!r}: nothing is found")
    for hit, terms in explained:
        show(
            f"{hit.score:.2f}  {shortened(hit.title)}  (page {hit.page_id}, paragraph "
            f"{hit.paragraph})"
        )
        show(f"      {shortened(hit.context)}")
        show(*_weights(terms))


def _weights(terms: Mapping[str, float]) -> list[str]:
    """Return a line for each term, the strongest first."""
    return [
        f"      {weight:6.2f}  {term}"
        for term, weight in sorted(terms.items(), key=lambda pair: -pair[1])
    ]


@app.command(rich_help_panel=ASK)
def info(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A knowledge base, a model, a reader…; `default` is the bundled model."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Describe a knowledge base, a model or another network."""
    from kbq.description import describe, describe_indexes

    facts = describe(folder)
    shown = {name: value for name, value in facts.items() if name != "indexes"}
    width = max(map(len, shown))
    lines = [f"{name.replace('_', ' '):{width}}  {_fact(value)}" for name, value in shown.items()]
    if "indexes" in facts:
        for index in describe_indexes(folder):
            lines.append(f"{'index':{width}}  {index_line(index)}")
    tell(facts, as_json, *lines)


def _fact(value: object) -> str:
    """Return a fact on one line; the whole story of a training is for --json."""
    if not isinstance(value, dict):
        return f"{value:,}" if type(value) is int else str(value)  # True is an int, too
    if any(isinstance(part, dict | list) for part in value.values()):
        if "command" in value:
            return f"{value['command']} (more with --json)"
        return "(with --json)"
    return ", ".join(f"{name} {part}" for name, part in value.items())


def index_line(facts: "IndexFacts") -> str:
    """Say what an index costs, and what it may miss."""
    if facts.kind == "exact":
        return "exact, compares every vector: nothing is missed"
    probes = f"{facts.probes:,} probe{'s' * (facts.probes > 1)}"
    if facts.kind == "official":
        return (
            f"official, the codes of an imported index, {facts.bytes_per_vector:,} more bytes per "
            f"vector, {probes}"
        )

    rows = ""
    if facts.filter is not None:
        rows = f", rows above {facts.filter:g}"
    asked = f"{percent(facts.target, 2)} asked for, {facts.queries:,} queries"
    return (
        f"{facts.kind}, {facts.bytes_per_vector:,} bytes per vector, finds "
        f"{percent(facts.recall, 2)} of the ten best phrases ({asked}) with {probes}{rows}"
    )
