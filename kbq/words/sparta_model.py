"""Sparta model: Sparta and its tokenizer as one folder: model.safetensors, sparta.json, the backbone's own files."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kbq.corpus.sentences import sentence_bounds
from kbq.encoding.backbone import empty_backbone, hidden_states, load_tokenizer, pretrained_backbone, saved_tokenizer
from kbq.encoding.devices import batch_tokens, buckets, choose_device, fast_copy, pad, padded, readable_length
from kbq.encoding.model_folder import WEIGHTS
from kbq.encoding.tokenizer import encodings
from kbq.encoding.windows import Tokens, WindowShape, tokenize
from kbq.errors import ModelError, first_line
from kbq.special_tokens import MARKERS
from kbq.system.files import write_json, writing_to


@dataclass(frozen=True, slots=True)
class Sentence:
    """Where a sentence stands: tokens [first, stop) of its window, characters [start, end) of its paragraph."""

    first: int
    stop: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SentenceWindow:
    """`[CLS] title [SEP] stretch of one paragraph [SEP]` as token ids, and the sentences that are read from it.

    The sentences stand side by side; the rest of the stretch is their context.
    """

    ids: list[int]
    sentences: tuple[Sentence, ...]

    @property
    def segments(self) -> list[int]:
        """1 marks its sentences, 0 everything else."""
        before, stop = self.sentences[0].first, self.sentences[-1].stop
        return [0] * before + [1] * (stop - before) + [0] * (len(self.ids) - stop)


def sentence_windows(
    tokenizer: Any, title: list[int], text: str, shape: WindowShape, marked: bool
) -> list[SentenceWindow]:
    """Windows with as much of the paragraph around their sentences, evenly, as fits.

    A sentence that is longer than the window becomes several. `marked`: a window for each sentence, as in the paper;
    else as many sentences share a window as fit.
    """
    (tokens,) = tokenize(tokenizer, [text])
    head = [tokenizer.cls_token_id, *title[: shape.max_title], tokenizer.sep_token_id]
    room = shape.length - len(head) - 1
    windows = []
    for members in _together(list(_sentences(text, tokens, room)), 0 if marked else room):
        begin, stop = around(members[0][0], members[-1][1], len(tokens.ids), room)
        ids = [*head, *tokens.ids[begin:stop], tokenizer.sep_token_id]
        shift = len(head) - begin
        sentences = tuple(
            Sentence(first + shift, stop + shift, int(tokens.starts[first]), int(tokens.ends[stop - 1]))
            for first, stop in members
        )
        windows.append(SentenceWindow(ids, sentences))
    return windows


def around(first: int, stop: int, tokens: int, room: int) -> tuple[int, int]:
    """The stretch of at most `room` tokens that holds [first, stop) in its middle, as far as the ends allow.

    >>> around(4, 6, tokens=100, room=6), around(1, 3, tokens=100, room=6), around(4, 6, tokens=7, room=6)
    ((2, 8), (0, 6), (1, 7))
    """
    begin = max(0, first - (room - (stop - first)) // 2)
    stop = min(tokens, begin + room)
    return max(0, stop - room), stop


def _sentences(text: str, tokens: Tokens, room: int) -> Iterator[tuple[int, int]]:
    """(first token, token after the last) of each sentence that has tokens, or of its parts that fit."""
    for bounds in sentence_bounds(text):
        first, stop = np.searchsorted(tokens.starts, bounds).tolist()
        for begin in range(first, stop, room):
            yield begin, min(begin + room, stop)


def _together(sentences: Sequence[tuple[int, int]], room: int) -> list[list[tuple[int, int]]]:
    """Groups of neighbours that span at most `room` tokens; one that fits with no other is a group of its own."""
    groups: list[list[tuple[int, int]]] = []
    for first, stop in sentences:
        if groups and stop - groups[-1][0][0] <= room:
            groups[-1].append((first, stop))
        else:
            groups.append([(first, stop)])
    return groups


class Sparta(nn.Module):
    """Encoder of sentences and table of query terms; queries are looked up, never encoded."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.terms = nn.Parameter(backbone.get_input_embeddings().weight.detach().clone())  # Shape: (terms, dim)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, windows: "SentenceTensors", terms: Tensor) -> Tensor:
        """Impacts of these terms. Shapes: terms (terms,), result (sentences, terms)."""
        return self.impacts(best_products(self.sentence_states(windows), self.terms[terms]))

    def sentence_states(self, windows: "SentenceTensors") -> Tensor:
        """Hidden states of each sentence's own tokens: neither context nor padding. See `SentenceTensors.tokens`.

        Shape: (sentences, longest, dim).
        """
        states = hidden_states(self.backbone, windows.ids, windows.mask, windows.segments)
        return states.flatten(0, 1)[windows.tokens]

    def impacts(self, best_products: Tensor) -> Tensor:
        """log(1 + ReLU(y + b)), whatever the shape."""
        return torch.relu(best_products.float() + self.bias).log1p()


def best_products(states: Tensor, vectors: Tensor) -> Tensor:
    """The largest product of each term's vector with a token of each sentence.

    Shapes: states (sentences, longest, dim), vectors (terms, dim), result (sentences, terms).
    """
    return (states @ vectors.T).amax(dim=1)


def query_scores(impacts: Tensor, counts: Tensor) -> Tensor:
    """The sum of the impacts of each query's terms; a term that stands twice counts twice.

    Shapes: impacts (sentences, terms), counts (queries, terms), result (queries, sentences).
    """
    return counts @ impacts.T


class SentenceTensors:
    """Windows as an encoder reads them. Shapes of `ids`, `mask`, `segments`: (windows, tokens).

    `tokens`: where each sentence's tokens stand among all, counted row by row; a shorter sentence repeats its last one,
    which changes no maximum. Shape: (sentences, longest). `lengths`: of the sentences, in tokens. Shape: (sentences,).
    """

    def __init__(self, windows: Sequence[SentenceWindow], pad_id: int, device: torch.device) -> None:
        self.ids, self.mask = padded([window.ids for window in windows], pad_id, device)
        self.segments = pad((window.segments for window in windows), 0, device)
        length = self.ids.shape[1]
        places = [(row * length, sentence) for row, window in enumerate(windows) for sentence in window.sentences]
        first = torch.tensor([begin + sentence.first for begin, sentence in places], device=device)[:, None]
        self.lengths = torch.tensor([sentence.stop - sentence.first for _, sentence in places], device=device)
        offsets = torch.arange(int(self.lengths.max()), device=device)
        self.tokens = first + torch.minimum(offsets, self.lengths[:, None] - 1)


CONFIG = "sparta.json"
FORMAT = 1
SENTENCES, CHUNK = 32, 1024  # sentences of similar length, and terms: their products stay in a CPU's cache


@dataclass(frozen=True, slots=True)
class SpartaConfig:
    """What the weights alone do not say."""

    window: WindowShape = field(default_factory=lambda: WindowShape(overlap=0))
    marked: bool = False  # a window for each sentence, as in the paper, instead of one for as many as fit
    training: dict[str, object] = field(default_factory=dict)


class SpartaModel:
    """A Sparta that can read: texts become windows and query terms."""

    def __init__(self, config: SpartaConfig, tokenizer: Any, network: Sparta) -> None:
        self.config, self.tokenizer, self.network = config, tokenizer, network
        names: dict[int, str] = {number: piece for piece, number in tokenizer.get_vocab().items()}
        self.vocabulary = [names.get(number, "") for number in range(len(network.terms))]
        special = set(tokenizer.all_special_ids)
        usable = (n for n, piece in enumerate(self.vocabulary) if piece and not piece.startswith("[unused"))
        self.terms = torch.tensor([number for number in usable if number not in special])  # that a query may hold

    @classmethod
    def new(cls, checkpoint: str, config: SpartaConfig) -> Self:
        """An untrained model from any BERT-like checkpoint with segments.

        Raises:
            ModelError: there is no such checkpoint, or it knows no segments.
        """
        network = Sparta(pretrained_backbone(checkpoint))
        if getattr(network.backbone.config, "type_vocab_size", 0) < 2:
            raise ModelError(f"{checkpoint} knows no segments to mark a sentence with: use a BERT-like encoder")
        window = replace(config.window, length=readable_length(network.backbone, config.window.length))
        return cls(replace(config, window=window), load_tokenizer(checkpoint), network)

    @classmethod
    def open(cls, folder: Path, device: str = "auto") -> Self:
        """Raises ModelError when the folder is missing, no Sparta, or damaged."""
        try:
            written = json.loads((folder / CONFIG).read_text("utf-8"))
            if written.pop("format") != FORMAT:
                raise ModelError(f"{folder} is of another format than {FORMAT}: use the kbq that wrote it")
            config = SpartaConfig(**written | {"window": WindowShape(**written["window"])})
            network = Sparta(empty_backbone(folder))
            network.load_state_dict(load_file(folder / WEIGHTS))
        except FileNotFoundError:
            raise ModelError(f"{folder} is no SPARTA model: make one with `kbq train --sparse`") from None
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ModelError(f"SPARTA model {folder} is damaged: {first_line(error)}") from None
        return cls(config, saved_tokenizer(folder), network.eval().to(choose_device(device)))

    def save(self, folder: Path) -> None:
        """Write the folder. Raises ModelError where it cannot be written."""
        weights: dict[str, Tensor] = {name: value.contiguous() for name, value in self.network.state_dict().items()}
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            folder.mkdir(parents=True, exist_ok=True)
            save_file(weights, folder / WEIGHTS)
            self.network.backbone.config.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            write_json(folder / CONFIG, {"format": FORMAT} | asdict(self.config))

    def fingerprint(self) -> str:
        """Tells this model's impacts from any other's."""
        digest = hashlib.blake2b(
            repr((self.config.window, self.config.marked, self.vocabulary)).encode(), digest_size=8
        )
        for name, value in sorted(self.network.state_dict().items()):
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        return digest.hexdigest()

    def windows(self, title: list[int], text: str) -> list[SentenceWindow]:
        """A paragraph as this model reads it; `title` as token ids."""
        return sentence_windows(self.tokenizer, title, text, self.config.window, self.config.marked)

    def query_terms(self, text: str) -> list[int]:
        """The word pieces of a query; see `word_pieces`."""
        return word_pieces(self.tokenizer, text)


def word_pieces(tokenizer: Any, text: str) -> list[int]:
    """A query's word pieces, in order and with repetitions; none is special or unknown."""
    special = set(tokenizer.all_special_ids)
    (pieces,) = encodings(tokenizer, [MARKERS.sub(" ", text)], special=True)
    return [piece for piece in pieces.ids if piece not in special]


@torch.inference_mode()
def strongest_impacts(
    model: SpartaModel, windows: Sequence[SentenceWindow], k: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (number of the sentence, its k strongest terms, their impacts), without those of zero; batched by length.

    Sentences are numbered window by window. Shapes: (at most k,).
    """
    device = model.network.bias.device
    terms = model.terms.to(device)
    # Everything in 16 bits, not products alone: twice as fast on CPUs, and 99 % of 500 strongest terms are the same.
    fast = fast_copy(model.network, device)
    vectors = fast.terms[terms]
    stop = list(accumulate(len(window.sentences) for window in windows))
    for members in buckets([len(window.ids) for window in windows], batch_tokens(device)):
        tensors = SentenceTensors([windows[index] for index in members], model.tokenizer.pad_token_id, device)
        numbers = [n for i in members for n in range(stop[i] - len(windows[i].sentences), stop[i])]
        states = fast.sentence_states(tensors)
        for rows in torch.split(torch.argsort(tensors.lengths, stable=True), SENTENCES):
            batch = states[rows, : int(tensors.lengths[rows].max())].to(vectors.dtype)
            parts = [best_products(batch, part) for part in torch.split(vectors, CHUNK)]
            best, place = torch.cat(parts, dim=1).float().topk(min(k, len(terms)), dim=1)  # log keeps the order
            impacts, strongest = model.network.impacts(best).cpu(), terms[place].cpu()  # a GPU is read once
            for row, row_terms, weights in zip(rows.tolist(), strongest, impacts, strict=True):
                positive = weights > 0
                yield numbers[row], row_terms[positive], weights[positive]
