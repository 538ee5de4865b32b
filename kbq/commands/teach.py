"""Teach: the commands that train networks, or make examples for them."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

import kbq
from kbq.answers import WeightType, percent
from kbq.augmentation.options import A_READER, AugmentOptions
from kbq.commands.options import (
    TEACH,
    Commands,
    Device,
    Json,
    TunedModel,
    fields_of,
    output_path,
    refuse_given,
    takes,
)
from kbq.commands.terminal import note, tell, typed_command
from kbq.options import declared
from kbq.progress import Bar
from kbq.search.options import ASKED, Purpose, RankKwargs, SearchOptions
from kbq.training.settings import (
    PAPER,
    ReaderSettings,
    SpartaSettings,
    TrainingSettings,
)
from kbq.tuning.settings import HIDDEN, PAPER_TUNING, FinetuningSettings

if TYPE_CHECKING:
    from kbq.training.encoders import TrainingOutcome
    from kbq.training.reader import ReaderOutcome
    from kbq.training.sparta import SpartaOutcome
    from kbq.tuning.calibrate import CalibrationOutcome
    from kbq.tuning.finetune import FinetuningOutcome
    from kbq.tuning.labels import Reach

RANKING = ("backend", *RankKwargs.__annotations__)  # options of a search that calibrating has, too
app = typer.Typer()
FINETUNING = FinetuningSettings()
SEARCH = SearchOptions()
ENCODERS = TrainingSettings()
READER = ReaderSettings()
SPARTA = SpartaSettings()
AUGMENT = AugmentOptions()
train = typer.Typer(
    cls=Commands,
    help="Train networks on reading comprehension. A killed run resumes.",
    no_args_is_help=True,
)
app.add_typer(train, name="train", rich_help_panel=TEACH)

Encoder = Annotated[
    str,
    typer.Option(
        help="The network to start from: a BERT-like encoder (folder or hub name), or a kbq model."
    ),
]


Recipe = Annotated[
    Literal["kbq", "paper"],
    typer.Option(help="Default values: kbq's own, or those of arXiv 2012.12624."),
]
Settings = TypeVar("Settings", TrainingSettings, FinetuningSettings)


def by_paper(context: typer.Context, given: Settings, paper: Settings) -> Settings:
    """Return the paper's settings, but for what stands in the command line."""
    kind: Any = type(given)
    sources = {option.name: context.get_parameter_source(option.name) for option in declared(kind)}
    typed = [
        name
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]
    return dataclasses.replace(paper, **{name: getattr(given, name) for name in typed})


@dataclass(frozen=True, slots=True)
class Training:
    """Options: examples, and the network that learns from them."""

    examples: Annotated[
        list[Path],
        typer.Argument(
            help="SQuAD JSON, QED, MRQA, DPR, or JSON lines of passages with questions.",
            show_default=False,
        ),
    ]
    out: Annotated[Path, typer.Option(callback=output_path, help="Folder of the new network.")]
    dev: Annotated[
        Path | None, typer.Option(help="Examples to score on; by default a twentieth is set aside.")
    ] = None
    device: Device = "auto"
    as_json: Json = False


@app.command(rich_help_panel=TEACH)
@takes(FinetuningSettings)
def finetune(
    context: typer.Context,
    triples: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE[:TASK]...",
            help=(
                "KILT lines, open questions, or CSV/TSV/JSONL of subject, relation, object[, "
                "aliases (with | between), page]; of several files, each with its task, all count "
                "the same."
            ),
        ),
    ],
    kb: Annotated[Path, typer.Option(help="The knowledge base whose query encoder learns.")],
    out: Annotated[
        Path, typer.Option(callback=output_path, help="Folder of the new query encoder.")
    ],
    task: Annotated[
        str, typer.Option(help="A task, a family such as entity_linking, or a file.")
    ] = "slot_filling",
    examples: Annotated[
        int, typer.Option(min=0, help="Queries to tune on, with each relation's share; 0: all.")
    ] = 0,
    dev: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Triples to score on; by default a tenth is set aside, with subjects and pages of "
                "its own."
            )
        ),
    ] = None,
    settings: FinetuningSettings = FINETUNING,
    recipe: Recipe = "kbq",
    model: Annotated[str | None, typer.Option(help="A query encoder to start from.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Tune the query encoder on triples; the knowledge base stays as it is. A killed run resumes."""
    if recipe == "paper":
        settings = by_paper(context, settings, PAPER_TUNING)
    opened = kbq.KnowledgeBase.open(kb, model, device=device)
    with Bar(f"tuning {out}") as bar:
        outcome = opened.finetune(
            triples,
            out,
            task=task,
            dev=dev,
            examples=examples,
            command=typed_command(),
            note=note,
            report=bar.step,
            report_stage=bar.stage,
            **fields_of(settings),
        )

    tell(dataclasses.asdict(outcome) | {"out": str(out)}, as_json, *finetuning_lines(outcome))


@app.command(rich_help_panel=TEACH)
@takes(SearchOptions, *RANKING)
def calibrate(
    triples: Annotated[
        Path,
        typer.Argument(
            help=(
                "KILT lines, or a table as for `kbq finetune`; without an object, no answer is "
                "right."
            )
        ),
    ],
    kb: Annotated[Path, typer.Option(help="The knowledge base that is asked.")],
    out: Annotated[Path, typer.Option(callback=output_path, help="File of the calibration.")],
    purpose: Annotated[
        Purpose | None,
        typer.Option(
            help=(
                "What it is for: queries, which mostly have an answer, or cells of tables, which "
                "mostly have none."
            ),
            show_default="cell for decisions on a table, else query",
        ),
    ] = None,
    hidden: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of the queries asked again without their pages."
        ),
    ] = HIDDEN,
    options: SearchOptions = SEARCH,
    model: TunedModel = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Learn how likely answers are to be right, from triples with known objects; 200 or more are
    useful.
    """
    opened = kbq.KnowledgeBase.open(kb, model, device=device)
    with Bar(f"calibrating {out}") as bar:
        words = {name: getattr(options, name) for name in RANKING}
        outcome = opened.calibrate(
            triples,
            out,
            purpose=purpose,
            hidden=hidden,
            command=typed_command(),
            note=note,
            report=bar.count,
            **words,
        )

    tell(dataclasses.asdict(outcome) | {"out": str(out)}, as_json, *calibration_lines(outcome))


@train.command()
@takes(TrainingSettings)
@takes(Training)
def encoders(
    context: typer.Context,
    training: Training,
    init: Encoder,
    settings: TrainingSettings = ENCODERS,
    two_query_encoders: Annotated[
        bool,
        typer.Option(
            "--two-query-encoders",
            help="Train two, as in the paper; by default one with two heads.",
        ),
    ] = False,
    weights: Annotated[WeightType, typer.Option(help="How weights are stored.")] = "float32",
    truecase: Annotated[
        bool,
        typer.Option(
            "--truecase",
            help="With a cased encoder: restore capital letters in lower-case queries.",
        ),
    ] = False,
    distill: Annotated[
        str, typer.Option(help=f"Also learn from a reader with the same tokenizer: {A_READER}.")
    ] = "",
    recipe: Recipe = "kbq",
) -> None:
    """Train a model: its phrase encoder and its query encoder."""
    if not distill:
        refuse_given(context, "without --distill", ("distill_weight", "temperature", "equal_trust"))
    from kbq.model.model_folder import ModelConfig
    from kbq.training.encoders import train_encoders

    if recipe == "paper":
        settings = by_paper(context, settings, PAPER)
        two_query_encoders = True
    if settings.batch_queries:
        how = "with --batch-queries" if recipe == "kbq" else "with --recipe paper"
        refuse_given(context, how, ("batch_tokens",))

    config = ModelConfig(shared_query_encoder=not two_query_encoders)
    _train(
        train_encoders,
        encoder_lines,
        training,
        init,
        settings,
        dev=training.dev,
        distill=distill,
        config=config,
        truecase=truecase,
        weights=weights,
    )


@train.command()
@takes(ReaderSettings)
@takes(Training)
def reader(
    training: Training,
    init: Encoder,
    settings: ReaderSettings = READER,
    distill: Annotated[
        str,
        typer.Option(
            help="Also learn from a larger reader with the same tokenizer: folder or hub name."
        ),
    ] = "",
) -> None:
    """Train a reader, which sees question and passage together, for --reader and --distill."""
    from kbq.training.reader import train_reader

    _train(train_reader, reader_lines, training, init, settings, dev=training.dev, distill=distill)


@train.command()
@takes(SpartaSettings)
@takes(Training, without=("dev",))
def sparta(
    training: Training,
    init: Annotated[
        str,
        typer.Option(help="Network to start from: a BERT-like encoder, a kbq or a SPARTA model."),
    ],
    marked: Annotated[
        bool, typer.Option("--marked", help="Encode each sentence on its own, as in the paper.")
    ] = False,
    dev: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Examples that choose the step, as in the paper: of at most ten, the one that best "
                "ranks the right sentences of about 1,000 queries. By default the last is kept."
            )
        ),
    ] = None,
    settings: SpartaSettings = SPARTA,
) -> None:
    """Train a SPARTA model, which gives weights to words, for `kbq index sparta`."""
    from kbq.training.sparta import train_sparta

    _train(train_sparta, sparta_lines, training, init, settings, dev=dev, marked=marked)


def _train(
    train: Callable[..., Any],
    lines: Callable[[Path, Any], Sequence[str]],
    training: Training,
    init: str,
    settings: Any,
    **more: Any,
) -> None:
    """Train behind a progress bar, and print the outcome."""
    out = training.out
    device = training.device
    with Bar(f"training {out}") as bar:
        if "distill" in more:
            more["on_reading"] = bar.reading
        outcome = train(
            training.examples,
            out,
            init,
            settings=settings,
            device=device,
            command=typed_command(),
            on_step=bar.step,
            **more,
        )

    tell(dataclasses.asdict(outcome) | {"out": str(out)}, training.as_json, *lines(out, outcome))


@app.command(rich_help_panel=TEACH)
@takes(AugmentOptions)
def augment(
    context: typer.Context,
    corpus: Annotated[
        str,
        typer.Argument(
            help="A file or folder or, with --triples, a knowledge base to search for each triple."
        ),
    ],
    out: Annotated[
        Path, typer.Option(callback=output_path, help="File of the new examples, for `kbq train`.")
    ],
    options: AugmentOptions = AUGMENT,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Make training examples from a corpus: generated questions, slot queries, or known ones with
    hard negatives.
    """
    from kbq.dump.manifest import is_knowledge_base

    if options.questions is None:
        refuse_given(context, "without --questions", ("negatives",))
    if options.questions is not None:
        others = (
            "generator", "reader", "triples", "format", "entities", "prompt", "beams", "each",
            "depth", "backend",
        )  # fmt: skip
        refuse_given(context, "with --questions", (*others, "seed"))
    elif options.triples is None:
        if not (options.generator and options.reader):
            raise typer.BadParameter("give --generator and --reader, or --triples, or --questions")
        refuse_given(context, "with --generator", ("depth", "backend"))
    else:
        refuse_given(
            context,
            "with --triples",
            ("generator", "reader", "entities", "prompt", "beams", "each", "seed"),
        )
        if is_knowledge_base(Path(corpus)):
            refuse_given(context, f"with the knowledge base {corpus}", ("format",))
        else:
            refuse_given(
                context,
                f"with {corpus}, which is not a knowledge base",
                ("depth", "backend", "device"),
            )

    from kbq.augmentation.augment import augment as make_examples

    with Bar(f"reading {corpus}", is_counted=False) as bar:
        outcome = make_examples(corpus, out, options, device=device, report=bar.questions)

    if options.questions is None:
        questions = f"{outcome.kept:,} of {outcome.asked:,} questions kept"
    else:
        questions = f"{outcome.with_negative:,} of {outcome.asked:,} questions with a hard negative"
    paragraphs = f"{outcome.paragraphs_kept:,} of {outcome.paragraphs:,} paragraphs"
    left_out = ""
    if outcome.left_out:
        left_out = f"; {outcome.left_out:,} answers left out: not there, or at a doubtful place"
    facts = dataclasses.asdict(outcome) | {"out": str(out)}
    tell(facts, as_json, f"{out}: {questions}, on {paragraphs}{left_out}")


# Outcomes


def encoder_lines(out: Path, outcome: "TrainingOutcome") -> list[str]:
    """Say how well a trained encoder reads and finds."""
    scores = outcome.scores
    vectors = min(outcome.filter, key=lambda point: abs(point.kept - scores.kept)).vectors
    gold = f"EM {scores.gold_em:.1f}  F1 {scores.gold_f1:.1f}  ({scores.queries:,} queries)"
    found = f"first {scores.open_passage:.1f}  in the top 5 {scores.open_passage_5:.1f}"
    kept = f"{scores.kept:.0f} % of the tokens, {vectors:.0f} vectors per passage"
    return [
        _steps(out, outcome),
        f"reading, passage given    {gold}",
        f"reading, all passages     EM {scores.open_em:.1f}  F1 {scores.open_f1:.1f}",
        f"gold passage found        {found}",
        f"the filter keeps {kept} (its curve: --json)",
        *_left_out(outcome),
    ]


def reader_lines(out: Path, outcome: "ReaderOutcome") -> list[str]:
    scores = f"EM {outcome.em:.1f}  F1 {outcome.f1:.1f}  ({outcome.dev_queries:,} queries)"
    return [_steps(out, outcome), f"reading, passage given    {scores}", *_left_out(outcome)]


def sparta_lines(out: Path, outcome: "SpartaOutcome") -> list[str]:
    """Say what SPARTA was trained on and, with dev examples, how well it ranks sentences."""
    left_out = f"{outcome.left_out:,} left out: their answer is not within a sentence"
    lines = [f"{_steps(out, outcome)}; {left_out}"]
    if outcome.scores:
        found = f"MRR {max(outcome.scores):.1f} after {outcome.kept:,} steps"
        lines.append(f"right sentence found      {found}  ({outcome.dev_queries:,} queries)")
    if outcome.kept == 0:
        lines.append("no step was better: the network stays as it was")
    return [*lines, *_left_out(outcome)]


def finetuning_lines(outcome: "FinetuningOutcome") -> list[str]:
    """Return the lines that `kbq finetune` prints, among them which answers can never be found."""
    reach = outcome.reach
    passes = ""
    if outcome.passes > 1:
        passes = f", {outcome.passes} times an epoch"
    steps = f"{outcome.steps:,} steps on {reach.queries:,} queries{passes}"
    first = outcome.found[0]
    last = outcome.found[-1]
    lines = [
        f"{outcome.out}: {steps}, {reach.unreadable:,} unreadable left out",
        _reach(reach),
        f"the search found a right phrase for {first:.1f} %, at last for {last:.1f} % of them",
        f"{f'{outcome.dev_queries:,} dev queries':40}  before  after",
    ]
    scores = outcome.scores
    lines.append(_change(f"vectors alone, {outcome.measure}", scores[0], max(scores)))
    if outcome.hybrid_score is not None and outcome.hybrid_before is not None:
        lines.append(
            _change(f"with words, {outcome.measure}", outcome.hybrid_before, outcome.hybrid_score)
        )

    for name, (before, after) in outcome.tasks.items():
        lines.append(_change(f"vectors alone, {name}", before, after))
    if outcome.reranker:
        lines.append(_change("with reranking, answers right", *outcome.reranker))
    lines.append(_change("other queries answered as before", 100, outcome.agreements[outcome.best]))
    if not outcome.is_better:
        lines.append("no epoch was better: the query encoder stays as it was")
    if outcome.lexical_factor != 1:
        lines.append(f"the weights of words are multiplied by {outcome.lexical_factor:g}")
    if outcome.calibrated_on:
        lines.append(
            f"probabilities are learned from {outcome.calibrated_on:,} answers to dev queries"
        )
    else:
        lines.append(
            "probabilities stay the model's own: they are learned from 30 or more answers to dev "
            "queries"
        )

    return lines


def _reach(reach: "Reach") -> str:
    """Say which answers the search can find."""
    on_page = f"answers of {reach.on_page:,} queries are phrases of a gold page"
    dropped = f"of {reach.dropped:,} only words the filter dropped"
    no_page = f"{reach.no_page:,} have no page in the knowledge base"
    unnamed = ""
    if reach.unnamed:
        unnamed = f", of {reach.unnamed:,} no page is named"
    nowhere = ""
    if reach.nowhere:
        nowhere = f"; answers of {reach.nowhere:,} of these do not occur in it"
    return f"{on_page}, {dropped}, of {reach.elsewhere:,} not there; {no_page}{unnamed}{nowhere}"


def _change(score: str, before: float, after: float) -> str:
    return f"{score:40}  {before:6.1f}  {after:5.1f}"


def calibration_lines(outcome: "CalibrationOutcome") -> list[str]:
    """Return the lines that `kbq calibrate` prints; the scores are those on held-out relations."""
    errors = {"Brier": outcome.brier, "ECE": outcome.ece, "by chance": outcome.ece_of_chance}
    scores = {"AUROC": outcome.auroc} | errors
    figures = "  ".join(
        f"{name} {value:.3f}" for name, value in scores.items() if value is not None
    )
    thresholds: list[str] = []

    for precision, threshold in outcome.thresholds.items():
        right = f"{percent(float(precision))} are right"
        if threshold is None:
            thresholds.append(f"no threshold can promise that {right}: give more triples")
        else:
            thresholds.append(f"of answers above {threshold:.2f}, {right}")

    triples = f"{outcome.queries - outcome.hidden:,} triples"
    again = f"{outcome.hidden:,} of them asked again without their pages"
    answered = f"{percent(outcome.coverage_90 or 0)} are answered, 90 % rightly"
    command = {"query": "kbq query", "cell": "kbq fill"}[outcome.purpose]
    rights = f"{outcome.right:,} of {outcome.queries:,} answers are right"

    return [
        f"{outcome.out}: {triples}, {again}; {rights}",
        f"for {ASKED[outcome.purpose]}: give it to `{command}` with --calibration",
        f"on held-out relations  {figures}",
        f"with the best threshold for these very queries, {answered}",
        *thresholds,
    ]


def _steps(out: Path, outcome: Any) -> str:
    return (
        f"{out}: {outcome.steps:,} steps over {outcome.passages:,} passages with "
        f"{outcome.queries:,} queries"
    )


def _left_out(outcome: Any) -> list[str]:
    """Count the queries and answers, if any, that nothing was learned from."""
    too_long = getattr(outcome, "too_long", 0)
    surplus = getattr(outcome, "surplus", 0)
    lines = []
    repairs = outcome.repairs
    if too_long or surplus:
        lines.append(
            f"queries left out: {too_long:,} cannot be used, {surplus:,} beyond the limit of a "
            "passage"
        )

    if repairs.moved or repairs.lost or repairs.doubtful:
        left_out = (
            f"{repairs.lost:,} not in their passage, {repairs.doubtful:,} at a doubtful place"
        )
        lines.append(f"answers left out: {left_out}; {repairs.moved:,} moved to the nearest place")

    if repairs.answering:
        lines.append(
            f"negatives left out: {repairs.answering:,} hold an answer; mark those that may with "
            "same_phrase"
        )

    return lines
