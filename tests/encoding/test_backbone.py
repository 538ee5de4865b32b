"""Backbone: devices, tokenizers and checkpoints that are refused; batches of similar length."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from kbq.encoding import backbone
from kbq.encoding.backbone import (
    buckets,
    choose_device,
    hugging_face,
    load_tokenizer,
    pad,
    pretrained_backbone,
    readable_length,
)
from kbq.encoding.bert import Bert
from kbq.errors import ModelError


@given(st.lists(st.integers(1, 40)), st.integers(1, 100))
def test_buckets_hold_every_text_once_and_respect_the_limit(lengths: list[int], max_tokens: int) -> None:
    batches = buckets(lengths, max_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= max_tokens


def test_buckets_group_texts_of_similar_length() -> None:
    assert buckets([5, 1, 4, 1], max_tokens=8) == [[1, 3], [2], [0]]
    assert buckets([], max_tokens=8) == []


@pytest.mark.parametrize(("longest", "padded"), [(1, 1), (159, 159), (160, 160), (161, 176), (176, 176), (250, 256)])
def test_long_rows_are_padded_to_a_multiple(longest: int, padded: int) -> None:
    matrix = pad([[7] * longest, [8]], 0, torch.device("cpu"))
    assert matrix.tolist() == [[7] * longest + [0] * (padded - longest), [8] + [0] * (padded - 1)]


@pytest.mark.parametrize(
    ("positions", "wanted", "length"),
    [(512, 256, 256), (250, 256, 240), (150, 256, 150), (170, 165, 160), (512, 24, 24)],
)
def test_what_a_network_reads_it_reads_padded(positions: int, wanted: int, length: int) -> None:
    network = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=positions))
    assert readable_length(network, wanted) == length
    assert pad([[1] * length], 0, torch.device("cpu")).shape[1] <= positions


def test_a_network_without_a_limit_reads_what_is_wanted() -> None:
    assert readable_length(SimpleNamespace(config=SimpleNamespace()), 384) == 384


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_devices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(name) == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "'cuda' asked for, but 0 CUDA devices are here: use --device cpu or auto"),
        ("cuda:1", "'cuda:1' asked for, but 0 CUDA devices are here"),
        ("gpu", "'gpu' is unknown: choose auto, cpu, cuda"),
        ("", "'' is unknown: choose auto, cpu, cuda"),
        ("meta", "'meta' is unknown: choose auto, cpu, cuda"),
    ],
)
def test_devices_that_are_not_there(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ModelError, match=message):
        choose_device(name)


def test_a_gpu_that_does_not_compute_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(backbone, "_why_not", lambda gpu: None)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    monkeypatch.setattr(backbone, "_why_not", lambda gpu: "CUDA error: no kernel image is available")
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ModelError, match=r"'cuda' cannot be used \(CUDA error: no kernel image is available\): use"):
        choose_device("cuda")


def test_why_a_device_does_not_compute() -> None:
    assert backbone._why_not(torch.device("cpu")) is None
    assert "meta" in str(backbone._why_not(torch.device("meta")))


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
    with pytest.raises(ModelError, match="holds no tokenizer that transformers can read"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_without_offsets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SimpleNamespace(is_fast=False)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: slow)
    with pytest.raises(ModelError, match=r"the tokenizer of slow gives no character offsets: .*tokenizer\.json"):
        load_tokenizer("slow")


def test_a_tokenizer_without_separator_is_refused(tmp_path: Path, make_tokenizer: Callable[..., Any]) -> None:
    make_tokenizer(cls_token=None, sep_token=None).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has no cls and no sep token: use a BERT-like checkpoint"):
        load_tokenizer(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    with pytest.raises(ModelError, match="is no checkpoint that transformers can read"):
        pretrained_backbone(tmp_path)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_checkpoint_has_no_pooler(
    activation: str, make_checkpoint: Callable[..., Path], bert_config: Callable[..., Any], tmp_path: Path
) -> None:
    network = pretrained_backbone(make_checkpoint(tmp_path, bert_config(hidden_act=activation)))
    assert isinstance(network, Bert) is (activation == "gelu")
    assert not [name for name, _ in network.named_parameters() if "pooler" in name]


def test_a_fast_copy_is_one_of_its_own(checkpoint: Path) -> None:
    trained = backbone.pretrained_backbone(checkpoint).train()
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    fast = backbone.fast_copy(trained, torch.device("cpu"))
    assert (fast.training, trained.training) == (False, True)
    assert {value.dtype for value in fast.parameters()} == {backbone.fast_dtype(torch.device("cpu"))}
    assert all(torch.equal(before[name], value) for name, value in trained.state_dict().items())


def test_a_fast_copy_computes_the_same_states(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone, "fast_dtype", lambda device: torch.float32)
    trained = backbone.pretrained_backbone(checkpoint).eval()
    ids, mask = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.inference_mode():
        states, fast = (
            backbone.hidden_states(network, ids, mask, None)
            for network in (trained, backbone.fast_copy(trained, torch.device("cpu")))
        )
    assert torch.allclose(states[mask.bool()], fast[mask.bool()], atol=1e-5)  # fused attention against plain
