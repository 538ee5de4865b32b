"""SPARTA: train a model of term impacts. `kbq train sparta`. Source: arXiv 2009.13013.

Softmax cross-entropy of each query over all sentences of its batch: those of its own passage and
article are the near-by negatives, those of the other articles the random ones. Only the batch's own
query terms are ever scored. The paper draws negatives from the whole corpus, half of them near-by;
here every sentence is encoded once for all queries, and `negatives` draws among those, half of them
from the query's own article.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kbq.errors import TrainingError
from kbq.model.devices import autocast, choose_device
from kbq.model.model_folder import SPARTA
from kbq.model.tokenizer import WindowShape, tokenize
from kbq.training.batches import Files, Passage, PassageRun, Repairs, read_examples
from kbq.training.engine import StepReport
from kbq.training.losses import marginal_losses
from kbq.training.output_folder import (
    example_digests,
    initial_checkpoint,
    output_folder,
    training_facts,
)
from kbq.training.settings import SpartaSettings
from kbq.words.sparta import (
    Sentence,
    SentenceWindow,
    SpartaConfig,
    SpartaModel,
    best_products,
    query_scores,
)

# Share of all impacts at the start: about 1,600 terms a sentence, as many as the paper ends with.
POSITIVE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class SpartaOutcome:
    """The result of training."""

    passages: int
    queries: int
    repairs: Repairs
    left_out: int  # queries without terms, or whose answer is not within a sentence
    steps: int


def train_sparta(
    examples: Files,
    out: str | Path,
    init: str | Path,
    *,
    marked: bool = False,
    settings: SpartaSettings | None = None,
    device: str = "auto",
    command: str = "",
    on_step: Callable[[StepReport], None] = lambda step: None,
) -> SpartaOutcome:
    """Train a model and save it in a new folder. A killed run resumes from
    `OUT.partial/checkpoint.pt`.

    Args:
        init: a BERT-like encoder, a kbq model or a SPARTA model: hub name or folder.
        marked: see `SpartaConfig`.
        command: kept in the model's configuration.

    Raises:
        TrainingError: see `train_encoders`.
        ModelError: the network to start from is missing or not BERT-like.
    """
    settings = settings or SpartaSettings()
    if settings.all_tokens and not marked:
        raise TrainingError(
            "all tokens of a window count for one sentence only: give --marked, too", is_usage=True
        )

    with output_folder(Path(out)) as folder:
        digests = example_digests(examples)
        torch.manual_seed(settings.seed)
        model, is_new = _initial_model(initial_checkpoint(init), marked, settings)
        model.network.to(choose_device(device))
        passages, repairs = read_examples(examples)
        prepared = prepare(model, passages)
        if not prepared:
            raise TrainingError(
                "no query has its answer within a sentence: SPARTA learns only from such queries"
            )

        if is_new:
            calibrate_bias(
                model, [window for example in prepared[:64] for window in example.windows]
            )

        run = SpartaRun(model, prepared, settings)
        run.run(folder / "checkpoint.pt", on_step)
        queries = sum(len(example.queries) for example in prepared)
        left_out = sum(len(passage.queries) for passage in passages) - queries
        outcome = SpartaOutcome(len(prepared), queries, repairs, left_out, run.steps)
        earlier = {} if is_new else {"begun": model.config.training}
        facts = training_facts(command, init, digests, settings, outcome=asdict(outcome))
        model.config = replace(model.config, training=earlier | facts)
        model.save(folder / "model")

    return outcome


def _initial_model(init: str, marked: bool, settings: SpartaSettings) -> tuple[SpartaModel, bool]:
    """Open the model to train, or make a new one; also return whether it is new."""
    if not (Path(init) / SPARTA).exists():
        usual = 128 if marked else 256  # marked: one sentence
        try:
            window = WindowShape(length=settings.window or usual, overlap=0)
        except ValueError:
            raise TrainingError(
                f"a window of {settings.window} tokens has no room for a sentence: give --window "
                f"{usual}"
            ) from None
        return SpartaModel.new(
            init, SpartaConfig(window, marked, all_tokens=settings.all_tokens)
        ), True

    model = SpartaModel.open(Path(init), "cpu")
    if model.config.marked != marked:
        how = "with --marked: give it" if model.config.marked else "without --marked: leave it out"
        raise TrainingError(f"{init} was trained {how}")

    if model.config.all_tokens != settings.all_tokens or settings.window not in (
        0,
        model.config.window.length,
    ):
        trained = (
            f"a window of {model.config.window.length} and all_tokens {model.config.all_tokens}"
        )
        raise TrainingError(f"{init} was trained with {trained}: go on with these")

    return model, False


@dataclass(frozen=True, slots=True)
class SentenceExample:
    """A passage's sentences, window by window, and for each query its terms and the sentences with
    an answer.
    """

    windows: tuple[SentenceWindow, ...]
    tokens: int  # tokens of all its windows
    queries: tuple[Counter[int], ...]
    golds: tuple[tuple[int, ...], ...]
    group: str

    @property
    def lengths(self) -> list[int]:
        return [len(window.ids) for window in self.windows]

    @property
    def sentences(self) -> list[Sentence]:
        return [sentence for window in self.windows for sentence in window.sentences]


def prepare(model: SpartaModel, passages: Sequence[Passage]) -> list[SentenceExample]:
    """Return the passages with those of their queries that have terms and an answer within a
    sentence.
    """
    examples = []
    for passage in passages:
        (title,) = tokenize(model.tokenizer, [passage.title])
        windows = tuple(model.windows(title.ids, passage.text))
        sentences = [sentence for window in windows for sentence in window.sentences]
        queries = []
        golds = []
        for query in passage.queries:
            gold = [
                number
                for number, sentence in enumerate(sentences)
                if any(
                    sentence.start <= start and end <= sentence.end for start, end in query.places
                )
            ]
            terms = Counter(model.query_terms(query.text))
            if gold and terms:
                queries.append(terms)
                golds.append(tuple(gold))

        if queries:
            tokens = sum(len(window.ids) for window in windows)
            examples.append(
                SentenceExample(windows, tokens, tuple(queries), tuple(golds), passage.group)
            )

    return examples


class SpartaRun(PassageRun):
    """Trains a SPARTA model."""

    weights = {"sentences": 1.0}  # noqa: RUF012 - never changed

    def __init__(
        self, model: SpartaModel, examples: Sequence[SentenceExample], settings: SpartaSettings
    ) -> None:
        super().__init__([model.network], examples, settings)
        self.model = model
        self.examples = examples
        self.negatives = settings.negatives

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return the cross-entropy over all sentences of the batch; of several right ones, their
        total probability.
        """
        batch = [self.examples[index] for index in members]
        queries = [terms for example in batch for terms in example.queries]
        terms = sorted({term for query in queries for term in query})
        counts = torch.tensor(
            [[query[term] for term in terms] for query in queries], dtype=torch.float32
        )
        gold = torch.zeros(
            (len(queries), sum(len(example.sentences) for example in batch)), dtype=torch.bool
        )
        groups = np.array([example.group for example in batch for _ in example.sentences])
        own = np.array([example.group for example in batch for _ in example.queries])
        near = torch.from_numpy(own[:, None] == groups)
        row = first = 0

        for example in batch:
            for places in example.golds:
                gold[row, [first + place for place in places]] = True
                row += 1
            first += len(example.sentences)

        windows = [window for example in batch for window in example.windows]
        device = self.model.network.bias.device
        tensors = self.model.tensors(windows)
        with autocast(device):
            impacts = self.model.network(tensors, torch.tensor(terms, device=device))
        scores = query_scores(impacts, counts.to(device))
        counted = torch.ones_like(gold)
        if self.negatives:
            source = torch.Generator().manual_seed(self.settings.seed * 2**20 + self.optimizer.done)
            counted = gold | drawn_negatives(gold, near, self.negatives, source)

        loss = marginal_losses(scores, gold.to(device), counted.to(device))
        return {"sentences": loss.mean()}, sum(example.tokens for example in batch)


def drawn_negatives(gold: Tensor, near: Tensor, count: int, source: torch.Generator) -> Tensor:
    """Draw negatives of each query, half of them near-by, as far as there are enough; mark them.

    Shapes of all: (queries, sentences).
    """
    order = torch.rand(gold.shape, generator=source)
    drawn = torch.zeros_like(gold)
    for pool, size in ((near & ~gold, count - count // 2), (~near & ~gold, count // 2)):
        ranks = order.masked_fill(~pool, -1.0).argsort(dim=1, descending=True).argsort(dim=1)
        drawn |= pool & (ranks < size)
    return drawn


@torch.no_grad()
def calibrate_bias(
    model: SpartaModel, windows: Sequence[SentenceWindow], share: float = POSITIVE_SHARE
) -> None:
    """Set b so that this share of all impacts is positive; at b = 0, nearly all impacts of an
    untrained model are.
    """
    device = model.network.bias.device
    tensors = model.tensors(windows[:64])
    with autocast(device):
        states = model.network.sentence_states(tensors)
        best = best_products(states, model.network.terms[model.terms[::16].to(device)])
    model.network.bias.fill_(-torch.quantile(best.float().flatten()[: 2**23], 1 - share))
