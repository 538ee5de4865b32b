"""Sparta model: Sparta and its tokenizer as one folder: model.safetensors, sparta.json, the backbone's own files."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from kbq.encoding.backbone import empty_backbone, load_tokenizer, pretrained_backbone, saved_tokenizer
from kbq.encoding.devices import choose_device, fast_copy
from kbq.encoding.padding import batch_tokens, buckets, readable_length
from kbq.encoding.tokenizer import encodings
from kbq.encoding.weights import WEIGHTS
from kbq.encoding.windows import WindowShape
from kbq.errors import ModelError, first_line
from kbq.sparse.sentences import SentenceWindow, sentence_windows
from kbq.sparse.sparta import SentenceTensors, Sparta, best_products
from kbq.system.files import write_json, writing_to
from kbq.text.markers import MARKERS

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
