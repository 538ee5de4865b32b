"""Generative reader: write one answer to a query from all paragraphs that a search has found.
Source: arXiv 2007.01282.

Any sequence-to-sequence checkpoint of transformers can write. Its encoder reads each paragraph
alone, with the query, and its decoder attends to all of them, joined in the order of the search
(fusion in decoder).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from kbq.answers import Answer
from kbq.errors import ModelError, QueryError
from kbq.model.backbone import (
    NO_SEQUENCES,
    hugging_face,
    model_folder,
    readable_checkpoint,
    reading,
    sequence_to_sequence,
)
from kbq.model.devices import autocast, choose_device
from kbq.model.model_folder import CONFIG
from kbq.model.queries import check_query
from kbq.reading.reader import Reader, best_of_each, network_digest
from kbq.search.options import Unit
from kbq.storage.machine import available_memory
from kbq.storage.records import read_object

PROMPT = "question: {query} title: {title} context: {context}"  # arXiv 2007.01282, section 3
LENGTH = 250  # tokens of a prompt, as there
MAX_QUERY = 100  # tokens of a query, among these
LONGEST = 300  # tokens of an answer: those of ELI5 are essays
WEIGHTS = ("*.safetensors", "*.bin")


class PromptTokenizer:
    """Refuses queries that would leave no room for a paragraph."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def ids_of(self, text: str) -> list[int]:
        """Return the ids of a query. Raises QueryError if it is malformed or too long."""
        check_query(text)
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) > MAX_QUERY:
            raise QueryError(
                f"the query {text[:60]!r}… has {len(ids)} tokens, the reader reads {MAX_QUERY}: "
                "shorten it"
            )
        return ids

    def is_short_enough(self, text: str) -> bool:
        """Whether a text, be it a query or not, leaves room for a paragraph."""
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"]) <= MAX_QUERY


class GenerativeReader:
    """A sequence-to-sequence network with its tokenizer, on one device."""

    def __init__(self, network: Any, tokenizer: Any, source: str) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.source = source
        self.query_tokenizer = PromptTokenizer(tokenizer)

    @classmethod
    def open(cls, folder: Path, source: str, device: str = "auto") -> Self:
        """Open a checkpoint. Raises ModelError if it is damaged, or larger than the memory that is
        free.
        """
        refuse_too_large(folder, source)
        with reading(source, NO_SEQUENCES), readable_checkpoint(folder) as checkpoint:
            network, tokenizer = sequence_to_sequence(checkpoint, source)
        return cls(network.to(choose_device(device)), tokenizer, source)

    def fingerprint(self) -> str:
        """Return a digest of the weights."""
        return network_digest(self.network)

    def answers(
        self,
        texts: Sequence[str],
        retrieved: Sequence[Sequence[Answer]],
        k: int,
        unit: Unit,
        weight: float,
    ) -> list[list[Answer]]:
        """Write one answer to each query; it stands first on the best paragraph that has its text,
        or on the best.

        The other paragraphs follow as evidence, each as a whole. `weight` is not used, as all write
        together.
        """
        answers = []
        for text, paragraphs in zip(texts, retrieved, strict=True):
            hits = []
            if paragraphs:
                hits = placed(self.write(text, paragraphs), paragraphs)
            if unit == "page":
                hits = best_of_each(hits, unit)
            answers.append(hits[:k])
        return answers

    @torch.inference_mode()
    def write(self, query: str, paragraphs: Sequence[Answer]) -> str:
        """Write the likeliest answer, word by word, from all paragraphs."""
        prompts = [
            PROMPT.format(query=query, title=hit.title, context=hit.context) for hit in paragraphs
        ]
        given = self.tokenizer(
            prompts,
            truncation=True,
            max_length=LENGTH,
            padding=True,
            return_token_type_ids=False,
            return_tensors="pt",
        ).to(self.network.device)
        with autocast(self.network.device, self.network):
            states, mask = self.joined(given["input_ids"], given["attention_mask"])
            tokens = self.network.generate(
                encoder_outputs=hugging_face().modeling_outputs.BaseModelOutput(
                    last_hidden_state=states
                ),
                attention_mask=mask,
                max_new_tokens=LONGEST,
                do_sample=False,
                num_beams=1,
            )

        return " ".join(str(self.tokenizer.decode(tokens[0], skip_special_tokens=True)).split())

    def joined(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode prompts one beside the other, and join their states to one long text.

        Shapes: ids and mask (prompts, tokens), results (1, prompts × tokens, dim) and (1, prompts ×
        tokens).
        """
        states = self.network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return states.reshape(1, -1, states.shape[-1]), mask.reshape(1, -1)


def placed(text: str, paragraphs: Sequence[Answer]) -> list[Answer]:
    """Put a written text where it occurs first, or else on the whole of the best paragraph; all
    others follow.
    """
    places = [-1] * len(paragraphs)
    if text:
        places = [hit.context.casefold().find(text.casefold()) for hit in paragraphs]
    best = next((number for number, place in enumerate(places) if place >= 0), 0)
    hits = []
    for hit, place in zip(paragraphs, places, strict=True):
        start = 0
        end = len(hit.context)
        if place >= 0:
            start = place
            end = place + len(text)
        hits.append(replace(hit, text=text, start=start, end=end, unit=(start, end)))
    return [hits[best], *hits[:best], *hits[best + 1 :]]


def refuse_too_large(folder: Path, source: str) -> None:
    """Raise ModelError if the weights take more memory than is free: the system would end the
    process.
    """
    sizes = []
    for pattern in WEIGHTS:
        files = folder.glob(pattern)
        sizes.append(sum(path.stat().st_size for path in files))
    need = next(filter(None, sizes), 0)
    free = available_memory()
    if need > free:
        raise ModelError(
            f"{source} needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free: use a "
            "smaller checkpoint"
        )


def open_any(source: str, device: str = "auto") -> Reader | GenerativeReader:
    """Open a reader that finds phrases or, if the checkpoint is a sequence-to-sequence one, that
    writes answers.

    Raises ModelError if there is no such checkpoint, or it is of another kind.
    """
    folder = model_folder(source, "reader")
    path = folder / "config.json"
    if not path.is_file() or (folder / CONFIG).is_file():
        return Reader.open(source, device)
    try:
        architectures = read_object(path).get("architectures")
    except (OSError, ValueError):
        return Reader.open(source, device)  # says what is wrong

    if _writes(architectures):
        return GenerativeReader.open(folder, source, device)
    return Reader.open(source, device)


def _writes(architectures: object) -> bool:
    """Whether a checkpoint writes answers, going by the names of its classes, as transformers has
    them.
    """
    match architectures:
        case [str(name), *_]:
            return name.endswith("ForConditionalGeneration")
    return False
