"""Reader network: question and passage go in together, a logit of each token to open and to close the answer comes out.

Beside it, a judge reads the states of a phrase's first and last token. A model folder holds both; triples can teach
another judge, of their relations alone, which lies beside the query encoder that was tuned on them. Source: arXiv
2012.12624, section 4.1, arXiv 1810.04805.
"""

import copy
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from kbq.errors import ModelError
from kbq.model.backbone import empty_backbone, hidden_states, without_pooler
from kbq.model.bert import more_rows, pack_few_rows
from kbq.model.model_folder import (
    ModelConfig,
    digest_of,
    explained,
    read_config,
    read_whole_config,
    remedy,
    write_config,
)
from kbq.model.weights import (
    WEIGHTS,
    NamedTensors,
    fingerprint,
    load_weights,
    named_weights,
    pack,
    read_weights,
    save_tensors,
)
from kbq.storage.files import reading_problem
from kbq.storage.machine import give_memory_back
from kbq.storage.records import as_record, parsed_json
from kbq.storage.writing import writing_to
from kbq.text.markers import relation_key, slot_of

READER = "reader.safetensors"
TAUGHT = "judge.safetensors"
HALF = 0.501  # of a step between two int8 values, and a little for rounding
JUDGE = "judge."  # how the names of the weights of a judge of phrases begin
SHARED = "phrases."  # how the names of the phrase encoder's weights begin
WRITTEN_FOR = "phrase_fingerprint"  # of the model
POINTS = 10  # of the search: about as much as a logit


class AnswerLogits(NamedTuple):
    """Logits of each token to open and to close the answer. Shapes: (windows, tokens)."""

    start_logits: Tensor
    end_logits: Tensor


class PhraseJudge(nn.Module):
    """How much likelier a phrase is right than that none is, from the states of its first and its last token.

    The logits of these tokens to open and to close the answer are added to it.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * dim, dim)
        self.outer = nn.Linear(dim, 1)
        self.none = nn.Parameter(torch.zeros(1))  # the logit of "no phrase is right"
        self.retrieval = nn.Parameter(torch.zeros(1))  # what POINTS of the search are worth

    def forward(self, edges: Tensor) -> Tensor:
        """Shapes: states of the first token, then of the last (phrases, 2 dim), result (phrases,)."""
        result: Tensor = self.outer(nn.functional.gelu(self.inner(edges)))[:, 0] - self.none
        return result

    @property
    def retrieval_weight(self) -> float:
        """The weight of a point of the search beside the judge's odds."""
        return float(self.retrieval.detach()) / POINTS


class QuestionAnswering(nn.Module):
    """An encoder, a layer with a logit of each token to open and to close the answer, and perhaps a judge."""

    def __init__(self, backbone: Any, judges: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.config = backbone.config
        dim = int(backbone.config.hidden_size)
        self.head = nn.Linear(dim, len(AnswerLogits._fields))
        self.judge = PhraseJudge(dim) if judges else None
        pack_few_rows(backbone)

    def states(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Shapes: inputs (windows, tokens), result (windows, tokens, dim)."""
        return hidden_states(self.backbone, input_ids, attention_mask, token_type_ids)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> AnswerLogits:
        """Shapes: all (windows, tokens)."""
        return self.logits(self.states(input_ids, attention_mask, token_type_ids))

    def logits(self, states: Tensor) -> AnswerLogits:
        """Shapes: states (windows, tokens, dim), logits (windows, tokens)."""
        rows = states.flatten(0, -2)
        logits = self.head(more_rows(rows))[: len(rows)].view(*states.shape[:-1], -1)
        return AnswerLogits(*logits.unbind(dim=-1))


def question_answering(network: Any) -> QuestionAnswering:
    """Return a network of transformers as one of kbq, with the same weights.

    Raises:
        ModelError: it does not answer questions.
    """
    if isinstance(network, QuestionAnswering):
        return network
    if not hasattr(network, "qa_outputs"):
        raise ModelError(f"a {type(network).__name__} has no layer `qa_outputs`: give a reader of `kbq train reader`")
    reader = QuestionAnswering(without_pooler(copy.copy(network.base_model)))
    reader.head = network.qa_outputs
    return reader


# In the folder of a model


def save_reader(network: Any, folder: Path) -> None:
    """Write a question-answering network into the folder of a model that has its word embeddings.

    Raises:
        ModelError: the network does not answer questions; or the folder is not a kbq model, has an encoder of another
            shape, or cannot be written.
    """
    reader = question_answering(network)
    config = read_whole_config(folder, apart_from=READER)
    _refuse_query_encoder(folder, config)
    template, shared = _phrase_encoder(folder, reader.judge is not None)
    weights = named_weights(reader, "")
    load_weights(template, shared | weights, "", folder)
    differing = {
        name: tensor for name, tensor in weights.items() if name not in shared or not _same(tensor, shared[name])
    }
    with writing_to(folder, ModelError, also=(SafetensorError,)):
        save_tensors(pack(differing, "int8"), folder / READER, {WRITTEN_FOR: config.phrase_fingerprint})
        write_config(folder, config)


def _same(weights: Tensor, shared: Tensor) -> bool:
    """Whether weights are the model's, which may have been rounded to int8 since the training of the reader began."""
    step = shared.abs().amax(dim=-1, keepdim=True) / 127 if shared.ndim == 2 else torch.zeros(1)
    return bool(((weights - shared).abs() <= HALF * step).all())


def open_reader(folder: Path) -> QuestionAnswering:
    """Open the reader in a model folder.

    Raises:
        ModelError: there is none, it belongs to other weights, or it is damaged.
    """
    config = read_whole_config(folder)
    _refuse_query_encoder(folder, config)
    if not (folder / READER).is_file():
        raise ModelError(f"the model {folder} has no reader: train one with `kbq train reader`")
    reader_weights = read_weights(folder / READER)
    with explained(folder / READER):
        written_for = _written_for(folder)
    if written_for != config.phrase_fingerprint:
        raise ModelError(
            f"{folder / READER} belongs to the phrase encoder {written_for}, but the model has "
            f"{config.phrase_fingerprint} now: train a reader again with `kbq train reader`"
        )
    network, shared = _phrase_encoder(folder, any(name.startswith(JUDGE) for name in reader_weights))
    load_weights(network, shared | reader_weights, "", folder)
    give_memory_back()  # the memory that the weights were unpacked in
    return network


def judge_digest(folder: Path) -> str:
    """Return the digest of the reader in a model folder; empty if no reader there judges phrases for its weights."""
    try:
        with safe_open(folder / READER, "pt") as file:
            judges = any(name.startswith(JUDGE) for name in file.keys())  # noqa: SIM118 - it cannot be iterated
    except (OSError, SafetensorError):
        return ""
    return digest_of(folder, READER) if judges and has_reader(folder) else ""


def has_reader(folder: Path) -> bool:
    """Return whether a model folder has a reader for its weights."""
    try:
        return _written_for(folder) == read_config(folder).phrase_fingerprint
    except (OSError, SafetensorError):
        return False


def _written_for(folder: Path) -> str | None:
    """The fingerprint of the phrase encoder that a reader shares weights with. Raises OSError or SafetensorError."""
    with safe_open(folder / READER, "pt") as file:
        return (file.metadata() or {}).get(WRITTEN_FOR)


def _refuse_query_encoder(folder: Path, config: ModelConfig) -> None:
    if config.base:
        raise ModelError(f"{folder} holds a query encoder for the model {config.base}: give that")


def _phrase_encoder(folder: Path, judges: bool) -> tuple[QuestionAnswering, NamedTensors]:
    """A reader shaped like the model's encoder, to be loaded, and the weights that it may share, by its names."""
    network = QuestionAnswering(empty_backbone(folder), judges)
    weights = read_weights(folder / WEIGHTS, f"{SHARED}backbone.")
    return network, {name.removeprefix(SHARED): tensor for name, tensor in weights.items()}


@dataclass(frozen=True, eq=False)
class RelationJudge:
    """A judge that has learned from triples; it judges the slots of their relations, and no other query."""

    judge: PhraseJudge
    relations: frozenset[str]
    reader: str  # the digest of the reader whose states it was taught with

    def judges(self, text: str) -> bool:
        """Return whether a query is a slot of one of its relations."""
        slot = slot_of(text)
        return slot is not None and relation_key(slot[1]) in self._keys

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(map(relation_key, self.relations))

    @cached_property
    def fingerprint(self) -> str:
        """A digest that identifies its weights."""
        return fingerprint(named_weights(self.judge, ""))

    def save(self, folder: Path) -> None:
        """Write it into the folder of a tuned query encoder, whose configuration is to be written afterwards.

        Raises:
            ModelError: the folder cannot be written.
        """
        facts = {"relations": json.dumps(sorted(self.relations), ensure_ascii=False), "reader": self.reader}
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            save_tensors(named_weights(self.judge, ""), folder / TAUGHT, facts)

    @classmethod
    def open(cls, folder: Path, reader: str, device: torch.device) -> Self | None:
        """Open the judge that was saved in a folder, if there is one.

        Args:
            reader: the digest of the reader that is used.

        Raises:
            ModelError: it is damaged, or was taught with another reader.
        """
        path = folder / TAUGHT
        if not path.is_file():
            return None
        weights = read_weights(path)
        try:
            with safe_open(path, "pt") as file:
                facts = file.metadata() or {}
            relations = as_record(parsed_json(facts["relations"]), frozenset[str])
            judge = PhraseJudge(weights["outer.weight"].shape[1])
        except (OSError, SafetensorError, ValueError, KeyError, IndexError) as error:
            raise ModelError(reading_problem(path, error, remedy(folder))) from None
        load_weights(judge, weights, "", folder)
        if facts.get("reader") != reader:
            raise ModelError(f"{path} was taught with another reader than the model has now: tune again")
        return cls(judge.eval().to(device), relations, reader)
