"""Training: reading-comprehension files become a model folder. The whole of `kbq train`."""

import dataclasses
import platform
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from torch import nn

import kbq
from kbq.encoding.backbone import choose_device
from kbq.encoding.model import CONFIG, Model, ModelConfig, WeightType
from kbq.errors import TrainingError
from kbq.training.batches import prepare
from kbq.training.calibration import calibrate
from kbq.training.evaluation import ReadingScores, evaluate_reading
from kbq.training.examples import Passage, Repairs, read_examples
from kbq.training.loop import StepReport, Trainer, TrainingSettings

CALIBRATION_PASSAGES = 500


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """What to train from what."""

    examples: Sequence[Path]
    out: Path
    checkpoint: str  # a BERT-like encoder (hub name or folder), or a kbq model that goes on learning
    dev: Path | None = None  # scored at the end; without it a twentieth of the passages is set aside
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    config: ModelConfig = field(default_factory=ModelConfig)
    weights: WeightType = "float32"
    device: str = "auto"
    command: str = ""


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """What came of it; also written into the model folder's `kbq.json`."""

    passages: int
    queries: int
    repairs: Repairs
    too_long: int  # queries left out
    steps: int
    scores: ReadingScores


def train_model(request: TrainingRequest, report: Callable[[StepReport], None] = lambda step: None) -> TrainingOutcome:
    """Train, calibrate, save and score a model. A killed run goes on from `OUT.partial/checkpoint.pt`.

    Raises:
        TrainingError: no usable example, a loss that is no number, or a checkpoint of other settings.
        ModelError: the encoder to start from is missing or no BERT-like one.
    """
    torch.manual_seed(request.settings.seed)
    if request.out.exists():
        raise TrainingError(f"{request.out} already exists: choose another folder for --out")
    workshop = request.out.with_name(request.out.name + ".partial")
    try:  # now, not after hours of training
        workshop.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(f"{request.out} cannot be written ({error.strerror}): choose another --out") from error
    model = _begun(request.checkpoint, request.config)
    model.phrases.to(choose_device(request.device))
    model.queries.to(choose_device(request.device))
    without_dropout(model.phrases, model.queries)
    passages, repairs = read_examples(request.examples)
    passages, dev = _split(passages, request)
    prepared, too_long = prepare(model, passages, request.settings.max_queries)
    unseen, _ = prepare(model, dev[:CALIBRATION_PASSAGES], request.settings.max_queries)
    if not prepared or not unseen:
        raise TrainingError(
            f"no query of the {'training' if not prepared else 'dev'} passages is short enough: "
            f"the encoder reads {request.config.max_query_tokens} tokens"
        )
    trainer = Trainer(model, prepared, request.settings)
    trainer.run(workshop / "checkpoint.pt", report)
    model.phrases.eval()
    model.queries.eval()
    calibrate(model, unseen)
    queries = sum(len(passage.queries) for passage in prepared)
    facts = {
        **({"begun": model.config.training} if model.source else {}),
        "command": request.command,
        "checkpoint": Path(request.checkpoint).name,
        "examples": [path.name for path in request.examples],
        "passages": len(prepared),
        "queries": queries,
        "settings": dataclasses.asdict(request.settings),
        "versions": {
            "kbq": kbq.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "machine": platform.processor() or platform.machine(),
    }
    model.config = dataclasses.replace(model.config, training=facts)
    model.save(workshop / "model", request.weights)
    saved = Model.open(workshop / "model", request.device)  # scored as it was written
    scores = evaluate_reading(saved, dev)
    (workshop / "model").rename(request.out)
    shutil.rmtree(workshop)
    return TrainingOutcome(len(prepared), queries, repairs, too_long, trainer.steps, scores)


def _begun(checkpoint: str, config: ModelConfig) -> Model:
    """A new model, or a kbq model that is there, with all its weights."""
    if checkpoint != "default" and not (Path(checkpoint) / CONFIG).exists():
        return Model.new(checkpoint, config)
    model = Model.open(checkpoint, "cpu")
    if model.config.shared_query_encoder > config.shared_query_encoder:
        raise TrainingError(f"{checkpoint} has one query encoder with two heads: leave out --two-query-encoders")
    model.config = dataclasses.replace(model.config, base="")
    return model


def _split(passages: list[Passage], request: TrainingRequest) -> tuple[list[Passage], list[Passage]]:
    if request.dev is not None:
        return passages, read_examples([request.dev], doubtful=True)[0]
    shuffled = random.Random(request.settings.seed).sample(passages, len(passages))
    aside = max(1, len(passages) // 20)
    if len(passages) <= aside:
        raise TrainingError("one passage is not enough to train and to score: give more, or a --dev file")
    return shuffled[aside:], shuffled[:aside]


def without_dropout(*encoders: nn.Module) -> None:
    """Few epochs over much data need no dropout, and a CPU spends a sixth of a step on its random numbers."""
    for encoder in encoders:
        for module in encoder.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
