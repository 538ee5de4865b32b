"""Second look: mined queries and a model become a model whose reader judges the phrases of a search.

The whole reader learns, but for its word embeddings, which are the model's.
"""

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

import torch
from torch import Tensor, nn

from kbq.errors import TrainingError
from kbq.model.backbone import saved_tokenizer
from kbq.model.devices import choose_device
from kbq.model.model_folder import local_folder, read_config, write_config
from kbq.reading.judge import PhraseJudge
from kbq.reading.network import QuestionAnswering, ReaderNetwork, open_reader, save_reader
from kbq.reading.phrase_windows import read_around
from kbq.storage.folders import copy_folder
from kbq.training.batches import passages_digest, weights_digest
from kbq.training.engine import SEEDS, Run, StepReport
from kbq.training.examples import as_paths
from kbq.training.mined_queries import MinedQuery, read_mined
from kbq.training.output_folder import example_digests, output_folder, training_facts
from kbq.training.reranker_losses import query_losses
from kbq.training.settings import StepSettings

NONE, RETRIEVAL = 8.0, 0.5  # at the start: the sum of two logits of a right answer; what ten points are worth
SPREAD = 0.02  # of a new judge's weights
FASTER = 3  # than the encoder, which has learned to read before, learn the layers of the judge
SCALAR_RATE = 1e-2  # of `none` and `retrieval`, which have far to go


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachingSettings(StepSettings):
    """Everything that decides the outcome besides model and examples."""

    learning_rate: float = 1.5e-4
    epochs: float = 1.0
    batch: int = 14  # queries: about 4,000 tokens
    dropout: float = 0.0
    phrases: int = 8  # of a query, that are judged
    removed: float = 0.3  # share of the queries whose evidence is removed, so that none of their phrases is right
    hidden: float = 0.05  # share of those whose pages are hidden, to the same effect


@dataclass(frozen=True, slots=True)
class TeachingOutcome:
    """The result of training, also written into the model's configuration."""

    queries: int
    left_out: int  # no phrase was found for them, or the reader cannot read them
    steps: int


class RerankerRun(Run):
    """Teaches a reader with a judge, in a single round."""

    settings: TeachingSettings
    weights = {"phrases": 1.0, "tokens": 0.5}  # noqa: RUF012 - never changed
    trained_on = "queries"

    def __init__(self, reader: ReaderNetwork, queries: Sequence[MinedQuery], settings: TeachingSettings) -> None:
        if not settings.epochs > 0:
            raise TrainingError(f"epochs is {settings.epochs}, must be above 0")
        self.reader, self.queries = reader, queries
        network, judge = reader.reranking
        layers = dict.fromkeys([*judge.inner.parameters(), *judge.outer.parameters()], FASTER * settings.learning_rate)
        rates = layers | dict.fromkeys([judge.none, judge.retrieval], SCALAR_RATE)
        steps = math.ceil(len(queries) * settings.epochs / (settings.batch * settings.accumulate))
        super().__init__([network], settings, steps, settings.dropout, rates)

    def query_count(self, members: Sequence[int]) -> int:
        """Every member is a query."""
        return len(members)

    def rest(self) -> Iterator[Sequence[Sequence[int]]]:
        """All steps that are left; a batch may have queries of two epochs."""
        size, together = self.settings.batch, self.settings.batch * self.settings.accumulate
        endless = (index for epoch in count() for index in self._order(epoch))
        left = islice(endless, self.optimizer.done * together, self.steps * together)
        while members := list(islice(left, together)):
            yield [members[first : first + size] for first in range(0, together, size)]

    def _order(self, epoch: int) -> list[int]:
        every = range(len(self.queries))
        return random.Random(SEEDS * self.settings.seed + epoch).sample(every, len(every))

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """The two losses of each query; shapes: (queries,)."""
        queries, reader = [self.queries[index] for index in members], self.reader
        _, judge = reader.reranking
        ids = [reader.query_tokenizer.ids_of(query.text) for query in queries]
        read = read_around(reader, ids, [query.phrases for query in queries])
        losses = [query_losses(judge, query, windows) for query, windows in zip(queries, read, strict=True)]
        of_phrases, of_tokens = (torch.stack(each) for each in zip(*losses, strict=True))
        tokens = sum(len(excerpt.window.ids) for windows in read for excerpt, _ in windows)
        return {"phrases": of_phrases, "tokens": of_tokens}, tokens

    def digest(self) -> str:
        """A digest of initial weights and queries."""
        return passages_digest(self.queries, weights_digest(self.modules))


def prepare(
    reader: ReaderNetwork, queries: Iterable[MinedQuery], settings: TeachingSettings
) -> tuple[list[MinedQuery], int]:
    """Queries with the phrases that are judged in training, and how many are left out."""
    rng = random.Random(settings.seed)
    prepared, left_out = [], 0
    for query in queries:
        if not query.phrases or not reader.query_tokenizer.accepts(query.text):
            left_out += 1
            continue
        prepared.append(_seen(query, settings, rng.random()).with_few_phrases(settings.phrases))
    return prepared, left_out


def _seen(query: MinedQuery, settings: TeachingSettings, drawn: float) -> MinedQuery:
    """The query as it is, without its evidence, or without its pages. `drawn`: from 0 to 1."""
    if drawn < settings.hidden:
        return query.with_pages_hidden()
    return query.with_evidence_removed() if query.answers and drawn < settings.hidden + settings.removed else query


def new_judge(dim: int) -> PhraseJudge:
    """A judge that has not learned anything."""
    judge = PhraseJudge(dim)
    for layer in (judge.inner, judge.outer):
        nn.init.normal_(layer.weight, std=SPREAD)
        nn.init.zeros_(layer.bias)
    nn.init.constant_(judge.none, NONE)
    nn.init.constant_(judge.retrieval, RETRIEVAL)
    return judge


def judging_reader(model: str | Path, device: str) -> ReaderNetwork:
    """The reader of a model, with its judge or a new one; its word embeddings, which are the model's, stay frozen.

    Raises:
        ModelError: there is no such model, or it has no reader.
    """
    folder = local_folder(model)
    network: QuestionAnswering = open_reader(folder)
    if network.judge is None:
        network.judge = new_judge(network.config.hidden_size)
    network.backbone.get_input_embeddings().weight.requires_grad_(False)
    return ReaderNetwork(network.to(choose_device(device)), saved_tokenizer(folder), str(model))


def teach_reranker(
    examples: str | Path | Sequence[str | Path],
    out: str | Path,
    model: str | Path,
    *,
    settings: TeachingSettings | None = None,
    device: str = "auto",
    command: str = "",
    on_step: Callable[[StepReport], None] = lambda step: None,
) -> TeachingOutcome:
    """Write a copy of a model whose reader judges phrases. A killed run resumes from `OUT.partial/checkpoint.pt`.

    Args:
        examples: one file or several of `read_mined`.
        out: a new folder.
        model: its folder, or `default`; a reader that judges goes on learning.
        command: is kept in the model's configuration.
        on_step: called after each step.

    Raises:
        TrainingError: `out` exists, there is no usable query, a loss is not a number, or the checkpoint is from another
            run.
        ModelError: there is no such model, or it has no reader.
    """
    settings = settings or TeachingSettings()
    with output_folder(Path(out)) as folder:
        paths = as_paths(examples)
        digests = example_digests(paths)
        torch.manual_seed(settings.seed)
        reader = judging_reader(model, device)
        queries, left_out = prepare(reader, read_mined(paths), settings)
        if not queries:
            raise TrainingError(
                f"none of {left_out} queries in {', '.join(map(str, paths))} has phrases and is short enough: the "
                f"reader takes {reader.query_tokenizer.max_tokens} tokens"
            )
        run = RerankerRun(reader, queries, settings)
        run.run(folder / "checkpoint.pt", on_step)
        outcome = TeachingOutcome(len(queries), left_out, run.steps)
        facts = training_facts(command, model, digests, settings, outcome=dataclasses.asdict(outcome))
        copy_folder(local_folder(model), folder / "model")
        save_reader(reader.reranking[0], folder / "model")
        config = read_config(folder / "model")
        write_config(folder / "model", replace(config, training=config.training | {"reranker": facts}))
    return outcome
