"""Bundled reader: a model folder may bring a reader, `reader.safetensors`: all that differs from its phrase encoder.

A reader that was trained from a model (`kbq train --teacher --checkpoint MODEL`) has the model's word embeddings, half
of a small encoder; they are stored once. The weights are int8 with one scale per row.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from kbq.encoding.backbone import empty_backbone, hidden_states, without_pooler
from kbq.encoding.model import read_config
from kbq.encoding.weights import WEIGHTS, NamedTensors, load_weights, named_weights, pack, read_weights
from kbq.errors import ModelError, first_line
from kbq.system.files import writing_to

READER = "reader.safetensors"
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
        return SpanLogits(*self.head(states).unbind(dim=-1))


def save_reader(network: Any, folder: Path) -> None:
    """Write a question-answering network of transformers into the folder of the model that it was trained from.

    Raises:
        ModelError: the folder is no model of kbq, has an encoder of another shape, or cannot be written.
    """
    own = SpanNetwork(without_pooler(network.base_model))
    own.head = network.qa_outputs
    shared = _phrase_encoder(folder)
    weights = named_weights(own, "")
    differing = {name: one for name, one in weights.items() if name not in shared or not torch.equal(one, shared[name])}
    with writing_to(folder, ModelError, also=(SafetensorError,)):
        save_file(pack(differing, "int8"), folder / READER, {WRITTEN_FOR: read_config(folder).phrase_fingerprint})


def open_reader(folder: Path) -> SpanNetwork:
    """The reader that a model folder brings.

    Raises:
        ModelError: it brings none, or one that belongs to other weights, or is damaged.
    """
    if not (folder / READER).is_file():
        raise ModelError(f"the model {folder} brings no reader: train one with `kbq train --teacher`")
    shared = _phrase_encoder(folder)
    try:
        network = SpanNetwork(empty_backbone(folder))
        with safe_open(folder / READER, "pt") as file:
            written_for = (file.metadata() or {}).get(WRITTEN_FOR)
        own = read_weights(folder / READER)
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"{folder / READER} is damaged: {first_line(error)}") from None
    fingerprint = read_config(folder).phrase_fingerprint
    if written_for != fingerprint:
        raise ModelError(
            f"{folder / READER} belongs to the phrase encoder {written_for}, but the model has {fingerprint} now: "
            "train a reader again with `kbq train --teacher`"
        )
    load_weights(network, shared | own, "", folder)
    return network


def _phrase_encoder(folder: Path) -> NamedTensors:
    """The weights that a reader may share, by their names within it."""
    try:
        weights = read_weights(folder / WEIGHTS)
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"model folder {folder} is damaged: {first_line(error)}") from None
    return {name.removeprefix(SHARED): one for name, one in weights.items() if name.startswith(f"{SHARED}backbone.")}
