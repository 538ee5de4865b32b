"""Reader: a question-answering network that finds phrases in the paragraphs that a search has
found.

The chances to open and to close an answer are normalised within each paragraph, as readers are
trained; which paragraph has it is for the search to say. Source: arXiv 2009.13013, section 4 (which
normalises over all paragraphs together), arXiv 1902.01718, section 3. The default model's own
reader can read, and so can any BERT-like question-answering checkpoint.

A judge reads the states of a phrase's first and last token. The reader in a model folder has one;
another that has learned from triples lies beside the query encoder that was tuned on them. Source:
arXiv 2012.12624, section 4.1, arXiv 1810.04805.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from kbq.answers import Answer, content_start
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
)
from kbq.model.bert import Recorded, more_rows, pack_few_rows
from kbq.model.devices import autocast, batch_tokens, buckets, choose_device, readable_length
from kbq.model.model import window_tensors
from kbq.model.model_folder import (
    CONFIG,
    WEIGHTS,
    ModelConfig,
    NamedTensors,
    digest_of,
    explained,
    fingerprint,
    load_weights,
    local_folder,
    named_weights,
    read_config,
    read_weights,
    read_whole_config,
    refuse_not_finite,
    remedy,
    save_tensors,
)
from kbq.model.queries import QueryTokenizer, marker_tokens
from kbq.model.tokenizer import Tokens, Window, cut, tokenize
from kbq.search.options import Unit
from kbq.search.spans import best_ends
from kbq.storage.folders import files_for
from kbq.storage.machine import give_memory_back
from kbq.storage.reading import reading_problem
from kbq.storage.records import as_record, parsed_json
from kbq.storage.seals import seal_folder
from kbq.storage.writing import writing_to
from kbq.text.queries import Query, relation_key

READER = "reader.safetensors"
RELATION_JUDGE = "judge.safetensors"
JUDGE = "judge."  # prefix of the weights of a judge of phrases
SHARED = "phrases."  # prefix of the phrase encoder's weights
WRITTEN_FOR = "phrase_fingerprint"  # key of the model's digest
READS_MENTIONS = "reads_mentions"  # "yes" if the reader learned with them
POINTS = 10  # points of the search: about as much as a logit

# Tokens of a window, question included.
LENGTH = 384
OVERLAP = 64
MAX_QUESTION = 128
PROBE = "Zoë O'Neill's 1,234 naïve USA [SEP] crème-brûlée — 北京 №7"


class AnswerLogits(NamedTuple):
    """Logits of each token to open and to close the answer. Shapes: (windows, tokens)."""

    start_logits: Tensor
    end_logits: Tensor


class PhraseJudge(nn.Module):
    """How much likelier a phrase is right than that none is, from the states of its first and its
    last token.

    The logits of these tokens to open and to close the answer are added to it.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * dim, dim)
        self.outer = nn.Linear(dim, 1)
        self.none = nn.Parameter(torch.zeros(1))  # the logit of "no phrase is right"
        self.retrieval = nn.Parameter(torch.zeros(1))  # the worth of POINTS of the search

    def forward(self, edges: Tensor) -> Tensor:
        """Shapes: states of the first token, then of the last (phrases, 2 dim), result (phrases,)."""
        result: Tensor = self.outer(nn.functional.gelu(self.inner(edges)))[:, 0] - self.none
        return result

    @property
    def retrieval_weight(self) -> float:
        """The weight of a point of the search, added to the judge's odds."""
        return float(self.retrieval.detach()) / POINTS


class QuestionAnswering(nn.Module):
    """An encoder, a layer with a logit of each token to open and to close the answer, and perhaps a
    judge.
    """

    def __init__(self, backbone: Any, has_judge: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.config = backbone.config
        dim = int(backbone.config.hidden_size)
        self.head = nn.Linear(dim, len(AnswerLogits._fields))
        self.judge = PhraseJudge(dim) if has_judge else None
        # An earlier mention of the subject stands before the text of a window.
        self.reads_mentions = False
        pack_few_rows(backbone)

    def states(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Shapes: inputs (windows, tokens), result (windows, tokens, dim)."""
        return hidden_states(self.backbone, input_ids, attention_mask, token_type_ids)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> AnswerLogits:
        """Shapes: all (windows, tokens)."""
        return self.logits(self.states(input_ids, attention_mask, token_type_ids))

    def logits(self, states: Tensor) -> AnswerLogits:
        """Shapes: states (windows, tokens, dim), logits (windows, tokens)."""
        rows = states.flatten(0, -2)
        logits = self.head(more_rows(rows))[: len(rows)].view(*states.shape[:-1], -1)
        return AnswerLogits(*logits.unbind(dim=-1))


def open_reader(folder: Path) -> QuestionAnswering:
    """Open the reader in a model folder. Raises ModelError if there is none, or it is damaged or of
    other weights.
    """
    config = read_whole_config(folder)
    refuse_query_encoder(folder, config)
    if not (folder / READER).is_file():
        raise ModelError(f"the model {folder} has no reader: train one with `kbq train reader`")
    reader_weights = read_weights(folder / READER)
    with explained(folder / READER):
        written_for = _written_for(folder)
        reads_mentions = _metadata_of(folder, READS_MENTIONS) == "yes"

    if written_for != config.phrase_fingerprint:
        raise ModelError(
            f"{folder / READER} belongs to the phrase encoder {written_for}, but the model has "
            f"{config.phrase_fingerprint} now: train a reader again with `kbq train reader`"
        )

    network, shared = new_reader(folder, any(name.startswith(JUDGE) for name in reader_weights))
    load_weights(network, shared | reader_weights, "", folder)
    network.reads_mentions = reads_mentions
    give_memory_back()  # the memory that the weights were unpacked in

    return network


def judge_digest(folder: Path) -> str:
    """Return the digest of the reader in a model folder; empty if no reader there judges phrases
    for its weights.
    """
    try:
        with safe_open(folder / READER, "pt") as file:
            has_judge = any(name.startswith(JUDGE) for name in file.keys())  # noqa: SIM118 - it cannot be iterated
    except (OSError, SafetensorError):
        return ""
    if has_judge and has_reader(folder):
        return digest_of(folder, READER)
    return ""


def has_reader(folder: Path) -> bool:
    """Whether a model folder has a reader for its weights."""
    try:
        return _written_for(folder) == read_config(folder).phrase_fingerprint
    except (OSError, SafetensorError):
        return False


def _written_for(folder: Path) -> str | None:
    """The fingerprint of the phrase encoder that a reader shares weights with. Raises OSError or
    SafetensorError.
    """
    return _metadata_of(folder, WRITTEN_FOR)


def _metadata_of(folder: Path, name: str) -> str | None:
    with safe_open(folder / READER, "pt") as file:
        return (file.metadata() or {}).get(name)


def refuse_query_encoder(folder: Path, config: ModelConfig) -> None:
    """Raise ModelError for the folder of a tuned query encoder: its base has the reader."""
    if config.base:
        raise ModelError(f"{folder} holds a query encoder for the model {config.base}: give that")


def new_reader(folder: Path, has_judge: bool) -> tuple[QuestionAnswering, NamedTensors]:
    """Return a reader of the shape of the model's encoder, to be loaded, and the weights that it
    may share, by name.
    """
    network = QuestionAnswering(empty_backbone(folder), has_judge)
    weights = read_weights(folder / WEIGHTS, f"{SHARED}backbone.")
    return network, {name.removeprefix(SHARED): tensor for name, tensor in weights.items()}


@dataclass(frozen=True, eq=False)
class RelationJudge:
    """A judge that has learned from triples, for slots of their relations alone."""

    judge: PhraseJudge
    relations: frozenset[str]
    reader: str  # the digest of the reader whose states it has learned to read

    def is_for(self, query: Query) -> bool:
        """Whether a query is a slot of one of its relations."""
        return query.is_slot and relation_key(query.relation) in self._keys

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(map(relation_key, self.relations))

    @cached_property
    def fingerprint(self) -> str:
        """A digest that identifies its weights."""
        return fingerprint(named_weights(self.judge, ""))

    def save(self, folder: Path) -> None:
        """Write it into the folder of a tuned query encoder, before its configuration. Raises
        ModelError.
        """
        facts = {
            "relations": json.dumps(sorted(self.relations), ensure_ascii=False),
            "reader": self.reader,
        }
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            save_tensors(named_weights(self.judge, ""), folder / RELATION_JUDGE, facts)

    @classmethod
    def open(cls, folder: Path, reader: str, device: torch.device) -> Self | None:
        """Open the judge that was saved in a folder, if there is one.

        Raises ModelError if it is damaged, or has learned with a reader of another digest than
        `reader`.
        """
        path = folder / RELATION_JUDGE
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
            raise ModelError(
                f"{path} has learned with another reader than the model has now: tune again"
            )

        return cls(judge.eval().to(device), relations, reader)


class Reader:
    """A question-answering network with its tokenizer, on one device."""

    def __init__(self, network: nn.Module, tokenizer: Any, source: str) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.source = source
        self.uses_segments = "token_type_ids" in tokenizer.model_input_names
        self.length = readable_length(network, LENGTH)
        self.query_tokenizer = QueryTokenizer(
            tokenizer, min(MAX_QUESTION, self.length // 2), marker_tokens(tokenizer)
        )
        # RoBERTa and its kin write two separators between question and passage.
        self.separators = max(1, tokenizer.backend_tokenizer.num_special_tokens_to_add(True) - 2)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.network.parameters()).device

    @classmethod
    def open(cls, source: str, device: str = "auto") -> Self:
        """Open a trained reader: a checkpoint (folder, hub name), or that of a kbq model (folder,
        `default`).

        Raises ModelError if there is no such checkpoint, or it has not learned to answer questions.
        """
        folder = local_folder(source)
        if (folder / CONFIG).is_file():
            return cls(
                open_reader(folder).eval().to(choose_device(device)),
                saved_tokenizer(folder),
                source,
            )

        network, missing = _load(source)
        if missing:
            raise ModelError(
                f"{source} is not a question-answering checkpoint (it lacks {len(missing)} "
                f"weights, the first is {missing[0]}): train one with `kbq train reader`"
            )

        return cls(network.eval().to(choose_device(device)), load_tokenizer(source), source)

    @classmethod
    def new(cls, checkpoint: str, device: str = "auto") -> Self:
        """Make an untrained reader from any BERT-like encoder; its word embeddings stay frozen."""
        network, missing = _load(checkpoint)
        encoder = f"{network.base_model_prefix}."
        refuse_random(
            checkpoint,
            [name for name in missing if name.startswith(encoder) and "pooler" not in name],
        )
        network = network.to(choose_device(device))
        network.get_input_embeddings().weight.requires_grad_(False)
        return cls(network, load_tokenizer(checkpoint), checkpoint)

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face checkpoint. Raises ModelError if it cannot be written."""
        network: Any = self.network
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            with files_for(folder) as partial:
                network.save_pretrained(partial)
                self.tokenizer.save_pretrained(partial)
            seal_folder(folder)

    @property
    def judging_network(self) -> QuestionAnswering:
        """The network, if it has a judge of phrases. Raises ModelError if it has none."""
        return self._network_and_judge[0]

    @property
    def phrase_judge(self) -> PhraseJudge:
        """The network's own judge of phrases. Raises ModelError if it has none."""
        return self._network_and_judge[1]

    @property
    def _network_and_judge(self) -> tuple[QuestionAnswering, PhraseJudge]:
        network = self.network
        if not isinstance(network, QuestionAnswering) or network.judge is None:
            raise ModelError(
                f"the reader of {self.source} does not judge phrases: recipes/ has how one is "
                "taught"
            )
        return network, network.judge

    @cached_property
    def recorded(self) -> Recorded:
        """The states of the judging network, for many batches of one shape."""
        network = self.judging_network
        return Recorded(
            network, network.backbone, lambda *given: (network.states(*given),), self.device
        )

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Raise ModelError for a tokenizer that cuts text differently: the reader has no logits for
        its tokens.
        """
        own, other = ((one.get_vocab(), one.tokenize(PROBE)) for one in (self.tokenizer, tokenizer))
        if own != other:
            differs = "splits text differently"
            if own[0] != other[0]:
                differs = "has another vocabulary"
            raise ModelError(
                f"the tokenizer of {self.source} {differs} than that of the model to train: "
                "distil from a reader with the same tokenizer, such as one trained by `kbq train "
                "reader` from the same --init"
            )

    def windows(self, question: Sequence[int], text: Sequence[int]) -> list[Window]:
        """Cut the windows for a question, `[CLS] … [SEP]`, and the word pieces of a passage.

        Raises QueryError if the question leaves no room for a passage.
        """
        separator = self.tokenizer.sep_token_id
        head = [*question, *[separator] * (self.separators - 1)]
        if len(head) + 1 >= self.length:
            raise QueryError(
                f"a question has {len(question)} tokens, {self.source} reads {self.length}: "
                "shorten it"
            )

        return cut(
            head,
            list(text),
            separator,
            self.length,
            min(OVERLAP, (self.length - len(head) - 1) // 2),
        )

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
        windows = list(chain.from_iterable(examples))
        nothing = np.empty((2, 0), np.float32)
        logits_of = [nothing] * len(windows)
        for members in buckets([len(window.ids) for window in windows], batch_tokens(self.device)):
            part = [windows[number] for number in members]
            tensors = window_tensors(
                part, self.tokenizer.pad_token_id, self.uses_segments, self.device
            )
            logits = torch.stack(self.logits(*tensors)).cpu().numpy()
            for row, (number, window) in enumerate(zip(members, part, strict=True)):
                logits_of[number] = logits[:, row, window.first : window.first + window.count]

        left = iter(logits_of)
        return [
            np.concatenate([nothing, *islice(left, len(example))], axis=1) for example in examples
        ]

    def fingerprint(self) -> str:
        """Return a digest of the weights."""
        return network_digest(self.network)

    def read(self, query: str, paragraphs: Sequence[Answer]) -> list[Answer]:
        """Find the phrases of these paragraphs, best first, none overlapping a better one.

        A score is the sum of the log probabilities of start and end among the tokens of the
        paragraph. Raises QueryError if the query cannot be read.
        """
        ids = self.query_tokenizer.ids_of(query)
        begins = [content_start(hit.context) for hit in paragraphs]
        contents = [hit.context[begin:] for hit, begin in zip(paragraphs, begins, strict=True)]
        texts: list[Tokens] = []
        for text, begin in zip(tokenize(self.tokenizer, contents), begins, strict=True):
            moved = np.uint32(begin)
            texts.append(replace(text, starts=text.starts + moved, ends=text.ends + moved))

        logits = self.score([self.windows(ids, text.ids) for text in texts])
        results = zip(paragraphs, texts, logits, strict=True)
        phrases = [
            hit
            for paragraph, text, scores in results
            if text.ids
            for hit in _phrases(paragraph, text, scores)
        ]

        return sorted(phrases, key=lambda hit: -hit.score)

    def answers(
        self,
        texts: Sequence[str],
        retrieved: Sequence[Sequence[Answer]],
        k: int,
        unit: Unit,
        weight: float,
    ) -> list[list[Answer]]:
        """Find the k best phrases of each query in its paragraphs, or the best phrase of each of
        the k best pages.

        Raises QueryError if a query cannot be read.

        Args:
            retrieved: for each query, the paragraphs that a search has found, best first.
            weight: of a point of the search, added to the reader's score.
        """
        answers = []
        for text, paragraphs in zip(texts, retrieved, strict=True):
            hits = with_retrieval(self.read(text, paragraphs), paragraphs, weight)
            if unit == "page":
                hits = best_of_each(hits, unit)
            answers.append(hits[:k])
        return answers


def network_digest(network: nn.Module) -> str:
    """Return the digest of a network's weights that runs of predictions are compared by."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        # NumPy does not have every type.
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _load(source: str) -> tuple[Any, list[str]]:
    """Return the network of a checkpoint, and the names of weights that the checkpoint lacks, which
    are random.
    """
    model_class = hugging_face().AutoModelForQuestionAnswering
    with reading(source), readable_checkpoint(source) as checkpoint:
        network, facts = model_class.from_pretrained(
            checkpoint, trust_remote_code=False, weights_only=True, output_loading_info=True
        )

    missing = set(facts["missing_keys"])
    try:
        refuse_not_finite(
            {name: tensor for name, tensor in network.state_dict().items() if name not in missing}
        )
    except ValueError as error:
        raise ModelError(f"the checkpoint {source} is damaged: {error}") from None

    layers = re.compile(rf"{re.escape(network.base_model_prefix)}\..*\.\d+\.")
    # Heads and poolers of other tasks are usual.
    surplus = sorted(filter(layers.match, facts["unexpected_keys"]))
    if surplus:
        raise ModelError(
            f"the checkpoint {source} has {len(surplus)} weights that its config has no layer "
            f"for, the first is {surplus[0]}: put back the config that belongs to them"
        )

    return network, sorted(missing)


def _phrases(paragraph: Answer, text: Tokens, logits: Floats) -> Iterator[Answer]:
    """Yield each start with its best end; of two that overlap, only the better. Shape of `logits`:
    (2, tokens).
    """
    sums, lasts = best_ends(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    taken = np.zeros(len(sums), bool)
    for first in np.argsort(-sums, kind="stable"):
        start = int(text.starts[first])
        end = int(text.ends[lasts[first]])
        # All pieces of a word have the characters of the whole word.
        tokens = slice(
            np.searchsorted(text.ends, start, "right"), np.searchsorted(text.starts, end)
        )
        if taken[tokens].any():
            continue
        taken[tokens] = True
        score = float(sums[first])
        text_between = paragraph.context[start:end]
        yield replace(
            paragraph, text=text_between, score=score, start=start, end=end, unit=(start, end)
        )


def with_retrieval(
    phrases: Sequence[Answer], paragraphs: Sequence[Answer], weight: float
) -> list[Answer]:
    """Take `weight` times the distance between the best paragraph and a phrase's own from its
    score; best first.
    """
    best = max((hit.score for hit in paragraphs), default=0.0)
    added = {(hit.page_id, hit.paragraph): weight * (hit.score - best) for hit in paragraphs}
    hits = [replace(hit, score=hit.score + added[hit.page_id, hit.paragraph]) for hit in phrases]
    return sorted(hits, key=lambda hit: -hit.score)


def best_of_each(answers: Sequence[Answer], unit: Unit) -> list[Answer]:
    """Keep the first answer from each page or paragraph."""
    first: dict[tuple[str, int], Answer] = {}
    for answer in answers:
        paragraph = 0
        if unit == "paragraph":
            paragraph = answer.paragraph
        first.setdefault((answer.page_id, paragraph), answer)
    return list(first.values())
