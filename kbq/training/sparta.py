"""SPARTA: train a model of term impacts. `kbq train sparta`. Source: arXiv 2009.13013.

Softmax cross-entropy of each query over all sentences of its batch: those of its own passage and
article are the near-by negatives, those of the other articles the random ones. Only the batch's own
query terms are ever scored. The paper draws negatives from the whole corpus, half of them near-by;
here every sentence is encoded once for all queries, and `negatives` draws among those, half of them
from the query's own article.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kbq.errors import TrainingError
from kbq.model.devices import autocast, choose_device
from kbq.model.model_folder import SPARTA
from kbq.model.tokenizer import WindowShape, tokenize
from kbq.training.batches import (
    Files,
    Passage,
    PassageRun,
    Repairs,
    passages_digest,
    read_examples,
)
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

SCORED_TOGETHER = 16  # windows of dev data
MOST_DEV = 1000  # dev queries, about: of more, passages are drawn at random
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
    kept: int  # steps that led to the parameters that are kept; 0: none was better than no training
    dev_queries: int = 0
    # Percent: mean reciprocal rank of the right sentences of dev queries, before training and up to
    # ten times after it has begun; the best is kept.
    scores: Sequence[float] = ()


def train_sparta(
    examples: Files,
    out: str | Path,
    init: str | Path,
    *,
    dev: str | Path | None = None,
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
        dev: examples that choose the step, as in the paper; without them the last one is kept.
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
        dev_digests = {} if dev is None else example_digests(dev)
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
            calibrate_bias(model, _windows_of(prepared[:64]))

        scored_on = _dev_examples(model, dev, settings.seed)
        run = SpartaRun(model, prepared, settings, scored_on)
        run.run(folder / "checkpoint.pt", on_step)
        queries = len(_queries_of(prepared))
        left_out = sum(len(passage.queries) for passage in passages) - queries
        dev_queries = len(_queries_of(scored_on))
        scores = [round(100 * score, 2) for score in run.scores]
        outcome = SpartaOutcome(
            len(prepared), queries, repairs, left_out, run.steps, run.kept, dev_queries, scores
        )
        earlier = {} if is_new else {"begun": model.config.training}
        facts = training_facts(
            command, init, digests, settings, dev=dev_digests, outcome=asdict(outcome)
        )
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


def _dev_examples(model: SpartaModel, dev: str | Path | None, seed: int) -> list[SentenceExample]:
    """Read the examples that choose the step. Raises TrainingError if no query can be scored."""
    if dev is None:
        return []
    passages = read_examples(dev, doubtful=True)[0]
    random.Random(seed).shuffle(passages)
    drawn: list[SentenceExample] = []
    for example in prepare(model, passages):
        if len(_queries_of(drawn)) < MOST_DEV:
            drawn.append(example)

    if not drawn:
        raise TrainingError(f"{dev}: no query has its answer within a sentence, so none is scored")
    return drawn


class SpartaRun(PassageRun):
    """Trains a SPARTA model."""

    weights = {"sentences": 1.0}  # noqa: RUF012 - never changed
    trained_on = "passages or dev examples"

    def __init__(
        self,
        model: SpartaModel,
        examples: Sequence[SentenceExample],
        settings: SpartaSettings,
        dev: Sequence[SentenceExample] = (),
    ) -> None:
        """`dev`: examples whose mean reciprocal rank chooses the step; without them it is the last."""
        score = partial(mean_reciprocal_rank, model, dev) if dev else None
        made_with = passages_digest(dev) if dev else ""
        super().__init__([model.network], examples, settings, made_with, score)
        self.model = model
        self.examples = examples
        self.negatives = settings.negatives

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return the cross-entropy over all sentences of the batch; of several right ones, their
        total probability.
        """
        batch = [self.examples[index] for index in members]
        scores = _scores(self.model, _windows_of(batch), *_term_counts(_queries_of(batch)))
        gold = torch.zeros(scores.shape, dtype=torch.bool)
        for row, right in enumerate(_right_sentences(batch)):
            gold[row, right] = True
        counted = torch.ones_like(gold)
        if self.negatives:
            source = torch.Generator().manual_seed(self.settings.seed * 2**20 + self.optimizer.done)
            near = _near_sentences(batch)
            counted = gold | drawn_negatives(gold, near, self.negatives, source)

        loss = marginal_losses(scores, gold.to(scores.device), counted.to(scores.device))
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


def mean_reciprocal_rank(model: SpartaModel, examples: Sequence[SentenceExample]) -> float:
    """Return the mean of 1 / rank of each query's best right sentence, among the sentences of all
    examples; of equal scores, the right one is last.
    """
    scores = sentence_scores(model, examples)
    ranks = [
        (of_query >= of_query[right].max()).sum()
        for of_query, right in zip(scores, _right_sentences(examples), strict=True)
    ]
    return float((1 / torch.stack(ranks).double()).mean())


@torch.no_grad()
def sentence_scores(model: SpartaModel, examples: Sequence[SentenceExample]) -> Tensor:
    """Score the sentences of all examples for each of their queries. Shape: (queries, sentences)."""
    terms, counts = _term_counts(_queries_of(examples))
    windows = _windows_of(examples)
    was_training = model.network.training
    model.network.eval()
    scores = []
    for first in range(0, len(windows), SCORED_TOGETHER):
        batch = windows[first : first + SCORED_TOGETHER]
        scores.append(_scores(model, batch, terms, counts).cpu())
    model.network.train(was_training)
    return torch.cat(scores, dim=1)


def _scores(
    model: SpartaModel, windows: Sequence[SentenceWindow], terms: Tensor, counts: Tensor
) -> Tensor:
    """Score the sentences of some windows for each query. Shapes: see `query_scores`."""
    device = model.network.bias.device
    tensors = model.tensors(windows)
    with autocast(device):
        impacts = model.network(tensors, terms.to(device))
    return query_scores(impacts, counts.to(device))


def _term_counts(queries: Sequence[Counter[int]]) -> tuple[Tensor, Tensor]:
    """Return the terms of all queries, and how often each has them. Shapes: (terms,), (queries,
    terms).
    """
    terms = sorted(set().union(*queries))
    column_of = {term: column for column, term in enumerate(terms)}
    counts = torch.zeros(len(queries), len(terms))
    for row, query in enumerate(queries):
        for term, count in query.items():
            counts[row, column_of[term]] = count
    return torch.tensor(terms), counts


def _queries_of(examples: Sequence[SentenceExample]) -> list[Counter[int]]:
    """Return the terms of each query, with their counts."""
    return [terms for example in examples for terms in example.queries]


def _windows_of(examples: Sequence[SentenceExample]) -> list[SentenceWindow]:
    return [window for example in examples for window in example.windows]


def _near_sentences(examples: Sequence[SentenceExample]) -> Tensor:
    """Mark the sentences of each query's article. Shape: (queries, sentences)."""
    groups = np.array([example.group for example in examples for _ in example.sentences])
    own = np.array([example.group for example in examples for _ in example.queries])
    return torch.from_numpy(own[:, None] == groups)


def _right_sentences(examples: Sequence[SentenceExample]) -> list[list[int]]:
    """Return the right sentences of each query, numbered over all examples."""
    right = []
    first = 0
    for example in examples:
        right += [[first + place for place in places] for places in example.golds]
        first += len(example.sentences)
    return right


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
