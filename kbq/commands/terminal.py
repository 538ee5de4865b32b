"""Terminal: print answers, tables and progress so that no text can control the terminal.

Results go to standard output (with --json nothing else does), notes, errors and progress to standard error.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any, Self

import typer

from kbq.answers import percentage
from kbq.errors import MOST_PROBLEMS, KbqError
from kbq.text.visible import visible, visible_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kbq.answers import Answer
    from kbq.description import IndexFacts
    from kbq.kilt.error_kinds import ErrorCase
    from kbq.training.encoders import TrainingOutcome
    from kbq.training.reader import ReaderOutcome
    from kbq.training.sparta import SpartaOutcome
    from kbq.tuning.calibrate import CalibrationOutcome
    from kbq.tuning.finetune import FinetuningOutcome

AROUND = 160  # characters on either side of a phrase, and of a text that is shortened
WHOLE = 2000  # characters shown of an answer that is a whole paragraph, and of each text that explains an error
NAMED = 3  # names shown of a longer list


if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Line = str | Sequence[str]  # a line, or its parts, of which some are `Styled`


class Styled(str):
    """A part of a line that is printed in a style: `bold`, `dim`, or `fg`, a colour."""

    __slots__ = ("style",)
    style: dict[str, Any]

    def __new__(cls, text: str, **style: Any) -> Self:
        styled = super().__new__(cls, text)
        styled.style = style
        return styled


def show(*lines: Line, err: bool = False, nl: bool = True) -> None:
    """Print lines for a person, each on one line; a terminal obeys nothing in them but their own styles."""
    for line in lines:
        typer.echo("".join(map(_shown, [line] if isinstance(line, str) else line)), err=err, nl=nl)


def _shown(part: str) -> str:
    return typer.style(visible(part), **part.style) if isinstance(part, Styled) and has_styles() else visible(part)


def has_styles() -> bool:
    """Whether colours and the like are wanted (https://no-color.org), and a terminal understands them."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def tell(document: Mapping[str, object], as_json: bool, *lines: Line) -> None:
    """Print the outcome of a command: one JSON document, or these lines."""
    if as_json:
        print_json(document)
    else:
        show(*lines)


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON document on a line; escapes, which JSON reads as the same, replace what a terminal would obey."""
    typer.echo(visible_json(document))


def print_answers_json(document: Mapping[str, object], answers: Iterable[Mapping[str, object]]) -> None:
    """Print one JSON document on a line, with its list of answers one by one: many of them take no more memory."""
    typer.echo(visible_json(document).removesuffix("}") + ', "answers": [', nl=False)
    for number, answer in enumerate(answers):
        typer.echo(", " * (number > 0) + visible_json(answer), nl=False)
    typer.echo("]}")


def print_file(content: bytes) -> None:
    """Print the content of a file: as it is for a program; at a terminal, what that would obey is escaped."""
    if sys.stdout.isatty():
        show(*content.decode("utf-8", "replace").splitlines())
    else:
        typer.echo(content, nl=False)


def typed_command() -> str:
    """Return the command as it was typed."""
    return shlex.join(["kbq", *sys.argv[1:]])


def note(text: str) -> None:
    """Print a line for the person at the terminal, on standard error."""
    show(Styled(text, dim=True), err=True)


def print_error(error: KbqError) -> None:
    """Print an error with its problems, on standard error; an only one that it names anyway is not repeated."""
    told = [] if len(error.problems) == 1 and error.problems[0] in str(error) else error.problems
    for problem in told[:MOST_PROBLEMS]:
        note(problem)
    if len(error.problems) > MOST_PROBLEMS:
        note(f"… and {len(error.problems) - MOST_PROBLEMS:,} more")
    show(Styled(f"error: {error}", fg=typer.colors.RED), err=True)


# Answers


def answer_lines(rank: int, hit: Answer, beside_judged: bool = False) -> list[Line]:
    """Show an answer with its place, and the text around it.

    `beside_judged`: other answers have probabilities, beside which a score would mislead.
    """
    value = "not judged" if beside_judged and hit.probability is None else worth(hit)
    place = f"page {hit.page_id}, paragraph {hit.paragraph}, characters {hit.start}-{hit.end}"
    answer = Styled(shortened(hit.text), fg=typer.colors.GREEN, bold=True)
    title = Styled(shortened(hit.title), bold=True)
    return [(f"{rank:3}. ", answer, f"  {value}  ", title, f"  ({place})"), ("     ", *excerpt(hit))]


def guess_lines(hit: Answer) -> list[Line]:
    """Say that there is no answer, and show the best guess in grey."""
    guess = f"best guess: {shortened(hit.text)}, {worth(hit)}, {shortened(hit.title)}, page {hit.page_id}"
    return [("     no answer  ", Styled(f"({guess})", dim=True))]


def worth(hit: Answer) -> str:
    """Return the probability of an answer or, if that is unknown, its score.

    >>> from dataclasses import replace
    >>> from kbq.answers import Answer
    >>> answer = Answer("Warsaw", 2.5, "1", "Marie Curie", 0, 0, 6, "Warsaw", (0, 6))
    >>> worth(answer), worth(replace(answer, probability=0.934)), worth(replace(answer, probability=0.9999))
    ('2.50', '93 %', '> 99 %')
    """
    return f"{hit.score:.2f}" if hit.probability is None else percentage(hit.probability)


def explanation_lines(hit: Answer, parts: Mapping[str, float]) -> list[str]:
    """Show a paragraph, and what each term of the query adds to its score, largest first."""
    terms = sorted(parts.items(), key=lambda part: -part[1])
    return [
        f"{hit.score:.2f}  {shortened(hit.title)}  (page {hit.page_id}, paragraph {hit.paragraph})",
        f"      {shortened(hit.context)}",
        *(f"      {weight:6.2f}  {term}" for term, weight in terms),
    ]


def excerpt(hit: Answer) -> tuple[str, Styled, str]:
    """Return the unit, or the text near the phrase, in three parts: before the phrase, the phrase, and after it."""
    start, end = hit.start, hit.end
    first = max(hit.unit[0] if hit.unit[0] < start else 0, start - AROUND)
    last = min(hit.unit[1] if hit.unit[1] > end else len(hit.context), end + AROUND)
    before = f"{'…' if first else ''}{hit.context[first:start]}«"
    after = f"»{hit.context[end:last]}{'…' if last < len(hit.context) else ''}"
    marked = Styled(shortened(hit.text, WHOLE), fg=typer.colors.GREEN, bold=True)
    return " ".join(before.split()), marked, " ".join(after.split())


def case_lines(case: ErrorCase) -> list[Line]:
    """Show a wrong prediction beside the gold record, and an empty line."""
    gold = " | ".join(f"{page.title} ({page.page_id})" for page in case.gold_places)
    rank = "not found" if case.found is None else f"complete at rank {case.rank}" if case.rank else "not all found"
    lines = {
        "input": case.input,
        "answer": case.answer,
        "gold answers": " | ".join(case.gold_answers),
        "first page": f"{case.top.title} ({case.top.page_id})" if case.top else "none",
        "its text": case.evidence,
        "gold pages": f"{gold}, {rank}" if gold else "none",
        "their text": case.gold_evidence,
    }
    shown = [f"  {name:12} {shortened(value, WHOLE)}" for name, value in lines.items() if value is not None]
    return [Styled(f"{case.kind}  {case.id}", bold=True), *shown, ""]


# Facts


def fact(value: object) -> str:
    """Return a fact on one line; the whole story of a training is for --json."""
    if not isinstance(value, dict):
        return f"{value:,}" if type(value) is int else str(value)  # True is an int, too
    if any(isinstance(part, dict | list) for part in value.values()):
        return f"{value['command']} (more with --json)" if "command" in value else "(with --json)"
    return ", ".join(f"{name} {part}" for name, part in value.items())


def index_line(facts: IndexFacts) -> str:
    """Say how large an index is, and how much it finds."""
    if facts.kind == "exact":
        return "exact, compares every vector: nothing is missed"
    probes = f"{facts.probes:,} probe{'s' * (facts.probes > 1)}"
    if facts.kind == "official":
        return f"official, the codes of an imported index, {facts.bytes_per_vector:,} more bytes per vector, {probes}"
    return (
        f"{facts.kind}, {facts.bytes_per_vector:,} bytes per vector, finds {facts.recall:.2%} of the ten best phrases "
        f"({facts.target:.2%} asked for, {facts.queries:,} queries) with {probes}"
        f"{'' if facts.filter is None else f', rows above {facts.filter:g}'}"
    )


# Outcomes


def encoder_lines(out: Path, outcome: TrainingOutcome) -> list[str]:
    """Say what `kbq train encoders` made."""
    scores = outcome.scores
    vectors = min(outcome.filter, key=lambda point: abs(point.kept - scores.kept)).vectors
    return [
        _steps(out, outcome),
        f"reading, passage given    EM {scores.gold_em:.1f}  F1 {scores.gold_f1:.1f}  ({scores.queries:,} queries)",
        f"reading, all passages     EM {scores.open_em:.1f}  F1 {scores.open_f1:.1f}",
        f"gold passage found        first {scores.open_passage:.1f}  in the top 5 {scores.open_passage_5:.1f}",
        f"the filter keeps {scores.kept:.0f} % of the tokens, {vectors:.0f} vectors per passage (its curve: --json)",
        *_left_out(outcome),
    ]


def reader_lines(out: Path, outcome: ReaderOutcome) -> list[str]:
    """Say what `kbq train reader` made."""
    scores = f"EM {outcome.em:.1f}  F1 {outcome.f1:.1f}  ({outcome.dev_queries:,} queries)"
    return [_steps(out, outcome), f"reading, passage given    {scores}", *_left_out(outcome)]


def sparta_lines(out: Path, outcome: SpartaOutcome) -> list[str]:
    """Say what `kbq train sparta` made."""
    left_out = f"{outcome.left_out:,} left out: their answer is not within a sentence"
    return [f"{_steps(out, outcome)}; {left_out}", *_left_out(outcome)]


def finetuning_lines(outcome: FinetuningOutcome) -> list[str]:
    """Say what `kbq finetune` made, and which answers can never be found."""
    reach, before, after = outcome.reach, outcome.scores[0], max(outcome.scores)
    unnamed = f", of {reach.unnamed:,} no page is named" if reach.unnamed else ""
    nowhere = f"; answers of {reach.nowhere:,} of these do not occur in it" if reach.nowhere else ""
    passes = f", {outcome.passes} times an epoch" if outcome.passes > 1 else ""
    lines = [
        f"{outcome.out}: {outcome.steps:,} steps on {reach.queries:,} queries{passes}, "
        f"{reach.unreadable:,} unreadable left out",
        f"answers of {reach.on_page:,} queries are phrases of a gold page, of {reach.dropped:,} only words the filter "
        f"dropped, of {reach.elsewhere:,} not there; {reach.no_page:,} have no page in the knowledge base"
        f"{unnamed}{nowhere}",
        f"the search found a right phrase for {outcome.found[0]:.1f} %, at last for {outcome.found[-1]:.1f} % of them",
        f"{f'{outcome.dev_queries:,} dev queries':40}  before  after",
        f"{f'vectors alone, {outcome.measure}':40}  {before:6.1f}  {after:5.1f}",
    ]
    if outcome.hybrid_score is not None and outcome.hybrid_before is not None:
        what = f"with words, {outcome.measure}"
        lines.append(f"{what:40}  {outcome.hybrid_before:6.1f}  {outcome.hybrid_score:5.1f}")
    if outcome.reranker:
        before, after = outcome.reranker
        lines.append(f"{'with reranking, answers right':40}  {before:6.1f}  {after:5.1f}")
    lines.append(f"{'other queries answered as before':40}  {100:6.1f}  {outcome.agreements[outcome.best]:5.1f}")
    if not outcome.is_better:
        lines.append("no epoch was better: the query encoder stays as it was")
    if outcome.lexical_factor != 1:
        lines.append(f"the weights of words are multiplied by {outcome.lexical_factor:g}")
    if outcome.calibrated_on:
        lines.append(f"probabilities are learned from {outcome.calibrated_on:,} answers to dev queries")
    else:
        lines.append("probabilities stay the model's own: they are learned from 30 or more answers to dev queries")
    return lines


def calibration_lines(outcome: CalibrationOutcome) -> list[str]:
    """Say what `kbq calibrate` made; the scores are of relations that were left out."""
    errors = {"Brier": outcome.brier, "ECE": outcome.ece, "by chance": outcome.ece_of_chance}
    scores = {"AUROC": outcome.auroc} | errors
    figures = "  ".join(f"{name} {value:.3f}" for name, value in scores.items() if value is not None)
    thresholds = [
        f"of answers above {threshold:.2f}, {float(precision):.0%} are right"
        if threshold is not None
        else f"no threshold can promise that {float(precision):.0%} are right: give more triples"
        for precision, threshold in outcome.thresholds.items()
    ]
    return [
        f"{outcome.out}: {outcome.queries - outcome.hidden:,} triples, {outcome.hidden:,} of them asked again without "
        f"their pages; {outcome.right:,} of {outcome.queries:,} answers are right",
        f"on relations left out  {figures}",
        f"with the best threshold for these very queries, {outcome.coverage_90 or 0:.0%} are answered, 90 % rightly",
        *thresholds,
    ]


def _steps(out: Path, outcome: Any) -> str:
    return f"{out}: {outcome.steps:,} steps over {outcome.passages:,} passages with {outcome.queries:,} queries"


def _left_out(outcome: Any) -> list[str]:
    """Count the queries and answers that nothing was learned from, if there are any."""
    too_long, surplus = getattr(outcome, "too_long", 0), getattr(outcome, "surplus", 0)
    lines, repairs = [], outcome.repairs
    if too_long or surplus:
        lines.append(f"queries left out: {too_long:,} cannot be used, {surplus:,} beyond the limit of a passage")
    if repairs.moved or repairs.lost or repairs.doubtful:
        left_out = f"{repairs.lost:,} not in their passage, {repairs.doubtful:,} at a doubtful place"
        lines.append(f"answers left out: {left_out}; {repairs.moved:,} moved to the nearest place")
    return lines


# Parts of lines


def shortened(text: str, width: int = AROUND) -> str:
    """Return a text on one line, of at most `width` characters."""
    line = " ".join(text.split(None, width)[:width])  # with blanks between them, as many words are too long already
    return line if len(line) <= width else f"{line[: width - 1]}…"


def unknown_word(query_id: str, word: str) -> str:
    """Return a word that does not occur, with the line of its query, if known.

    >>> unknown_word("queries.txt:2", "plase"), unknown_word("", "Qqz")
    ('plase (queries.txt:2)', 'Qqz')
    """
    return f"{shortened(word)} ({query_id})" if query_id else shortened(word)


def some(names: Sequence[str]) -> str:
    """Return the first names of a list that may be long."""
    return f"{', '.join(names[:NAMED])}{' …' if len(names) > NAMED else ''}"


def size(count: int) -> str:
    """Return a number of bytes with its unit."""
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"
