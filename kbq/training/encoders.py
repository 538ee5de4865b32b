"""Encoders: train a pair of encoders on reading comprehension, with a reader's help if given.

Source: arXiv 2012.12624, section 4.

`tokens` are all tokens of a batch's windows, side by side. A query may have several gold tokens
(the answer occurs twice): the loss is -log of their total probability.

The reader's logits are kept in a file of float16, passage after passage: the starts for its first
query, the starts for its second, …, then the ends in the same order. Its name is a digest of the
reader's weights and of the passages.
"""

import dataclasses
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbq.answers import WeightType
from kbq.errors import TrainingError
from kbq.model.devices import autocast, choose_device
from kbq.model.model import Model
from kbq.model.model_folder import CONFIG, ModelConfig, local_folder
from kbq.model.tokenizer import is_cased, usual_forms
from kbq.reading.reader import Reader
from kbq.storage.folders import make_folders
from kbq.storage.paths import cache_folder
from kbq.storage.writing import open_to_grow, sync_open, writing_alone, writing_to
from kbq.training import batches
from kbq.training.engine import StepReport
from kbq.training.losses import (
    distillation_loss,
    filter_loss,
    marginal_losses,
    negatives_loss,
    trust_in,
)
from kbq.training.output_folder import example_digests, output_folder, training_facts
from kbq.training.quantisation import (
    LENGTH_PENALTIES,
    FilterPoint,
    ReadingScores,
    evaluate_reading,
    quantisation_of,
)
from kbq.training.settings import TrainingSettings

Halves = NDArray[np.float16]
AT_A_TIME = 32  # passages read and written together


@dataclass(frozen=True, slots=True)
class ReaderOutputs:
    """The logits of a reader for all queries of all passages."""

    logits: Sequence[Halves]  # logits of each passage. Shape: (2, queries, tokens)
    digest: str = ""  # digest of the reader and the passages

    def of_each_query(self) -> "ReaderOutputs":
        """Return the logits for each query by itself. Shape: (2, 1, tokens)."""
        return ReaderOutputs(
            [
                logits[:, number : number + 1]
                for logits in self.logits
                for number in range(logits.shape[1])
            ],
            self.digest,
        )


def read_by(
    name: str,
    tokenizer: Any,
    passages: Sequence[batches.PreparedPassage],
    device: str,
    report: Callable[[int, int], None],
) -> ReaderOutputs:
    """Let a reader, a hub name or folder, read all passages; the cache keeps its logits for other
    trainings.

    `tokenizer`: of the network that learns from it.
    """
    reader = Reader.open(name, device)
    reader.check_tokenizer(tokenizer)
    return reader_outputs(reader, passages, cache_folder() / "reader", report)


def reader_outputs(
    reader: Reader,
    passages: Sequence[batches.PreparedPassage],
    folder: Path,
    report: Callable[[int, int], None],
) -> ReaderOutputs:
    """Let a reader read all passages into a file of `folder`, resuming where an earlier call was
    killed.

    `report`: called with the number of passages read, and of all passages.
    """
    digest = batches.passages_digest(
        passages, f"{reader.fingerprint()} {reader.length} {reader.query_tokenizer.max_tokens}"
    )
    path = folder / f"{digest}.f16"
    shapes = [
        (2, len(passage.queries), sum(window.count for window in passage.windows))
        for passage in passages
    ]
    ends = 2 * np.cumsum([math.prod(shape) for shape in shapes])  # ends in bytes
    # A whole file is shared by any number of trainings.
    if not path.is_file() or path.stat().st_size != ends[-1]:
        with writing_to(path, TrainingError, goes_on=True):
            make_folders(folder)
            with open_to_grow(path) as file, writing_alone(path):
                done = int(np.searchsorted(ends, file.seek(0, os.SEEK_END), side="right"))
                size = 0
                if done:
                    size = int(ends[done - 1])
                file.seek(file.truncate(size))
                for first in range(done, len(passages), AT_A_TIME):
                    report(first, len(passages))
                    for outputs in _read(reader, passages[first : first + AT_A_TIME]):
                        file.write(outputs.tobytes())
                    sync_open(file)

    report(len(passages), len(passages))
    parts = np.split(np.asarray(np.memmap(path, np.float16, "r")), ends[:-1] // 2)
    return ReaderOutputs(
        [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)], digest
    )


def _read(reader: Reader, passages: Sequence[batches.PreparedPassage]) -> Iterator[Halves]:
    """Yield the logits for each passage. Shape: (2, queries, tokens)."""
    windows = []
    for passage in passages:
        for query in passage.queries:
            windows.append(reader.windows(query, passage.text))
    logits = iter(reader.score(windows))
    for passage in passages:
        of_passage = [next(logits) for _ in passage.queries]
        yield np.stack(of_passage, axis=1).astype(np.float16)


def teacher_logits(batch: batches.Batch, outputs: Sequence[Halves]) -> Tensor:
    """Put logits of a batch's passages at the places of their tokens, -inf elsewhere. Shape: (2,
    queries, tokens).
    """
    queries, tokens = batch.gold_starts.shape
    counts = [logits.shape[1] for logits in outputs]
    rows = np.split(np.arange(queries), np.cumsum(counts[:-1]))
    places = [
        (part[:, None] * tokens + columns).ravel()
        for part, columns in zip(rows, batch.tokens_of, strict=True)
    ]
    reader_logits = np.concatenate([logits.reshape(2, -1) for logits in outputs], axis=1).astype(
        np.float32
    )
    device = batch.gold_starts.device
    teacher = torch.full((2, queries * tokens), -torch.inf, device=device)
    teacher[:, torch.from_numpy(np.concatenate(places)).to(device)] = torch.from_numpy(
        reader_logits
    ).to(device)

    return teacher.view(2, queries, tokens)


class EncoderRun(batches.PassageRun):
    """Trains phrase and query encoders."""

    settings: TrainingSettings

    def __init__(
        self,
        model: Model,
        passages: Sequence[batches.PreparedPassage],
        settings: TrainingSettings,
        teacher: ReaderOutputs | None = None,
    ) -> None:
        """`teacher`: the outputs of a reader for the passages."""
        if settings.batch_queries:
            passages = batches.each_query_alone(passages)
            teacher = teacher and teacher.of_each_query()
        super().__init__(
            [model.phrases, model.queries], passages, settings, teacher.digest if teacher else ""
        )
        self.model = model
        self.passages = passages
        self.teacher = teacher
        self.weights = {
            "single": settings.single_weight,
            "distilled": settings.distill_weight,
            "negatives": settings.negatives_weight,
            "tokens": settings.tokens_weight,
            "filter": settings.filter_weight,
        }
        self.queue: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=settings.pre_batches)

    def epoch(self, number: int) -> Iterator[list[int]]:
        size = self.settings.batch_queries
        if not size:
            return super().epoch(number)
        return batches.at_random(len(self._passages), size, self.epoch_rng(number))

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return L_single, L_distill if there is a reader, L_neg, L_neg over all tokens, and
        L_filter.
        """
        batch = batches.collate(self.model, [self.passages[index] for index in members])
        teacher = (
            None
            if self.teacher is None
            else teacher_logits(batch, [self.teacher.logits[index] for index in members])
        )
        with autocast(self.model.device):
            vectors, logits = self.model.phrases(*batch.windows)
            query_vectors = self.model.queries(*batch.queries)

        vectors = vectors.float().flatten(0, 1)
        logits = logits.float()
        owned = batch.passage_of_token >= 0
        own_passage = batch.passage_of_token == batch.passage_of_query[:, None]
        numbers = torch.arange(len(own_passage), device=own_passage.device)
        # They join the negatives of the passage. Source: arXiv 2109.08133, section 4.2.
        hard_negatives = batch.query_of_token == numbers[:, None]
        *queue, queued_answers = self._queue()
        spares_same = not self.settings.same_answers
        same_answers = (batch.answer_of_query[:, None] == batch.answer_of_query).float()
        queued_same = (batch.answer_of_query[:, None] == queued_answers) & spares_same
        golds = (batch.gold_starts, batch.gold_ends)
        sides: list[dict[str, Tensor]] = []

        for side, (queries, gold, queued) in enumerate(
            zip(query_vectors, golds, queue, strict=True)
        ):
            scores = queries @ vectors.T
            # Tokens that are gold for the same answer string.
            same = (same_answers @ gold.float() > 0) & spares_same
            elsewhere = gold.any(dim=0) & ~own_passage  # answers of other passages
            with_queue = torch.cat([same, queued_same], dim=1)
            losses = {"single": marginal_losses(scores, gold, own_passage | hard_negatives).mean()}
            if teacher is not None:
                trust = (
                    None
                    if self.settings.equal_trust
                    else trust_in(teacher[side], gold, own_passage)
                )
                temperature = self.settings.temperature
                losses["distilled"] = distillation_loss(
                    scores, teacher[side], own_passage, temperature, trust
                )

            losses["negatives"] = negatives_loss(
                scores, gold, elsewhere, queries @ queued.T, with_queue
            )
            losses["tokens"] = negatives_loss(scores, gold, owned, scores[:, :0], same)
            sides.append(losses)

        first_golds = (vectors[gold.int().argmax(dim=1)].detach() for gold in golds)
        self.queue.append((*first_golds, batch.answer_of_query))
        labels = (
            torch.stack([gold.any(dim=0) for gold in golds], dim=1).reshape(*logits.shape).float()
        )
        averaged = {name: (sides[0][name] + sides[1][name]) / 2 for name in sides[0]}

        return averaged | {
            "filter": filter_loss(logits, labels, owned.reshape(logits.shape[:2]))
        }, batch.size

    def state(self) -> dict[str, Any]:
        return super().state() | {"queue": list(self.queue)}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.queue.extend(state["queue"])

    def _queue(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return start vectors, end vectors (queue, dim) and answer numbers (queue,) of the last C
        batches.
        """
        if not self.queue or self.optimizer.done < self.settings.pre_batches_from * self.steps:
            no_vectors = torch.empty((0, self.model.dim), device=self.model.device)
            return (
                no_vectors,
                no_vectors,
                torch.empty(0, dtype=torch.long, device=self.model.device),
            )
        starts, ends, answers = zip(*self.queue, strict=True)
        return torch.cat(starts), torch.cat(ends), torch.cat(answers)


CALIBRATION_PASSAGES = 500


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """The result of training."""

    passages: int
    queries: int
    repairs: batches.Repairs
    too_long: int  # queries left out
    surplus: int  # queries left out: beyond the `max_queries` of their passage
    steps: int
    # The cost of dropping tokens, by threshold; one of these was chosen.
    filter: tuple[FilterPoint, ...]
    scores: ReadingScores


def train_encoders(
    examples: batches.Files,
    out: str | Path,
    init: str | Path,
    *,
    dev: str | Path | None = None,
    distill: str = "",
    settings: TrainingSettings | None = None,
    config: ModelConfig | None = None,
    truecase: bool = False,
    weights: WeightType = "float32",
    device: str = "auto",
    command: str = "",
    on_step: Callable[[StepReport], None] = lambda step: None,
    on_reading: Callable[[int, int], None] = lambda done, passages: None,
) -> TrainingOutcome:
    """Train and score a model, and save it in a new folder. A killed run resumes from
    `OUT.partial/checkpoint.pt`.

    Args:
        init: a BERT-like encoder (hub name or folder), or a kbq model.
        dev: examples to score on; without them a twentieth of the passages is set aside.
        distill: a reader to learn from, too: hub name or folder.
        config: of a new model.
        truecase: read queries without capital letters as the training passages write their words.
        weights: how they are stored.
        command: kept in the model's `kbq.json`.
        on_reading: called with the number of passages that the reader has read, and of all
            passages.

    Raises:
        TrainingError: `out` exists, no example is usable, a loss is not a number, or the checkpoint
            is of another run.
        ModelError: the encoder to start from is missing or not BERT-like, or the reader does not
            fit it.
    """
    settings = settings or TrainingSettings()
    with output_folder(Path(out)) as folder:
        digests = example_digests(examples)
        torch.manual_seed(settings.seed)
        model = _initial_model(str(init), config or ModelConfig())
        for module in (model.phrases, model.queries):
            module.to(choose_device(device))
        passages, repairs = batches.read_examples(examples)
        passages, dev_passages = batches.set_aside(passages, dev, settings.seed)
        if truecase:
            if not is_cased(model.tokenizer):
                raise TrainingError(
                    "the encoder does not distinguish capital letters: leave out --truecase"
                )
            model.query_tokenizer.casing = usual_forms(passage.text for passage in passages)

        prepared, left_out = batches.prepare(
            model.query_tokenizer, model.config.window, passages, settings.max_queries
        )
        batches.refuse_unreadable(prepared, dev_passages, model.query_tokenizer)
        teacher = (
            None if not distill else read_by(distill, model.tokenizer, prepared, device, on_reading)
        )
        run = EncoderRun(model, prepared, settings, teacher)
        run.run(folder / "checkpoint.pt", on_step)
        penalties = (0.0,) if settings.without_penalty else LENGTH_PENALTIES
        points = quantisation_of(model, dev_passages[:CALIBRATION_PASSAGES], penalties)
        queries = sum(len(passage.queries) for passage in prepared)
        earlier = {"begun": model.config.training} if model.source else {}
        facts = training_facts(
            command,
            init,
            digests,
            settings,
            reader=Path(distill).name,
            passages=len(prepared),
            queries=queries,
            filter=[dataclasses.asdict(point) for point in points],
        )
        model.config = dataclasses.replace(model.config, training=earlier | facts)
        model.save(folder / "model", weights)
        saved = Model.open(folder / "model", device)  # scored as it was written
        scores = evaluate_reading(saved, dev_passages)

    return TrainingOutcome(len(prepared), queries, repairs, *left_out, run.steps, points, scores)


def _initial_model(init: str, config: ModelConfig) -> Model:
    """Make a new model or, where `init` is a kbq model, open it with all its weights."""
    if not (local_folder(init) / CONFIG).exists():
        return Model.new(init, config)
    model = Model.open(init, "cpu")
    if model.config.shared_query_encoder > config.shared_query_encoder:
        raise TrainingError(
            f"{init} has one query encoder with two heads: leave out --two-query-encoders, and "
            "--recipe paper, which asks for two, or begin with another --init"
        )
    model.config = dataclasses.replace(model.config, base="")
    return model
