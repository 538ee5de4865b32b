"""Backbone: bad tokenizers and checkpoints are refused, and no weights stay random."""

import errno
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from kbq.answers import WeightType
from kbq.errors import ModelError
from kbq.model.backbone import empty_backbone, hugging_face, load_tokenizer, pretrained_backbone
from kbq.model.bert import Bert
from kbq.model.model import Model
from kbq.reading.reader import Reader
from kbq.words.sparta import SpartaConfig, SpartaModel


def test_transformers_says_nothing_by_itself() -> None:
    library = hugging_face().logging
    library.set_verbosity_info()
    library.enable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.INFO)
    hugging_face.cache_clear()
    assert hugging_face().logging is library
    assert library.get_verbosity() == logging.ERROR
    assert not library.is_progress_bar_enabled()
    assert logging.getLogger("huggingface_hub").level == logging.ERROR


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no tokenizer that transformers can read"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_without_offsets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SimpleNamespace(is_fast=False)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: slow)
    with pytest.raises(
        ModelError, match=r"the tokenizer of slow gives no character offsets: .*tokenizer\.json"
    ):
        load_tokenizer("slow")


def test_a_tokenizer_without_separator_is_refused(
    tmp_path: Path, make_tokenizer: Callable[..., Any]
) -> None:
    make_tokenizer(cls_token=None, sep_token=None).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has no cls and no sep token: use a BERT-like checkpoint"):
        load_tokenizer(tmp_path)


@pytest.mark.slow  # transformers is loaded in a process for each
@pytest.mark.parametrize(
    ("read", "changed"),
    [(empty_backbone, {"num_labels": 10**8}), (pretrained_backbone, {"hidden_dim": 10**9})],
)
def test_a_network_is_no_larger_than_its_weights(
    read: Callable[[Path], Any], changed: dict[str, int], tmp_path: Path
) -> None:
    sizes = {
        "dim": 8,
        "n_heads": 1,
        "hidden_dim": 8,
        "vocab_size": 10,
        "n_layers": 1,
        "max_position_embeddings": 8,
    }
    network = transformers.DistilBertModel(transformers.DistilBertConfig(**sizes))
    network.save_pretrained(tmp_path)
    assert read(tmp_path).config.dim == 8
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changed))
    said = r"config.json is damaged \((its network cannot be made: it takes more|it is of a network of \d+,\d{3},)"
    with pytest.raises(ModelError, match=said):
        read(tmp_path)


def test_weights_are_no_larger_than_their_network(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "m")
    with next((tmp_path / "m").glob("*.safetensors")).open("r+b") as file:
        file.truncate(2**33)  # without taking any room
    with pytest.raises(
        ModelError, match=r"it is of a network of [\d,]+ numbers, and the weights have 8,5\d\d,"
    ):
        empty_backbone(tmp_path / "m")
    with pytest.raises(
        ModelError, match=r"it is of a network of [\d,]+ numbers, and the weights have 8,5\d\d,"
    ):
        pretrained_backbone(tmp_path / "m")


def test_a_folder_without_weights_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    with pytest.raises(ModelError, match="is not a checkpoint that transformers can read"):
        pretrained_backbone(tmp_path)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_checkpoint_has_no_pooler(
    activation: str,
    make_checkpoint: Callable[..., Path],
    bert_config: Callable[..., Any],
    tmp_path: Path,
) -> None:
    network = pretrained_backbone(make_checkpoint(tmp_path, bert_config(hidden_act=activation)))
    assert isinstance(network, Bert) is (activation == "gelu")
    assert not [name for name, _ in network.named_parameters() if "pooler" in name]


def same(network: torch.nn.Module, model: Model) -> bool:
    """Whether the backbone in a network has the weights of the model's phrase encoder."""
    ours = network.state_dict()
    begin = next(name for name in ours if name.endswith("embeddings.word_embeddings.weight"))
    begin = begin.removesuffix("embeddings.word_embeddings.weight")
    return all(
        torch.equal(ours[begin + name], value)
        for name, value in model.phrases.backbone.state_dict().items()
    )


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_every_training_starts_from_a_models_weights(
    weights: WeightType, new_model: Callable[..., Model], tmp_path: Path
) -> None:
    new_model().save(tmp_path / "m", weights)
    folder, model = str(tmp_path / "m"), Model.open(tmp_path / "m", "cpu")
    assert same(pretrained_backbone(folder), model)
    assert same(Reader.new(folder, "cpu").network, model)
    sparta = SpartaModel.new(folder, SpartaConfig())
    assert same(sparta.network.backbone, model)
    sparta.save(tmp_path / "s")
    assert same(pretrained_backbone(tmp_path / "s"), model)
    assert same(Reader.new(str(tmp_path / "s"), "cpu").network, model)


def test_a_query_encoder_leads_to_its_model(model_folder: Path, tmp_path: Path) -> None:
    Model.open(model_folder, "cpu").save_query_encoder(tmp_path / "tuned", {})
    with pytest.raises(
        ModelError, match=r"tuned holds a query encoder for the model .*: start from that"
    ):
        pretrained_backbone(tmp_path / "tuned")
    # What is built with it names it.
    assert Model.open(tmp_path / "tuned", "cpu").source == str(tmp_path / "tuned")


def test_a_damaged_model_is_refused(new_model: Callable[..., Model], tmp_path: Path) -> None:
    new_model().save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        ModelError,
        match=r"m/model\.safetensors is damaged \(it has 0 of [\d,]+ bytes\): restore it",
    ):
        pretrained_backbone(tmp_path / "m")


def test_weights_that_are_missing_are_not_made_up(checkpoint: Path, tmp_path: Path) -> None:
    for path in checkpoint.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(checkpoint / "model.safetensors")
    named = {f"other.{name}": value for name, value in weights.items()}
    save_file(named, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks \d+ weights of its encoder, the first is"):
        pretrained_backbone(tmp_path)
    with pytest.raises(ModelError, match=r"lacks \d+ weights of its encoder, the first is"):
        Reader.new(str(tmp_path), "cpu")


def test_no_room_for_temporary_files_is_said(
    new_model: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_model().save(tmp_path / "m")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kbq.model.backbone.save_file", full)
    with pytest.raises(
        ModelError,
        match=r"cannot be written \(No space left on device\): free disk space, or set TMPDIR",
    ):
        pretrained_backbone(tmp_path / "m")
