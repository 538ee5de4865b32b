"""Model: the encoders of a folder, with their tokenizer.

model.safetensors   weights: float32, or int8 with one scale per row (`NAME.scale`)
kbq.json            ModelConfig, and the digests of all other files
config.json, tokenizer.json, tokenizer_config.json  the backbone's own files
casing.json         optional, of a cased model: the capitals of words, for queries in lower case
reader.safetensors  optional: a reader that shares the word embeddings; see kbq/reading/reader.py

The folder of a query encoder that was tuned for a knowledge base has the first two files only, with
the weights of the query encoder; the rest is in its `base` model.

A phrase is represented by the vectors of its first and its last token, both from one encoder.
Source: arXiv 2012.12624, sections 3.2 and 4 (filter: appendix E).
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from kbq.answers import WeightType
from kbq.array_types import Floats
from kbq.errors import ModelError
from kbq.model.backbone import (
    ADVICE,
    empty_backbone,
    hidden_states,
    load_tokenizer,
    model_folder,
    pretrained_backbone,
    saved_tokenizer,
)
from kbq.model.bert import Bert
from kbq.model.devices import (
    batch_tokens,
    buckets,
    choose_device,
    fast_copy,
    pad,
    padded,
    readable_length,
)
from kbq.model.model_folder import (
    WEIGHTS,
    ModelConfig,
    NamedTensors,
    explained,
    fingerprint,
    is_official,
    lasting_name,
    load_weights,
    named_weights,
    pack,
    read_config,
    read_model_weights,
    read_whole_config,
    refuse_other_weights,
    remedy,
    save_tensors,
    write_config,
)
from kbq.model.queries import QueryEncoder, QueryTokenizer, encode_queries, marker_tokens
from kbq.model.tokenizer import Forms, Window
from kbq.plugins import plugin
from kbq.storage.folders import files_for, make_folder
from kbq.storage.machine import give_memory_back
from kbq.storage.paths import as_path
from kbq.storage.records import as_record, read_object
from kbq.storage.writing import write_text, writing_to

SHORTEST = 80  # tokens that an encoder must be able to read: a window with its title and overlap
CASING = "casing.json"


class PhraseEncoder(nn.Module):
    """Token vectors, and for each token the logits of opening (column 0) and closing (column 1) an
    answer.
    """

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.filter = nn.Linear(int(backbone.config.hidden_size), 2)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None) -> tuple[Tensor, Tensor]:
        """Shapes: inputs (windows, tokens); vectors (windows, tokens, dim), filter logits (windows,
        tokens, 2).
        """
        vectors = hidden_states(self.backbone, ids, mask, segments)
        return vectors, self.filter(vectors)


def window_tensors(
    batch: Sequence[Window], pad_id: int, uses_segments: bool, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the ids, mask and segments of a batch of windows. Shapes: (windows, longest)."""
    ids, mask = padded([window.ids for window in batch], pad_id, device)
    segments = None
    if uses_segments:
        segments = pad([window.segments for window in batch], 0, device)
    return ids, mask, segments


class EncodedBatch(NamedTuple):
    """Windows that were encoded together; tensors are on the encoder's device."""

    members: list[int]  # indices of the windows
    vectors: Tensor  # Shape: (windows, tokens, dim), float32; title and padding included
    logits: Tensor  # logits of the filter. Shape: (windows, tokens, 2)
    own: Tensor  # tokens that the window owns. Shape: (windows, tokens), bool


@torch.inference_mode()
def encode_batches(
    encoder: PhraseEncoder,
    windows: Sequence[Window],
    pad_id: int,
    uses_segments: bool,
    fast: Any = None,
) -> Iterator[EncodedBatch]:
    """Encode windows, batched by length; `fast`: a `fast_copy` of the backbone, by default made
    here.
    """
    device = encoder.filter.weight.device
    fast = fast or fast_copy(encoder.backbone, device)
    for members in buckets([len(window.ids) for window in windows], batch_tokens(device)):
        batch = [windows[i] for i in members]
        vectors = hidden_states(fast, *window_tensors(batch, pad_id, uses_segments, device))
        spans = np.array([(window.first, window.first + window.count) for window in batch])
        first, stop = torch.from_numpy(spans).to(device).T[..., None]
        tokens = torch.arange(vectors.shape[1], device=device)
        yield EncodedBatch(
            members, vectors, encoder.filter(vectors), (tokens >= first) & (tokens < stop)
        )


def encode_windows(
    encoder: PhraseEncoder, windows: Sequence[Window], pad_id: int, uses_segments: bool
) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield the index of each window, the vectors of its own tokens, and their filter logits,
    batched by length.

    Shapes: vectors (tokens, dim), logits (tokens, 2).
    """
    for batch in encode_batches(encoder, windows, pad_id, uses_segments):
        vectors, logits, is_own = (part.cpu().numpy() for part in batch[1:])
        for row, index in enumerate(batch.members):
            yield index, vectors[row, is_own[row]], logits[row, is_own[row]]


class Model:
    """The phrase encoder and query encoder of a model folder, on one device."""

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: Any,
        phrases: Callable[[], PhraseEncoder],
        queries: QueryEncoder,
        scale: Floats,
        casing: Forms | None = None,
    ) -> None:
        """Assemble a model.

        Args:
            phrases: returns the phrase encoder, which has the word embeddings of `queries`.
            scale: size of an int8 step in a phrase dump, for each dimension. Shape: (dim,).
            casing: the capitals of words, for queries without any.
        """
        self.config = config
        self.tokenizer = tokenizer
        self.queries = queries
        self.scale = scale
        self._read_phrases = phrases
        self.query_tokenizer = QueryTokenizer(
            tokenizer,
            config.max_query_tokens,
            config.marker_tokens,
            casing,
            config.official_queries,
        )
        self.uses_segments = "token_type_ids" in tokenizer.model_input_names
        self.source = ""  # `default`, a hub name, or the absolute path of a folder

    @cached_property
    def phrases(self) -> PhraseEncoder:
        """The phrase encoder, read when it is first needed: queries do without."""
        phrases = self._read_phrases()
        del self._read_phrases  # and the weights that it may hold
        return phrases

    @property
    def dim(self) -> int:
        return int(self.queries.start.config.hidden_size)

    @property
    def device(self) -> torch.device:
        return self.word_embeddings.device

    @property
    def word_embeddings(self) -> Tensor:
        """The table that all encoders share, frozen. Shape: (pieces, dim)."""
        weight: Tensor = self.queries.start.get_input_embeddings().weight
        return weight

    def encode_queries(self, texts: Sequence[str]) -> tuple[Floats, Floats]:
        """Return start and end vectors. Raises QueryError for a text that it cannot read. Shapes:
        (queries, dim).
        """
        return self.encode_ids([self.query_tokenizer.ids_of(text) for text in texts])

    def encode_ids(self, ids: list[list[int]]) -> tuple[Floats, Floats]:
        """`encode_queries` of token ids, `[CLS] … [SEP]`."""
        return encode_queries(self.queries, ids, self.tokenizer.pad_token_id)

    def in_row_units(self, starts: Floats, ends: Floats) -> Floats:
        """Stack start and end vectors in the units of the int8 rows. Shapes: (queries, dim),
        (queries, 2, dim).
        """
        return np.stack([starts, ends], axis=1) * self.scale

    def score_offsets(self, starts: Floats, ends: Floats) -> Floats:
        """Return how far scores exceed the products of `in_row_units`. Shapes: (queries, dim),
        (queries,).
        """
        sums = (starts.astype(np.float64) + ends).sum(axis=1)
        offsets: Floats = (self.config.value_offset * sums).astype(np.float32)
        return offsets

    @classmethod
    def new(cls, checkpoint: str, config: ModelConfig) -> Self:
        """Make an untrained model from a BERT-like checkpoint, whose word embeddings both encoders
        share, frozen.

        Raises ModelError if there is no such checkpoint, or it reads too few tokens.
        """
        tokenizer = load_tokenizer(checkpoint)
        phrases = PhraseEncoder(pretrained_backbone(checkpoint))
        queries = QueryEncoder(pretrained_backbone(checkpoint), config.shared_query_encoder)
        phrases.backbone.set_input_embeddings(_shared_table(queries))
        if readable_length(phrases.backbone, SHORTEST) < SHORTEST:
            raise ModelError(
                f"{checkpoint} reads fewer than {SHORTEST} tokens: start from another checkpoint"
            )

        length = readable_length(phrases.backbone, config.window.length)
        config = dataclasses.replace(
            config,
            window=dataclasses.replace(config.window, length=length),
            max_query_tokens=readable_length(queries.start, config.max_query_tokens),
            marker_tokens=marker_tokens(tokenizer),
        )
        scale = np.zeros(int(phrases.backbone.config.hidden_size), np.float32)

        return cls(config, tokenizer, lambda: phrases, queries, scale)

    @classmethod
    def open(cls, source: str | Path, device: str = "auto") -> Self:
        """Read a model: `default`, a model folder, a checkpoint of the original code, or a hub
        name.

        Raises ModelError if it is missing, damaged, not a kbq model, or of another format.
        """
        folder = model_folder(source)
        if is_official(folder):
            model = cls.of_official(plugin("checkpoint").read_checkpoint(folder), folder, device)
        elif (config := read_whole_config(folder)).base:
            model = cls._open_tuned(folder, config, device)
        else:
            tokenizer = saved_tokenizer(folder)
            casing = _read_casing(folder)
            lasting = folder.absolute()  # wherever the process goes before phrases are read
            new = partial(empty_backbone, lasting)
            read = partial(read_model_weights, lasting, config)
            model = cls._assembled(folder, config, tokenizer, new, read, device, casing)

        model.source = lasting_name(str(source))
        give_memory_back()  # memory of the weights before they were loaded
        return model

    @classmethod
    def of_official(cls, checkpoint: Any, vocabulary: Path, device: str = "auto") -> Self:
        """Make a model with the weights of an `OfficialCheckpoint`; `vocabulary` is the folder with
        its word pieces.

        Raises ModelError if it can only encode queries, or the vocabulary is missing or another
        one.
        """
        folder = checkpoint.folder
        shape = checkpoint.shape
        if not checkpoint.has_phrases:
            raise ModelError(
                f"{folder} has encoders of queries, but none of phrases: say which model it "
                f"belongs to, with `kbq import checkpoint {folder} --out FOLDER --base MODEL`"
            )

        tokenizer = plugin("checkpoint").read_vocabulary(vocabulary, shape.vocab_size)
        new = partial(Bert, shape)
        read = partial(getattr, checkpoint, "weights")
        model = cls._assembled(folder, checkpoint.config(), tokenizer, new, read, device)
        model.phrases.eval()  # read now, so that the weights of the checkpoint can go
        return model

    @classmethod
    def _assembled(
        cls,
        folder: Path,
        config: ModelConfig,
        tokenizer: Any,
        new_backbone: Callable[[], Any],
        read: Callable[[], NamedTensors],
        device: str,
        casing: Forms | None = None,
    ) -> Self:
        """Make networks with such backbones, and with the weights of a folder, as they are stored."""
        stored = read()
        target = choose_device(device)
        if "scale" not in stored:
            raise ModelError(f"model folder {folder} lacks the weight `scale`: make it again")
        refuse_other_weights(stored.keys() - {"scale"}, ("phrases.", "queries."), folder)
        queries = QueryEncoder(new_backbone(), config.shared_query_encoder)
        table = _shared_table(queries)
        (name,) = (name for name, module in queries.start.named_modules() if module is table)
        load_weights(table, stored, f"phrases.backbone.{name}.", folder)
        load_weights(queries, stored, "queries.", folder, given=table.weight)
        _refuse_misfits(folder, config, tokenizer, queries.start, stored["scale"])

        def read_phrases() -> PhraseEncoder:
            phrases = PhraseEncoder(new_backbone())
            phrases.backbone.set_input_embeddings(table)
            load_weights(phrases, read(), "phrases.", folder)
            return phrases.eval().to(target)

        return cls(
            config,
            tokenizer,
            read_phrases,
            queries.eval().to(target),
            stored["scale"].numpy(),
            casing,
        )

    @classmethod
    def _open_tuned(cls, folder: Path, config: ModelConfig, device: str) -> Self:
        try:
            base_folder = model_folder(config.base)
            if not is_official(base_folder) and read_config(base_folder).base:
                raise ModelError(f"{config.base} is a query encoder itself")
            base = cls.open(config.base, device)
        except ModelError as error:
            raise ModelError(
                f"{folder} holds a query encoder for the model {config.base}: {error.typed}"
            ) from None

        if base.config.phrase_fingerprint != config.phrase_fingerprint:
            raise ModelError(
                f"{folder} holds a query encoder for the phrase encoder "
                f"{config.phrase_fingerprint}, but {config.base} now has "
                f"{base.config.phrase_fingerprint}: tune again with `kbq finetune`"
            )

        weights = read_model_weights(folder, config)
        refuse_other_weights(weights, ("queries.",), folder)
        load_weights(base.queries, weights, "queries.", folder, given=base.word_embeddings)
        base.config = config

        return base

    def save_query_encoder(self, folder: Path, facts: Mapping[str, object]) -> None:
        """Write the query encoder alone, with facts of its tuning, in float32: int8 would lose the
        small changes.
        """
        queries = self._packed_queries("float32")
        training = self.config.training | {"finetuning": dict(facts)}
        self.config = dataclasses.replace(
            self.config,
            base=self.config.base or self.source,
            query_fingerprint=fingerprint(queries),
            training=training,
        )
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            make_folder(folder)
            save_tensors(queries, folder / WEIGHTS)
            write_config(folder, self.config)

    def _packed_queries(self, weight_type: WeightType) -> NamedTensors:
        """Pack the weights of the query encoder, without the shared word embeddings."""
        return pack(
            named_weights(self.queries, "queries.", without=self.word_embeddings), weight_type
        )

    def save(self, folder: Path, weight_type: WeightType = "float32") -> None:
        """Write the model folder; int8 takes a quarter of the bytes. Raises ModelError if it cannot
        be written.
        """
        phrases = pack(named_weights(self.phrases, "phrases."), weight_type)
        phrases["scale"] = torch.from_numpy(self.scale)
        queries = self._packed_queries(weight_type)
        self.config = dataclasses.replace(
            self.config,
            phrase_fingerprint=fingerprint(phrases),
            query_fingerprint=fingerprint(queries),
        )

        with writing_to(folder, ModelError, also=(SafetensorError,)):
            make_folder(folder)
            save_tensors(phrases | queries, folder / WEIGHTS)
            with files_for(folder) as beside:
                self.queries.start.config.save_pretrained(beside)
                self.tokenizer.save_pretrained(beside)
            if self.query_tokenizer.casing:
                casing = json.dumps(self.query_tokenizer.casing, ensure_ascii=False)
                write_text(folder / CASING, casing + "\n")
            write_config(folder, self.config)


def _refuse_misfits(
    folder: Path, config: ModelConfig, tokenizer: Any, backbone: Any, scale: Tensor
) -> None:
    """Raise ModelError if tokenizer, windows or scale belong to another network: every search would
    fail.
    """
    network = backbone.config
    pieces = len(backbone.get_input_embeddings().weight)
    tokens = max(config.window.length, config.max_query_tokens)
    # Other networks may have tokens that their own tokenizer only knows by name.
    highest = 0
    if isinstance(backbone, Bert):
        highest = max(tokenizer.get_vocab().values(), default=0)
    read = readable_length(backbone, tokens)
    lacks_segments = (
        "token_type_ids" in tokenizer.model_input_names
        and getattr(network, "type_vocab_size", 2) < 2
    )
    lacks_scale = tuple(scale.shape) != (int(network.hidden_size),)
    misfits = {
        f"its tokenizer has a piece {highest:,}, its network {pieces:,}": highest >= pieces,
        f"its windows have {tokens:,} tokens, its network reads {read:,}": read < tokens,
        "its texts have two segments, its network one": lacks_segments,
        "its scale has another size than its vectors": lacks_scale,
    }
    problem = next((problem for problem, is_so in misfits.items() if is_so), None)
    if problem:
        raise ModelError(
            f"model folder {folder} does not fit together, {problem}: {remedy(folder)}"
        )


def _read_casing(folder: Path) -> Forms | None:
    with explained(folder / CASING), suppress(FileNotFoundError):
        return as_record(read_object(folder / CASING), dict[str, str])
    return None


def _shared_table(queries: QueryEncoder) -> Any:
    """Give the query encoder one frozen table of word embeddings, and return it: it is a third of a
    small model.
    """
    table = queries.start.get_input_embeddings()
    table.weight.requires_grad_(False)
    queries.end.set_input_embeddings(table)
    return table


def model_of(
    folder: Path, built_with: str, name: str | Path | None = None, device: str = "auto"
) -> Model:
    """Open the model of this name or, without one, the model that a knowledge base was built with."""
    if name is not None:
        return Model.open(as_path(name, "a model"), device)
    try:
        return Model.open(built_with, device)
    except ModelError as error:
        if built_with == "default" or Path(built_with).is_dir():
            raise
        raise ModelError(
            f"{folder} needs the model it was built with: {error.typed.removesuffix(ADVICE)}; say "
            "with --model where it is"
        ) from None
