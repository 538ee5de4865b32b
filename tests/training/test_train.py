"""Training, whole: examples go in, a model folder comes out; whatever is wrong is said before the
work.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from kbq.errors import KbqError, ModelError, TrainingError
from kbq.model.model import Model
from kbq.model.model_folder import ModelConfig, read_config
from kbq.model.tokenizer import WindowShape
from kbq.storage.reading import file_digest
from kbq.training.batches import Repairs
from kbq.training.encoders import train_encoders
from kbq.training.engine import StepReport
from kbq.training.settings import TrainingSettings

Asked = dict[str, Any]  # arguments of `train_encoders`


@pytest.fixture
def asked(checkpoint: Path, examples_file: Path, tmp_path: Path) -> Asked:
    """Three epochs of eleven passages; one is set aside."""
    config = ModelConfig(window=WindowShape(24, 6, 10), max_query_tokens=32)
    settings = TrainingSettings(epochs=3, batch_tokens=100, learning_rate=1e-3)
    return {
        "examples": examples_file,
        "out": tmp_path / "out",
        "init": checkpoint,
        "settings": settings,
        "config": config,
        "command": "kbq train",
    }


@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("shared", [True, False])
def test_train_encoders(asked: Asked, shared: bool, weights: str, tmp_path: Path) -> None:
    config = replace(asked["config"], shared_query_encoder=shared)
    steps: list[StepReport] = []
    outcome = train_encoders(**asked | {"config": config, "weights": weights}, on_step=steps.append)
    assert (outcome.passages, outcome.queries, outcome.too_long) == (11, 22, 0)
    assert outcome.repairs == Repairs(right=24)
    assert outcome.steps == len(steps) == steps[-1].step
    assert outcome.scores.queries == 2
    assert 0 <= outcome.scores.gold_em <= outcome.scores.gold_f1 <= 100
    assert 0 < outcome.scores.kept <= 100
    model = Model.open(tmp_path / "out", "cpu")
    assert model.config.training["command"] == "kbq train"
    assert model.config.training["passages"] == 11
    assert model.config.filter_threshold > float("-inf")
    assert (model.scale > 0).all()
    assert model.encode_queries(["Marie [SEP] birth"])[0].shape == (1, 16)
    assert "NaN" not in (tmp_path / "out" / "kbq.json").read_text()
    assert not (tmp_path / "out.partial").exists()


def test_a_dev_file_is_scored(asked: Asked, examples_file: Path) -> None:
    outcome = train_encoders(**asked, dev=str(examples_file))
    assert (outcome.passages, outcome.queries, outcome.scores.queries) == (12, 24, 24)


def test_a_killed_run_gives_the_same_model(asked: Asked, goes_on: Callable[..., None]) -> None:
    goes_on(train_encoders, asked, 5, ("model.safetensors", "kbq.json"))


Change = Callable[[Asked, Path], Asked]


def with_examples(*lines: object) -> Change:
    def change(asked: Asked, folder: Path) -> Asked:
        (folder / "few.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return asked | {"examples": [folder / "few.jsonl"]}

    return change


def out_exists(asked: Asked, folder: Path) -> Asked:
    asked["out"].mkdir()
    return asked


def out_below_a_file(asked: Asked, folder: Path) -> Asked:
    (folder / "file").write_text("")
    return asked | {"out": folder / "file" / "out"}


def without_weights(asked: Asked, folder: Path) -> Asked:
    shutil.copytree(asked["init"], folder / "checkpoint")
    (folder / "checkpoint" / "model.safetensors").unlink()
    return asked | {"init": folder / "checkpoint"}


def with_cut_weights(asked: Asked, folder: Path) -> Asked:
    shutil.copytree(asked["init"], folder / "checkpoint")
    weights = folder / "checkpoint" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return asked | {"init": folder / "checkpoint"}


def line(query: str, title: str = "T") -> dict[str, object]:
    return {
        "title": title,
        "context": f"Paris {title}",
        "question": query,
        "answers": [{"text": "Paris", "answer_start": 0}],
    }


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (out_exists, TrainingError, "out already exists: choose another folder for out="),
        (out_below_a_file, TrainingError, r"out cannot be written \(Not a directory\)"),
        (
            lambda asked, folder: asked | {"examples": folder / "none"},
            TrainingError,
            "none: cannot be read",
        ),
        (
            lambda asked, folder: asked | {"dev": folder / "none"},
            TrainingError,
            "none: cannot be read",
        ),
        (lambda asked, folder: asked | {"init": str(folder)}, ModelError, "has no tokenizer"),
        (lambda asked, folder: asked | {"device": "gpu"}, ModelError, "device 'gpu' is unknown"),
        (without_weights, ModelError, "is not a checkpoint that transformers can read"),
        (with_cut_weights, ModelError, "config.json is damaged"),
        (
            with_examples(line("Where?")),
            TrainingError,
            "one passage is not enough to train and to score",
        ),
        (with_examples(line("a " * 99), line("b " * 99, "U")), TrainingError, "no query"),
        (
            with_examples(*(line("a " * 99 if n else "Where?", str(n)) for n in range(5))),
            TrainingError,
            "no query",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(
    change: Change, kind: type[KbqError], message: str, asked: Asked, tmp_path: Path
) -> None:
    steps: list[StepReport] = []
    with pytest.raises(kind, match=message) as refusal:
        train_encoders(**change(asked, tmp_path), on_step=steps.append)
    assert "\n" not in str(refusal.value)
    assert steps == []


def test_the_model_is_described(asked: Asked, tmp_path: Path) -> None:
    train_encoders(**asked)
    training = read_config(tmp_path / "out").training
    assert training["init"] == asked["init"].name
    assert training["examples"] == {"examples.jsonl": file_digest(asked["examples"])}
    assert set(training) >= {"filter", "command", "settings", "versions", "machine", "queries"}


def test_a_kbq_model_goes_on_learning(asked: Asked, tmp_path: Path) -> None:
    train_encoders(**asked)
    still = asked | {"init": str(asked["out"]), "out": tmp_path / "still"}
    train_encoders(**still | {"settings": replace(asked["settings"], learning_rate=0.0)})
    before, after = Model.open(asked["out"], "cpu"), Model.open(tmp_path / "still", "cpu")
    assert after.config.phrase_fingerprint == before.config.phrase_fingerprint
    assert after.config.query_fingerprint == before.config.query_fingerprint
    assert after.config.window == before.config.window
    assert after.config.training["begun"] == before.config.training
    with pytest.raises(
        TrainingError, match="one query encoder with two heads: leave out two_query_encoders=…"
    ):
        train_encoders(
            **still
            | {
                "out": tmp_path / "two",
                "config": replace(asked["config"], shared_query_encoder=False),
            }
        )


def test_queries_get_the_capitals_of_the_passages(asked: Asked, tmp_path: Path) -> None:
    train_encoders(**asked, truecase=True)
    forms = json.loads((tmp_path / "out" / "casing.json").read_text("utf-8"))
    assert forms
    assert all(form != word == form.lower() for word, form in forms.items())
    assert Model.open(tmp_path / "out", "cpu").query_tokenizer.casing == forms


def test_an_uncased_encoder_needs_no_capitals(
    asked: Asked, make_tokenizer: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copytree(asked["init"], tmp_path / "uncased")
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.save_pretrained(tmp_path / "uncased")
    with pytest.raises(
        TrainingError, match="does not distinguish capital letters: leave out truecase=…"
    ):
        train_encoders(**asked | {"init": tmp_path / "uncased"}, truecase=True)
