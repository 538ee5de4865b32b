"""Teach the reader of a model to judge the phrases of a search, with phrases that were mined.

    python recipes/teach_second_look.py MODEL OUT EXAMPLES.jsonl… [--epochs 1] [--seed 0]
        [--learning-rate 1.5e-4] [--half 0] [--larger READER READER] [--before MODEL] [--phrases 8]
        [--deep 0] [--frozen 0] [--renamed 0] [--mentions]

MODEL is a folder with a reader (recipes/bundle_reader.py), or `default`; EXAMPLES are files of
recipes/mine_phrases.py. A larger reader, a checkpoint of `kbq train reader`, learns the same from
--half 0 of the queries, another from --half 1; with --larger, both teach the model's reader, each
on the queries that it has not seen. Of queries that are marked as kept, the reader of --before (by
default, of MODEL) teaches, too, so that what is new costs nothing elsewhere. A share of the others,
--renamed, is asked with another name in the query and in the title: a page is about its title,
whatever the text calls it. Of the --phrases of a query, --deep come from further down the ranking.
With --mentions,
a window that does not name the subject begins with the last mention before it. A killed run
resumes.
Several of other seeds are better together: recipes/average_models.py --readers.

The whole reader learns, but for its word embeddings, which are the model's, and its --frozen lowest
layers. Phrases compete with each other and with "none of these is right", and so do the tokens
around them; of several values of a cell, each is right by itself. A larger reader learns from half
of the queries, so what it says of the other half is not learned by heart. Sources: arXiv 1710.10723
(paragraphs compete); arXiv 2012.12624, Eq. 5 (the share of all that is right); arXiv 1503.02531
(distillation); arXiv 1606.09282 (learning without forgetting).
"""

import argparse
import dataclasses
import math
import random
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from bundle_reader import question_answering, save_reader
from mine_phrases import MinedQuery, read_mined
from torch import Tensor, nn

from kbq.errors import KbqError, TrainingError
from kbq.model.backbone import saved_tokenizer
from kbq.model.devices import choose_device
from kbq.model.model_folder import (
    CONFIG,
    load_weights,
    local_folder,
    named_weights,
    read_config,
    read_weights,
    save_tensors,
    write_config,
)
from kbq.model.tokenizer import token_span
from kbq.reading.phrase_windows import Excerpt, ReadWindow, odds, read_around
from kbq.reading.reader import (
    POINTS,
    PhraseJudge,
    QuestionAnswering,
    Reader,
    open_reader,
)
from kbq.storage.folders import make_folders, new_folder
from kbq.text.answer_scores import normalise_answer
from kbq.text.normal_forms import IN_BRACKETS
from kbq.text.queries import Query, slot_of
from kbq.text.whole_words import whole_words
from kbq.training.batches import Files, passages_digest, weights_digest
from kbq.training.engine import SEEDS, Optimizer, Run, StepReport
from kbq.training.losses import distillation_loss, marginal_losses
from kbq.training.output_folder import example_digests, output_folder, training_facts, write_facts
from kbq.training.settings import StepSettings
from kbq.tuning.relation_judge import Label, answers_in_all, phrase_loss

EVERY = 25  # steps between two reports
CHECKPOINT, JUDGE = "reader", "judge.safetensors"  # in the folder of a larger reader that judges
# At the start: the sum of two logits of a right answer; what ten points are worth.
NONE, RETRIEVAL = (
    8.0,
    0.5,
)
SPREAD = 0.02  # of a new judge's weights
FASTER = (
    3  # times the learning rate of the encoder, which can read already, for the layers of the judge
)
SCALAR_RATE = 1e-2  # of `none` and `retrieval`, which have far to go
# Of the losses; half as much beside those of larger readers.
WEIGHTS = {
    "phrases": 1.0,
    "tokens": 0.5,
}
TAUGHT_WEIGHTS = {"taught phrases": 1.0, "taught tokens": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachingSettings(StepSettings):
    """Settings for teaching the reranker."""

    learning_rate: float = 1.5e-4
    epochs: float = 1.0
    batch: int = 14  # queries: about 4,000 tokens
    dropout: float = 0.0
    phrases: int = 8  # judged for a query
    # Share of the queries whose evidence is removed, so that none of their phrases is right.
    removed: float = 0.3
    hidden: float = 0.05  # share of those whose pages are hidden, to the same effect
    frozen: int = (
        0  # lowest layers, which do not learn: a step takes less time, and less is forgotten
    )
    mentions: bool = (
        False  # an earlier mention of the subject is read, too, where a window has none
    )
    deep: int = 0  # of the phrases judged, drawn from further down the ranking
    renamed: float = (
        0.0  # share of the queries that are not kept whose subject, and its page, get another name
    )


@dataclass(frozen=True, slots=True)
class TeachingOutcome:
    """The result of training, also written into the model's configuration."""

    queries: int
    left_out: int  # without a phrase, or too long for the reader
    steps: int


class RerankerRun(Run):
    """Teaches a reader with a judge, in a single round."""

    settings: TeachingSettings
    trained_on = "queries"

    def __init__(
        self,
        reader: Reader,
        queries: Sequence[MinedQuery],
        settings: TeachingSettings,
        larger: Sequence[Reader] = (),
        before: Reader | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            larger: two readers, taught with either half of the queries; each teaches the reader on
                the other half.
            before: the reader before the run, which teaches queries that are kept.
        """
        if not settings.epochs > 0:
            raise TrainingError(f"epochs is {settings.epochs}, must be above 0")
        self.reader, self.queries, self.larger, self.before = reader, queries, larger, before
        self.weights = (
            WEIGHTS
            | {name: weight / 2 for name, weight in WEIGHTS.items() if larger}
            | TAUGHT_WEIGHTS
        )
        network, judge = reader.judging_network, reader.phrase_judge
        layers = dict.fromkeys(
            [*judge.inner.parameters(), *judge.outer.parameters()], FASTER * settings.learning_rate
        )
        rates = layers | dict.fromkeys([judge.none, judge.retrieval], SCALAR_RATE)
        steps = math.ceil(len(queries) * settings.epochs / (settings.batch * settings.accumulate))
        super().__init__([network], settings, steps, settings.dropout)
        give_rates(self.optimizer, rates)

    def batches(self) -> Iterator[Sequence[int]]:
        """Yield batches of equal size; one may have queries of two epochs."""
        endless = (index for epoch in count() for index in self._order(epoch))
        while True:
            yield list(islice(endless, self.settings.batch))

    def _order(self, epoch: int) -> list[int]:
        every = range(len(self.queries))
        return random.Random(SEEDS * self.settings.seed + epoch).sample(every, len(every))

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return the losses of each query; shapes: (queries,)."""
        queries, reader = [self.queries[index] for index in members], self.reader
        judge = reader.phrase_judge
        ids = [reader.query_tokenizer.ids_of(query.text) for query in queries]
        subjects = [Query.of(query.text).subject for query in queries]
        read = read_around(reader, ids, [query.phrases for query in queries], subjects)
        losses = [
            query_losses(judge, query, windows)
            for query, windows in zip(queries, read, strict=True)
        ]
        of_phrases, of_tokens = (torch.stack(each) for each in zip(*losses, strict=True))
        tokens = sum(len(each.excerpt.window.ids) for windows in read for each in windows)
        share = of_phrases.new_tensor(
            [0.5 if query.is_kept and self.before else 1.0 for query in queries]
        )
        own = {"phrases": share * of_phrases, "tokens": share * of_tokens}
        return own | self._taught(ids, queries, read), tokens

    def _taught(
        self,
        ids: Sequence[Sequence[int]],
        queries: Sequence[MinedQuery],
        read: Sequence[Sequence[ReadWindow]],
    ) -> dict[str, Tensor]:
        """Return how the reader differs from those that teach it, if there are any."""
        if not self.larger and not self.before:
            return {}
        judge = self.reader.phrase_judge
        nothing = torch.zeros((), device=read[0][0].logits.device)
        losses: list[tuple[Tensor, Tensor]] = []
        for own, query, windows in zip(ids, queries, read, strict=True):
            teacher = self._teacher(query)
            if teacher is None:
                losses.append((nothing, nothing))
                continue
            with torch.no_grad():
                (says,) = read_around(
                    teacher, [own], [query.phrases], [Query.of(query.text).subject]
                )
            losses.append(taught_losses((judge, teacher.phrase_judge), query, (windows, says)))
        of_phrases, of_tokens = (torch.stack(each) for each in zip(*losses, strict=True))
        return {"taught phrases": of_phrases, "taught tokens": of_tokens}

    def _teacher(self, query: MinedQuery) -> Reader | None:
        if self.larger:
            return self.larger[1 - half_of(query)]
        return self.before if query.is_kept else None

    def digest(self) -> str:
        """Return a digest of initial weights, queries, and the weights of all that teach."""
        teachers = [*self.larger, *([self.before] if self.before else [])]
        return passages_digest(
            self.queries, weights_digest([*self.modules, *(one.network for one in teachers)])
        )


def prepare(
    reader: Reader, queries: Iterable[MinedQuery], settings: TeachingSettings
) -> tuple[list[MinedQuery], int]:
    """Choose the phrases of each query that are judged in training; also return how many queries
    are left out.
    """
    rng = random.Random(settings.seed)
    every = list(queries)
    usable = [
        query for query in every if query.phrases and reader.query_tokenizer.accepts(query.text)
    ]
    prepared = [
        _seen(query, settings, rng.random()).with_few_phrases(settings.phrases, settings.deep, rng)
        for query in usable
    ]
    if settings.renamed:
        names = sorted({slot[0] for query in usable if (slot := slot_of(query.text))})
        prepared = [
            query
            if query.is_kept or rng.random() >= settings.renamed
            else renamed(query, rng.choice(names))
            for query in prepared
        ]
    return prepared, len(every) - len(usable)


def renamed(query: MinedQuery, name: str) -> MinedQuery:
    """Give the subject another name, in the query and in the title of its own page, not in the
    text.

    A query stays as it is if none of its phrases is on a page of this title.
    """
    slot = slot_of(query.text)
    if not slot:
        return query
    subject, _ = slot
    titles = {phrase.title for phrase in query.phrases}
    called = {
        title: name + title[len(subject) :]
        for title in titles
        if IN_BRACKETS.sub("", title) == subject
    }
    if not called:
        return query
    phrases = tuple(
        replace(phrase, title=called.get(phrase.title, phrase.title)) for phrase in query.phrases
    )
    pages = tuple(called.get(page, page) for page in query.pages)  # ids or titles
    return replace(query, text=query.text.replace(subject, name, 1), phrases=phrases, pages=pages)


def _seen(query: MinedQuery, settings: TeachingSettings, drawn: float) -> MinedQuery:
    """Return the query as it is, without its evidence, or without its pages. `drawn`: from 0 to 1."""
    if drawn < settings.hidden:
        return query.with_pages_hidden()
    return (
        query.with_evidence_removed()
        if query.answers and drawn < settings.hidden + settings.removed
        else query
    )


def new_judge(dim: int) -> PhraseJudge:
    """Make a judge that has not learned anything."""
    judge = PhraseJudge(dim)
    for layer in (judge.inner, judge.outer):
        nn.init.normal_(layer.weight, std=SPREAD)
        nn.init.zeros_(layer.bias)
    nn.init.constant_(judge.none, NONE)
    nn.init.constant_(judge.retrieval, RETRIEVAL)
    return judge


def give_rates(optimizer: Optimizer, rates: Mapping[nn.Parameter, float]) -> None:
    """Give some parameters a learning rate of their own."""
    (group,) = optimizer.adam.param_groups
    group["params"] = [parameter for parameter in group["params"] if parameter not in rates]
    for rate in sorted(set(rates.values())):
        own = [parameter for parameter in optimizer.parameters if rates.get(parameter) == rate]
        optimizer.adam.add_param_group({"params": own, "initial_lr": rate})


def judging_reader(model: str | Path, device: str) -> Reader:
    """Open the reader of a model, or a larger one, with its judge or a new one; its word embeddings
    stay frozen.

    `model`: a folder, or `default`; of a larger reader, a checkpoint of `kbq train reader`, or a
    folder of `teach_reranker`. Raises ModelError if there is no such model, it has no reader, or it
    is damaged.
    """
    if is_model(model):
        folder = local_folder(model)
        network, tokenizer = open_reader(folder), saved_tokenizer(folder)
    else:
        network, tokenizer = _open_larger(Path(model))
    if network.judge is None:
        network.judge = new_judge(network.config.hidden_size)
    network.backbone.get_input_embeddings().weight.requires_grad_(False)
    return Reader(network.to(choose_device(device)), tokenizer, str(model))


def freeze(reader: Reader, layers: int) -> None:
    """Keep the embeddings and the lowest layers of a reader as they are."""
    backbone = question_answering(reader.network).backbone
    for name, weight in backbone.named_parameters() if layers else ():
        layer = re.search(r"layer\.(\d+)\.", name)
        if name.startswith("embeddings") or (layer and int(layer[1]) < layers):
            weight.requires_grad_(False)


def is_model(source: str | Path) -> bool:
    """Return whether this names a kbq model; any other folder holds a reader by itself."""
    folder = local_folder(source)
    return (folder / CONFIG).is_file() or not folder.is_dir()


def half_of(query: MinedQuery) -> int:
    """Return the half of the queries that a query is in, 0 or 1: all queries about a page are in
    one.
    """
    about = "\n".join(sorted(query.pages)) or query.text
    return zlib.crc32(about.encode("utf-8", "surrogatepass")) % 2


def teach_reranker(
    examples: Files,
    out: str | Path,
    model: str | Path,
    *,
    settings: TeachingSettings | None = None,
    half: int | None = None,
    larger: Sequence[str | Path] = (),
    before: str | Path | None = None,
    device: str = "auto",
    command: str = "",
    on_step: Callable[[StepReport], None] = lambda step: None,
) -> TeachingOutcome:
    """Write a copy of a model whose reader judges phrases. A killed run resumes from
    `OUT.partial/checkpoint.pt`.

    Args:
        examples: files of `read_mined`.
        out: a new folder.
        model: see `judging_reader`; a reader that judges goes on learning.
        half: the half of the queries to learn from, 0 or 1; None: all.
        larger: two readers that were taught with halves 0 and 1, to learn from, too.
        before: the model whose reader teaches the queries that are kept; None: `model`.
        command: kept in the model's configuration.

    Raises:
        TrainingError: see `train_encoders`.
        ModelError: there is no such model, or it has no reader, or a larger one has another
            tokenizer.
    """
    settings = settings or TeachingSettings()
    if len(larger) not in (0, 2):
        raise TrainingError(
            f"there are {len(larger)} larger readers: give two, taught with halves 0 and 1"
        )
    if larger and before:
        raise TrainingError(
            f"{before} would teach nothing, because larger readers teach all queries: leave "
            "--before out"
        )
    with output_folder(Path(out)) as folder:
        digests = example_digests(examples)
        torch.manual_seed(settings.seed)
        reader = judging_reader(model, device)
        readers = [judging_reader(one, device) for one in larger]
        for one in readers:
            one.check_tokenizer(reader.tokenizer)
            one.network.eval()
        mined = (query for query in read_mined(examples) if half in (None, half_of(query)))
        queries, left_out = prepare(reader, mined, settings)
        if not queries:
            raise TrainingError(
                f"none of {left_out} queries in {', '.join(digests)} has phrases and is short "
                f"enough: the reader takes {reader.query_tokenizer.max_tokens} tokens"
            )
        freeze(reader, settings.frozen)
        reader.judging_network.reads_mentions |= settings.mentions
        kept_by = None
        if any(query.is_kept for query in queries) and not larger:
            kept_by = judging_reader(before or model, device)
            kept_by.network.eval()
        run = RerankerRun(reader, queries, settings, readers, kept_by)
        run.run(folder / "checkpoint.pt", on_step)
        outcome = TeachingOutcome(len(queries), left_out, run.steps)
        facts = training_facts(
            command, model, digests, settings, outcome=dataclasses.asdict(outcome)
        )
        facts |= {
            "half": half,
            "larger": list(map(str, larger)),
            "before": str(before or model) if kept_by else None,
        }
        _save(reader, model, folder / "model", facts)
    return outcome


def _save(reader: Reader, model: str | Path, folder: Path, facts: dict[str, Any]) -> None:
    if not is_model(model):
        _save_larger(reader, Path(model), folder, facts)
        return
    new_folder(folder)
    shutil.copytree(local_folder(model), folder, dirs_exist_ok=True)
    save_reader(reader.judging_network, folder)
    config = read_config(folder)
    write_config(folder, replace(config, training=config.training | {"reranker": facts}))


def _open_larger(folder: Path) -> tuple[QuestionAnswering, Any]:
    """Open a larger reader, with its judge if it has one, and its tokenizer."""
    reader = Reader.open(str(_checkpoint(folder)), "cpu")
    network = question_answering(reader.network)
    if (folder / JUDGE).is_file():
        weights = read_weights(folder / JUDGE)
        network.judge = PhraseJudge(network.config.hidden_size)
        load_weights(network.judge, weights, "", folder)
    return network, reader.tokenizer


def _save_larger(reader: Reader, source: Path, folder: Path, facts: dict[str, Any]) -> None:
    """Write a larger reader that judges, which was opened from `source`, into a new folder."""
    network, judge = reader.judging_network, reader.phrase_judge
    judging = named_weights(judge, "")
    network.judge = None
    checkpoint = Reader.open(str(_checkpoint(source)), "cpu")
    question_answering(checkpoint.network).load_state_dict(network.cpu().state_dict())
    make_folders(folder)
    checkpoint.save(folder / CHECKPOINT)
    save_tensors(judging, folder / JUDGE)
    write_facts(folder, facts)


def _checkpoint(folder: Path) -> Path:
    return folder / CHECKPOINT if (folder / JUDGE).is_file() else folder


# Losses


def judged(judge: PhraseJudge, windows: Sequence[ReadWindow]) -> Tensor:
    """Return the log odds of all phrases of a query, window after window. Shape: (phrases,)."""
    edges = torch.cat([window.edges for window in windows])
    return odds(judge, edges, torch.cat([window.edge_logits for window in windows]))


def query_losses(
    judge: PhraseJudge, query: MinedQuery, windows: Sequence[ReadWindow]
) -> tuple[Tensor, Tensor]:
    """Return the losses of the phrases of one query, and of the tokens around them; scalars."""
    phrases = answers_in_all(windows, query.phrases)
    labels = [query.label(phrase) for phrase in phrases]
    alone = judged(judge, windows)
    found = alone.new_tensor([phrase.score for phrase in phrases])
    scores = alone + judge.retrieval * (found - found.max()) / POINTS
    loss = value_loss(
        scores, labels, [normalise_answer(phrase.text) for phrase in phrases], query.values
    )
    return loss, token_loss(query, windows, judge.none / 2, is_nothing_right(labels))


def value_loss(
    scores: Tensor, labels: Sequence[Label], names: Sequence[str], values: Sequence[Sequence[str]]
) -> Tensor:
    """Return the mean loss of the values that were found; without values, that of all right phrases
    together.

    Each value competes with what is wrong and with "none", not with other values. Where its usual
    form was found, its other forms take no part.

    >>> scores, labels = torch.tensor([3.0, 2.0, 1.0]).log(), ("right", "right", "wrong")
    >>> loss = value_loss(scores, labels, ["poet", "editor", "child"], [("poet",), ("editor",)])
    >>> round(float((-2 * loss).exp()), 4)  # 3 of 3 + 1 + 1, times 2 of 2 + 1 + 1
    0.3
    """
    losses = []
    for forms in values:
        found = next((name for name in map(normalise_answer, forms) if name in names), None)
        own: list[Label] = [
            label if label != "right" else "right" if name == found else "elsewhere"
            for label, name in zip(labels, names, strict=True)
        ]
        if "right" in own:
            losses.append(phrase_loss(scores, own))
    return torch.stack(losses).mean() if losses else phrase_loss(scores, labels)


def taught_losses(
    judges: Sequence[PhraseJudge], query: MinedQuery, read: Sequence[Sequence[ReadWindow]]
) -> tuple[Tensor, Tensor]:
    """Return KL(larger reader ‖ reader) over the phrases found for a query and "none", and over all
    tokens and "none".

    `judges`: those of the reader and of the larger one. `read`: what both have read, in the same
    windows.
    """
    (own_phrases, own_tokens), (phrases, tokens) = (
        _said(judge, query, windows) for judge, windows in zip(judges, read, strict=True)
    )
    return (
        distillation_loss(
            own_phrases, phrases.detach(), torch.ones_like(own_phrases, dtype=torch.bool)
        ),
        distillation_loss(
            own_tokens, tokens.detach(), torch.ones_like(own_tokens, dtype=torch.bool)
        ),
    )


def _said(
    judge: PhraseJudge, query: MinedQuery, windows: Sequence[ReadWindow]
) -> tuple[Tensor, Tensor]:
    """Return scores of the phrases that were found and of "none", and logits of all tokens and of
    "none".

    Shapes: (1, phrases + 1) and (2, tokens + 1).
    """
    numbers_of = [window.excerpt.numbers for window in windows]
    alone = torch.split(judged(judge, windows), [len(window.edge_logits) for window in windows])
    scores = torch.cat(
        [part[: len(numbers)] for part, numbers in zip(alone, numbers_of, strict=True)]
    )
    found = scores.new_tensor(
        [query.phrases[number].score for numbers in numbers_of for number in numbers]
    )
    scores = scores + judge.retrieval * (found - found.max()) / POINTS
    logits = torch.cat([window.logits for window in windows], dim=1)
    return (
        torch.cat([scores, scores.new_zeros(1)])[None],
        torch.cat([logits, (judge.none / 2).expand(2, 1)], dim=1),
    )


def is_nothing_right(labels: Sequence[Label]) -> bool:
    """Return whether "none of these is right" is certainly right."""
    return all(label == "wrong" for label in labels)


def token_loss(
    query: MinedQuery, windows: Sequence[ReadWindow], none: Tensor, is_none: bool
) -> Tensor:
    """Return -log of the share of the tokens that open answers among all tokens and "none", and of
    those that close.

    Windows of other pages in which an answer occurs take no part. The loss is 0 where there is
    nothing to choose. `none`: the logit of "none". Shape: (1,). `is_none`: whether "none" is right
    where no answer occurs.
    """
    logits = [none.expand(2, 1)]  # shapes: (2, tokens)
    golds = [torch.zeros(2, 1, dtype=torch.bool, device=none.device)]
    for window in windows:
        phrase = query.phrases[window.excerpt.numbers[0]]
        places = answer_places(query.answers, window.excerpt, phrase.context)
        if places and not query.is_on_page(phrase):
            continue
        gold = torch.zeros_like(window.logits, dtype=torch.bool)
        for first, last in places:
            gold[0, first] = gold[1, last] = True
        logits.append(window.logits)
        golds.append(gold)
    gold = torch.cat(golds, dim=1)
    gold[:, 0] = is_none and not gold.any()
    return marginal_losses(torch.cat(logits, dim=1), gold, torch.ones_like(gold)).mean()


def answer_places(answers: Iterable[str], excerpt: Excerpt, context: str) -> list[tuple[int, int]]:
    """Return first and last token of every answer in the text of a window of `context`, in any
    case.
    """
    begin, stop = int(excerpt.text.starts[0]), int(excerpt.text.ends[-1])
    text = context[begin:stop]
    return [
        token_span(excerpt.text, begin + start, begin + start + len(answer))
        for answer in answers
        if answer.strip()
        for start in whole_words(text, answer, in_any_case=True)
    ]


# The command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("examples", type=Path, nargs="+")
    parser.add_argument("--epochs", type=float, default=TeachingSettings().epochs)
    parser.add_argument("--seed", type=int, default=TeachingSettings().seed)
    parser.add_argument("--learning-rate", type=float, default=TeachingSettings().learning_rate)
    parser.add_argument("--half", type=int, choices=(0, 1))
    parser.add_argument("--larger", nargs=2, default=())
    parser.add_argument("--before")
    parser.add_argument("--dropout", type=float, default=TeachingSettings().dropout)
    parser.add_argument("--phrases", type=int, default=TeachingSettings().phrases)
    parser.add_argument("--frozen", type=int, default=TeachingSettings().frozen)
    parser.add_argument("--renamed", type=float, default=TeachingSettings().renamed)
    parser.add_argument("--deep", type=int, default=TeachingSettings().deep)
    parser.add_argument("--mentions", action="store_true")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    settings = TeachingSettings(
        epochs=options.epochs, seed=options.seed, learning_rate=options.learning_rate, dropout=options.dropout,
        phrases=options.phrases, frozen=options.frozen, renamed=options.renamed,
        deep=options.deep, mentions=options.mentions,
    )  # fmt: skip
    command = "recipes/teach_second_look.py"
    try:
        outcome = teach_reranker(
            options.examples, options.out, options.model, settings=settings, half=options.half, larger=options.larger,
            before=options.before, device=options.device, command=command, on_step=show,
        )  # fmt: skip
    except KbqError as error:
        sys.exit(str(error))
    print(
        f"{options.out}: {outcome.queries} queries, {outcome.left_out} left out, {outcome.steps} "
        "steps"
    )


def show(step: StepReport) -> None:
    if step.step % EVERY == 0:
        losses = ", ".join(f"{name} {value:.3f}" for name, value in step.means.items())
        print(f"step {step.step} of {step.steps}: {losses}", file=sys.stderr)


if __name__ == "__main__":
    main()
