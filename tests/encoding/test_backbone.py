"""Backbone: tokenizers and checkpoints that are refused."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers

from kbq.encoding.backbone import hugging_face, load_tokenizer, pretrained_backbone
from kbq.encoding.bert import Bert
from kbq.errors import ModelError


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
