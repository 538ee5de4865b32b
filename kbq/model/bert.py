"""BERT: compute hidden states without transformers, with the same bits in any batch.

Source: arXiv 1810.04805, section 3.

Importing transformers takes longer than answering a query. The weights have the same names as
there, so that either reads the other's checkpoints.

The number of rows of a product, or padding, may change how it is rounded. So all shapes that are
computed for a text, or for the windows of a query, depend on these alone. On a CPU, such groups go
through a BERT layer by layer, as the weights of a layer then stay in its cache, but each product is
of one group. On a GPU, all batches of texts of about one length have one shape.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor, nn
from torch.nn.functional import gelu, linear, pad, scaled_dot_product_attention

from kbq.model.devices import autocast, dtype_for, padded
from kbq.storage.writing import write_text

FEW_ROWS = 128  # a limit: for more rows, reordering the weights costs little
CONFIG = "config.json"
ONLY = {  # the only values that this module supports
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
MOST = 10**8
MOST_LAYERS = 1000
LEAST_ROWS = 16
SIGNIFICANT_BITS = 5  # significant bits of the number of rows of a matrix product; see `more_rows`
Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]

CPU = torch.device("cpu")
TOGETHER = 64  # texts of a batch on a GPU, which takes as long for fewer
RECORDING = threading.Lock()  # CUDA refuses two at a time
MULTIPLE = 8  # multiple of tokens to which texts are padded there


class BertConfig:
    """The `config.json` of a checkpoint; its numbers are attributes of the same names, BERT-base's
    by default.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    full_precision = False  # compute in float32, also where 16 bits are faster

    def __init__(self, written: Mapping[str, Any]) -> None:
        """Raises ValueError if a value is not a number in range, or the heads do not divide the
        dimensions.
        """
        self.written = dict(written)
        for name in BertConfig.__annotations__:
            default = getattr(BertConfig, name)
            value = written.get(name, default)
            least = 1 if isinstance(default, int) else 0
            most = MOST_LAYERS if name == "num_hidden_layers" else MOST
            if not isinstance(value, int | float) or not least <= value <= most:
                raise ValueError(
                    f"{name} is {value!r:.40}, must be a number from {least} to {most:,}"
                )
            setattr(self, name, type(default)(value))

        self.full_precision = written.get("full_precision") is True
        heads = self.num_attention_heads
        if self.hidden_size % heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size}, must be a multiple of num_attention_heads, "
                f"{heads}"
            )

    @property
    def weights(self) -> int:
        """About how many numbers the weights of such a network have, never more than they have."""
        tables = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer = 4 * self.hidden_size + 2 * self.intermediate_size
        return self.hidden_size * (tables + self.num_hidden_layers * layer)

    def save_pretrained(self, folder: Path) -> None:
        write_text(folder / CONFIG, json.dumps(self.written, indent=2, sort_keys=True) + "\n")


def is_bert(written: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a BERT that this module supports."""
    return "model_type" in written and all(
        written.get(name, value) == value for name, value in ONLY.items()
    )


class Group(NamedTuple):
    """Texts of one length that attend together."""

    rows: slice
    shape: Size  # (texts, tokens)
    # The tokens that each token sees, by default all. Shape: (texts, 1, tokens, tokens).
    seen: Tensor | None


class Encoded(NamedTuple):
    """The states of texts, named as transformers does. Shape: (texts, tokens, dim)."""

    last_hidden_state: Tensor


class Bert(nn.Module):
    """Token embeddings and a stack of layers, without a pooler."""

    def __init__(self, config: BertConfig) -> None:
        """Make a network of this shape, whose weights stay uninitialised until they are loaded."""
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Encoded:
        """Encode texts. Shapes: (texts, tokens); the mask is 0 at padding.

        On a CPU, without gradients, padding is left out, and texts attend in groups of equal
        length, so that a text
        has the same states in any batch: padding would change how sums of attention are rounded.
        """
        shape = input_ids.shape
        if not input_ids.is_cpu or torch.is_grad_enabled():
            seen = None
            # A GPU is not asked, as that would wait for it.
            if attention_mask is not None and not (attention_mask.is_cpu and attention_mask.all()):
                seen = attention_mask.bool()[:, None, None].expand(-1, 1, shape[1], -1)
            states = self.embeddings(input_ids, slice(shape[1]), token_type_ids).flatten(0, 1)
            return Encoded(
                self._through_layers(states, [Group(slice(None), shape, seen)]).view(*shape, -1)
            )

        kept = (
            torch.ones(shape, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        )
        places = kept.nonzero()[:, 1]
        segments = None if token_type_ids is None else token_type_ids[kept]
        groups = []
        first = 0

        for length, texts in groupby(kept.sum(dim=1).tolist()):
            count = len(list(texts))
            groups.append(Group(slice(first, first + count * length), Size((count, length)), None))
            first += count * length

        states = self._through_layers(self.embeddings(input_ids[kept], places, segments), groups)
        padded = states.new_zeros(*shape, states.shape[1])
        padded[kept] = states
        return Encoded(padded)

    def _through_layers(self, states: Tensor, groups: Sequence[Group]) -> Tensor:
        """Shapes: (tokens, dim)."""
        count = len(states)
        states = more_rows(states)
        for layer in self.encoder["layer"].children():
            states = layer(states, groups)
        return states[:count]

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, table: nn.Embedding) -> None:
        self.embeddings.word_embeddings = table


class Embeddings(nn.Module):
    """The embeddings of word piece, segment and position, summed and normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings: nn.Embedding = Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, ids: Tensor, places: Tensor | slice, segments: Tensor | None = None
    ) -> Tensor:
        """Embed tokens at these places of their texts; without segments, all tokens are in the
        first.

        Shapes: ids (…, tokens), places (tokens,), result (…, tokens, dim).
        """
        kinds = self.token_type_embeddings
        if segments is None:
            segment = kinds.weight[0]
        else:
            segment = kinds(segments)
        states = self.word_embeddings(ids) + segment + self.position_embeddings.weight[places]
        result: Tensor = self.dropout(self.LayerNorm(states))
        return result


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        inner = config.intermediate_size
        self.attention = nn.ModuleDict(
            {"self": SelfAttention(config), "output": Output(size, config)}
        )
        self.intermediate = nn.ModuleDict({"dense": Linear(size, inner)})
        self.output = Output(inner, config)

    def forward(self, states: Tensor, groups: Sequence[Group]) -> Tensor:
        """Shape: (tokens of all groups, padded by `more_rows`; dim)."""
        states = self.attention["output"](self.attention["self"](states, groups), states)
        result: Tensor = self.output(gelu(self.intermediate["dense"](states)), states)
        return result


class SelfAttention(nn.Module):
    """Multi-head attention of each token to all tokens of its text."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.query, self.key, self.value = (Linear(size, size) for _ in range(3))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.attend: Attend = self.fused

    def forward(self, states: Tensor, groups: Sequence[Group]) -> Tensor:
        """Shapes: see `Layer`; the result has the shape of the states."""
        projected = [layer(states) for layer in (self.query, self.key, self.value)]
        attended = []
        for group in groups:
            q, k, v = (self._of_heads(rows, group) for rows in projected)
            mixed = self.attend(q, k, v, group.seen, q.shape[-1] ** -0.5)
            attended.append(mixed.transpose(1, 2).flatten(2).flatten(0, 1))
        if len(attended) == 1:
            return more_rows(attended[0])
        return more_rows(torch.cat(attended))

    def _of_heads(self, rows: Tensor, group: Group) -> Tensor:
        """Return a group's rows by text, head and token. Shape: (texts, heads, tokens, dim /
        heads).
        """
        tokens = rows[group.rows][: group.shape.numel()]
        by_text = tokens.reshape(*group.shape, self.heads, -1)
        return by_text.transpose(1, 2)

    def fused(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, scale: float) -> Tensor:
        """PyTorch's fused attention. Shapes: q, k, v (texts, heads, tokens, size)."""
        dropout = self.dropout.p if self.training else 0.0
        return scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout, scale=scale)


class Output(nn.Module):
    """The end of either half of a layer: a linear layer, the residual connection, and
    normalisation.
    """

    def __init__(self, size: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Shapes: hidden (texts, tokens, size), residual and result (texts, tokens, dim)."""
        added: Tensor = self.LayerNorm(self.dropout(self.dense(hidden)) + residual)
        return added


def more_rows(states: Tensor) -> Tensor:
    """On a CPU, pad with rows of zeros to a number of rows with five significant bits, a multiple
    of 16.

    Products of fewer than 16 rows may be rounded in another way. In 16 bits, oneDNN caches a kernel
    of 0.6 MB for each of the last 1,024 shapes. As batches of texts come in all sizes, the memory
    of a build would keep growing; this leaves 16 sizes between 1,024 and 2,048, for at most 6 %
    more rows from 256 on. Shape: (rows, dim).
    """
    if not states.is_cpu:
        return states
    step = max(LEAST_ROWS, 1 << max(0, len(states).bit_length() - SIGNIFICANT_BITS))
    missing = -len(states) % step
    if missing:
        return pad(states, (0, 0, 0, missing))
    return states


class Embedding(nn.Embedding):
    """An embedding whose weights stay uninitialised until they are loaded, to save time."""

    # Sizes of int8 steps if the weights are int8, as `keep_packed` leaves them.
    steps: Tensor | None = None

    def reset_parameters(self) -> None:
        """Do nothing."""

    def forward(self, ids: Tensor) -> Tensor:
        """Shapes: ids (…, tokens), result (…, tokens, dim)."""
        return (
            super().forward(ids)
            if self.steps is None
            else self.weight[ids].float() * self.steps[ids]
        )


class Linear(nn.Linear):
    """A linear layer whose weights stay uninitialised until they are loaded.

    For each product, oneDNN first reorders ("packs") the weights, which takes longer than the
    product itself with the dozen rows of a query. A layer that `packs` caches the reordered
    weights. It notices when optimisers or PyTorch operators change the weights, or others are
    assigned, but not changes made through `.data` or NumPy.
    """

    packs = False
    _packed: tuple[tuple[object, ...], Tensor, Tensor] | None = None

    def reset_parameters(self) -> None:
        """Do nothing."""

    def forward(self, states: Tensor) -> Tensor:
        """Shapes: states (rows, dim), result (rows, other dim)."""
        if torch.is_grad_enabled():
            # The weights are about to change, and a fused optimiser does not mark them as changed.
            self._packed = None
        elif self.packs and states.is_cpu and states.dim() == 2 and len(states) <= FEW_ROWS:
            is_cast = torch.is_autocast_enabled("cpu")
            if is_cast:
                dtype = torch.get_autocast_dtype("cpu")
            else:
                dtype = self.weight.dtype
            if (
                (is_cast or states.dtype == dtype)
                and can_pack(dtype)
                and not self.weight.is_inference()
            ):
                return _multiplied(states.to(dtype), *self._packed_weights(dtype))

        return super().forward(states)

    def prepared(self, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        """Return `forward` on a CPU, without gradients, in this type; quick for many small
        products.
        """
        if self.packs and can_pack(dtype) and not self.weight.is_inference():
            packed = self._packed_weights(dtype)
            return lambda rows: _multiplied(rows.to(dtype), *packed)
        weight = self.weight.to(dtype)
        bias = self.bias.to(dtype)
        return lambda rows: linear(rows.to(dtype), weight, bias)

    def _packed_weights(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the current weights, reordered, and the bias."""
        version = dtype, *((part.data_ptr(), part._version) for part in (self.weight, self.bias))
        packed = self._packed
        if packed and not self.weight.numel():  # dropped by `keep_packed`
            return packed[1:]
        if packed is None or packed[0] != version:
            packed = self._packed = (
                version,
                _reordered(self.weight.to(dtype)),
                self.bias.to(dtype, copy=True),
            )
        return packed[1:]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}


def pack_few_rows(network: nn.Module) -> None:
    """Let all linear layers of a network cache reordered weights, which takes as much memory as the
    weights.
    """
    for module in network.modules():
        if isinstance(module, Linear):
            module.packs = True


def keep_packed(network: nn.Module, table: nn.Module) -> None:
    """Drop weights that are there in another form, so that a network can only encode queries on a
    CPU from now on.

    Layers keep the weights in oneDNN's order, and the table of word pieces int8 if that gives the
    same rows.
    """
    for module in network.modules():
        if isinstance(module, Linear) and module._packed is not None:
            module.weight = nn.Parameter(module.weight.new_empty(0), requires_grad=False)
    if isinstance(table, Embedding) and table.steps is None and table.weight.is_cpu:
        steps = table.weight.detach().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        rows = (table.weight.detach() / steps).round().to(torch.int8)
        if torch.equal(rows.float() * steps, table.weight):
            table.weight = nn.Parameter(rows, requires_grad=False)
            table.steps = steps


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this PyTorch can reorder weights of a type for oneDNN, on this CPU."""
    ones = torch.ones(32, 32, dtype=dtype)
    try:
        return _multiplied(ones, _reordered(ones), ones[0]).tolist() == (32 * ones + 1).tolist()
    except (AttributeError, RuntimeError):  # built without oneDNN, or not supported on this CPU
        return False


def _reordered(weight: Tensor) -> Tensor:
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return reordered


def _multiplied(rows: Tensor, reordered: Tensor, bias: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, reordered, bias, "none", [], "")
    return product


def is_batch_invariant(backbone: Any, device: torch.device) -> bool:
    """Whether `first_states` encodes with a network; others encode batches of one shape."""
    return device.type == "cpu" and isinstance(backbone, Bert)


def batch_shape(device: torch.device) -> tuple[int, int]:
    """Return the texts of a batch for other networks and devices, and the number that its tokens
    are a multiple of.
    """
    if device.type == "cpu":
        return 1, 1
    return TOGETHER, MULTIPLE


def first_states(bert: Bert, ids: Sequence[list[int]]) -> list[Tensor]:
    """Return the last hidden state of the first token of each text, on a CPU. Shape of each: (1,
    dim), float32.
    """
    return [
        states[:1].clone()
        for states in batch_invariant_states(bert, [([text], None) for text in ids])
    ]


def batch_invariant_states(
    bert: Bert, groups: Sequence[tuple[Sequence[list[int]], Sequence[list[int]] | None]]
) -> list[Tensor]:
    """Return the last hidden states of groups of texts, on a CPU; those of a group depend on this
    group alone.

    A group has the token ids of each text, texts of one length side by side, and the segments of
    these tokens; without segments, all tokens are in the first. Shape of each result: (tokens of
    its texts, dim), float32.
    """
    dtype = dtype_for(bert, CPU)
    lengths = [[len(text) for text in ids] for ids, _ in groups]
    parts = []
    for (ids, segments), sizes in zip(groups, lengths, strict=True):
        places = torch.cat([torch.arange(length) for length in sizes])
        inside = (
            None
            if segments is None
            else torch.tensor([token for text in segments for token in text])
        )
        embedded = bert.embeddings(
            torch.tensor([token for text in ids for token in text]), places, inside
        )
        if len(embedded) > FEW_ROWS:
            embedded = more_rows(embedded)
        parts.append(embedded)

    states = torch.cat(parts)
    rows = [len(part) for part in parts]
    for layer in bert.encoder["layer"].children():
        states = _through(layer, states, rows, lengths, dtype)
    split = zip(torch.split(states, rows), lengths, strict=True)

    return [part[: sum(sizes)] for part, sizes in split]


def _through(
    layer: Any, states: Tensor, rows: list[int], lengths: list[list[int]], dtype: torch.dtype
) -> Tensor:
    """`Layer.forward` for groups of texts of these lengths; sums and normalisation see one row at a
    time anyway.

    `rows`: the tokens of each group, and maybe padding. Shape of the states: (rows of all groups,
    dim), float32.
    """
    attention = layer.attention["self"]
    mixed = layer.attention["output"]
    output = layer.output
    query, key, value = (
        product_of(linear, dtype) for linear in (attention.query, attention.key, attention.value)
    )
    others = mixed.dense, layer.intermediate["dense"], output.dense
    mix, widen, narrow = (product_of(linear, dtype) for linear in others)
    attended: list[Tensor] = []
    for group, sizes in zip(_groups(states, rows, dtype), lengths, strict=True):
        seen = _attended(attention, sizes, query(group), key(group), value(group))
        attended.append(mix(seen))

    states = mixed.LayerNorm(torch.cat(attended) + states)
    outputs = [narrow(gelu(widen(x))) for x in _groups(states, rows, dtype)]
    result: Tensor = output.LayerNorm(torch.cat(outputs) + states)
    return result


def _groups(states: Tensor, rows: list[int], dtype: torch.dtype) -> Sequence[Tensor]:
    """Copy the rows of each group into memory of their own, as alignment may change a product, too."""
    return [group.to(dtype, copy=True) for group in torch.split(states, rows)]


def _attended(attention: SelfAttention, lengths: list[int], *projected: Tensor) -> Tensor:
    """Attend within each text of a group. Shapes: queries, keys, values and result (rows, dim)."""
    attended = []
    first = 0
    for length, alike in groupby(lengths):
        texts = len(list(alike))
        part = slice(first, first + texts * length)
        q, k, v = (
            rows[part].view(texts, length, attention.heads, -1).transpose(1, 2)
            for rows in projected
        )
        states = attention.attend(q, k, v, None, q.shape[-1] ** -0.5)
        attended.append(states.transpose(1, 2).flatten(2).flatten(0, 1))
        first = part.stop

    if len(attended) > 1:
        rows = torch.cat(attended)
    else:
        rows = attended[0]
    padding = len(projected[0]) - first
    if padding:
        return pad(rows, (0, 0, 0, padding))
    return rows


class Recorded:
    """Runs a network on batches of a few shapes; on a GPU, it records a CUDA graph for each shape.

    A batch then takes one launch instead of some hundreds, which take longer than the work. Weights
    may change where they lie. Only a `Bert` is known never to wait for the GPU.
    """

    def __init__(
        self,
        network: nn.Module,
        backbone: Any,
        compute: Callable[..., tuple[Tensor, ...]],
        device: torch.device,
    ) -> None:
        """`network`: has all weights that are computed with, those of the `backbone` among them."""
        self.device = device
        self._backbone = backbone
        self._compute = compute
        self._weights = list(network.parameters())
        self._graphs: dict[
            tuple[object, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]
        ] = {}
        self._lock = threading.Lock()  # a graph reads and writes the same tensors each time

    @torch.inference_mode()
    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Compute, or replay a recording."""
        if self.device.type != "cuda" or not isinstance(self._backbone, Bert):
            return self._computed(given)
        with self._lock, torch.cuda.device(self.device):
            key = given[0].shape, *(weight.data_ptr() for weight in self._weights)
            if key not in self._graphs:
                with RECORDING:
                    self._graphs[key] = self._record(given)
            graph, inputs, outputs = self._graphs[key]
            for mine, other in zip(inputs, given, strict=True):
                mine.copy_(other)
            graph.replay()
            return tuple(each.clone() for each in outputs)

    def _record(
        self, given: Sequence[Tensor]
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]:
        """Record the work for this shape, after doing it once, as a library may prepare for it
        meanwhile.
        """
        inputs = [each.clone() for each in given]
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            self._computed(inputs)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = self._computed(inputs)
        return graph, inputs, outputs

    def _computed(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        # Anew each time, as it keeps the weights that it has converted.
        with autocast(self.device, self._backbone):
            return self._compute(*given)


def product_of(linear: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Prepare a layer in this type for many products on a CPU."""
    if isinstance(linear, Linear):
        return linear.prepared(dtype)
    return linear


def alike(lengths: Sequence[int], together: int, multiple: int) -> Iterator[tuple[list[int], int]]:
    """Yield batches of at most `together` texts of one length, rounded up to a multiple, and that
    length.

    >>> list(alike([3, 9, 8], together=2, multiple=8))
    [([0, 2], 8), ([1], 16)]
    """
    rounded = [-(-length // multiple) * multiple for length in lengths]
    order = sorted(range(len(lengths)), key=rounded.__getitem__)
    for length, texts in groupby(order, key=rounded.__getitem__):
        members = list(texts)
        for first in range(0, len(members), together):
            yield members[first : first + together], length


def in_shape(
    rows: Sequence[list[int]], shape: tuple[int, int], pad_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the token ids of texts and their mask in this shape; copies of the first text fill it."""
    texts, tokens = shape
    return padded([*rows, *[rows[0]] * (texts - len(rows))], pad_id, device, tokens)
