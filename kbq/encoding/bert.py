"""BERT: the encoder itself, read from a checkpoint folder without transformers. Source: arXiv 1810.04805, section 3.

Importing transformers' own takes longer than a whole query does otherwise. Weights have the same names here, so that
either reads what the other has written.
"""

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Size, Tensor, nn
from torch.nn.functional import gelu, pad, scaled_dot_product_attention

FEW = 128  # rows: with more, putting the weights in order for each product costs little


class Linear(nn.Linear):
    """A linear layer that takes no time for random weights.

    For each product oneDNN first puts the weights in an order of its own, which takes longer than the product with the
    dozen rows of a query. A layer that `packs` keeps the weights in this order, too. It notices when optimisers or
    PyTorch's operators change the weights, or others are assigned, but not what is written through `.data` or NumPy.
    """

    packs = False
    _packed: tuple[tuple[object, ...], Tensor, Tensor] | None = None

    def reset_parameters(self) -> None:
        """Leave what is in memory."""

    def forward(self, states: Tensor) -> Tensor:
        """Shapes: states (rows, dim), result (rows, other dim)."""
        if torch.is_grad_enabled():
            self._packed = None  # the weights are about to change, which a fused optimiser does not tell
        elif self.packs and states.is_cpu and states.dim() == 2 and len(states) <= FEW:
            is_cast = torch.is_autocast_enabled("cpu")
            dtype = torch.get_autocast_dtype("cpu") if is_cast else self.weight.dtype
            if (is_cast or states.dtype == dtype) and can_pack(dtype) and not self.weight.is_inference():
                return _multiplied(states.to(dtype), *self._in_order(dtype))
        return super().forward(states)

    def _in_order(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The current weights, in oneDNN's order, and the bias."""
        version = dtype, *((part.data_ptr(), part._version) for part in (self.weight, self.bias))
        packed = self._packed
        if packed is None or packed[0] != version:
            packed = self._packed = version, _reordered(self.weight.to(dtype)), self.bias.to(dtype, copy=True)
        return packed[1:]

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: not the reordered weights, which it makes again."""
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}


def pack_few_rows(network: nn.Module) -> None:
    """Let all linear layers of a network keep the order that few rows need: as much memory again as their weights."""
    for module in network.modules():
        if isinstance(module, Linear):
            module.packs = True


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this PyTorch keeps weights of a type in oneDNN's order."""
    ones = torch.ones(32, 32, dtype=dtype)
    try:
        return _multiplied(ones, _reordered(ones), ones[0]).tolist() == (32 * ones + 1).tolist()
    except (AttributeError, RuntimeError):  # built without oneDNN, or for a CPU that it does not know
        return False


def _reordered(weight: Tensor) -> Tensor:
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return reordered


def _multiplied(rows: Tensor, reordered: Tensor, bias: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, reordered, bias, "none", [], "")
    return product


CONFIG = "config.json"
BASE = {  # BERT-base: what holds where a configuration does not say
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
ONLY = {  # what is the same in every BERT that this module knows
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
SIGNIFICANT_BITS = 5  # of the number of rows of a product
Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]


class BertConfig:
    """The `config.json` of a checkpoint; its numbers are attributes, under their own names."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float

    def __init__(self, written: Mapping[str, Any]) -> None:
        """Raises ValueError where a value is no number, or sizes do not fit."""
        self.written = dict(written)
        for name, usual in BASE.items():
            given = written.get(name, usual)
            least = 1 if isinstance(usual, int) else 0
            if not isinstance(given, int | float) or not least <= given < math.inf:
                raise ValueError(f"{name} is {given!r}, must be a number of {least} or more")
            setattr(self, name, type(usual)(given))
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"{self.hidden_size} dimensions cannot be shared by {self.num_attention_heads} heads")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The shape of a checkpoint folder's network; None where it is no BERT, or another one than this module knows.

        Raises:
            OSError, ValueError: there is no configuration, or it is damaged.
        """
        written = json.loads((folder / CONFIG).read_text("utf-8"))
        if not isinstance(written, dict):
            raise ValueError(f"{CONFIG} holds no object")
        return cls(written) if is_bert(written) else None

    def save_pretrained(self, folder: Path) -> None:
        """Write the `config.json` again."""
        (folder / CONFIG).write_text(json.dumps(self.written, indent=2, sort_keys=True) + "\n", "utf-8")


def is_bert(written: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a BERT that this module knows."""
    return "model_type" in written and all(written.get(name, value) == value for name, value in ONLY.items())


class Encoded(NamedTuple):
    """Shape: (texts, tokens, dim)."""

    last_hidden_state: Tensor


class Embedding(nn.Embedding):
    """Its weights are always loaded: no time is lost on random ones."""

    def reset_parameters(self) -> None:
        """Leave what is in memory."""


class Bert(nn.Module):
    """Token embeddings and a stack of layers; there is no pooler, as kbq reads hidden states."""

    def __init__(self, config: BertConfig) -> None:
        """A network of this shape; its weights hold anything until they are loaded."""
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Encoded:
        """Shapes: (texts, tokens); the mask is 0 where a text is padded."""
        shape, count = input_ids.shape, input_ids.numel()
        states = more_rows(self.embeddings(input_ids, token_type_ids).flatten(0, 1))
        seen = None
        if attention_mask is not None and not (attention_mask.is_cpu and attention_mask.all()):  # no wait for a GPU
            seen = attention_mask.bool()[:, None, None].expand(-1, 1, input_ids.shape[1], -1)
        for layer in self.encoder["layer"].children():
            states = layer(states, shape, seen)
        return Encoded(states[:count].view(*shape, -1))

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of word pieces."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, table: nn.Embedding) -> None:
        """Share a table with another network."""
        self.embeddings.word_embeddings = table


def more_rows(states: Tensor) -> Tensor:
    """On a CPU, add rows of zeros until the number of rows has five significant bits: at most 6 % more.

    In 16 bits oneDNN keeps a kernel for each of the last 1,024 products of different shapes, 0.6 MB each, and texts
    come in batches of all sizes: a build would need ever more memory. So 16 sizes are left between 1,024 and 2,048.
    Shape: (rows, dim).
    """
    if not states.is_cpu:
        return states
    step = 1 << max(0, len(states).bit_length() - SIGNIFICANT_BITS)
    missing = -len(states) % step
    return pad(states, (0, 0, 0, missing)) if missing else states


class Embeddings(nn.Module):
    """The sum of the vectors of word piece, segment and position."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings: nn.Embedding = Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, ids: Tensor, segments: Tensor | None) -> Tensor:
        """Shapes: (texts, tokens), result (texts, tokens, dim); without segments, all is in the first one."""
        kinds = self.token_type_embeddings
        segment = kinds.weight[0] if segments is None else kinds(segments)
        states = self.word_embeddings(ids) + segment + self.position_embeddings.weight[: ids.shape[1]]
        result: Tensor = self.dropout(self.LayerNorm(states))
        return result


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to what it reads."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        self.attention = nn.ModuleDict({"self": SelfAttention(config), "output": Output(size, config)})
        self.intermediate = nn.ModuleDict({"dense": Linear(size, inner)})
        self.output = Output(inner, config)

    def forward(self, states: Tensor, shape: Size, seen: Tensor | None) -> Tensor:
        """Shapes: states (texts times tokens and more rows, dim), seen (texts, 1, tokens, tokens).

        `shape`: texts and tokens.
        """
        states = self.attention["output"](self.attention["self"](states, shape, seen), states)
        result: Tensor = self.output(gelu(self.intermediate["dense"](states)), states)
        return result


class SelfAttention(nn.Module):
    """Every token looks at every other one of its text, with several heads."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.query, self.key, self.value = (Linear(size, size) for _ in range(3))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.attend: Attend = self.fused

    def forward(self, states: Tensor, shape: Size, seen: Tensor | None) -> Tensor:
        """Shapes: see `Layer`; the result is as the states."""
        q, k, v = (
            linear(states)[: shape.numel()].unflatten(0, shape).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        return more_rows(self.attend(q, k, v, seen, q.shape[-1] ** -0.5).transpose(1, 2).flatten(2).flatten(0, 1))

    def fused(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, scale: float) -> Tensor:
        """PyTorch's own. Shapes: q, k, v (texts, heads, tokens, size)."""
        dropout = self.dropout.p if self.training else 0.0
        return scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout, scale=scale)


class Output(nn.Module):
    """The result of a part of a layer, added to what that part read."""

    def __init__(self, size: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Shapes: hidden (texts, tokens, size), residual and result (texts, tokens, dim)."""
        added: Tensor = self.LayerNorm(self.dropout(self.dense(hidden)) + residual)
        return added
