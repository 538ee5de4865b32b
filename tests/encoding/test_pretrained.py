"""Pretrained: a training that starts from a model of kbq starts from its weights, and never from random ones."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from kbq.answers import WeightType
from kbq.encoding.backbone import pretrained_backbone
from kbq.encoding.model import Model
from kbq.errors import ModelError
from kbq.reading.network import CrossEncoder
from kbq.training.generator import new_generator
from kbq.words.sparta_model import SpartaConfig, SpartaModel


def same(network: torch.nn.Module, model: Model) -> bool:
    """Whether the backbone in a network has the weights of the model's phrase encoder."""
    ours = network.state_dict()
    begin = next(name for name in ours if name.endswith("embeddings.word_embeddings.weight"))
    begin = begin.removesuffix("embeddings.word_embeddings.weight")
    return all(torch.equal(ours[begin + name], value) for name, value in model.phrases.backbone.state_dict().items())


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_every_training_starts_from_a_models_weights(
    weights: WeightType, new_model: Callable[..., Model], tmp_path: Path
) -> None:
    new_model().save(tmp_path / "m", weights)
    folder, model = str(tmp_path / "m"), Model.open(tmp_path / "m", "cpu")
    assert same(pretrained_backbone(folder), model)
    assert same(CrossEncoder.new(folder, "cpu").network, model)
    assert same(new_generator(folder, "cpu").network.encoder, model)
    sparta = SpartaModel.new(folder, SpartaConfig())
    assert same(sparta.network.backbone, model)
    sparta.save(tmp_path / "s")
    assert same(pretrained_backbone(tmp_path / "s"), model)
    assert same(CrossEncoder.new(str(tmp_path / "s"), "cpu").network, model)


def test_a_query_encoder_leads_to_its_model(model_folder: Path, tmp_path: Path) -> None:
    Model.open(model_folder, "cpu").save_query_encoder(tmp_path / "tuned", {})
    with pytest.raises(ModelError, match=r"tuned holds a query encoder for the model .*: start from that"):
        pretrained_backbone(tmp_path / "tuned")
    assert Model.open(tmp_path / "tuned", "cpu").source == str(tmp_path / "tuned")  # what is built with it names it


def test_a_damaged_model_is_refused(new_model: Callable[..., Model], tmp_path: Path) -> None:
    new_model().save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model folder .*m is damaged"):
        pretrained_backbone(tmp_path / "m")


def test_weights_that_are_missing_are_not_made_up(checkpoint: Path, tmp_path: Path) -> None:
    for path in checkpoint.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(checkpoint / "model.safetensors")
    named = {f"other.{name}": value for name, value in weights.items()}
    save_file(named, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks \d+ weights of the encoder that it describes, the first is"):
        pretrained_backbone(tmp_path)
    with pytest.raises(ModelError, match=r"lacks \d+ weights of the encoder that it describes, the first is"):
        CrossEncoder.new(str(tmp_path), "cpu")


def test_no_room_for_temporary_files_is_said(
    new_model: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_model().save(tmp_path / "m")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kbq.encoding.backbone.save_file", full)
    with pytest.raises(ModelError, match=r"cannot be written \(No space left on device\): make room, or set TMPDIR"):
        pretrained_backbone(tmp_path / "m")
