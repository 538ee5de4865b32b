"""The commands: each one parses, calls the library, and tells what came of it.

Results go to standard output (with --json nothing else does), notes and progress to standard error.
Exit status: 0 done, 1 the input is at fault, 2 wrong usage.
"""

import dataclasses
import io
import json
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import kbq
from kbq.answers import WORDS_ALONE, Backend, CorpusFormat, IndexKind, Unit, WantedKind, WeightType, WordBackend
from kbq.commands import printing
from kbq.errors import MOST_PROBLEMS, KbqError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kbq.dump.pages import Pages
    from kbq.dump.shards import Counts
    from kbq.kilt.prediction import Query
    from kbq.kilt.task import Task
    from kbq.training.engine import RunRequest, StepReport

app = typer.Typer(
    name="kbq",
    help="Turn a text corpus into a dense knowledge base of phrases, and answer slot queries from it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _output(place: Path | None) -> Path | None:
    """What is written is a plain file, or a folder, with a name."""
    if place is not None and str(place) == "-":
        raise typer.BadParameter("- stands for standard input: give a name to write to")
    if place is not None and place.suffix.lower() in (".gz", ".xz", ".bz2"):
        raise typer.BadParameter(f"{place.name} would not be compressed: leave out {place.suffix}")
    return place


MOST_WEIGHT = 1e6  # of what is added to vectors' scores: beyond, these are lost in rounding
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
Terms = Annotated[int, typer.Option(min=1, help="Of --sparta: strongest impacts kept of each sentence.")]
A_READER = "`default`, or a question-answering checkpoint (folder, hub name)"
ReaderName = Annotated[
    str | None,
    typer.Option(help=f"Reads answers in the paragraphs found: {A_READER}."),
]
Depth = Annotated[int, typer.Option(min=1, help="Of --reader: paragraphs that it reads for a query.")]
RetrievalWeight = Annotated[
    float, typer.Option(min=0.0, max=MOST_WEIGHT, help="Of --reader: what a point of the search adds to what it says.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:n.")]
Kb = Annotated[Path | None, typer.Option(help="A knowledge base; without it the bundled sample answers.")]
ModelName = Annotated[
    str | None,
    typer.Option(show_default="default; of --append that of KB", help="`default`, a model folder, or a hub name."),
]
Guess = Annotated[Path, typer.Argument(metavar="FILE", help="KILT predictions, plain or compressed.")]
Gold = Annotated[Path, typer.Argument(metavar="GOLD", help="The KILT file with the answers, plain or compressed.")]
TaskName = Annotated[
    str | None, typer.Option("--task", help="trex, nq, aidayago2…, a family (slot_filling…), or a task file.")
]
PagesOf = Annotated[Path | None, typer.Option("--kb", help="The knowledge base that the pages come from.")]
IndexName = Annotated[IndexKind | None, typer.Option(help="Without it, the index built last answers.")]
Strict = Annotated[bool, typer.Option("--strict", help="Page ids must be integers, as on the leaderboard.")]


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
    context: typer.Context,
    corpus: Annotated[str, typer.Argument(help="A file or folder, or - for standard input.")],
    kb: Annotated[Path, typer.Argument(callback=_output, help="Folder of the new knowledge base.")],
    format: Annotated[
        CorpusFormat,
        typer.Option(help="What the corpus looks like."),
    ] = "auto",
    model: ModelName = None,
    index: Annotated[
        WantedKind,
        typer.Option(help="auto: exact up to about 2 million kept tokens, then compact."),
    ] = "auto",
    bm25: Annotated[
        bool,
        typer.Option("--bm25/--no-bm25", help="Index the words, too. Not with --append: it does as before."),
    ] = True,
    sparta: Annotated[
        Path | None, typer.Option(help="A SPARTA model: add its impacts of words, as kbq index --sparta does.")
    ] = None,
    terms: Terms = 500,
    append: Annotated[bool, typer.Option("--append", help="Add to a knowledge base that is there.")] = False,
    skip_bad_lines: Annotated[bool, typer.Option("--skip-bad-lines", help="Report bad lines and go on.")] = False,
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="Processes that encode, each with one thread, on GPUs by turns.")
    ] = 1,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Make a knowledge base from a corpus. A build that was killed goes on where it stopped."""
    if sparta is None:
        _refuse_given(context, "no --sparta", ("terms",))
    if append:
        _refuse_given(context, "--append", ("bm25",))
    from kbq.commands import library
    from kbq.commands.progress import build_progress

    request = library.BuildRequest(
        corpus=corpus, folder=kb, format=format, model=model, index=index, bm25=bm25, sparta=sparta, terms=terms,
        append=append, skip_bad_lines=skip_bad_lines, device=device, workers=workers,
    )  # fmt: skip
    with build_progress(f"building {kb}") as (report, report_stage):
        outcome = library.build(request, report, _note, report_stage)
    counts = outcome.counts
    kept = counts.rows / max(1, counts.tokens)
    _tell(
        {"kb": str(kb), **counts.facts, "index": outcome.index, "bytes": outcome.bytes, "bad_lines": outcome.bad_lines},
        as_json,
        f"{kb}: {counts.pages:,} pages, {counts.paragraphs:,} paragraphs, {counts.tokens:,} tokens",
        f"kept {counts.rows:,} token vectors ({kept:.0%}), {printing.size(outcome.bytes)} on disk",
    )


@app.command()
def index(
    context: typer.Context,
    kb: Annotated[Path, typer.Argument(help="A knowledge base.")],
    kind: Annotated[
        WantedKind,
        typer.Option(
            "--index", help="Bytes a vector (dimension 384): disk 400, read from the disk; compact 80, tiny 45."
        ),
    ] = "auto",
    recall: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the ten best phrases that it shall find.")
    ] = 0.99,
    queries: Annotated[
        str | None,
        typer.Option(help="File of queries like those to come, one a line; else slots of its own pages."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="A query encoder tuned for this knowledge base.")] = None,
    bm25: Annotated[
        bool, typer.Option("--bm25", help="Index the words, not the vectors: for --backend bm25 and hybrid.")
    ] = False,
    sparta: Annotated[
        Path | None,
        typer.Option(help="A SPARTA model: add its word weights, for --backend sparta and hybrid."),
    ] = None,
    terms: Terms = 500,
    filter: Annotated[
        float | None,
        typer.Option(help="Index only tokens with a filter logit above this; the model's own: kbq info."),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Build an index, which answers from now on; others stay. Or index words: --bm25, --sparta.

    The vectors are not encoded again.
    """
    from kbq.commands import library
    from kbq.commands.progress import stage_progress

    if bm25:
        _refuse_given(context, "--bm25", ("sparta", "device"))
    if sparta is None:
        _refuse_given(context, "no --sparta", ("terms",))
    if bm25 or sparta is not None:
        _refuse_given(context, "--bm25" if bm25 else "--sparta", ("kind", "recall", "queries", "model", "filter"))
        name, size = _index_terms(kb, sparta, terms, device)
        _tell({"kb": str(kb), "bytes": size}, as_json, f"{kb}: {name} of {printing.size(size)}")
        return
    if kind == "exact" or library.index_kind(kb, kind) == "exact":
        _refuse_given(context, "exact search", ("recall", "queries"))
    with stage_progress(f"indexing {kb}") as report:
        request = library.IndexRequest(
            kb, kind, recall=recall, queries=queries, model=model, device=device, filter=filter
        )
        facts = library.index(request, report)
    _tell({"kb": str(kb), **dataclasses.asdict(facts)}, as_json, f"{kb}: {printing.index_line(facts)}")
    if facts.recall < facts.target:
        more = {"tiny": "compact, disk or exact", "compact": "disk or exact"}.get(facts.kind, "exact")
        way_out = f"choose --index {more} for that" if filter is None else "its --filter hides the others"
        _note(f"all of its cells together do not find {facts.target:.2%}: {way_out}")


def _index_terms(kb: Path, sparta: Path | None, terms: int, device: str) -> tuple[str, int]:
    """What was added, and its bytes."""
    from kbq.commands import library
    from kbq.commands.progress import stage_progress

    with stage_progress(f"indexing {kb}") as report:
        if sparta is None:
            return "a BM25 index", library.index_words(kb, report)
        return "learned impacts", library.index_impacts(kb, sparta, terms, device, report)


def _refuse_given(context: typer.Context, option: str, others: "Sequence[str]") -> None:
    """Options that would be ignored are wrong usage."""
    for name in others:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            shown = "index" if name == "kind" else name.replace("_", "-")
            raise typer.BadParameter(f"means nothing with {option}: leave it out", param_hint=f"--{shown}")


def _refuse_idle(context: typer.Context, backend: Backend, reader: str | None) -> None:
    """Options of a reader, or of an index, where there is none that answers."""
    if reader is None:
        _refuse_given(context, "no --reader", ("depth", "retrieval_weight"))
    if backend in WORDS_ALONE:
        _refuse_given(context, f"--backend {backend}", ("index",))


@app.command("merge-kb")
def merge_kb(
    out: Annotated[Path, typer.Argument(callback=_output, help="Folder of the new knowledge base.")],
    kbs: Annotated[list[Path], typer.Argument(metavar="KB", help="Knowledge bases of the same model.")],
    as_json: Json = False,
) -> None:
    """Join knowledge bases built with the same model, by linking their files."""
    from kbq.commands.progress import stage_progress
    from kbq.dump.manifest import read_manifest
    from kbq.dump.merging import merge as merge_folders

    with stage_progress(f"merging {out}") as report:
        manifest = merge_folders(out, kbs, report)
    counts = manifest.counts
    _tell(
        {"kb": str(out), **counts.facts, "shards": len(manifest.shards)},
        as_json,
        f"{out}: {counts.pages:,} pages, {counts.rows:,} token vectors, in {len(manifest.shards)} shards",
    )
    if any(read_manifest(kb).bm25 for kb in kbs) and not manifest.bm25:
        _note(f"not all of them have words: add these with `kbq index {out} --bm25`")
    if any(read_manifest(kb).sparta for kb in kbs):
        _note(f"learned impacts stay behind, their models may differ: kbq index {out} --sparta MODEL")


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="A query.")],
    kb: Kb = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many paragraphs.")] = 3,
    backend: Annotated[WordBackend, typer.Option(help="Whose terms.")] = "bm25",
    model: Annotated[str | None, typer.Option(help="The knowledge base's model, if that has moved.")] = None,
    as_json: Json = False,
) -> None:
    """Say which terms of a query found the best paragraphs, and what each one weighs there."""
    from kbq.commands import library

    (asked,) = library.read_queries([text], None)
    opened = library.open_kb(kb, model, "cpu", building=_building)
    explained = library.explain(asked.text, opened, k, backend)
    if as_json:
        paragraphs = [found.hit.to_dict() | {"terms": dict(found.parts)} for found in explained]
        _print_json({"query": asked.text, "backend": backend, "answers": paragraphs})
        return
    if not explained:
        _note(f"no paragraph shares a term with {text!r}: nothing is found")
    for found in explained:
        print(*printing.explanation_lines(found), sep="\n")


@app.command()
def query(
    context: typer.Context,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help='"subject [SEP] relation" or a question; several give several answers.'),
    ] = None,
    kb: Kb = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="One query per line; - for standard input.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many answers.")] = 5,
    unit: Annotated[
        Unit | None,
        typer.Option(help="What one answer is. Without it phrases; of bm25 and sparta without --reader, paragraphs."),
    ] = None,
    backend: BackendName = "auto",
    bm25_weight: Bm25Weight = None,
    sparta_weight: SpartaWeight = None,
    reader: ReaderName = None,
    depth: Depth = 20,
    retrieval_weight: RetrievalWeight = 0.1,
    model: Annotated[str | None, typer.Option(help="A query encoder tuned for this knowledge base.")] = None,
    index: IndexName = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Answer queries with phrases, their pages and exact places; without a query, ask at a prompt."""
    from kbq.commands import library
    from kbq.reading.reader import Answering

    _refuse_idle(context, backend, reader)
    typed = not texts and file is None and sys.stdin is not None and sys.stdin.isatty()
    asked = [] if typed else library.read_queries(texts or [], file)
    opened = library.open_kb(kb, model, device, index, _building)
    weights = library.chosen_weights(opened, backend, bm25_weight, sparta_weight)
    reading = library.opened_reading(reader, depth, retrieval_weight, device)
    wanted = library.Wanted(k, unit, Answering(backend, weights, reading))

    def answer(queries: "Sequence[Query]") -> None:
        unknown = [opened.unknown_words(one.text) for one in queries]
        _note_unknown(queries, unknown)
        _note_untuned(opened.model.config.untuned_relations(query.text for query in queries))
        for (one, hits), words in zip(library.ask(queries, opened, wanted), unknown, strict=True):
            if as_json:
                exact = opened.is_exact(backend) and reading is None  # a reader reads some paragraphs only
                answers = [hit.to_dict() for hit in hits]
                found = {"exact": exact, "unknown_words": words, "answers": answers}
                _print_json(({"id": one.id} if one.id else {}) | {"query": one.text} | found)
            else:
                typer.secho(one.text, bold=True)
                for rank, hit in enumerate(hits, start=1):
                    typer.echo("\n".join(printing.answer_lines(rank, hit)))
                if not hits and backend in WORDS_ALONE:
                    _note("nothing is found: no paragraph shares a term with the query")
                elif len(hits) < k:
                    _note(f"{len(hits)} of the {k} answers asked for were found")
                typer.echo()

    answer(asked)
    for line in _typed_lines() if typed else ():
        try:
            answer(library.read_queries([line], None))
        except KbqError as error:
            _print_error(error)


FOR_DISTILLATION = ("distill_weight", "temperature")
FOR_STUDENTS = (
    "pre_batches",
    "same_answers",
    "tokens_weight",
    "two_query_encoders",
    "weights",
    "truecase",
    "distill",
    *FOR_DISTILLATION,
)
FOR_DENSE_TRAINING = ("dev", "teacher", "generator", *FOR_STUDENTS)


@app.command()
def train(
    context: typer.Context,
    examples: Annotated[list[Path], typer.Argument(help="SQuAD JSON, QED, or JSON lines of passages with questions.")],
    out: Annotated[Path, typer.Option(callback=_output, help="Folder of the new model.")],
    checkpoint: Annotated[str, typer.Option(help="Start from: a BERT-like encoder (folder, hub name) or a kbq model.")],
    dev: Annotated[Path | None, typer.Option(help="Examples to score on; else a twentieth is set aside.")] = None,
    epochs: Annotated[float | None, typer.Option(min=0.0, max=1e6, show_default="3; --teacher, --generator: 2")] = None,
    batch_tokens: Annotated[int, typer.Option(min=64, help="Tokens of a batch's passages, with padding.")] = 4096,
    accumulate: Annotated[int, typer.Option(min=1, help="Batches of one step.")] = 1,
    learning_rate: Annotated[float | None, typer.Option(min=0.0, max=1e6, show_default="2e-4; --teacher: 1e-4")] = None,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="Share of hidden values left out in a step.")] = 0.0,
    pre_batches: Annotated[int, typer.Option(min=0, help="C: earlier batches that give negatives.")] = 0,
    same_answers: Annotated[
        bool, typer.Option("--same-answers", help="The same answer elsewhere is a negative, too, as in the paper.")
    ] = False,
    tokens_weight: Annotated[
        float, typer.Option(min=0.0, help="Weight of negatives over all tokens; 0: the paper.")
    ] = 1.0,
    two_query_encoders: Annotated[
        bool, typer.Option("--two-query-encoders", help="As in the paper; else one with two heads.")
    ] = False,
    weights: Annotated[WeightType, typer.Option(help="How weights are stored.")] = "float32",
    truecase: Annotated[
        bool, typer.Option("--truecase", help="Of a cased encoder: give queries in lower case their capital letters.")
    ] = False,
    distill: Annotated[
        str, typer.Option(help=f"A reader with the same tokenizer to learn from, too: {A_READER}.")
    ] = "",
    distill_weight: Annotated[float, typer.Option(min=0.0, help="Of --distill: the paper's λ2.")] = 2.0,
    temperature: Annotated[float, typer.Option(min=0.01, help="Of --distill: above 1 softens both sides.")] = 1.0,
    teacher: Annotated[
        bool,
        typer.Option("--teacher", help="Train a reader instead, for --distill: question and passage in one input."),
    ] = False,
    generator: Annotated[
        bool, typer.Option("--generator", help="Train what writes questions instead, for `kbq augment`.")
    ] = False,
    sparse: Annotated[bool, typer.Option("--sparse", help="Train a SPARTA model instead.")] = False,
    marked: Annotated[
        bool, typer.Option("--marked", help="Of --sparse: encode every sentence on its own, as in the paper.")
    ] = False,
    seed: int = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train phrase and query encoders from reading comprehension. After a kill, the same command goes on."""
    given = {"epochs": epochs, "learning_rate": learning_rate, "batch_tokens": batch_tokens, "seed": seed}
    shared: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    shared |= {"accumulate": accumulate, "dropout": dropout}
    if checkpoint == "default" and (sparse or teacher or generator):
        from kbq.encoding.model_folder import local_folder

        checkpoint = str(local_folder(checkpoint))
    command = shlex.join(["kbq", *sys.argv[1:]])
    asked: dict[str, Any] = {
        "examples": examples, "out": out, "checkpoint": checkpoint, "device": device, "command": command
    }  # fmt: skip
    if sparse:
        _refuse_given(context, "--sparse", FOR_DENSE_TRAINING)
        from kbq.training.engine import RunSettings
        from kbq.training.sparta import SpartaRequest, train_sparta

        sparta_request = SpartaRequest(**asked, settings=RunSettings(**shared), marked=marked)
        _train_and_tell(sparta_request, train_sparta, printing.sparta_lines, as_json)
        return
    if marked:
        raise typer.BadParameter("belongs to --sparse", param_hint="--marked")
    if generator:
        _refuse_given(context, "--generator", ("teacher", *FOR_STUDENTS))
        from kbq.training.generator import GeneratorRequest, GeneratorSettings, train_generator

        generator_request = GeneratorRequest(**asked, dev=dev, settings=GeneratorSettings(**shared))
        _train_and_tell(generator_request, train_generator, printing.generator_lines, as_json)
        return
    if teacher:
        _refuse_given(context, "--teacher", FOR_STUDENTS)
        from kbq.training.reader import TeacherRequest, TeacherSettings, train_teacher

        teacher_request = TeacherRequest(**asked, dev=dev, settings=TeacherSettings(**shared))
        _train_and_tell(teacher_request, train_teacher, printing.teacher_lines, as_json)
        return
    if not distill:
        _refuse_given(context, "no --distill", FOR_DISTILLATION)
    from kbq.commands.progress import training_progress
    from kbq.encoding.model_folder import ModelConfig
    from kbq.training.encoders import TrainingRequest, TrainingSettings, train_model

    settings = TrainingSettings(
        **shared,
        pre_batches=pre_batches,
        same_answers=same_answers,
        tokens_weight=tokens_weight,
        distill_weight=distill_weight,
        temperature=temperature,
    )
    config = ModelConfig(shared_query_encoder=not two_query_encoders)
    request = TrainingRequest(
        **asked, dev=dev, reader=distill, settings=settings, truecase=truecase, config=config, weights=weights
    )
    with training_progress(f"training {out}") as (report, report_reading):
        outcome = train_model(request, report, report_reading)
    _tell(dataclasses.asdict(outcome) | {"out": str(out)}, as_json, *printing.training_lines(out, outcome))


def _train_and_tell(
    request: "RunRequest",
    train: "Callable[[Any, Callable[[StepReport], None]], Any]",
    lines: "Callable[[Path, Any], Sequence[str]]",
    as_json: bool,
) -> None:
    from kbq.commands.progress import training_progress

    with training_progress(f"training {request.out}") as (report, _):
        outcome = train(request, report)
    _tell(dataclasses.asdict(outcome) | {"out": str(request.out)}, as_json, *lines(request.out, outcome))


@app.command()
def augment(
    context: typer.Context,
    corpus: Annotated[
        str, typer.Argument(help="A file or folder; with --triples also a knowledge base, searched for each triple.")
    ],
    out: Annotated[Path, typer.Option(callback=_output, help="File of the new examples, for `kbq train`.")],
    generator: Annotated[str, typer.Option(help="A sequence-to-sequence checkpoint that writes questions.")] = "",
    reader: Annotated[str, typer.Option(help=f"Questions that it answers differently are dropped: {A_READER}.")] = "",
    triples: Annotated[
        Path | None, typer.Option(help="Make slot queries of these instead: KILT lines, or CSV/TSV/JSONL as finetune.")
    ] = None,
    format: Annotated[CorpusFormat, typer.Option(help="What the corpus looks like.")] = "auto",
    entities: Annotated[
        str, typer.Option(help="What is asked for: `written` (names and numbers), or a spaCy pipeline's entities.")
    ] = "written",
    prompt: Annotated[
        str | None, typer.Option(help="What the generator reads: {before}, {answer}, {after}, {title}.")
    ] = None,
    beams: Annotated[int, typer.Option(min=1, help="Of the generator's search.")] = 1,
    each: Annotated[int, typer.Option(min=1, help="Questions of a paragraph, at most.")] = 5,
    depth: Annotated[int, typer.Option(min=1, help="Paragraphs that a knowledge base finds for a triple.")] = 5,
    backend: BackendName = "auto",
    seed: int = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Make training examples from a corpus: generated questions, or slot queries. Killed, it goes on."""
    if triples is not None:
        _refuse_given(context, "--triples", ("generator", "reader", "entities", "prompt", "beams", "each", "seed"))
    elif not (generator and reader):
        raise typer.BadParameter("give --generator and --reader, or --triples")
    else:
        _refuse_given(context, "--generator", ("depth", "backend"))
    from kbq.dump.manifest import is_knowledge_base

    if triples is not None and is_knowledge_base(Path(corpus)):
        _refuse_given(context, f"the knowledge base {corpus}", ("format",))
    elif triples is not None:
        _refuse_given(context, f"{corpus}, which is no knowledge base", ("depth", "backend", "device"))
    from kbq.augmentation.augment import AugmentationRequest
    from kbq.augmentation.augment import augment as make_examples
    from kbq.commands.progress import augmenting_progress
    from kbq.training.generator import PROMPT

    request = AugmentationRequest(
        corpus, out, format=format, generator=generator, reader=reader, triples=triples, entities=entities,
        prompt=prompt or PROMPT, beams=beams, each=each, depth=depth, backend=backend, seed=seed, device=device,
    )  # fmt: skip
    with augmenting_progress(f"reading {corpus}") as report:
        outcome = make_examples(request, report)
    _tell(
        dataclasses.asdict(outcome) | {"out": str(out)},
        as_json,
        f"{out}: {outcome.kept:,} of {outcome.asked:,} questions kept, on {outcome.paragraphs_kept:,} of "
        f"{outcome.paragraphs:,} paragraphs",
    )


@app.command()
def finetune(
    triples: Annotated[
        Path,
        typer.Argument(
            help="KILT lines, or CSV/TSV/JSONL of subject, relation, object[, aliases (with | between), page]."
        ),
    ],
    kb: Annotated[Path, typer.Option(help="The knowledge base whose query encoder learns.")],
    out: Annotated[Path, typer.Option(callback=_output, help="Folder of the new query encoder.")],
    task: Annotated[str, typer.Option(help="A task's name, a family such as entity_linking, or a task file.")] = (
        "slot_filling"
    ),
    examples: Annotated[int, typer.Option(min=0, help="Queries to tune on, each relation its share; 0: all.")] = 0,
    dev: Annotated[
        Path | None, typer.Option(help="To score on; else a tenth is set aside, with subjects and pages of its own.")
    ] = None,
    objective: Annotated[
        Literal["auto", "kilt", "phrase", "page"],
        typer.Option(help="What is right: the answer on a gold page, the answer anywhere, or the page."),
    ] = "auto",
    terms: Annotated[str, typer.Option(help="Terms of the loss: joint (phrases), start, end.")] = "joint,start,end",
    k: Annotated[int, typer.Option("-k", min=1, help="How many phrases found for a query enter the loss.")] = 100,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    patience: Annotated[int, typer.Option(min=1, help="Epochs without a better dev score before it stops.")] = 2,
    batch: Annotated[int, typer.Option(min=1, help="Queries searched together.")] = 24,
    accumulate: Annotated[int, typer.Option(min=1, help="Batches of one step.")] = 1,
    learning_rate: Annotated[float, typer.Option(min=0.0, max=1e6)] = 2e-4,
    model: Annotated[str | None, typer.Option(help="A query encoder to start from.")] = None,
    seed: int = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Tune the query encoder on triples; the knowledge base stays as it is. After a kill, the same command goes on."""
    from kbq.commands.progress import finetuning_progress
    from kbq.finetuning.finetune import FinetuningRequest
    from kbq.finetuning.finetune import finetune as tune
    from kbq.finetuning.loop import FinetuningSettings, chosen_objective, chosen_terms
    from kbq.kb import KnowledgeBase
    from kbq.kilt.task import load_task

    chosen = load_task(task)
    settings = FinetuningSettings(
        objective=chosen_objective(objective, chosen), terms=chosen_terms(terms), k=k, epochs=epochs,
        patience=patience, batch=batch, accumulate=accumulate, learning_rate=learning_rate, seed=seed,
    )  # fmt: skip
    command = shlex.join(["kbq", *sys.argv[1:]])
    request = FinetuningRequest(triples, out, chosen, dev=dev, examples=examples, settings=settings, command=command)
    opened = KnowledgeBase.open(kb, model, device)
    with finetuning_progress(f"tuning {out}") as report:
        outcome = tune(request, opened, _note, report)
    _tell(dataclasses.asdict(outcome) | {"out": str(out)}, as_json, *printing.finetuning_lines(out, outcome))


@app.command()
def predict(
    context: typer.Context,
    inputs: Annotated[Path, typer.Argument(help="KILT records, plain or compressed.")],
    task: Annotated[str, typer.Option(help="trex, nq, aidayago2…, a family (slot_filling…), or a task file.")],
    out: Annotated[Path, typer.Option(callback=_output, help="The prediction file.")],
    kb: Kb = None,
    model: Annotated[str | None, typer.Option(help="A query encoder tuned for this knowledge base.")] = None,
    backend: BackendName = "auto",
    bm25_weight: Bm25Weight = None,
    sparta_weight: SpartaWeight = None,
    reader: ReaderName = None,
    depth: Depth = 20,
    retrieval_weight: RetrievalWeight = 0.1,
    top_pages: Annotated[int, typer.Option(min=1, help="Pages of each provenance.")] = 20,
    with_text: Annotated[bool, typer.Option("--with-text", help="Write each page's paragraph too.")] = False,
    index: IndexName = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Predict KILT records. A run that was killed goes on where it stopped."""
    from kbq.commands import library
    from kbq.commands.progress import counting_progress
    from kbq.kilt.prediction import PredictionSettings, predict_file
    from kbq.kilt.task import load_task
    from kbq.reading.reader import Answering

    _refuse_idle(context, backend, reader)
    chosen = load_task(task)
    if kb is None:
        _note("no --kb is given: the bundled sample answers")
    if backend in WORDS_ALONE and reader is None and chosen.answer == "phrase":
        _note(f"with --backend {backend} answers are whole paragraphs: --reader reads phrases in them")
    opened = library.open_kb(kb, model, device, index, _building)
    with counting_progress(f"predicting {out}") as report:
        weights = library.chosen_weights(opened, backend, bm25_weight, sparta_weight)
        reading = library.opened_reading(reader, depth, retrieval_weight, device)
        settings = PredictionSettings(top_pages, with_text, Answering(backend, weights, reading))
        outcome = predict_file(chosen, inputs, opened, out, settings, report)
    _note_untuned(outcome.untuned_relations)
    _tell(
        dataclasses.asdict(outcome) | {"out": str(out)},
        as_json,
        f"{out}: {outcome.lines:,} predictions, {outcome.kept:,} of them from an earlier run",
    )
    if chosen.note:
        _note(f"{chosen.name}: {chosen.note}")


@app.command()
def info(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="A knowledge base, a model, a reader…; `default` is the model that ships.")
    ],
    speed: Annotated[bool, typer.Option("--speed", help="Time searches with each index, and exact.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Say what is in a knowledge base, a model or another network."""
    from kbq import description

    if not speed:
        _refuse_given(context, "no --speed", ("device",))
    facts = description.describe(folder)
    is_kb = facts["kind"] == "knowledge base"
    if speed and not is_kb:
        raise typer.BadParameter(
            f"{folder} is a {facts['kind']}, and only a knowledge base can be searched: leave it out",
            param_hint="--speed",
        )
    indexes = description.describe_indexes(folder) if is_kb else []
    speeds = list(description.index_speeds(folder, device)) if speed else []
    rows = {"indexes": [dataclasses.asdict(entry) for entry in indexes]}
    rows["searches_per_second"] = [dataclasses.asdict(one) for one in speeds]
    width = max(map(len, facts))
    _tell(
        facts | {name: some for name, some in rows.items() if some},
        as_json,
        *(f"{name.replace('_', ' '):{width}}  {printing.fact(value)}" for name, value in facts.items()),
        *(f"{'index':{width}}  {printing.index_line(entry)}" for entry in indexes),
        *(f"{'speed':{width}}  {printing.speed_line(one)}" for one in speeds),
    )
    if speeds and all(one.kind != "exact" for one in speeds):
        _note("exact search was not timed: half of the free memory, or the device, has no room for all vectors")


@app.command()
def evaluate(
    file: Guess,
    gold: Gold,
    task: TaskName = None,
    by: Annotated[str, typer.Option(help="Scores by group: relation, evidence-sets or meta.KEY.")] = "",
    ci: Annotated[bool, typer.Option("--ci", help="95 % confidence intervals, by bootstrap.")] = False,
    compare: Annotated[Path | None, typer.Option(help="Predictions of a second system, tested in pairs.")] = None,
    diagnosis: Annotated[
        bool, typer.Option("--diagnosis", help="How often answer and pages are right, and the best that is possible.")
    ] = False,
    per_item: Annotated[
        Path | None, typer.Option(callback=_output, help="Write every query's scores here, as JSON lines.")
    ] = None,
    ks: Annotated[str, typer.Option(help="Pages that the retrieval scores look at.")] = "1,5,10,20,100",
    rank_keys: Annotated[
        str, typer.Option(help="What retrieval counts as one page: page, section, paragraph, title, or keys k1,k2.")
    ] = "page",
    missing: Annotated[
        Literal["error", "zero", "skip"], typer.Option(help="What a query without prediction is; official: error.")
    ] = "error",
    empty_provenance: Annotated[
        Literal["count", "ignore"], typer.Option(help="Gold provenance that is empty; official: count.")
    ] = "count",
    coupled: Annotated[
        bool, typer.Option("--coupled", help="Add KILT-accuracy-coupled: pages must be those of the answer given.")
    ] = False,
    top_1: Annotated[bool, typer.Option("--top-1", help="Add recall@1 and success_rate@1.")] = False,
    no_rouge: Annotated[bool, typer.Option("--no-rouge", help="Leave out ROUGE-L, the slowest score.")] = False,
    measures: Annotated[str, typer.Option(help='Of ir-measures where installed, such as "RR nDCG@10".')] = "",
    trec_run: Annotated[
        Path | None, typer.Option(callback=_output, help="Write the predicted pages here, as a TREC run.")
    ] = None,
    trec_qrels: Annotated[
        Path | None, typer.Option(callback=_output, help="Write the gold pages here, as TREC qrels.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the last of the tables as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Score KILT predictions exactly as the leaderboard does."""
    from kbq.kilt.evaluation import EvaluationExtras, SummaryRequest, evaluate_files
    from kbq.kilt.metrics import RANK_KEYS, Cutoffs, Deviations
    from kbq.kilt.report import header

    if as_csv and as_json:
        raise typer.BadParameter("is another way to print than --json: leave one of them out", param_hint="--csv")
    deviations = Deviations(missing, empty_provenance, coupled, top_1, rouge=not no_rouge)
    cutoffs = Cutoffs(_numbers(ks, "--ks"), RANK_KEYS.get(rank_keys, tuple(rank_keys.split(","))))
    extras = EvaluationExtras(
        task=_task(task), by=by, other=compare, intervals=ci, diagnosis=diagnosis, measures=measures, items=per_item,
        trec_run=trec_run, trec_qrels=trec_qrels,
    )  # fmt: skip
    summary = evaluate_files(SummaryRequest(file, gold, cutoffs, deviations, extras))
    if as_json:
        _print_json(summary.document())
    if summary.scores:
        for note in summary.notes:
            _note(note)
        if as_csv:
            _note(header(deviations, cutoffs))
            print(summary.tables()[-1].csv(), end="")
        elif not as_json:
            print(header(deviations, cutoffs))
            for table in summary.tables():
                print(f"\n{table.markdown()}", end="")
    summary.raise_if_refused()


@app.command()
def validate(
    file: Guess,
    inputs: Annotated[Path | None, typer.Option(help="The KILT file that the predictions are for.")] = None,
    task: TaskName = None,
    kb: PagesOf = None,
    strict: Strict = False,
    fix: Annotated[
        Path | None, typer.Option(callback=_output, help="Repair the form, write it here, and check that.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check KILT predictions without gold. Exit status 1: the leaderboard would refuse or misread them.

    Page ids must be integers with --strict, or where those in the inputs are; without either, others are a warning.
    """
    from kbq.kilt.commands import ValidationRequest, check

    known = None if kb is None else _pages(kb).is_known
    validation = check(
        ValidationRequest(file, inputs, task=_task(task), fixed=fix, is_strict=strict, is_known_page=known)
    )
    if as_json:
        _print_json(validation.document())
    else:
        for finding in validation.errors:
            print(f"error: {finding}")
        for first, count in validation.first_warnings():
            print(f"warning: {first}{f', and {count - 1:,} more' if count > 1 else ''}")
        errors, warnings = len(validation.errors), len(validation.warnings)
        print(f"{validation.path}: {validation.records:,} records, {errors:,} errors, {warnings:,} warnings")
    if validation.errors:
        raise typer.Exit(1)


@app.command()
def errors(
    file: Guess,
    gold: Gold,
    task: TaskName = None,
    kb: PagesOf = None,
    kind: Annotated[str | None, typer.Option(help="Show this kind only, such as page-right-answer-wrong.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="How many examples of each kind.")] = 3,
    as_json: Json = False,
) -> None:
    """Say why predictions are wrong, with examples; with --kb also the texts of their pages.

    An answer is right letter by letter; with a --task that ranks by EM, after KILT's normalisation.
    """
    from kbq.kilt.commands import ErrorsRequest, find_errors

    pages = None if kb is None else _pages(kb)
    known, texts = (pages.is_known, pages.text_of) if pages else (None, None)
    report = find_errors(ErrorsRequest(file, gold, kind, sample, known, texts, _task(task)))
    for note in report.notes:
        _note(note)
    if as_json:
        _print_json({"counts": report.counts, "cases": [dataclasses.asdict(case) for case in report.cases]})
        return
    print(report.table().markdown())
    for case in report.cases:
        typer.echo("\n".join(printing.case_lines(case)))


@app.command()
def merge(
    answers: Annotated[Path, typer.Option(help="Predictions whose answers are taken.")],
    provenance: Annotated[Path, typer.Option(help="Predictions whose pages are taken.")],
    out: Annotated[Path, typer.Option(callback=_output, help="The new prediction file.")],
    as_json: Json = False,
) -> None:
    """Make one prediction file of one system's answers and another one's pages."""
    from kbq.kilt.submission import merge as merge_files

    count = merge_files(answers, provenance, out)
    _tell({"lines": count, "out": str(out)}, as_json, f"{out}: {count:,} predictions")


@app.command()
def submit(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="One prediction file for each task.")],
    tasks: Annotated[str, typer.Option("--tasks", "--task", help="Their tasks in the same order: trex,nq.")],
    out: Annotated[Path, typer.Option(callback=_output, help="Folder of the upload-ready files.")],
    inputs: Annotated[
        list[Path] | None, typer.Option(help="Their official input files in the same order; give it several times.")
    ] = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Check, clean and package predictions for the leaderboard. Nothing is sent anywhere."""
    from kbq.kilt.commands import submit as prepare
    from kbq.kilt.task import load_task

    entries = prepare(files, [load_task(name.strip()) for name in tasks.split(",")], inputs or [], out, strict)
    for entry in entries:
        for warning, count in entry.warnings.items():
            _note(f"{warning}{f', {count:,} times' if count > 1 else ''}")
    _tell(
        {"out": str(out), "files": [dataclasses.asdict(entry) for entry in entries]},
        as_json,
        *(f"{out / e.file}: {e.lines:,} lines, {printing.size(e.bytes)}, sha256 {e.sha256}" for e in entries),
        f"how to upload: {out / 'UPLOAD.md'}",
    )


@app.command()
def passages(
    file: Guess,
    gold: Gold,
    ks: Annotated[str, typer.Option(help="Passages that top-k accuracy looks at.")] = "1,5,20,100",
    export: Annotated[
        Path | None,
        typer.Option(callback=_output, help="Write questions and passages here, as DPR and Fusion-in-Decoder do."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score retrieved texts by whether they hold an answer: top-k accuracy, MRR@20, P@20."""
    from kbq.kilt.commands import evaluate_passages
    from kbq.kilt.report import passage_table

    scores = evaluate_passages(file, gold, _numbers(ks, "--ks"), export)
    if as_json:
        _print_json(dataclasses.asdict(scores) | {"accuracy": dict(scores.accuracy)})
    else:
        print(passage_table(scores).markdown(), end="")


@contextmanager
def _building(folder: Path) -> "Iterator[Callable[[Counts], None]]":
    from kbq.commands.progress import build_progress

    _note(f"building the sample knowledge base, once, in {folder}")
    with build_progress("building") as (report, _):
        yield report


def _print_error(error: KbqError) -> None:
    for problem in error.problems[:MOST_PROBLEMS]:
        _note(problem)
    if len(error.problems) > MOST_PROBLEMS:
        _note(f"… and {len(error.problems) - MOST_PROBLEMS:,} more")
    typer.secho(f"error: {error}", err=True, fg=typer.colors.RED)


def _typed_lines() -> "Iterator[str]":
    """What a person types at a prompt, until Ctrl-D or Ctrl-C."""
    _note("type a query, or Ctrl-D to end")
    while True:
        typer.secho("query: ", err=True, dim=True, nl=False)
        try:
            line = input()
        except (EOFError, KeyboardInterrupt):
            typer.echo(err=True)
            return
        if line.strip():
            yield line


def _task(name: str | None) -> "Task | None":
    from kbq.kilt.task import load_task

    return None if name is None else load_task(name)


def _pages(folder: Path) -> "Pages":
    from kbq.dump.pages import Pages

    return Pages(folder)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(number) for number in text.split(","))
        if min(numbers) < 1:
            raise ValueError
        return numbers
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers like 1,5,20", param_hint=option) from None


def _tell(document: "Mapping[str, object]", as_json: bool, *lines: str) -> None:
    """The outcome of a command: one JSON document, or these lines."""
    if as_json:
        _print_json(document)
    else:
        print(*lines, sep="\n")


def _print_json(document: "Mapping[str, object]") -> None:
    print(json.dumps(document, ensure_ascii=False), flush=True)


def _note_unknown(queries: "Sequence[Query]", unknown: "Sequence[Mapping[str, str | None]]") -> None:
    found = [
        (one.id, word, meant) for one, words in zip(queries, unknown, strict=True) for word, meant in words.items()
    ]
    if found:
        named = dict.fromkeys(printing.unknown_word(*one) for one in found)
        _note(f"nowhere in the knowledge base, so maybe mistyped: {printing.some(list(named))}")


def _note_untuned(relations: "Sequence[str]") -> None:
    if relations:
        _note(f"the query encoder was not tuned on {len(relations)} of the relations: {printing.some(relations)}")


def _note(text: str) -> None:
    typer.secho(text, err=True, dim=True)


def main() -> None:
    """Run the command line; every error of kbq is one message and exit status 1, or 2 for wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # JSON is UTF-8, and no name ends in a traceback
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        app()
    except KbqError as error:
        _print_error(error)
        sys.exit(2 if error.is_usage else 1)
    except OSError as error:  # what reads and writes files says it itself: this is of standard output, say
        _print_error(KbqError(f"{error.filename or 'standard output'} cannot be used ({error.strerror}): make room"))
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"):  # torch's, of a GPU
            raise
        _print_error(KbqError(f"too little memory ({first_line(error)}): try --device cpu, or fewer --workers"))
        sys.exit(1)
    except SystemExit as end:
        if end.code == 130:  # what typer makes of Ctrl-C
            _note("stopped; what is on the disk stays, the same command goes on")
        raise
