"""SPARTA: score queries by the impacts that a model gives to the terms of sentences.

A SPARTA model gives each sentence the impacts of its k strongest terms, which `impacts` stores.

A model folder has model.safetensors, the files of the backbone and its tokenizer, and sparta.json
with the digests of all other files.

Source: arXiv 2009.13013.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from kbq.english.sentences import sentence_bounds
from kbq.errors import ModelError
from kbq.model.backbone import (
    empty_backbone,
    hidden_states,
    load_tokenizer,
    pretrained_backbone,
    saved_tokenizer,
)
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
    RECORDS,
    SPARTA,
    WEIGHTS,
    load_weights,
    plain_facts,
    read_model_record,
    read_weights,
    refuse_changes,
    save_tensors,
    sealed_files,
)
from kbq.model.tokenizer import Tokens, WindowShape, encodings, tokenize
from kbq.storage.folders import files_for, make_folder
from kbq.storage.records import write_record
from kbq.storage.seals import FileSeal
from kbq.storage.writing import writing_to
from kbq.text.queries import MARKERS

# Sentences and terms multiplied at a time: their products fit in a CPU's cache.
SENTENCES = 32
CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence: tokens [first, stop) of its window, characters [start, end) of its paragraph."""

    first: int
    stop: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SentenceWindow:
    """The token ids of `[CLS] title [SEP] stretch of one paragraph [SEP]`, and the sentences to
    encode in it.

    The sentences are consecutive; the rest of the stretch is their context.
    """

    ids: list[int]
    sentences: tuple[Sentence, ...]

    @property
    def segments(self) -> list[int]:
        """Segment ids: 1 for the tokens of the window's sentences, 0 for all others."""
        before = self.sentences[0].first
        stop = self.sentences[-1].stop
        return [0] * before + [1] * (stop - before) + [0] * (len(self.ids) - stop)


def sentence_windows(
    tokenizer: Any, title: list[int], text: str, shape: WindowShape, marked: bool
) -> list[SentenceWindow]:
    """Return the windows of a paragraph, each with as much context on both sides of its sentences
    as fits.

    A sentence longer than a window is split. A window has one sentence if `marked`, as in the
    paper, else as many as fit.
    """
    (tokens,) = tokenize(tokenizer, [text])
    head = [tokenizer.cls_token_id, *title[: shape.max_title], tokenizer.sep_token_id]
    room = shape.length - len(head) - 1
    windows = []

    for members in _together(list(_sentences(text, tokens, room)), 0 if marked else room):
        begin, stop = around(members[0][0], members[-1][1], len(tokens.ids), room)
        ids = [*head, *tokens.ids[begin:stop], tokenizer.sep_token_id]
        shift = len(head) - begin
        sentences: list[Sentence] = []
        for first, stop in members:
            characters = int(tokens.starts[first]), int(tokens.ends[stop - 1])
            sentences.append(Sentence(first + shift, stop + shift, *characters))
        windows.append(SentenceWindow(ids, tuple(sentences)))

    return windows


def around(first: int, stop: int, tokens: int, room: int) -> tuple[int, int]:
    """Return the stretch of at most `room` tokens with [first, stop) in its middle, as far as the
    paragraph allows.

    >>> around(4, 6, tokens=100, room=6), around(1, 3, tokens=100, room=6), around(4, 6, tokens=7, room=6)
    ((2, 8), (0, 6), (1, 7))
    """
    begin = max(0, first - (room - (stop - first)) // 2)
    stop = min(tokens, begin + room)
    return max(0, stop - room), stop


def _sentences(text: str, tokens: Tokens, room: int) -> Iterator[tuple[int, int]]:
    """Yield (first token, token after the last) of each sentence, or of its parts if it is longer
    than `room`.
    """
    for bounds in sentence_bounds(text):
        first, stop = np.searchsorted(tokens.starts, bounds).tolist()
        for begin in range(first, stop, room):
            yield begin, min(begin + room, stop)


def _together(sentences: Sequence[tuple[int, int]], room: int) -> list[list[tuple[int, int]]]:
    """Group consecutive sentences that together span at most `room` tokens."""
    groups: list[list[tuple[int, int]]] = []
    for first, stop in sentences:
        if groups and stop - groups[-1][0][0] <= room:
            groups[-1].append((first, stop))
        else:
            groups.append([(first, stop)])
    return groups


class SentenceTensors:
    """A batch of windows as tensors. Shapes of `ids`, `mask`, `segments`: (windows, tokens).

    `tokens` holds the indices of each sentence's tokens in the flattened batch. A shorter sentence
    repeats its last token, which changes no maximum. Shape: (sentences, longest). `lengths` counts
    the tokens of each sentence. Shape: (sentences,).
    """

    def __init__(
        self,
        windows: Sequence[SentenceWindow],
        pad_id: int,
        device: torch.device,
        all_tokens: bool = False,
    ) -> None:
        """`all_tokens`: a sentence has those of its whole window, so that a window has one sentence
        only.
        """
        self.ids, self.mask = padded([window.ids for window in windows], pad_id, device)
        self.segments = pad([window.segments for window in windows], 0, device)
        length = self.ids.shape[1]
        places: list[tuple[int, int]] = []

        for row, window in enumerate(windows):
            spans = (
                [(0, len(window.ids))]
                if all_tokens
                else [(sentence.first, sentence.stop) for sentence in window.sentences]
            )
            for begin, stop in spans:
                places.append((row * length + begin, stop - begin))

        first = torch.tensor([begin for begin, _ in places], device=device)[:, None]
        self.lengths = torch.tensor([size for _, size in places], device=device)
        offsets = torch.arange(int(self.lengths.max()), device=device)
        self.tokens = first + torch.minimum(offsets, self.lengths[:, None] - 1)


class Sparta(nn.Module):
    """An encoder of sentences, and vectors of query terms; queries are looked up, not encoded."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        # Shape: (terms, dim).
        self.terms = nn.Parameter(backbone.get_input_embeddings().weight.detach().clone())
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, windows: SentenceTensors, terms: Tensor) -> Tensor:
        """Return the impacts of some terms. Shapes: terms (terms,), result (sentences, terms)."""
        return self.impacts(best_products(self.sentence_states(windows), self.terms[terms]))

    def sentence_states(self, windows: SentenceTensors) -> Tensor:
        """Return the hidden states of each sentence's tokens, without its context; see
        `SentenceTensors.tokens`.

        Shape: (sentences, longest, dim).
        """
        states = hidden_states(self.backbone, windows.ids, windows.mask, windows.segments)
        return states.flatten(0, 1)[windows.tokens]

    def impacts(self, best_products: Tensor) -> Tensor:
        """Return log(1 + ReLU(y + b)), elementwise."""
        return torch.relu(best_products.float() + self.bias).log1p()


def best_products(states: Tensor, vectors: Tensor) -> Tensor:
    """Return the largest inner product of each term's vector with the tokens of each sentence.

    Shapes: states (sentences, longest, dim), vectors (terms, dim), result (sentences, terms).
    """
    return (states @ vectors.T).amax(dim=1)


def query_scores(impacts: Tensor, counts: Tensor) -> Tensor:
    """Return the sum of the impacts of each query's terms; repeated terms count repeatedly.

    Shapes: impacts (sentences, terms), counts (queries, terms), result (queries, sentences).
    """
    return counts @ impacts.T


@dataclass(frozen=True, slots=True)
class SpartaConfig:
    """The configuration of a SPARTA model: everything but the weights."""

    window: WindowShape = field(default_factory=lambda: WindowShape(overlap=0))
    # One window per sentence, as in the paper, instead of as many sentences as fit.
    marked: bool = False
    training: dict[str, object] = field(default_factory=dict)
    # A term is compared with all tokens of the window, as in Eq. 4, not the sentence's own.
    all_tokens: bool = False


@dataclass(frozen=True, slots=True)
class SpartaRecord:
    """The content of `sparta.json`: the configuration of a SPARTA model, and the other files of its
    folder by name.
    """

    config: SpartaConfig
    files: dict[str, FileSeal]


def read_record_of(folder: Path) -> SpartaRecord:
    """Return the record of a SPARTA model. Raises ModelError if it is missing, damaged, or of
    another format.
    """
    try:
        return read_model_record(folder, SPARTA, SpartaRecord)
    except FileNotFoundError:
        raise ModelError(
            f"{folder} is not a SPARTA model: make one with `kbq train sparta`"
        ) from None


class SpartaModel:
    """A SPARTA network with its tokenizer, which turns texts into windows and query terms."""

    def __init__(self, config: SpartaConfig, tokenizer: Any, network: Sparta) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.network = network
        names: dict[int, str] = {number: piece for piece, number in tokenizer.get_vocab().items()}
        self.vocabulary = [names.get(number, "") for number in range(len(network.terms))]
        special = set(tokenizer.all_special_ids)
        usable = (
            n
            for n, piece in enumerate(self.vocabulary)
            if piece and not piece.startswith("[unused")
        )
        # The terms a query may have.
        self.terms = torch.tensor([number for number in usable if number not in special])

    @classmethod
    def new(cls, checkpoint: str, config: SpartaConfig) -> Self:
        """Return an untrained model from any BERT-like checkpoint with segments.

        Raises ModelError if the checkpoint does not exist or has no segments.
        """
        network = Sparta(pretrained_backbone(checkpoint))
        if getattr(network.backbone.config, "type_vocab_size", 0) < 2:
            raise ModelError(
                f"{checkpoint} has no segments to mark sentences with: use a BERT-like checkpoint"
            )
        window = replace(
            config.window, length=readable_length(network.backbone, config.window.length)
        )
        return cls(replace(config, window=window), load_tokenizer(checkpoint), network)

    @classmethod
    def open(cls, folder: Path, device: str = "auto") -> Self:
        """Read a model folder. Raises ModelError if it is missing, damaged, or not a SPARTA model."""
        record = read_record_of(folder)
        refuse_changes(folder, record.files)
        network = Sparta(empty_backbone(folder))
        load_weights(network, read_weights(folder / WEIGHTS), "", folder)
        return cls(record.config, saved_tokenizer(folder), network.eval().to(choose_device(device)))

    def save(self, folder: Path) -> None:
        """Write the folder. Raises ModelError if it cannot be written."""
        weights: dict[str, Tensor] = {
            name: value.contiguous() for name, value in self.network.state_dict().items()
        }
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            make_folder(folder)
            save_tensors(weights, folder / WEIGHTS)
            with files_for(folder) as partial:
                self.network.backbone.config.save_pretrained(partial)
                self.tokenizer.save_pretrained(partial)
            config = replace(self.config, training=plain_facts(self.config.training))
            write_record(
                folder / SPARTA, SpartaRecord(config, sealed_files(folder)), RECORDS[SPARTA]
            )

    def fingerprint(self) -> str:
        read = (self.config.window, self.config.marked, self.vocabulary)
        digest = hashlib.blake2b(
            repr((*read, "all") if self.config.all_tokens else read).encode(), digest_size=8
        )
        for name, value in sorted(self.network.state_dict().items()):
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        return digest.hexdigest()

    def windows(self, title: list[int], text: str) -> list[SentenceWindow]:
        """Return the windows of a paragraph; `title` is given as token ids."""
        return sentence_windows(self.tokenizer, title, text, self.config.window, self.config.marked)

    def tensors(self, windows: Sequence[SentenceWindow]) -> SentenceTensors:
        device = self.network.bias.device
        pad_id = self.tokenizer.pad_token_id
        return SentenceTensors(windows, pad_id, device, self.config.all_tokens)

    def query_terms(self, text: str) -> list[int]:
        return word_pieces(self.tokenizer, text)


def word_pieces(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a query's word pieces, in order, with repetitions, without special and
    unknown tokens.
    """
    special = set(tokenizer.all_special_ids)
    (pieces,) = encodings(tokenizer, [MARKERS.sub(" ", text)], special=True)
    return [piece for piece in pieces.ids if piece not in special]


@torch.inference_mode()
def strongest_impacts(
    model: SpartaModel, windows: Sequence[SentenceWindow], k: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (number of a sentence, its k strongest terms, their impacts), without zeros, batched by
    length.

    Sentences are numbered window by window. Shapes: (at most k,).
    """
    device = model.network.bias.device
    terms = model.terms.to(device)
    # Everything in 16 bits, not only products: twice as fast on CPUs, and 99 % of the 500 strongest
    # terms are the same.
    fast = fast_copy(model.network, device)
    vectors = fast.terms[terms]
    stop = list(accumulate(len(window.sentences) for window in windows))

    for members in buckets([len(window.ids) for window in windows], batch_tokens(device)):
        tensors = model.tensors([windows[index] for index in members])
        numbers: list[int] = []
        for member in members:
            numbers += range(stop[member] - len(windows[member].sentences), stop[member])
        states = fast.sentence_states(tensors)
        for rows in torch.split(torch.argsort(tensors.lengths, stable=True), SENTENCES):
            batch = states[rows, : int(tensors.lengths[rows].max())].to(vectors.dtype)
            parts = [best_products(batch, part) for part in torch.split(vectors, CHUNK)]
            # Log keeps the order.
            best, index = torch.cat(parts, dim=1).float().topk(min(k, len(terms)), dim=1)
            # One transfer from a GPU.
            impacts = model.network.impacts(best).cpu()
            strongest = terms[index].cpu()
            for row, row_terms, weights in zip(rows.tolist(), strongest, impacts, strict=True):
                positive = weights > 0
                yield numbers[row], row_terms[positive], weights[positive]
