"""Backbone: a BERT-like encoder and its tokenizer, on the device that is there.

BERT itself is kbq's own; every other encoder, and what a hub or another program has written, is read by transformers.
"""

import copy
import logging
import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kbq.encoding.bert import Bert, BertConfig, is_bert
from kbq.encoding.pretrained import readable_checkpoint
from kbq.encoding.tokenizer import FILE, FastTokenizer
from kbq.errors import ModelError, first_line
from kbq.system.machine import cpu_has


@cache
def hugging_face() -> Any:
    """transformers, which says nothing by itself; importing it takes seconds, so it is asked for where it is needed."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a name that no hub knows is an error of ours, once
    return transformers


def choose_device(name: str) -> torch.device:
    """`auto` (CUDA where there is one that works), `cpu`, `cuda` or `cuda:n`.

    Raises:
        ModelError: CUDA is asked for where there is none, or the name means nothing.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and _why_not(torch.device("cuda")) is None else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ModelError(f"device {name!r} is unknown: choose auto, cpu, cuda or cuda:0, cuda:1, …")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"device {name!r} asked for, but {torch.cuda.device_count()} CUDA devices are here: "
            "use --device cpu or auto"
        )
    problem = _why_not(device) if device.type == "cuda" else None
    if problem:
        raise ModelError(f"device {name!r} cannot be used ({problem}): use --device cpu or auto")
    return device


@cache
def _why_not(gpu: torch.device) -> str | None:
    """What keeps a GPU from computing: it is full, another process has it, or it is too old for this torch."""
    try:
        torch.ones(1, device=gpu).sum().item()
    except RuntimeError as error:
        return first_line(error)
    return None


@cache
def fast_dtype(device: torch.device) -> torch.dtype:
    """The 16-bit type in which this device multiplies fast; float32 where there is none."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return torch.bfloat16 if cpu_has("avx512_bf16", "amx_bf16", "bf16") else torch.float32


def autocast(device: torch.device) -> torch.autocast:
    """Matrix products in the device's fast type, everything else in float32."""
    dtype = fast_dtype(device)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


def load_tokenizer(source: str | Path) -> Any:
    """The tokenizer of a checkpoint: a fast one (it knows characters) with [CLS], [SEP] and [PAD] of its own.

    Raises:
        ModelError: there is none, it is not a fast one, or one of the three tokens is missing.
    """
    try:
        tokenizer = hugging_face().AutoTokenizer.from_pretrained(str(source), use_fast=True)
    except Exception as error:  # of a damaged file transformers raises errors of many families
        raise ModelError(f"{source} holds no tokenizer that transformers can read: {first_line(error)}") from None
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer of {source} gives no character offsets: "
            "use a checkpoint with a fast tokenizer (tokenizer.json)"
        )
    return _with_special_tokens(tokenizer, source)


def saved_tokenizer(folder: Path) -> Any:
    """The tokenizer that kbq saved in a folder; see `load_tokenizer`."""
    if not (folder / FILE).is_file():  # transformers would make one that knows no word
        raise ModelError(f"the tokenizer of {folder} is missing: it has no {FILE}")
    tokenizer = FastTokenizer.read(folder)
    return load_tokenizer(folder) if tokenizer is None else _with_special_tokens(tokenizer, folder)


def _with_special_tokens(tokenizer: Any, source: str | Path) -> Any:
    missing = [name for name in ("cls", "sep", "pad") if getattr(tokenizer, f"{name}_token_id") is None]
    if missing:
        raise ModelError(
            f"the tokenizer of {source} has no {' and no '.join(missing)} token: use a BERT-like checkpoint"
        )
    return tokenizer


def pretrained_backbone(source: str | Path) -> Any:
    """The encoder of a checkpoint: a hub name or a folder; that of phrases, or of sentences, of a model of kbq.

    Raises:
        ModelError: there is no such checkpoint, or it is not whole.
    """
    try:
        with readable_checkpoint(source) as checkpoint:
            read, facts = hugging_face().AutoModel.from_pretrained(checkpoint, output_loading_info=True)
        refuse_random(source, [name for name in facts["missing_keys"] if not name.startswith("pooler.")])
        network = without_pooler(read)
        written = network.config.to_dict()
        if not is_bert(written):
            return network
        own = Bert(BertConfig(written))
        own.load_state_dict(network.state_dict())
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"{source} is no checkpoint that transformers can read: {first_line(error)}") from None
    return own.eval()


def refuse_random(source: str | Path, missing: Collection[str]) -> None:
    """Weights that a checkpoint lacks would be random ones.

    Raises:
        ModelError: some are missing.
    """
    if missing:
        raise ModelError(
            f"{source} lacks {len(missing)} weights of the encoder that it describes, the first is {min(missing)}: "
            "start from another checkpoint"
        )


def empty_backbone(folder: Path) -> Any:
    """The encoder of a model folder, whose weights are about to be loaded.

    Raises:
        OSError, ValueError: the folder does not say of what shape.
    """
    config = BertConfig.read(folder)
    if config is not None:
        return Bert(config)
    library = hugging_face()
    try:
        return without_pooler(library.AutoModel.from_config(library.AutoConfig.from_pretrained(str(folder))))
    except Exception as error:  # of a damaged configuration transformers raises errors of many families
        raise ValueError(first_line(error)) from None


def fast_copy(network: Any, device: torch.device) -> Any:
    """A copy to encode with, everything in the device's fast type: faster than `autocast`."""
    return copy.deepcopy(network).to(fast_dtype(device)).eval()


def without_pooler(backbone: Any) -> Any:
    """kbq reads hidden states; the pooler of BERT would be dead weight."""
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None
    return backbone


def hidden_states(backbone: nn.Module, ids: Tensor, mask: Tensor, segments: Tensor | None) -> Tensor:
    """Last hidden states. Shapes: ids, mask, segments (texts, tokens); result (texts, tokens, dim), float32."""
    inputs = {"input_ids": ids, "attention_mask": mask}
    if segments is not None:
        inputs["token_type_ids"] = segments
    states: Tensor = backbone(**inputs).last_hidden_state
    return states.float()


# Fused attention over 190 tokens takes a CPU with matrix tiles (AMX) longer than over 208, and is a third of all work.
LONG, MULTIPLE = 160, 16


def pad(rows: Iterable[list[int]], value: int, device: torch.device) -> Tensor:
    """Rows of unequal length as one matrix. Shape: (rows, longest); if long, rounded up."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    padded = nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
    more = -padded.shape[1] % MULTIPLE if padded.shape[1] > LONG else 0
    return nn.functional.pad(padded, (0, more), value=value).to(device)


def batch_tokens(device: torch.device) -> int:
    """How many tokens a network reads at once: more fall out of the cache of a CPU; a GPU takes more."""
    return 2048 if device.type == "cpu" else 65536


def readable_length(backbone: Any, wanted: int) -> int:
    """The longest input of at most `wanted` tokens that a network still reads when it is padded."""
    positions = int(getattr(backbone.config, "max_position_embeddings", wanted))
    return min(wanted, positions if positions <= LONG else positions // MULTIPLE * MULTIPLE)


def buckets(lengths: list[int], max_tokens: int) -> list[list[int]]:
    """Indices grouped into batches of similar length, each of at most `max_tokens` with its padding.

    A single text longer than `max_tokens` is a batch of its own.

    >>> buckets([5, 1, 4, 1], max_tokens=8)
    [[1, 3], [2], [0]]
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[index] <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
