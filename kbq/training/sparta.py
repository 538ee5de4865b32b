"""Sparta: questions and the sentences that answer them become a model of sparse impacts. Source: arXiv 2009.13013.

Softmax cross-entropy of each query over all sentences of its batch: those of its own passage and article are the
near-by negatives, those of the other articles the random ones. Only the batch's own query terms are ever scored. The
paper draws negatives from the whole corpus, half of them near-by; here every sentence is encoded once for all queries.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

import kbq
from kbq.encoding.backbone import autocast, choose_device, hidden_states
from kbq.encoding.windows import tokenize
from kbq.errors import TrainingError
from kbq.sparse.sentences import SentenceWindow, sentence_windows
from kbq.sparse.sparta import query_scores, sentence_tensors
from kbq.sparse.sparta_model import SpartaConfig, SpartaModel
from kbq.training.examples import Passage, read_examples
from kbq.training.losses import marginal_nll

POSITIVE_SHARE = 0.05  # of all impacts, at the start: about 1,600 terms a sentence, as the paper counts them in the end


@dataclass(frozen=True, slots=True)
class SpartaSettings:
    """Everything that decides the outcome besides the data."""

    steps: int = 10_000
    passages: int = 8  # of a batch; half of them are neighbours of the others
    learning_rate: float = 3e-5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SpartaRequest:
    """What to train from what."""

    examples: Sequence[Path]
    out: Path
    checkpoint: str  # a BERT-like encoder: hub name or folder
    settings: SpartaSettings = field(default_factory=SpartaSettings)
    device: str = "auto"
    command: str = ""


def train_sparta(request: SpartaRequest, report: Callable[[int, int], None] = lambda step, steps: None) -> float:
    """Train and save a model; returns the mean loss of the last tenth of all steps.

    Raises:
        TrainingError: `out` exists, there is no usable example, or a loss that is no number.
        ModelError: the encoder to start from is missing or no BERT-like one.
    """
    if request.out.exists():
        raise TrainingError(f"{request.out} already exists: choose another folder for --out")
    torch.manual_seed(request.settings.seed)
    facts: dict[str, object] = {
        "command": request.command,
        "settings": asdict(request.settings),
        "kbq": kbq.__version__,
    }
    model = SpartaModel.new(request.checkpoint, SpartaConfig(training=facts))
    model.network.to(choose_device(request.device))
    examples = prepare(model, read_examples(request.examples)[0])
    if not examples:
        raise TrainingError("no query has its answer within a sentence: SPARTA learns from such queries only")
    calibrate_bias(model, examples)
    losses: list[float] = []

    def note(step: int, loss: float) -> None:
        losses.append(loss)
        report(step, request.settings.steps)

    SpartaTrainer(model, examples, request.settings).run(note)
    model.save(request.out)
    last = losses[-max(1, len(losses) // 10) :]
    return sum(last) / len(last)


@dataclass(frozen=True, slots=True)
class SentenceExample:
    """A passage's sentences, and for each query its text, its terms and the sentences that hold an answer."""

    windows: tuple[SentenceWindow, ...]
    texts: tuple[str, ...]
    queries: tuple[Counter[int], ...]
    golds: tuple[tuple[int, ...], ...]
    group: str


def prepare(model: SpartaModel, passages: Sequence[Passage]) -> list[SentenceExample]:
    """Passages whose queries have terms and whose answers stand within a sentence."""
    examples = []
    for passage in passages:
        (title,) = tokenize(model.tokenizer, [passage.title])
        windows = sentence_windows(model.tokenizer, title.ids, passage.text, model.config.window)
        asked, queries, golds = [], [], []
        for query in passage.queries:
            gold = [i for i, window in enumerate(windows) if _holds(window, query.places)]
            terms = Counter(model.query_terms(query.text))
            if gold and terms:
                asked.append(query.text)
                queries.append(terms)
                golds.append(tuple(gold))
        if queries:
            examples.append(SentenceExample(tuple(windows), tuple(asked), tuple(queries), tuple(golds), passage.group))
    return examples


def _holds(window: SentenceWindow, places: Sequence[tuple[int, int]]) -> bool:
    return any(window.start <= start and end <= window.end for start, end in places)


class SpartaTrainer:
    """Trains a model in place."""

    def __init__(self, model: SpartaModel, examples: Sequence[SentenceExample], settings: SpartaSettings) -> None:
        self.model, self.examples, self.settings = model, examples, settings
        self.optimizer = torch.optim.Adam(model.network.parameters(), lr=settings.learning_rate)

    def run(self, report: Callable[[int, float], None] = lambda step, loss: None) -> None:
        """Train for all steps; `report` takes the step and its loss.

        Raises:
            TrainingError: the loss is no number any more.
        """
        rng = random.Random(self.settings.seed)
        self.model.network.train()
        batches = neighbouring(self.examples, self.settings.passages, rng)
        for step, batch in zip(range(self.settings.steps), batches, strict=False):
            loss = self.loss(batch)
            if not torch.isfinite(loss):
                raise TrainingError(f"the loss is {float(loss.detach())} at step {step}: lower --learning-rate")
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            report(step + 1, float(loss.detach()))
        self.model.network.eval()

    def loss(self, batch: Sequence[SentenceExample]) -> Tensor:
        """Cross-entropy over all sentences of the batch; of several right ones, their total probability."""
        device = self.model.network.bias.device
        windows = [window for example in batch for window in example.windows]
        queries = [terms for example in batch for terms in example.queries]
        terms = sorted({term for query in queries for term in query})
        counts = torch.tensor([[query[term] for term in terms] for query in queries], dtype=torch.float32)
        gold = torch.zeros((len(queries), len(windows)), dtype=torch.bool)
        row = first = 0
        for example in batch:
            for right in example.golds:
                gold[row, [first + place for place in right]] = True
                row += 1
            first += len(example.windows)
        tensors = sentence_tensors(windows, self.model.tokenizer.pad_token_id, device)
        with autocast(device):
            impacts = self.model.network(*tensors, torch.tensor(terms, device=device))
        scores = query_scores(impacts, counts.to(device))
        return marginal_nll(scores, gold.to(device), torch.ones_like(gold, device=device))


def neighbouring(examples: Sequence[SentenceExample], size: int, rng: random.Random) -> Iterator[list[SentenceExample]]:
    """Batches without end: pairs from one group (an article) where it has two, in random order."""
    groups: dict[str, list[SentenceExample]] = {}
    for example in examples:
        groups.setdefault(example.group, []).append(example)
    while True:
        pairs = []
        for members in groups.values():
            rng.shuffle(members)
            pairs += [members[first : first + 2] for first in range(0, len(members), 2)]
        rng.shuffle(pairs)
        batch: list[SentenceExample] = []
        for pair in pairs:
            batch += pair
            if len(batch) >= size:
                yield batch
                batch = []
        if batch:
            yield batch


@torch.no_grad()
def calibrate_bias(model: SpartaModel, examples: Sequence[SentenceExample], share: float = POSITIVE_SHARE) -> None:
    """Set b so that this share of all impacts is positive; at b = 0 nearly all of an untrained model's are."""
    device = model.network.bias.device
    windows = [window for example in examples for window in example.windows][:64]
    ids, mask, segments = sentence_tensors(windows, model.tokenizer.pad_token_id, device)
    with autocast(device):
        states = hidden_states(model.network.backbone, ids, mask, segments)
        best = model.network.best_products(states, segments, model.terms[::16].to(device))
    model.network.bias.fill_(-torch.quantile(best.float().flatten()[: 2**23], 1 - share))
