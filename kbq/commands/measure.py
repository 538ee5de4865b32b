"""Measure: the commands of KILT predictions, from `kbq predict` to `kbq submit`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import kbq
from kbq.answers import counted
from kbq.commands import terminal
from kbq.commands.options import (
    MEASURE,
    AskedKb,
    Json,
    fields_of,
    note_place,
    note_untuned,
    output_path,
    refuse_idle,
    takes,
)
from kbq.commands.terminal import WHOLE, Styled, note, print_json, shortened, show, tell
from kbq.errors import MOST_PROBLEMS
from kbq.progress import Bar
from kbq.search.options import TOP_PAGES, WORDS_ALONE, SearchOptions, Unit

if TYPE_CHECKING:
    from kbq.commands.terminal import Line
    from kbq.dump.page_directory import Pages
    from kbq.kilt.error_kinds import ErrorCase
app = typer.Typer()
SEARCH = SearchOptions()
KB = AskedKb()
OF_THE_TASK = ("k", "unit")
Guess = Annotated[
    Path, typer.Argument(metavar="FILE", help="KILT predictions, plain or compressed.")
]
Gold = Annotated[
    Path,
    typer.Argument(metavar="GOLD", help="The KILT file with the answers, plain or compressed."),
]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="trex, nq, aidayago2…, a family (slot_filling…), or a task file."),
]
PagesOf = Annotated[
    Path | None, typer.Option("--kb", help="The knowledge base that the pages come from.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Page ids must be integers, as on the leaderboard.")
]


@app.command(rich_help_panel=MEASURE)
@takes(SearchOptions, without=OF_THE_TASK)
@takes(AskedKb)
def predict(
    context: typer.Context,
    inputs: Annotated[
        Path, typer.Argument(help="KILT records, open questions, or queries of BEIR or MS MARCO.")
    ],
    task: Annotated[
        str, typer.Option(help="trex, nq, aidayago2…, a family (slot_filling…), or a task file.")
    ],
    out: Annotated[Path, typer.Option(callback=output_path, help="The prediction file.")],
    asked: AskedKb = KB,
    options: SearchOptions = SEARCH,
    top_pages: Annotated[
        int, typer.Option(min=1, help="Pages, or other units, in each provenance.")
    ] = TOP_PAGES,
    unit: Annotated[
        Unit,
        typer.Option(
            help="What a provenance lists: pages, as KILT wants, or several passages of one page."
        ),
    ] = "page",
    with_text: Annotated[
        bool,
        typer.Option(
            "--with-text", help="Also write each page's paragraph, or the passage, and its phrase."
        ),
    ] = False,
    questions: Annotated[
        Path | None,
        typer.Option(
            help="TriviaQA's own file, from which KILT's records get their questions by id."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict KILT records. A killed run resumes."""
    refuse_idle(context, options.backend, options.reader)
    chosen = kbq.Task.load(task)
    asked.note_sample()
    if options.backend in WORDS_ALONE and options.reader is None and chosen.answer == "phrase":
        whole = "sentences" if unit == "sentence" else "paragraphs"
        note(
            f"with --backend {options.backend} answers are whole {whole}: --reader reads phrases "
            "in them"
        )

    kb = asked.open(lazy=True)  # a wrong file is named before networks are opened
    with Bar(f"predicting {out}") as bar:
        words = {
            name: value for name, value in fields_of(options).items() if name not in OF_THE_TASK
        }
        outcome = kb.predict(
            inputs,
            chosen,
            out,
            top_pages=top_pages,
            unit=unit,
            with_text=with_text,
            questions=questions,
            report=bar.count,
            **words,
        )

    note_place(kb)
    note_untuned(outcome.untuned_relations)
    tell(
        dataclasses.asdict(outcome) | {"out": str(out)},
        as_json,
        f"{out}: {outcome.lines:,} predictions, {outcome.kept:,} of them from an earlier run",
    )
    if chosen.note and options.reader is None:
        note(f"{chosen.name}: {chosen.note}")


@app.command(rich_help_panel=MEASURE)
def evaluate(
    file: Guess,
    gold: Annotated[
        Path,
        typer.Argument(
            metavar="GOLD",
            help="The KILT file with the answers, or qrels of passages (.tsv, .qrels).",
        ),
    ],
    task: TaskName = None,
    by: Annotated[
        str, typer.Option(help="Also score by group: relation, evidence-sets or meta.KEY.")
    ] = "",
    ci: Annotated[
        bool, typer.Option("--ci", help="Add 95 % confidence intervals, by bootstrap.")
    ] = False,
    compare: Annotated[
        list[Path] | None,
        typer.Option(help="Predictions of a second system, for paired tests; repeat it for more."),
    ] = None,
    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration", help="Measure how well probabilities tell right from wrong answers."
        ),
    ] = False,
    plots: Annotated[
        Path | None,
        typer.Option(
            callback=output_path, help="Draw the calibration in this folder, as two pictures."
        ),
    ] = None,
    per_item: Annotated[
        Path | None,
        typer.Option(
            callback=output_path, help="Write each query's scores to this file, as JSON lines."
        ),
    ] = None,
    ks: Annotated[str, typer.Option(help="Depths of the retrieval scores.")] = "1,5,10,20,100",
    missing: Annotated[
        Literal["error", "zero"],
        typer.Option(help="A query without a prediction is an error, as officially, or counts 0."),
    ] = "error",
    trec_run: Annotated[
        Path | None,
        typer.Option(
            callback=output_path, help="Write the predicted pages to this file, as a TREC run."
        ),
    ] = None,
    trec_qrels: Annotated[
        Path | None,
        typer.Option(
            callback=output_path, help="Write the gold pages to this file, as TREC qrels."
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the last table as CSV.")] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print the tables for LaTeX, with booktabs.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score KILT predictions exactly as the leaderboard does. `kbq evaluate-table` scores tables."""
    from kbq.kilt.evaluation import EvaluationFiles, PartlyScoredError
    from kbq.kilt.evaluation import evaluate as evaluate_predictions

    if as_csv + as_json + latex > 1:
        raise typer.BadParameter("give one of --csv, --json and --latex", param_hint="--csv")
    refusal = None
    try:
        evaluation = evaluate_predictions(
            file,
            gold,
            task,
            by=by,
            ci=ci,
            compare=compare,
            calibration=calibration,
            ks=_numbers(ks, "--ks"),
            missing=missing,
            files=EvaluationFiles(per_item, trec_run, trec_qrels, plots),
        )
    except PartlyScoredError as error:  # the scores that there are get printed
        evaluation = error.evaluation
        refusal = error

    for line in evaluation.notes:
        note(line)
    if as_json:
        print_json(evaluation.to_dict())
    elif evaluation and as_csv:
        note(evaluation.semantics)
        show(*evaluation.tables[-1].csv().splitlines())
    elif evaluation and latex:
        note(evaluation.semantics)
        for table in evaluation.tables:
            show(*table.latex().splitlines())
    elif evaluation:
        show(*str(evaluation).split("\n"))

    if refusal:
        raise refusal


@app.command(rich_help_panel=MEASURE)
def errors(
    file: Guess,
    gold: Gold,
    task: TaskName = None,
    kb: PagesOf = None,
    kind: Annotated[
        str | None, typer.Option(help="Show only this kind, such as page-right-answer-wrong.")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="How many examples of each kind.")] = 3,
    as_json: Json = False,
) -> None:
    """Explain why predictions are wrong, with examples; --kb adds the texts of their pages.

    Answers are compared letter by letter or, with a --task that ranks by EM, after KILT's
    normalisation.
    """
    from kbq.kilt.error_kinds import find_errors

    survey = find_errors(
        file, gold, _task(task), kind, sample, None if kb is None else _pages(kb).text_of
    )
    for line in survey.notes:
        note(line)
    tell(survey.to_dict(), as_json, *survey.table().markdown().split("\n"))
    for case in [] if as_json else survey.cases:
        show(*case_lines(case))


def case_lines(case: "ErrorCase") -> "list[Line]":
    """Show a wrong prediction beside the gold record, followed by an empty line."""
    gold = " | ".join(f"{page.title} ({page.page_id})" for page in case.gold_places)
    rank = (
        "not found"
        if case.found is None
        else f"complete at rank {case.rank}"
        if case.rank
        else "not all found"
    )
    first_page = "none"
    if case.top:
        first_page = f"{case.top.title} ({case.top.page_id})"
    lines = {
        "input": case.input,
        "answer": case.answer,
        "gold answers": " | ".join(case.gold_answers),
        "first page": first_page,
        "its text": case.evidence,
        "gold pages": f"{gold}, {rank}" if gold else "none",
        "their text": case.gold_evidence,
    }
    shown = [
        f"  {name:12} {shortened(value, WHOLE)}"
        for name, value in lines.items()
        if value is not None
    ]

    return [Styled(f"{case.kind}  {case.id}", bold=True), *shown, ""]


@app.command(rich_help_panel=MEASURE)
def validate(
    file: Guess,
    inputs: Annotated[
        Path | None, typer.Option(help="The KILT file that the predictions are for.")
    ] = None,
    task: TaskName = None,
    kb: PagesOf = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Check KILT predictions without gold; the exit status is 1 if the leaderboard would refuse or
    misread them.

    Page ids must be integers with --strict, or if those of the inputs are; otherwise, any others
    give a warning.
    """
    from kbq.kilt.error_kinds import expect
    from kbq.kilt.submission import validate as validate_file

    if kb is None:
        known = None
    else:
        known = _pages(kb).is_known
    validation = validate_file(file, inputs, expect(_task(task), inputs, strict, known))
    errors = validation.errors
    lines = [f"error: {finding}" for finding in errors[:MOST_PROBLEMS]]
    if len(errors) > MOST_PROBLEMS:
        lines.append(f"… and {len(errors) - MOST_PROBLEMS:,} more")
    for first, count in validation.first_warnings():
        also = ""
        if count > 1:
            also = f", and {count - 1:,} more"
        lines.append(f"warning: {first}{also}")
    counts = {
        "record": validation.records,
        "error": len(errors),
        "warning": len(validation.warnings),
    }
    found = ", ".join(counted(count, noun) for noun, count in counts.items())
    lines.append(f"{validation.path}: {found}")
    tell(validation.to_dict(), as_json, *lines)
    if errors:
        raise typer.Exit(1)


@app.command(rich_help_panel=MEASURE)
def passages(
    file: Guess,
    gold: Gold,
    ks: Annotated[str, typer.Option(help="Values of k for the top-k accuracy.")] = "1,5,20,100",
    export: Annotated[
        Path | None,
        typer.Option(
            callback=output_path,
            help="Write questions and passages here, as JSON for DPR and Fusion-in-Decoder.",
        ),
    ] = None,
    regex: Annotated[
        bool,
        typer.Option(
            "--regex", help="Gold answers are regular expressions, as those of CuratedTREC."
        ),
    ] = False,
    candidates: Annotated[
        Path | None,
        typer.Option(help="Only these answers count, one per line, as with WebQuestions."),
    ] = None,
    trec_run: Annotated[
        Path | None,
        typer.Option(
            callback=output_path, help="Write the retrieved paragraphs here, as a TREC run."
        ),
    ] = None,
    trec_qrels: Annotated[
        Path | None,
        typer.Option(callback=output_path, help="Write the gold paragraphs here, as TREC qrels."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score retrieved passages by whether they contain an answer: top-k accuracy, MRR@20, P@20.

    Make them with `kbq predict --with-text` and `--unit paragraph` or, for exact match among the
    first k answers, `--unit phrase`. In TREC files a paragraph is PAGE:NUMBER.
    """
    from kbq.kilt.passages import (
        Judging,
        PassageFiles,
        Patterns,
        evaluate_passages,
        read_candidates,
    )

    judging = Judging(
        Patterns() if regex else None, None if candidates is None else read_candidates(candidates)
    )
    files = PassageFiles(export, trec_run, trec_qrels)
    scores = evaluate_passages(file, gold, _numbers(ks, "--ks"), files, judging)
    for pattern in judging.slow_patterns:
        note(f"the answer {pattern!r} takes too long on some text: there it counts as absent")
    tell(scores.to_dict(), as_json, *scores.table().markdown().removesuffix("\n").split("\n"))


@app.command(rich_help_panel=MEASURE)
def submit(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="One prediction file for each task.")
    ],
    tasks: Annotated[
        str, typer.Option("--tasks", "--task", help="Their tasks, in the same order: trex,nq.")
    ],
    out: Annotated[
        Path, typer.Option(callback=output_path, help="Folder for the files to upload.")
    ],
    inputs: Annotated[
        list[Path] | None,
        typer.Option(help="Their official input files, in the same order; repeat it for each."),
    ] = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Check, clean and package predictions for the leaderboard. Nothing is sent anywhere."""
    from kbq.kilt.submission import submit as prepare

    entries = prepare(
        files, [kbq.Task.load(name.strip()) for name in tasks.split(",")], inputs or [], out, strict
    )
    for entry in entries:
        for warning, count in entry.warnings.items():
            times = ""
            if count > 1:
                times = f", {count:,} times"
            note(f"warning: {warning}{times}")

    facts = {"out": str(out), "files": [dataclasses.asdict(entry) for entry in entries]}
    lines = []
    for entry in entries:
        size = terminal.size(entry.bytes)
        lines.append(f"{out / entry.file}: {entry.lines:,} lines, {size}, sha256 {entry.sha256}")

    tell(facts, as_json, *lines, f"how to upload: {out / 'UPLOAD.md'}")


def _numbers(text: str, option: str) -> tuple[int, ...]:
    """Read a list of numbers such as 1,5,20."""
    try:
        found = tuple(int(number) for number in text.split(","))
        if min(found) < 1:
            raise ValueError
        return found
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers like 1,5,20", param_hint=option
        ) from None


def _task(name: str | None) -> "kbq.Task | None":
    if name is None:
        return None
    return kbq.Task.load(name)


def _pages(folder: Path) -> "Pages":
    from kbq.dump.page_directory import Pages

    return Pages.open(folder)
