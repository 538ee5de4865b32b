"""Sparta: questions and the sentences that answer them become a model of sparse impacts. Source: arXiv 2009.13013.

Softmax cross-entropy of each query over all sentences of its batch: those of its own passage and article are the
near-by negatives, those of the other articles the random ones. Only the batch's own query terms are ever scored. The
paper draws negatives from the whole corpus, half of them near-by; here every sentence is encoded once for all queries.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from kbq.encoding.devices import autocast, choose_device
from kbq.encoding.windows import WindowShape, tokenize
from kbq.errors import TrainingError
from kbq.training.engine import Run, RunRequest, RunSettings, StepReport
from kbq.training.examples import Passage, Repairs, read_examples
from kbq.training.losses import marginal_nll
from kbq.training.output_folder import example_digests, training_facts, workshop
from kbq.words.sparta_model import (
    CONFIG,
    Sentence,
    SentenceTensors,
    SentenceWindow,
    SpartaConfig,
    SpartaModel,
    best_products,
    query_scores,
)

POSITIVE_SHARE = 0.05  # of all impacts, at the start: about 1,600 terms a sentence, as many as the paper ends with


@dataclass(frozen=True, slots=True, kw_only=True)
class SpartaRequest(RunRequest):
    """What a SPARTA model is trained from; `checkpoint` may be such a model, which goes on learning."""

    marked: bool = False  # see `SpartaConfig`


@dataclass(frozen=True, slots=True)
class SpartaOutcome:
    """The result of training; `left_out`: queries without terms, or with no sentence that holds their answer."""

    passages: int
    queries: int
    repairs: Repairs
    left_out: int
    steps: int


def train_sparta(request: SpartaRequest, report: Callable[[StepReport], None] = lambda step: None) -> SpartaOutcome:
    """Train and save a model. A killed run goes on from `OUT.partial/checkpoint.pt`.

    Raises:
        TrainingError: `out` exists, there is no usable example, a loss that is no number, or a checkpoint of
            another run.
        ModelError: what to start from is missing or no BERT-like encoder.
    """
    with workshop(request.out) as folder:
        digests = example_digests(request.examples)
        torch.manual_seed(request.settings.seed)
        model, is_new = _initial_model(request)
        passages, repairs = read_examples(request.examples)
        examples = prepare(model, passages)
        if not examples:
            raise TrainingError("no query has its answer within a sentence: SPARTA learns from such queries only")
        if is_new:
            calibrate_bias(model, [window for example in examples[:64] for window in example.windows])
        trainer = SpartaRun(model, examples, request.settings)
        trainer.run(folder / "checkpoint.pt", report)
        queries = sum(len(example.queries) for example in examples)
        left_out = sum(len(passage.queries) for passage in passages) - queries
        outcome = SpartaOutcome(len(examples), queries, repairs, left_out, trainer.steps)
        earlier = {} if is_new else {"begun": model.config.training}
        facts = training_facts(request, digests, outcome=asdict(outcome))
        model.config = replace(model.config, training=earlier | facts)
        model.save(folder / "model")
    return outcome


def _initial_model(request: SpartaRequest) -> tuple[SpartaModel, bool]:
    """The model to train, and whether it is a new one."""
    is_new = not (Path(request.checkpoint) / CONFIG).exists()
    if is_new:
        window = WindowShape(length=128 if request.marked else 256, overlap=0)  # marked: one sentence
        model = SpartaModel.new(request.checkpoint, SpartaConfig(window, request.marked))
    else:
        model = SpartaModel.open(Path(request.checkpoint), "cpu")
        if model.config.marked != request.marked:
            how = "with --marked: give it" if model.config.marked else "without --marked: leave it out"
            raise TrainingError(f"{request.checkpoint} was trained {how}")
    model.network.to(choose_device(request.device))
    return model, is_new


@dataclass(frozen=True, slots=True)
class SentenceExample:
    """A passage's sentences, and for each query its terms and the sentences that hold an answer.

    `tokens`: of all its windows. Sentences are numbered window by window.
    """

    windows: tuple[SentenceWindow, ...]
    tokens: int
    queries: tuple[Counter[int], ...]
    golds: tuple[tuple[int, ...], ...]
    group: str

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences of all windows, in order."""
        return [sentence for window in self.windows for sentence in window.sentences]


def prepare(model: SpartaModel, passages: Sequence[Passage]) -> list[SentenceExample]:
    """Passages whose queries have terms and whose answers stand within a sentence."""
    examples = []
    for passage in passages:
        (title,) = tokenize(model.tokenizer, [passage.title])
        windows = tuple(model.windows(title.ids, passage.text))
        sentences = [sentence for window in windows for sentence in window.sentences]
        queries, golds = [], []
        for query in passage.queries:
            gold = [i for i, sentence in enumerate(sentences) if _holds(sentence, query.places)]
            terms = Counter(model.query_terms(query.text))
            if gold and terms:
                queries.append(terms)
                golds.append(tuple(gold))
        if queries:
            tokens = sum(len(window.ids) for window in windows)
            examples.append(SentenceExample(windows, tokens, tuple(queries), tuple(golds), passage.group))
    return examples


def _holds(sentence: Sentence, places: Sequence[tuple[int, int]]) -> bool:
    return any(sentence.start <= start and end <= sentence.end for start, end in places)


class SpartaRun(Run):
    """Trains a SPARTA model."""

    weights = {"sentences": 1.0}  # noqa: RUF012 - never changed

    def __init__(self, model: SpartaModel, examples: Sequence[SentenceExample], settings: RunSettings) -> None:
        super().__init__([model.network], examples, settings)
        self.model, self.examples = model, examples

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Cross-entropy over all sentences of the batch; of several right ones, their total probability."""
        batch = [self.examples[index] for index in members]
        queries = [terms for example in batch for terms in example.queries]
        terms = sorted({term for query in queries for term in query})
        counts = torch.tensor([[query[term] for term in terms] for query in queries], dtype=torch.float32)
        gold = torch.zeros((len(queries), sum(len(example.sentences) for example in batch)), dtype=torch.bool)
        row = first = 0
        for example in batch:
            for places in example.golds:
                gold[row, [first + place for place in places]] = True
                row += 1
            first += len(example.sentences)
        windows = [window for example in batch for window in example.windows]
        device = self.model.network.bias.device
        tensors = SentenceTensors(windows, self.model.tokenizer.pad_token_id, device)
        with autocast(device):
            impacts = self.model.network(tensors, torch.tensor(terms, device=device))
        scores = query_scores(impacts, counts.to(device))
        loss = marginal_nll(scores, gold.to(device), torch.ones_like(gold, device=device))
        return {"sentences": loss}, sum(example.tokens for example in batch)


@torch.no_grad()
def calibrate_bias(model: SpartaModel, windows: Sequence[SentenceWindow], share: float = POSITIVE_SHARE) -> None:
    """Set b so that this share of all impacts is positive; at b = 0 nearly all of an untrained model's are."""
    device = model.network.bias.device
    tensors = SentenceTensors(windows[:64], model.tokenizer.pad_token_id, device)
    with autocast(device):
        states = model.network.sentence_states(tensors)
        best = best_products(states, model.network.terms[model.terms[::16].to(device)])
    model.network.bias.fill_(-torch.quantile(best.float().flatten()[: 2**23], 1 - share))
