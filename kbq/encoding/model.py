"""Model: phrase encoder, query encoder and all they need, as one self-describing folder.

model.safetensors   weights: float32, or int8 with one scale per row (`NAME.scale`)
kbq.json            ModelConfig; config.json, tokenizer…  the backbone's own files
casing.json         of a cased model, if wanted: how words are capitalised that a query has in lower case
reader.safetensors  a reader that shares its word embeddings, if any: kbq/reading/network.py

A query encoder that was tuned for a knowledge base is a folder of the first two files, with the query side alone: its
`base` has the rest.
"""

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from kbq.answers import WeightType
from kbq.array_types import Floats
from kbq.encoding.backbone import empty_backbone, load_tokenizer, pretrained_backbone, saved_tokenizer
from kbq.encoding.devices import choose_device, readable_length
from kbq.encoding.model_folder import (
    WEIGHTS,
    ModelConfig,
    fingerprint,
    lasting_name,
    load_weights,
    model_folder,
    named_weights,
    pack,
    read_config,
    read_weights,
    write_config,
)
from kbq.encoding.phrases import PhraseEncoder
from kbq.encoding.queries import QueryEncoder, QueryTokenizer, encode_queries, marker_tokens
from kbq.encoding.tokenizer import Forms
from kbq.errors import ModelError, first_line
from kbq.system.files import writing_to
from kbq.system.machine import give_memory_back

SHORTEST = 80  # tokens: a window with its title and overlap
CASING = "casing.json"


class Model:
    """Phrase encoder and query encoder of one model folder, on one device."""

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: Any,
        phrases: PhraseEncoder,
        queries: QueryEncoder,
        scale: Floats,
        casing: Forms | None = None,
    ) -> None:
        """The parts of a model.

        Args:
            scale: size of one int8 step of each dimension in a phrase dump. Shape: (dim,).
            casing: how queries without capital letters are read.
        """
        self.config = config
        self.tokenizer = tokenizer
        self.phrases = phrases
        self.queries = queries
        self.scale = scale
        self.query_tokenizer = QueryTokenizer(tokenizer, config.max_query_tokens, config.marker_tokens, casing)
        self.uses_segments = "token_type_ids" in tokenizer.model_input_names
        self.source = ""  # where it was opened from: `default`, a hub name, or a folder's whole path

    @property
    def dim(self) -> int:
        """Dimension of a token vector."""
        return int(self.phrases.backbone.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.phrases.filter.weight.device

    def encode_queries(self, texts: Sequence[str]) -> tuple[Floats, Floats]:
        """Start and end vectors. Shapes: (queries, dim). Raises QueryError for a text that cannot be read."""
        return encode_queries(
            self.queries, [self.query_tokenizer.ids_of(text) for text in texts], self.tokenizer.pad_token_id
        )

    def in_row_units(self, starts: Floats, ends: Floats) -> Floats:
        """Start over end vector, in the units of the int8 rows. Shapes: (queries, dim), (queries, 2, dim)."""
        return np.stack([starts, ends], axis=1) * self.scale

    @classmethod
    def new(cls, checkpoint: str, config: ModelConfig) -> Self:
        """An untrained model from any BERT-like checkpoint; its word embeddings serve both sides and stay frozen."""
        tokenizer = load_tokenizer(checkpoint)
        phrases = PhraseEncoder(pretrained_backbone(checkpoint))
        queries = QueryEncoder(pretrained_backbone(checkpoint), config.shared_query_encoder)
        _share_word_embeddings(phrases, queries)
        if readable_length(phrases.backbone, SHORTEST) < SHORTEST:
            raise ModelError(f"{checkpoint} reads fewer than {SHORTEST} tokens: use another encoder")
        length = readable_length(phrases.backbone, config.window.length)
        config = dataclasses.replace(
            config,
            window=dataclasses.replace(config.window, length=length),
            max_query_tokens=readable_length(queries.start, config.max_query_tokens),
            marker_tokens=marker_tokens(tokenizer),
        )
        return cls(
            config,
            tokenizer,
            phrases,
            queries,
            np.zeros(int(phrases.backbone.config.hidden_size), np.float32),
        )

    @classmethod
    def open(cls, source: str | Path, device: str = "auto") -> Self:
        """Read a model: `default`, a model folder, or a hub name that leads to one.

        Raises:
            ModelError: the folder is missing, not a kbq model, damaged, or of another format.
        """
        folder = model_folder(source)
        config = read_config(folder)
        if config.base:
            tuned = cls._open_tuned(folder, config, device)
            tuned.source = lasting_name(str(source))
            return tuned
        try:
            weights = read_weights(folder / WEIGHTS)
            backbone = empty_backbone(folder)
        except (OSError, SafetensorError, ValueError, RuntimeError) as error:
            raise ModelError(f"model folder {folder} is damaged: {first_line(error)}") from None
        phrases = PhraseEncoder(copy.deepcopy(backbone))
        queries = QueryEncoder(backbone, config.shared_query_encoder)
        _share_word_embeddings(phrases, queries)
        scale = weights.pop("scale", None)
        if scale is None:
            raise ModelError(f"model folder {folder} lacks the weight `scale`: make it again")
        load_weights(phrases, weights, "phrases.", folder)
        load_weights(queries, weights, "queries.", folder, given=_word_embeddings(phrases))
        target = choose_device(device)
        networks = phrases.eval().to(target), queries.eval().to(target)
        model = cls(config, saved_tokenizer(folder), *networks, scale.numpy(), _read_casing(folder))
        model.source = lasting_name(str(source))
        del weights, backbone
        give_memory_back()  # the memory that the weights were unpacked in
        return model

    @classmethod
    def _open_tuned(cls, folder: Path, config: ModelConfig, device: str) -> Self:
        """A query encoder on top of its base model."""
        try:
            if read_config(model_folder(config.base)).base:
                raise ModelError(f"{config.base} is a query encoder itself")
            base = cls.open(config.base, device)
        except ModelError as error:
            raise ModelError(f"{folder} holds a query encoder for the model {config.base}: {error}") from None
        if base.config.phrase_fingerprint != config.phrase_fingerprint:
            raise ModelError(
                f"{folder} holds a query encoder for the phrase encoder {config.phrase_fingerprint}, but {config.base} "
                f"has {base.config.phrase_fingerprint} now: tune again with `kbq finetune`"
            )
        try:
            weights = read_weights(folder / WEIGHTS)
        except (OSError, SafetensorError, ValueError) as error:
            raise ModelError(f"model folder {folder} is damaged: {first_line(error)}") from None
        load_weights(base.queries, weights, "queries.", folder, given=_word_embeddings(base.phrases))
        base.config = config
        return base

    def save_query_encoder(self, folder: Path, facts: Mapping[str, object]) -> None:
        """Write the query side alone, in float32: int8 steps would swallow what tuning changes.

        `facts`: what it was tuned on.

        Raises:
            ModelError: the folder cannot be written.
        """
        queries = pack(named_weights(self.queries, "queries.", without=_word_embeddings(self.phrases)), "float32")
        training = self.config.training | {"finetuning": dict(facts)}
        base = self.config.base or self.source
        self.config = dataclasses.replace(
            self.config, base=base, query_fingerprint=fingerprint(queries), training=training
        )
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            folder.mkdir(parents=True, exist_ok=True)
            save_file(queries, folder / WEIGHTS)
            write_config(folder, self.config)

    def save(self, folder: Path, weight_type: WeightType = "float32") -> None:
        """Write the model folder. int8 keeps one scale per row of a matrix: a quarter of the bytes.

        Raises:
            ModelError: the folder cannot be written.
        """
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            self._write(folder, weight_type)

    def _write(self, folder: Path, weight_type: WeightType) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        phrases = pack(named_weights(self.phrases, "phrases."), weight_type)
        phrases["scale"] = torch.from_numpy(self.scale)
        queries = pack(named_weights(self.queries, "queries.", without=_word_embeddings(self.phrases)), weight_type)
        self.config = dataclasses.replace(
            self.config, phrase_fingerprint=fingerprint(phrases), query_fingerprint=fingerprint(queries)
        )
        save_file(phrases | queries, folder / WEIGHTS)
        self.phrases.backbone.config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if self.query_tokenizer.casing:
            (folder / CASING).write_text(json.dumps(self.query_tokenizer.casing, ensure_ascii=False) + "\n", "utf-8")
        write_config(folder, self.config)


def _read_casing(folder: Path) -> Forms | None:
    """How words are written, where the model folder says so."""
    try:
        forms: Forms = json.loads((folder / CASING).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / CASING} cannot be read: {first_line(error)}") from None
    return forms


def _word_embeddings(encoder: PhraseEncoder) -> Tensor:
    weight: Tensor = encoder.backbone.get_input_embeddings().weight
    return weight


def _share_word_embeddings(phrases: PhraseEncoder, queries: QueryEncoder) -> None:
    """Use one frozen table for all backbones; it is a third of a small model."""
    table = phrases.backbone.get_input_embeddings()
    table.weight.requires_grad_(False)
    for backbone in {queries.start, queries.end}:
        backbone.set_input_embeddings(table)
