"""Bundled reader: a model folder may bring a reader, `reader.safetensors`: all that differs from its phrase encoder.

No training changes word embeddings, so that a reader that began with the same encoder as the model, or with the model
itself, has the same ones. They are half of a small encoder, and are stored once. The weights are int8 with one scale
per row.
"""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from kbq.encoding.backbone import empty_backbone, hidden_states, without_pooler
from kbq.encoding.bert import more_rows
from kbq.encoding.config import read_config
from kbq.encoding.weights import WEIGHTS, NamedTensors, load_weights, named_weights, pack, read_weights
from kbq.errors import ModelError, first_line
from kbq.system.files import writing_to
from kbq.system.machine import give_memory_back

READER = "reader.safetensors"
HALF = 0.501  # of a step between two int8 values, and a little for rounding
SHARED = "phrases."  # how the names of the phrase encoder's weights begin
WRITTEN_FOR = "phrase_fingerprint"  # of the model


class SpanLogits(NamedTuple):
    """Logits of each token to open and to close the answer. Shapes: (windows, tokens)."""

    start_logits: Tensor
    end_logits: Tensor


class SpanNetwork(nn.Module):
    """An encoder, and a layer that says of every token how likely it opens, and closes, the answer."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.config = backbone.config
        self.head = nn.Linear(int(backbone.config.hidden_size), len(SpanLogits._fields))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> SpanLogits:
        """Shapes: all (windows, tokens)."""
        states = hidden_states(self.backbone, input_ids, attention_mask, token_type_ids)
        count = input_ids.numel()
        logits = self.head(more_rows(states.flatten(0, 1)))[:count].view(*input_ids.shape, -1)
        return SpanLogits(*logits.unbind(dim=-1))


def save_reader(network: Any, folder: Path) -> None:
    """Write a question-answering network of transformers into the folder of a model that has its word embeddings.

    Raises:
        ModelError: the network answers no questions, the folder is no model of kbq, has an encoder of another shape, or
            cannot be written.
    """
    if not hasattr(network, "qa_outputs"):
        raise ModelError(
            f"a {type(network).__name__} has no layer `qa_outputs`: give a reader of `kbq train --teacher`"
        )
    template, shared = _phrase_encoder(folder)
    reader = SpanNetwork(without_pooler(copy.copy(network.base_model)))
    reader.head = network.qa_outputs
    weights = named_weights(reader, "")
    load_weights(template, shared | weights, "", folder)
    differing = {
        name: tensor for name, tensor in weights.items() if name not in shared or not _same(tensor, shared[name])
    }
    with writing_to(folder, ModelError, also=(SafetensorError,)):
        save_file(pack(differing, "int8"), folder / READER, {WRITTEN_FOR: read_config(folder).phrase_fingerprint})


def _same(weights: Tensor, shared: Tensor) -> bool:
    """Whether weights are those of the model, whose matrices may have been rounded to int8 since the reader's training
    began.
    """
    step = shared.abs().amax(dim=-1, keepdim=True) / 127 if shared.ndim == 2 else torch.zeros(1)
    return bool(((weights - shared).abs() <= HALF * step).all())


def open_reader(folder: Path) -> SpanNetwork:
    """The reader that a model folder brings.

    Raises:
        ModelError: it brings none, or one that belongs to other weights, or is damaged.
    """
    network, shared = _phrase_encoder(folder)
    if not (folder / READER).is_file():
        raise ModelError(f"the model {folder} brings no reader: train one with `kbq train --teacher`")
    try:
        reader_weights = read_weights(folder / READER)
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"{folder / READER} is damaged: {first_line(error)}") from None
    written_for, fingerprint = _written_for(folder), read_config(folder).phrase_fingerprint
    if written_for != fingerprint:
        raise ModelError(
            f"{folder / READER} belongs to the phrase encoder {written_for}, but the model has {fingerprint} now: "
            "train a reader again with `kbq train --teacher`"
        )
    load_weights(network, shared | reader_weights, "", folder)
    give_memory_back()  # the memory that the weights were unpacked in
    return network


def brings_reader(folder: Path) -> bool:
    """Whether a model folder has a reader that belongs to its weights."""
    try:
        return _written_for(folder) == read_config(folder).phrase_fingerprint
    except (OSError, SafetensorError):
        return False


def _written_for(folder: Path) -> str | None:
    """The fingerprint of the phrase encoder that a reader shares weights with. Raises OSError or SafetensorError."""
    with safe_open(folder / READER, "pt") as file:
        return (file.metadata() or {}).get(WRITTEN_FOR)


def _phrase_encoder(folder: Path) -> tuple[SpanNetwork, NamedTensors]:
    """A reader shaped like the model's encoder, to be loaded, and the weights that it may share, by its names."""
    config = read_config(folder)
    if config.base:
        raise ModelError(f"{folder} holds a query encoder for the model {config.base}: give that")
    try:
        network = SpanNetwork(empty_backbone(folder))
        weights = read_weights(folder / WEIGHTS, f"{SHARED}backbone.")
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"model folder {folder} is damaged: {first_line(error)}") from None
    return network, {name.removeprefix(SHARED): tensor for name, tensor in weights.items()}
