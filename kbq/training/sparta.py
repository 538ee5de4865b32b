"""Sparta: questions and the sentences that answer them become a model of sparse impacts. Source: arXiv 2009.13013.

Softmax cross-entropy of each query over all sentences of its batch: those of its own passage and article are the
near-by negatives, those of the other articles the random ones. Only the batch's own query terms are ever scored. The
paper draws negatives from the whole corpus, half of them near-by; here every sentence is encoded once for all queries.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import count, islice
from pathlib import Path

import torch
from torch import Tensor

from kbq.encoding.backbone import autocast, choose_device
from kbq.encoding.windows import WindowShape, tokenize
from kbq.errors import TrainingError
from kbq.sparse.sentences import Sentence, SentenceWindow
from kbq.sparse.sparta import SentenceTensors, best_products, query_scores
from kbq.sparse.sparta_model import CONFIG, SpartaConfig, SpartaModel
from kbq.training.batches import batches
from kbq.training.examples import Passage, read_examples
from kbq.training.losses import marginal_nll
from kbq.training.memory import give_back
from kbq.training.optimizing import CHECKPOINT_SECONDS, Descent, read_checkpoint, write_checkpoint
from kbq.training.run import StepReport, passages_digest, without_dropout
from kbq.workshop import file_digest, machine, versions, workshop

POSITIVE_SHARE = 0.05  # of all impacts, at the start: about 1,600 terms a sentence, as the paper counts them in the end


@dataclass(frozen=True, slots=True)
class SpartaSettings:
    """Everything that decides the outcome besides the data."""

    epochs: float = 3.0
    batch_tokens: int = 4096  # of all windows of a batch, padding included
    learning_rate: float = 2e-4  # the paper's 3e-5 is for BERT-base
    warmup: float = 0.05  # share of all steps
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SpartaRequest:
    """What to train from what."""

    examples: Sequence[Path]
    out: Path
    checkpoint: str  # a BERT-like encoder: hub name or folder; or a SPARTA model to go on with
    settings: SpartaSettings = field(default_factory=SpartaSettings)
    marked: bool = False  # see `SpartaConfig`
    device: str = "auto"
    command: str = ""


@dataclass(frozen=True, slots=True)
class SpartaOutcome:
    """What came of it; `left_out`: queries without terms, or with no sentence that holds their answer."""

    passages: int
    queries: int
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
        model, is_new = _begun(request)
        passages = read_examples(request.examples)[0]
        examples = prepare(model, passages)
        if not examples:
            raise TrainingError("no query has its answer within a sentence: SPARTA learns from such queries only")
        if is_new:
            calibrate_bias(model, [window for example in examples[:64] for window in example.windows])
        trainer = SpartaTrainer(model, examples, request.settings)
        trainer.run(folder / "checkpoint.pt", report)
        queries = sum(len(example.queries) for example in examples)
        left_out = sum(len(passage.queries) for passage in passages) - queries
        outcome = SpartaOutcome(len(examples), queries, left_out, trainer.steps)
        facts: dict[str, object] = {
            **({} if is_new else {"begun": model.config.training}),
            "command": request.command,
            "checkpoint": Path(request.checkpoint).name,
            "examples": {path.name: file_digest(path) for path in request.examples},
            "settings": asdict(request.settings),
            "outcome": asdict(outcome),
            "versions": versions(),
            "machine": machine(),
        }
        model.config = replace(model.config, training=facts)
        model.save(folder / "model")
    return outcome


def _begun(request: SpartaRequest) -> tuple[SpartaModel, bool]:
    """The model to train, and whether it is a new one."""
    is_new = not (Path(request.checkpoint) / CONFIG).exists()
    if is_new:
        window = WindowShape(length=128 if request.marked else 256, overlap=0)  # marked, it is read for one sentence
        model = SpartaModel.new(request.checkpoint, SpartaConfig(window, request.marked))
    else:
        model = SpartaModel.open(Path(request.checkpoint))
        model.config = replace(model.config, marked=request.marked)
    model.network.to(choose_device(request.device))
    without_dropout(model.network)
    return model, is_new


@dataclass(frozen=True, slots=True)
class SentenceExample:
    """A passage's sentences, and for each query its text, its terms and the sentences that hold an answer.

    `tokens`: of all its windows. Sentences are numbered window by window.
    """

    windows: tuple[SentenceWindow, ...]
    tokens: int
    texts: tuple[str, ...]
    queries: tuple[Counter[int], ...]
    golds: tuple[tuple[int, ...], ...]
    group: str

    @property
    def sentences(self) -> list[Sentence]:
        """Those of all windows, in order."""
        return [sentence for window in self.windows for sentence in window.sentences]


def prepare(model: SpartaModel, passages: Sequence[Passage]) -> list[SentenceExample]:
    """Passages whose queries have terms and whose answers stand within a sentence."""
    examples = []
    for passage in passages:
        (title,) = tokenize(model.tokenizer, [passage.title])
        windows = tuple(model.windows(title.ids, passage.text))
        sentences = [sentence for window in windows for sentence in window.sentences]
        asked, queries, golds = [], [], []
        for query in passage.queries:
            gold = [i for i, sentence in enumerate(sentences) if _holds(sentence, query.places)]
            terms = Counter(model.query_terms(query.text))
            if gold and terms:
                asked.append(query.text)
                queries.append(terms)
                golds.append(tuple(gold))
        if queries:
            tokens = sum(len(window.ids) for window in windows)
            examples.append(SentenceExample(windows, tokens, tuple(asked), tuple(queries), tuple(golds), passage.group))
    return examples


def _holds(sentence: Sentence, places: Sequence[tuple[int, int]]) -> bool:
    return any(sentence.start <= start and end <= sentence.end for start, end in places)


class SpartaTrainer:
    """Trains a model in place; every checkpoint holds all that a killed run needs to go on."""

    def __init__(self, model: SpartaModel, examples: Sequence[SentenceExample], settings: SpartaSettings) -> None:
        self.model, self.examples, self.settings = model, examples, settings
        per_epoch = sum(1 for _ in batches(examples, settings.batch_tokens, random.Random(settings.seed)))
        self.steps = max(1, math.ceil(per_epoch * settings.epochs))
        parameters = list(model.network.parameters())
        self.descent = Descent(parameters, settings.learning_rate, settings.warmup, self.steps)

    def run(self, checkpoint: Path, report: Callable[[StepReport], None] = lambda step: None) -> None:
        """Train to the end, from `checkpoint` where there is one.

        Raises:
            TrainingError: the loss is no number any more (the last checkpoint stays), or the checkpoint is of
                another run.
        """
        state = read_checkpoint(checkpoint, self._device, asdict(self.settings), self._digest, "examples")
        if state is not None:
            self.descent.load_state(state)
        self.model.network.train()
        saved = time.monotonic()
        for members in islice(self._batches(), self.descent.done, self.steps):
            batch = [self.examples[index] for index in members]
            loss = self.loss(batch)
            self.descent.add(loss)
            self.descent.step()
            size = sum(example.tokens for example in batch)
            report(StepReport(self.descent.done, self.steps, {"loss": float(loss.detach())}, size))
            if self.descent.done % 10 == 0:
                give_back()
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                self._save(checkpoint)
                saved = time.monotonic()
        self._save(checkpoint)
        self.model.network.eval()

    def loss(self, batch: Sequence[SentenceExample]) -> Tensor:
        """Cross-entropy over all sentences of the batch; of several right ones, their total probability."""
        queries = [terms for example in batch for terms in example.queries]
        terms = sorted({term for query in queries for term in query})
        counts = torch.tensor([[query[term] for term in terms] for query in queries], dtype=torch.float32)
        gold = torch.zeros((len(queries), sum(len(example.sentences) for example in batch)), dtype=torch.bool)
        row = first = 0
        for example in batch:
            for right in example.golds:
                gold[row, [first + place for place in right]] = True
                row += 1
            first += len(example.sentences)
        windows = [window for example in batch for window in example.windows]
        tensors = SentenceTensors(windows, self.model.tokenizer.pad_token_id, self._device)
        with autocast(self._device):
            impacts = self.model.network(tensors, torch.tensor(terms, device=self._device))
        scores = query_scores(impacts, counts.to(self._device))
        return marginal_nll(scores, gold.to(self._device), torch.ones_like(gold, device=self._device))

    def _batches(self) -> Iterator[list[int]]:
        """Without end; neighbours of one group share a batch."""
        for epoch in count():
            yield from batches(self.examples, self.settings.batch_tokens, random.Random(self.settings.seed + epoch))

    def _save(self, checkpoint: Path) -> None:
        state = {"settings": asdict(self.settings), "data": self._digest}
        write_checkpoint(checkpoint, state | self.descent.state())

    @cached_property
    def _digest(self) -> str:
        """Of what is trained on and with: a checkpoint of another run must not be continued."""
        return passages_digest(self.examples, repr([tuple(p.shape) for p in self.descent.parameters]))

    @property
    def _device(self) -> torch.device:
        return self.model.network.bias.device


@torch.no_grad()
def calibrate_bias(model: SpartaModel, windows: Sequence[SentenceWindow], share: float = POSITIVE_SHARE) -> None:
    """Set b so that this share of all impacts is positive; at b = 0 nearly all of an untrained model's are."""
    device = model.network.bias.device
    tensors = SentenceTensors(windows[:64], model.tokenizer.pad_token_id, device)
    with autocast(device):
        states = model.network.sentence_states(tensors)
        best = best_products(states, model.network.terms[model.terms[::16].to(device)])
    model.network.bias.fill_(-torch.quantile(best.float().flatten()[: 2**23], 1 - share))
