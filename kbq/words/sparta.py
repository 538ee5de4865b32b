"""SPARTA: score queries by the impacts that a model gives to the terms of sentences.

A SPARTA model gives each sentence the impacts of its k strongest terms. They are stored in `sparta-NAME/` of each
shard, the tokenizer in `sparta-NAME/` of the knowledge base, so a query needs no network. NAME is a digest of the
model and k: new impacts are written beside those in use, until the manifest names them.

A model folder has model.safetensors, the files of the backbone and its tokenizer, and sparta.json with the digests of
all other files.

Source: arXiv 2009.13013.
"""

import hashlib
import zipfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from kbq.array_types import Floats
from kbq.dump.manifest import Manifest, changing, write_manifest
from kbq.dump.options import TERMS
from kbq.dump.shards import Shard, ShardEntry
from kbq.english.sentences import sentence_bounds
from kbq.errors import KnowledgeBaseError, ModelError
from kbq.model.backbone import empty_backbone, hidden_states, load_tokenizer, pretrained_backbone, saved_tokenizer
from kbq.model.devices import batch_tokens, buckets, choose_device, fast_copy, pad, padded, readable_length
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
from kbq.storage.folders import discard_folder, files_for, folder_bytes, make_folder, remove_folder
from kbq.storage.paths import as_path
from kbq.storage.records import FileSeal, json_line, seal_folder, write_record
from kbq.storage.reports import Report, Stage, silent
from kbq.storage.writing import replacing, writing_to
from kbq.text.queries import MARKERS
from kbq.words.bm25 import Entries, Postings, damaged, is_complete, query_text, write_postings

SENTENCES, CHUNK = 32, 1024  # sentences and terms multiplied at a time: their products fit in a CPU's cache

PARAGRAPHS = "paragraphs"  # .npy, u32 [sentences]: the paragraph of each sentence
IMPACT_STEPS = 100  # whole numbers that stand for an impact of 1 in exported files
BLOCK = 512  # paragraphs encoded together; a kill loses one block at most


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence: tokens [first, stop) of its window, characters [start, end) of its paragraph."""

    first: int
    stop: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SentenceWindow:
    """The token ids of `[CLS] title [SEP] stretch of one paragraph [SEP]`, and the sentences to encode in it.

    The sentences are consecutive; the rest of the stretch is their context.
    """

    ids: list[int]
    sentences: tuple[Sentence, ...]

    @property
    def segments(self) -> list[int]:
        """Segment ids: 1 for the tokens of the window's sentences, 0 for all others."""
        before, stop = self.sentences[0].first, self.sentences[-1].stop
        return [0] * before + [1] * (stop - before) + [0] * (len(self.ids) - stop)


def sentence_windows(
    tokenizer: Any, title: list[int], text: str, shape: WindowShape, marked: bool
) -> list[SentenceWindow]:
    """Return the windows of a paragraph, each with as much context on both sides of its sentences as fits.

    A sentence longer than a window is split. A window has one sentence if `marked`, as in the paper, else as many as
    fit.
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
    """Return the stretch of at most `room` tokens with [first, stop) in its middle, as far as the paragraph allows.

    >>> around(4, 6, tokens=100, room=6), around(1, 3, tokens=100, room=6), around(4, 6, tokens=7, room=6)
    ((2, 8), (0, 6), (1, 7))
    """
    begin = max(0, first - (room - (stop - first)) // 2)
    stop = min(tokens, begin + room)
    return max(0, stop - room), stop


def _sentences(text: str, tokens: Tokens, room: int) -> Iterator[tuple[int, int]]:
    """Yield (first token, token after the last) of each sentence, or of its parts if it is longer than `room`."""
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

    `tokens` holds the indices of each sentence's tokens in the flattened batch. A shorter sentence repeats its last
    token, which changes no maximum. Shape: (sentences, longest). `lengths` counts the tokens of each sentence. Shape:
    (sentences,).
    """

    def __init__(
        self, windows: Sequence[SentenceWindow], pad_id: int, device: torch.device, all_tokens: bool = False
    ) -> None:
        """`all_tokens`: a sentence has those of its whole window, so that a window has one sentence only."""
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
            places += [(row * length + begin, stop - begin) for begin, stop in spans]
        first = torch.tensor([begin for begin, _ in places], device=device)[:, None]
        self.lengths = torch.tensor([size for _, size in places], device=device)
        offsets = torch.arange(int(self.lengths.max()), device=device)
        self.tokens = first + torch.minimum(offsets, self.lengths[:, None] - 1)


class Sparta(nn.Module):
    """An encoder of sentences, and vectors of query terms; queries are looked up, not encoded."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.terms = nn.Parameter(backbone.get_input_embeddings().weight.detach().clone())  # Shape: (terms, dim)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, windows: SentenceTensors, terms: Tensor) -> Tensor:
        """Return the impacts of some terms. Shapes: terms (terms,), result (sentences, terms)."""
        return self.impacts(best_products(self.sentence_states(windows), self.terms[terms]))

    def sentence_states(self, windows: SentenceTensors) -> Tensor:
        """Return the hidden states of each sentence's tokens, without its context; see `SentenceTensors.tokens`.

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
    marked: bool = False  # one window per sentence, as in the paper, instead of as many sentences as fit
    training: dict[str, object] = field(default_factory=dict)
    all_tokens: bool = False  # a term is compared with all tokens of the window, as in Eq. 4, not the sentence's own


@dataclass(frozen=True, slots=True)
class SpartaRecord:
    """The content of `sparta.json`: the configuration of a SPARTA model, and the other files of its folder by name."""

    config: SpartaConfig
    files: dict[str, FileSeal]


def read_record_of(folder: Path) -> SpartaRecord:
    """Return the record of a SPARTA model. Raises ModelError if it is missing, damaged, or of another format."""
    try:
        return read_model_record(folder, SPARTA, SpartaRecord)
    except FileNotFoundError:
        raise ModelError(f"{folder} is not a SPARTA model: make one with `kbq train sparta`") from None


class SpartaModel:
    """A SPARTA network with its tokenizer, which turns texts into windows and query terms."""

    def __init__(self, config: SpartaConfig, tokenizer: Any, network: Sparta) -> None:
        self.config, self.tokenizer, self.network = config, tokenizer, network
        names: dict[int, str] = {number: piece for piece, number in tokenizer.get_vocab().items()}
        self.vocabulary = [names.get(number, "") for number in range(len(network.terms))]
        special = set(tokenizer.all_special_ids)
        usable = (n for n, piece in enumerate(self.vocabulary) if piece and not piece.startswith("[unused"))
        self.terms = torch.tensor([number for number in usable if number not in special])  # the terms a query may have

    @classmethod
    def new(cls, checkpoint: str, config: SpartaConfig) -> Self:
        """Return an untrained model from any BERT-like checkpoint with segments.

        Raises ModelError if the checkpoint does not exist or has no segments.
        """
        network = Sparta(pretrained_backbone(checkpoint))
        if getattr(network.backbone.config, "type_vocab_size", 0) < 2:
            raise ModelError(f"{checkpoint} has no segments to mark sentences with: use a BERT-like checkpoint")
        window = replace(config.window, length=readable_length(network.backbone, config.window.length))
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
        weights: dict[str, Tensor] = {name: value.contiguous() for name, value in self.network.state_dict().items()}
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            make_folder(folder)
            save_tensors(weights, folder / WEIGHTS)
            with files_for(folder) as partial:
                self.network.backbone.config.save_pretrained(partial)
                self.tokenizer.save_pretrained(partial)
            config = replace(self.config, training=plain_facts(self.config.training))
            write_record(folder / SPARTA, SpartaRecord(config, sealed_files(folder)), RECORDS[SPARTA])

    def fingerprint(self) -> str:
        read = (self.config.window, self.config.marked, self.vocabulary)
        digest = hashlib.blake2b(repr((*read, "all") if self.config.all_tokens else read).encode(), digest_size=8)
        for name, value in sorted(self.network.state_dict().items()):
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        return digest.hexdigest()

    def windows(self, title: list[int], text: str) -> list[SentenceWindow]:
        """Return the windows of a paragraph; `title` is given as token ids."""
        return sentence_windows(self.tokenizer, title, text, self.config.window, self.config.marked)

    def tensors(self, windows: Sequence[SentenceWindow]) -> SentenceTensors:
        device, pad_id = self.network.bias.device, self.tokenizer.pad_token_id
        return SentenceTensors(windows, pad_id, device, self.config.all_tokens)

    def query_terms(self, text: str) -> list[int]:
        return word_pieces(self.tokenizer, text)


def word_pieces(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a query's word pieces, in order, with repetitions, without special and unknown tokens."""
    special = set(tokenizer.all_special_ids)
    (pieces,) = encodings(tokenizer, [MARKERS.sub(" ", text)], special=True)
    return [piece for piece in pieces.ids if piece not in special]


@torch.inference_mode()
def strongest_impacts(
    model: SpartaModel, windows: Sequence[SentenceWindow], k: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (number of a sentence, its k strongest terms, their impacts), without zeros, batched by length.

    Sentences are numbered window by window. Shapes: (at most k,).
    """
    device = model.network.bias.device
    terms = model.terms.to(device)
    # Everything in 16 bits, not only products: twice as fast on CPUs, and 99 % of the 500 strongest terms are the same.
    fast = fast_copy(model.network, device)
    vectors = fast.terms[terms]
    stop = list(accumulate(len(window.sentences) for window in windows))
    for members in buckets([len(window.ids) for window in windows], batch_tokens(device)):
        tensors = model.tensors([windows[index] for index in members])
        numbers = [n for i in members for n in range(stop[i] - len(windows[i].sentences), stop[i])]
        states = fast.sentence_states(tensors)
        for rows in torch.split(torch.argsort(tensors.lengths, stable=True), SENTENCES):
            batch = states[rows, : int(tensors.lengths[rows].max())].to(vectors.dtype)
            parts = [best_products(batch, part) for part in torch.split(vectors, CHUNK)]
            best, index = torch.cat(parts, dim=1).float().topk(min(k, len(terms)), dim=1)  # log keeps the order
            impacts, strongest = model.network.impacts(best).cpu(), terms[index].cpu()  # one transfer from a GPU
            for row, row_terms, weights in zip(rows.tolist(), strongest, impacts, strict=True):
                positive = weights > 0
                yield numbers[row], row_terms[positive], weights[positive]


def add_sparta(
    folder: Path,
    manifest: Manifest,
    model: SpartaModel,
    k: int = TERMS,
    report: Report = silent,
) -> Manifest:
    """Index all shards, and write the tokenizer; return the new manifest, which the caller writes.

    A killed run resumes; shards that already have these impacts are skipped. `k` is the number of impacts kept for each
    sentence, the strongest.
    """
    if k < 1:
        raise KnowledgeBaseError(f"terms is {k}, must be at least 1: choose a larger --terms")
    name = hashlib.blake2b(f"{model.fingerprint()} {k}".encode(), digest_size=4).hexdigest()
    manifest = replace(manifest, sparta=name)
    stage = Stage(report, "impacts learned, paragraphs", manifest.counts.paragraphs)
    built = [f"sparta-{name}"]
    for shard in manifest.open_shards(folder):
        if is_complete(sparta_folder(shard.folder, manifest), shard.seal):
            stage.add(len(shard.texts))
        else:
            write_sentence_impacts(sparta_folder(shard.folder, manifest), shard, model, k, stage)
            built.append(f"{shard.folder.name}/sparta-{name}")
    with files_for(sparta_folder(folder, manifest)) as partial:
        model.tokenizer.save_pretrained(partial)
    seal_folder(sparta_folder(folder, manifest))
    return manifest.without_seals(built)


def sparta_folder(folder: Path, manifest: Manifest) -> Path:
    """Return the folder of the impacts of a shard, or of the tokenizer of a knowledge base."""
    return folder / f"sparta-{manifest.sparta}"


def write_sentence_impacts(folder: Path, shard: Shard, model: SpartaModel, k: int, stage: Stage) -> None:
    """Write the index of a shard, resuming at the first missing block; `stage` counts paragraphs."""
    blocks_folder = folder.with_name(folder.name + ".blocks")
    make_folder(blocks_folder)
    blocks = []
    for first in range(0, len(shard.texts), BLOCK):
        block = blocks_folder / f"{first}.npz"
        stop = min(first + BLOCK, len(shard.texts))
        if not _is_block(block):
            _write_block(block, shard, range(first, stop), model, k)
        blocks.append(block)
        stage.add(stop - first)
    entries, paragraphs = _joined(blocks)
    write_postings(folder, model.vocabulary, entries, "weights", shard.seal, {PARAGRAPHS: paragraphs})
    remove_folder(blocks_folder)


def _write_block(path: Path, shard: Shard, paragraphs: range, model: SpartaModel, k: int) -> None:
    """Write the impacts of the sentences of some paragraphs, numbered from 0, atomically."""
    windows, owners = [], array("I")
    titles = tokenize(model.tokenizer, [shard.title_of(paragraph) for paragraph in paragraphs])
    for title, paragraph in zip(titles, paragraphs, strict=True):
        paragraph_windows = model.windows(title.ids, shard.texts[paragraph])
        windows += paragraph_windows
        owners.extend([paragraph] * sum(len(window.sentences) for window in paragraph_windows))
    sentences, terms, weights = array("i"), array("i"), array("f")
    for sentence, strongest, impacts in strongest_impacts(model, windows, k):
        sentences.extend([sentence] * len(strongest))
        terms.frombytes(strongest.numpy().astype(np.int32).tobytes())
        weights.frombytes(impacts.numpy().tobytes())
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, sentences=sentences, terms=terms, weights=weights, paragraphs=owners)


def _is_block(path: Path) -> bool:
    try:
        with path.open("rb") as file, np.load(file) as block:
            return {"sentences", "terms", "weights", "paragraphs"} <= set(block.files)
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _joined(blocks: Sequence[Path]) -> tuple[Entries, NDArray[np.uint32]]:
    """Return the impacts of all blocks, and the paragraph of each sentence."""
    empty = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint32))
    parts = [empty]
    before = 0
    for path in blocks:
        with np.load(path) as block:
            parts.append((block["sentences"] + np.int32(before), block["terms"], block["weights"], block["paragraphs"]))
            before += len(block["paragraphs"])
    sentences, terms, weights, paragraphs = map(np.concatenate, zip(*parts, strict=True))
    return Entries(sentences, terms, weights), paragraphs


def compact_sparta(folder: Path, manifest: Manifest, new: Sequence[ShardEntry], old: Sequence[Shard]) -> None:
    """Copy impacts from old shards to new ones, which hold the remaining pages in the same order."""
    terms: dict[str, int] = {}
    columns: list[Entries] = []
    owners: list[NDArray[np.int64]] = []  # the paragraph of each remaining sentence, counted over all shards
    sentences = paragraphs = 0
    for shard in old:
        postings = Postings(sparta_folder(shard.folder, manifest), "weights")
        of_sentences = postings.array(PARAGRAPHS)
        left = np.ones(len(shard.texts), bool) if shard.live is None else shard.live
        postings.live = left[of_sentences]
        vocabulary, entries = postings.entries()
        numbers = np.array([terms.setdefault(term, len(terms)) for term in vocabulary], np.int32)
        places = (np.cumsum(postings.live) - 1 + sentences).astype(np.int32)
        columns.append(Entries(places[entries.passages], numbers[entries.terms], entries.numbers))
        owners.append((np.cumsum(left) - 1 + paragraphs)[of_sentences[postings.live]])
        sentences += int(postings.live.sum())
        paragraphs += int(left.sum())
    passages, numbers, weights = (np.concatenate(column) for column in zip(*columns, strict=True))
    owner, first = np.concatenate(owners), 0
    for entry in new:
        begin, stop = np.searchsorted(owner, [first, first + entry.size.paragraphs])
        inside = (passages >= begin) & (passages < stop)
        others = {PARAGRAPHS: (owner[begin:stop] - first).astype(np.uint32)}
        entries = Entries(passages[inside] - np.int32(begin), numbers[inside], weights[inside])
        write_postings(
            sparta_folder(folder / entry.name, manifest), list(terms), entries, "weights", entry.seal, others
        )
        first += entry.size.paragraphs


def index_sparta(
    folder: Path, model: str | Path, terms: int = TERMS, device: str = "auto", report: Report = silent
) -> int:
    """Add or replace the impacts of a SPARTA model in a finished knowledge base; return their size in bytes.

    `terms` is the number of impacts kept for each sentence, the strongest.
    """
    with changing(folder) as before:
        opened = SpartaModel.open(as_path(model, "a SPARTA model"), device)
        manifest = add_sparta(folder, before, opened, terms, report)
        write_manifest(folder, manifest)
        for parent in (folder, *manifest.shard_folders(folder)):  # also of killed runs
            for other in set(parent.glob("sparta-*")) - {sparta_folder(parent, manifest)}:
                discard_folder(other)
    return sum(folder_bytes(sparta_folder(shard, manifest)) for shard in manifest.shard_folders(folder))


class SentenceImpacts:
    """The SPARTA index of one shard; the score of a paragraph is that of its best sentence."""

    def __init__(self, shard: Shard, manifest: Manifest) -> None:
        """Raises KnowledgeBaseError if a file is missing or damaged."""
        postings = Postings(sparta_folder(shard.folder, manifest), "weights")
        self.paragraphs = postings.array(PARAGRAPHS)
        if len(self.paragraphs) and not self.paragraphs.max() < len(shard.texts):
            error = ValueError(f"a sentence belongs to paragraph {self.paragraphs.max()} of {len(shard.texts)}")
            raise damaged(postings.folder, shard.folder.parent, "weights", error)
        postings.expect(len(self.paragraphs))
        postings.live = None if shard.live is None else shard.live[self.paragraphs]
        self._sentences = postings
        self._count, self._texts = len(shard.texts), shard.texts

    def scores(self, terms: Sequence[str], shares: Sequence[float] = ()) -> Floats:
        """Return the score of each paragraph for these terms, or a share of each. Shape: (paragraphs,)."""
        best = np.zeros(self._count, np.float32)
        np.maximum.at(best, self.paragraphs, self._sentences.scores(terms, shares))
        return best

    def sentences(self, paragraph: int, k: int | None = None) -> list[tuple[str, dict[str, float]]]:
        """Return each sentence of a paragraph with its k strongest terms, or all, and their impacts.

        If one was split, because it was longer than a window, each part is shown as the whole paragraph.
        """
        text = self._texts[paragraph]
        numbers = np.flatnonzero(self.paragraphs == paragraph).tolist()
        texts = [text[begin:stop].strip() for begin, stop in sentence_bounds(text)]
        if len(texts) != len(numbers):
            texts = [text] * len(numbers)
        terms = [self._sentences.strongest(number, k) for number in numbers]
        return list(zip(texts, terms, strict=True))

    def statistics(self, terms: Iterable[str]) -> None:
        """Return None, because scores depend on nothing outside this shard."""

    def parts(self, terms: Sequence[str], paragraph: int) -> dict[str, float]:
        """Return how much each term adds to the score of a paragraph, which is that of its best sentence."""
        sentences = np.flatnonzero(self.paragraphs == paragraph)
        best = sentences[np.argmax(self._sentences.scores(terms)[sentences])] if len(sentences) else None
        return dict.fromkeys(terms, 0.0) if best is None else self._sentences.parts(terms, int(best))


def impact_lines(shards: Sequence[Shard], manifest: Manifest) -> Iterator[str]:
    """Yield each sentence as Anserini's JsonVectorCollection has documents: an id, a text, and integer impacts.

    An id is PAGE:PARAGRAPH:SENTENCE. Impacts are rounded to hundredths, as whole numbers.
    """
    for shard in shards:
        impacts = SentenceImpacts(shard, manifest)
        for paragraph in np.unique(impacts.paragraphs).tolist():
            if shard.live is not None and not shard.live[paragraph]:
                continue
            place = f"{shard.ids[int(shard.paragraph_pages[paragraph])]}:{shard.paragraph_numbers[paragraph]}"
            sentences = impacts.sentences(paragraph)
            for number, (text, terms) in enumerate(sentences):
                vector = {term: round(IMPACT_STEPS * weight) for term, weight in terms.items()}
                yield json_line({"id": f"{place}:{number}", "contents": text, "vector": vector})


class PieceTokenizer:
    """Turns queries into the word pieces that are the terms of a SPARTA index."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Raises KnowledgeBaseError if the tokenizer is missing or damaged."""
        tokenizer_folder = sparta_folder(folder, manifest)
        try:
            self._tokenizer: Any = saved_tokenizer(tokenizer_folder)
        except ModelError as error:
            raise damaged(tokenizer_folder, folder, "weights", error) from None

    def terms(self, text: str) -> list[str]:
        """Return the word pieces of a query, in order, with repetitions."""
        ids = word_pieces(self._tokenizer, query_text(text))
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(ids)
        return pieces
