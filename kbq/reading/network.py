"""Reader network: question and passage go in together, a logit of each token to open and to close the answer comes out.

It is any Hugging Face question-answering checkpoint, or the reader in the folder of a kbq model. Source: arXiv
2012.12624, section 4.1, arXiv 1810.04805.
"""

import copy
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from kbq.array_types import Floats
from kbq.errors import ModelError, QueryError
from kbq.model.backbone import (
    empty_backbone,
    hidden_states,
    hugging_face,
    load_tokenizer,
    readable_checkpoint,
    reading,
    refuse_random,
    saved_tokenizer,
    without_pooler,
)
from kbq.model.bert import more_rows, pack_few_rows
from kbq.model.devices import autocast, batch_tokens, buckets, choose_device, readable_length
from kbq.model.model_files import CONFIG, remedy
from kbq.model.model_folder import (
    WEIGHTS,
    ModelConfig,
    NamedTensors,
    digest_of,
    load_weights,
    local_folder,
    named_weights,
    pack,
    read_config,
    read_weights,
    read_whole_config,
    refuse_not_finite,
    save_tensors,
    write_config,
)
from kbq.model.phrases import window_tensors
from kbq.model.queries import QueryTokenizer, marker_tokens
from kbq.model.windows import Window, cut
from kbq.reading.judge import PhraseJudge
from kbq.storage.files import reading_problem
from kbq.storage.folders import files_for
from kbq.storage.machine import give_memory_back
from kbq.storage.seals import seal_folder
from kbq.storage.writing import writing_to

READER = "reader.safetensors"
HALF = 0.501  # of a step between two int8 values, and a little for rounding
JUDGE = "judge."  # how the names of the weights of a judge of phrases begin
SHARED = "phrases."  # how the names of the phrase encoder's weights begin
WRITTEN_FOR = "phrase_fingerprint"  # of the model


class AnswerLogits(NamedTuple):
    """Logits of each token to open and to close the answer. Shapes: (windows, tokens)."""

    start_logits: Tensor
    end_logits: Tensor


class QuestionAnswering(nn.Module):
    """An encoder, and a layer with a logit of each token to open and to close the answer, and maybe a judge."""

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


def save_reader(network: Any, folder: Path) -> None:
    """Write a question-answering network of transformers into the folder of a model that has its word embeddings.

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


def question_answering(network: Any) -> QuestionAnswering:
    """A network of transformers, or of kbq, as the latter, with the same weights.

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


def _same(weights: Tensor, shared: Tensor) -> bool:
    """Whether weights are the model's, which may have been rounded to int8 since the training of the reader began."""
    step = shared.abs().amax(dim=-1, keepdim=True) / 127 if shared.ndim == 2 else torch.zeros(1)
    return bool(((weights - shared).abs() <= HALF * step).all())


def open_reader(folder: Path) -> QuestionAnswering:
    """The reader in a model folder.

    Raises:
        ModelError: there is none, it belongs to other weights, or it is damaged.
    """
    config = read_whole_config(folder)
    _refuse_query_encoder(folder, config)
    if not (folder / READER).is_file():
        raise ModelError(f"the model {folder} has no reader: train one with `kbq train reader`")
    try:
        reader_weights = read_weights(folder / READER)
        written_for = _written_for(folder)
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(reading_problem(folder / READER, error, remedy(folder))) from None
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
    """The digest of the reader in a model folder; empty if there is none for its weights that judges phrases."""
    try:
        with safe_open(folder / READER, "pt") as file:
            judges = any(name.startswith(JUDGE) for name in file.keys())  # noqa: SIM118 - it cannot be iterated
    except (OSError, SafetensorError):
        return ""
    return digest_of(folder, READER) if judges and has_reader(folder) else ""


def has_reader(folder: Path) -> bool:
    """Whether a model folder has a reader for its weights."""
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
    try:
        weights = read_weights(folder / WEIGHTS, f"{SHARED}backbone.")
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(reading_problem(folder / WEIGHTS, error, remedy(folder))) from None
    return network, {name.removeprefix(SHARED): tensor for name, tensor in weights.items()}


LENGTH, OVERLAP = 384, 64  # tokens of a window, question included
MAX_QUESTION = 128
PROBE = "Zoë O'Neill's 1,234 naïve USA [SEP] crème-brûlée — 北京 №7"


class ReaderNetwork:
    """A question-answering network with its tokenizer, on one device."""

    def __init__(self, network: nn.Module, tokenizer: Any, source: str) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.source = source
        self.uses_segments = "token_type_ids" in tokenizer.model_input_names
        self.length = readable_length(network, LENGTH)
        self.query_tokenizer = QueryTokenizer(tokenizer, min(MAX_QUESTION, self.length // 2), marker_tokens(tokenizer))
        # RoBERTa and its kin write two separators between question and passage.
        self.separators = max(1, tokenizer.backend_tokenizer.num_special_tokens_to_add(True) - 2)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.network.parameters()).device

    @classmethod
    def open(cls, source: str, device: str = "auto") -> Self:
        """A trained reader: a checkpoint (folder, hub name), or that of a kbq model (folder, `default`).

        Raises:
            ModelError: there is no such checkpoint, or it has not learned to answer questions.
        """
        folder = local_folder(source)
        if (folder / CONFIG).is_file():
            return cls(open_reader(folder).eval().to(choose_device(device)), saved_tokenizer(folder), source)
        network, missing = _load(source)
        if missing:
            raise ModelError(
                f"{source} is not a question-answering checkpoint (it lacks {len(missing)} weights, the first is "
                f"{missing[0]}): train one with `kbq train reader`"
            )
        return cls(network.eval().to(choose_device(device)), load_tokenizer(source), source)

    @classmethod
    def new(cls, checkpoint: str, device: str = "auto") -> Self:
        """An untrained reader from any BERT-like encoder; its word embeddings stay frozen."""
        network, missing = _load(checkpoint)
        encoder = f"{network.base_model_prefix}."
        refuse_random(checkpoint, [name for name in missing if name.startswith(encoder) and "pooler" not in name])
        network = network.to(choose_device(device))
        network.get_input_embeddings().weight.requires_grad_(False)
        return cls(network, load_tokenizer(checkpoint), checkpoint)

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face checkpoint."""
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            with files_for(folder) as partial:
                self.network.save_pretrained(partial)  # type: ignore[operator]
                self.tokenizer.save_pretrained(partial)
            seal_folder(folder)

    @property
    def reranking(self) -> tuple[QuestionAnswering, PhraseJudge]:
        """The network, and its judge of phrases.

        Raises:
            ModelError: it has none.
        """
        network = self.network
        if not isinstance(network, QuestionAnswering) or network.judge is None:
            raise ModelError(f"the reader of {self.source} does not judge phrases: recipes/ has how one is taught")
        return network, network.judge

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Refuse another tokenizer: its tokens are not those that the reader has logits for.

        Raises:
            ModelError: the vocabularies differ, or they cut text differently.
        """
        pieces, other = self.tokenizer.get_vocab(), tokenizer.get_vocab()
        if pieces != other:
            raise ModelError(
                f"{self.source} has another vocabulary ({len(pieces)} entries) than the model to train ({len(other)}): "
                "distil from a reader with the same tokenizer, such as one trained by `kbq train reader` from the "
                "same --init"
            )
        if self.tokenizer.tokenize(PROBE) != tokenizer.tokenize(PROBE):
            raise ModelError(
                f"the tokenizer of {self.source} splits text differently from that of the model to train (upper case "
                "or accents, perhaps): distil from a reader with the same tokenizer"
            )

    def windows(self, question: Sequence[int], text: Sequence[int]) -> list[Window]:
        """What the network reads for a question, `[CLS] … [SEP]`, and the word pieces of a passage.

        Raises:
            QueryError: the question leaves no room for a passage.
        """
        separator = self.tokenizer.sep_token_id
        head = [*question, *[separator] * (self.separators - 1)]
        if len(head) + 1 >= self.length:
            raise QueryError(f"a question has {len(question)} tokens, {self.source} reads {self.length}: shorten it")
        return cut(head, list(text), separator, self.length, min(OVERLAP, (self.length - len(head) - 1) // 2))

    def logits(self, ids: Tensor, mask: Tensor, segments: Tensor | None) -> tuple[Tensor, Tensor]:
        """Logits of each token to open and to close the answer. Shapes: (windows, tokens)."""
        inputs = {"input_ids": ids, "attention_mask": mask}
        if segments is not None:
            inputs["token_type_ids"] = segments
        with autocast(self.device):
            outputs = self.network(**inputs)
        return outputs.start_logits.float(), outputs.end_logits.float()

    @torch.inference_mode()
    def score(self, examples: Sequence[Sequence[Window]]) -> list[Floats]:
        """Logits of the tokens that the windows of each example own. Shape of each: (2, tokens)."""
        windows = [(number, window) for number, example in enumerate(examples) for window in example]
        logits_of: list[list[Floats]] = [[np.empty((2, 0), np.float32)] * len(example) for example in examples]
        first = np.cumsum([0, *map(len, examples)])
        for members in buckets([len(window.ids) for _, window in windows], batch_tokens(self.device)):
            part = [windows[place][1] for place in members]
            tensors = window_tensors(part, self.tokenizer.pad_token_id, self.uses_segments, self.device)
            logits = torch.stack(self.logits(*tensors)).cpu().numpy()
            for row, place in enumerate(members):
                number, window = windows[place]
                columns = slice(window.first, window.first + window.count)
                logits_of[number][place - first[number]] = logits[:, row, columns]
        nothing = np.empty((2, 0), np.float32)
        return [np.concatenate([nothing, *parts], axis=1) for parts in logits_of]

    def fingerprint(self) -> str:
        """A digest of the weights."""
        digest = hashlib.blake2b(digest_size=16)
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def _load(source: str) -> tuple[Any, list[str]]:
    """The network of a checkpoint, and the names of weights that the checkpoint lacks, which are random."""
    model_class = hugging_face().AutoModelForQuestionAnswering
    with reading(source), readable_checkpoint(source) as checkpoint:
        network, facts = model_class.from_pretrained(
            checkpoint, trust_remote_code=False, weights_only=True, output_loading_info=True
        )
    missing = set(facts["missing_keys"])
    try:
        refuse_not_finite({name: tensor for name, tensor in network.state_dict().items() if name not in missing})
    except ValueError as error:
        raise ModelError(f"the checkpoint {source} is damaged: {error}") from None
    layers = re.compile(rf"{re.escape(network.base_model_prefix)}\..*\.\d+\.")
    if surplus := sorted(filter(layers.match, facts["unexpected_keys"])):  # heads and poolers of other tasks are usual
        raise ModelError(
            f"the checkpoint {source} has {len(surplus)} weights that its config has no layer for, the first is "
            f"{surplus[0]}: put back the config that belongs to them"
        )
    return network, sorted(missing)
