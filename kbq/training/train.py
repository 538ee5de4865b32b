"""Train: reading-comprehension files become a model folder. The whole of `kbq train`."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from kbq.encoding.casing import Forms, is_cased, usual_forms
from kbq.encoding.config import CONFIG, ModelConfig, local_folder
from kbq.encoding.cross_encoder import CrossEncoder
from kbq.encoding.devices import choose_device
from kbq.encoding.model import Model
from kbq.errors import TrainingError
from kbq.options import WeightType
from kbq.system.places import cache_folder
from kbq.training.batches import prepare
from kbq.training.calibration import FilterPoint, calibrate
from kbq.training.distillation import reader_outputs
from kbq.training.evaluation import ReadingScores, evaluate_reading
from kbq.training.examples import Passage, Repairs, read_examples, readable, set_aside
from kbq.training.loop import Trainer, TrainingSettings
from kbq.training.run import RunRequest, StepReport
from kbq.training.workshop import example_digests, training_facts, workshop

CALIBRATION_PASSAGES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest(RunRequest):
    """What phrase and query encoders are trained from; `checkpoint` may be a kbq model, which goes on learning."""

    dev: Path | None = None  # scored at the end; without it a twentieth of the passages is set aside
    reader: str = ""  # a question-answering checkpoint to distil from: hub name or folder
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    truecase: bool = False  # queries without capital letters are read as the training passages write their words
    config: ModelConfig = field(default_factory=ModelConfig)
    weights: WeightType = "float32"


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """The result of training, also written into the model folder's `kbq.json`."""

    passages: int
    queries: int
    repairs: Repairs
    too_long: int  # queries left out
    surplus: int  # queries left out: beyond the `max_queries` of their passage
    steps: int
    filter: tuple[FilterPoint, ...]  # what it costs to drop tokens; the threshold is one of these
    scores: ReadingScores


def train_model(
    request: TrainingRequest,
    report: Callable[[StepReport], None] = lambda step: None,
    report_reading: Callable[[int, int], None] = lambda done, passages: None,
) -> TrainingOutcome:
    """Train, calibrate, save and score a model. A killed run goes on from `OUT.partial/checkpoint.pt`.

    Args:
        report: takes every step.
        report_reading: takes how many passages the reader to distil from has read, and how many there are.

    Raises:
        TrainingError: no usable example, a loss that is no number, or a checkpoint of other settings.
        ModelError: the encoder to start from is missing or no BERT-like one, or the reader does not fit it.
    """
    settings = request.settings
    with workshop(request.out) as folder:
        digests = example_digests(request.examples)
        torch.manual_seed(settings.seed)
        model = _initial_model(request.checkpoint, request.config)
        for module in (model.phrases, model.queries):
            module.to(choose_device(request.device))
        reader = None if not request.reader else CrossEncoder.open(request.reader, request.device)
        if reader is not None:
            reader.check_tokenizer(model.tokenizer)
        passages, repairs = read_examples(request.examples)
        passages, dev = set_aside(passages, request.dev, settings.seed)
        if request.truecase:
            model.query_tokenizer.casing = _casing(model, passages)
        prepared, left_out = prepare(model.query_tokenizer, model.config.window, passages, settings.max_queries)
        if not prepared or not readable(dev, model.query_tokenizer):
            raise TrainingError(
                f"no query of the {'training' if not prepared else 'dev'} passages is short enough: "
                f"the encoder reads {model.config.max_query_tokens} tokens"
            )
        taught = None
        if reader is not None:
            taught = reader_outputs(reader, prepared, cache_folder() / "reader", report_reading)
        trainer = Trainer(model, prepared, settings, taught)
        trainer.run(folder / "checkpoint.pt", report)
        points = calibrate(model, dev[:CALIBRATION_PASSAGES])
        queries = sum(len(passage.queries) for passage in prepared)
        earlier = {"begun": model.config.training} if model.source else {}
        facts = training_facts(
            request,
            digests,
            reader=Path(request.reader).name,
            passages=len(prepared),
            queries=queries,
            filter=[dataclasses.asdict(point) for point in points],
        )
        model.config = dataclasses.replace(model.config, training=earlier | facts)
        model.save(folder / "model", request.weights)
        saved = Model.open(folder / "model", request.device)  # scored as it was written
        scores = evaluate_reading(saved, dev)
    return TrainingOutcome(len(prepared), queries, repairs, *left_out, trainer.steps, points, scores)


def _initial_model(checkpoint: str, config: ModelConfig) -> Model:
    """A new model or, where the checkpoint is a kbq model, that one with all its weights."""
    if not (local_folder(checkpoint) / CONFIG).exists():
        return Model.new(checkpoint, config)
    model = Model.open(checkpoint, "cpu")
    if model.config.shared_query_encoder > config.shared_query_encoder:
        raise TrainingError(f"{checkpoint} has one query encoder with two heads: leave out --two-query-encoders")
    model.config = dataclasses.replace(model.config, base="")
    return model


def _casing(model: Model, passages: Sequence[Passage]) -> Forms:
    if not is_cased(model.tokenizer):
        raise TrainingError("the encoder reads capital letters like small ones: leave out --truecase")
    return usual_forms(passage.text for passage in passages)
