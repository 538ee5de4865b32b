"""Reader: a question-answering network finds phrases in the paragraphs that a search has found. `--reader`.

What opens and what closes an answer is normalised over all paragraphs of a query together, so that they compete.
Source: arXiv 2009.13013, section 4. Any BERT-like question-answering checkpoint of Hugging Face can read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from kbq.encoding.backbone import autocast, buckets, choose_device, first_line, load_tokenizer
from kbq.encoding.phrases import window_tensors
from kbq.encoding.queries import QueryReader
from kbq.encoding.windows import Tokens, Window, WindowShape, tokenize, windows
from kbq.errors import ModelError, QueryError
from kbq.indexing.candidates import MAX_TOKENS
from kbq.kb import Backend, KnowledgeBase
from kbq.records import Hit, Phrase
from kbq.searching.evidence import Weights
from kbq.searching.units import Unit

Floats = NDArray[np.float32]
LENGTH, OVERLAP, MAX_QUERY = 384, 64, 128  # tokens of a window, the query's among them
BATCH_TOKENS = 4096
DEPTH = 20  # paragraphs read for a query


class Reader:
    """A question-answering network and its tokenizer."""

    def __init__(self, network: Any, tokenizer: Any, source: str) -> None:
        positions = int(getattr(network.config, "max_position_embeddings", LENGTH))
        room = min(MAX_QUERY, positions // 2)
        self.network, self.tokenizer, self.source = network, tokenizer, source
        self.queries = QueryReader(tokenizer, room, {"[SEP]": tokenizer.sep_token})
        length = min(LENGTH, positions)
        self.shape = WindowShape(length, min(OVERLAP, (length - room) // 4), room)

    @classmethod
    def open(cls, source: str, device: str = "auto") -> Self:
        """A trained reader: a folder or a hub name.

        Raises:
            ModelError: there is no such checkpoint, or it has not learned to answer questions.
        """
        try:
            network, facts = transformers.AutoModelForQuestionAnswering.from_pretrained(
                source, output_loading_info=True, attn_implementation="eager"
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelError(f"{source} is no checkpoint that transformers can read: {first_line(error)}") from None
        missing = sorted(facts["missing_keys"])
        if missing:
            raise ModelError(
                f"{source} is no question-answering checkpoint: it lacks {', '.join(missing[:3])}; train one first"
            )
        return cls(network.eval().to(choose_device(device)), load_tokenizer(source), source)

    def read(self, query: str, paragraphs: Sequence[Hit]) -> list[Hit]:
        """The phrases of these paragraphs, best first, none overlapping a better one.

        A score is the logarithm of the chance that this start and this end are the answer's, among all of them.

        Raises:
            QueryError: the query cannot be read.
        """
        (ids,) = self.queries.token_ids([query])
        texts = tokenize(self.tokenizer, [hit.context for hit in paragraphs])
        cut = [windows(self.tokenizer, ids[1:-1], text, self.shape) for text in texts]
        logits = self._logits([window for part in cut for window in part])
        together = [np.concatenate([next(logits) for _ in part], axis=1) for part in cut if part]
        if not together:
            return []
        everything = np.concatenate(together, axis=1)
        total = np.logaddexp.reduce(everything, axis=1, keepdims=True)
        read = [(hit, text) for hit, text, part in zip(paragraphs, texts, cut, strict=True) if part]
        found = [
            hit
            for (paragraph, text), scores in zip(read, together, strict=True)
            for hit in _phrases(paragraph, text, scores - total)
        ]
        return sorted(found, key=lambda hit: -hit.score)

    @torch.inference_mode()
    def _logits(self, cut: Sequence[Window]) -> Iterator[Floats]:
        """Of each window's own tokens, to open and to close an answer. Shape of each: (2, tokens)."""
        device = next(self.network.parameters()).device
        uses_segments = "token_type_ids" in self.tokenizer.model_input_names
        found: dict[int, Floats] = {}
        for members in buckets([len(window.ids) for window in cut], BATCH_TOKENS):
            part = [cut[place] for place in members]
            ids, mask, segments = window_tensors(part, self.tokenizer.pad_token_id, uses_segments, device)
            named = {"input_ids": ids, "attention_mask": mask} | (
                {} if segments is None else {"token_type_ids": segments}
            )
            with autocast(device):
                said = self.network(**named)
            logits = torch.stack([said.start_logits, said.end_logits]).float().cpu().numpy()
            for row, (place, window) in enumerate(zip(members, part, strict=True)):
                found[place] = logits[:, row, window.first : window.first + window.count]
        yield from (found[place] for place in range(len(cut)))


def _phrases(paragraph: Hit, text: Tokens, scores: Floats) -> Iterator[Hit]:
    """Each start with its best end, at most MAX_TOKENS long; the better one of two that overlap. Shape: (2, tokens)."""
    starts, ends = scores
    padded = np.pad(ends, (0, MAX_TOKENS - 1), constant_values=-np.inf)
    reach = np.lib.stride_tricks.sliding_window_view(padded, MAX_TOKENS)
    lengths, sums = reach.argmax(axis=1), starts + reach.max(axis=1)
    taken = np.zeros(len(starts), bool)
    place = paragraph.phrase
    for first in np.argsort(-sums, kind="stable"):
        behind = first + lengths[first] + 1
        if taken[first:behind].any():
            continue
        taken[first:behind] = True
        start, end = int(text.starts[first]), int(text.ends[behind - 1])
        phrase = Phrase(paragraph.context[start:end], place.document_id, place.title, place.paragraph, start, end)
        yield Hit(phrase, float(sums[first]), paragraph.context, (start, end))


@dataclass(frozen=True, slots=True)
class ReadKnowledgeBase:
    """Answers queries like a knowledge base, with phrases that a reader finds in the best `depth` paragraphs."""

    kb: KnowledgeBase
    reader: Reader
    depth: int = DEPTH

    def search(
        self,
        texts: Sequence[str],
        k: int = 10,
        unit: Unit = "phrase",
        backend: Backend = "auto",
        weights: Weights | None = None,
    ) -> list[list[Hit]]:
        """The k best phrases of each query, or the best phrase of each of the k best pages.

        Raises:
            QueryError: a query cannot be read, or another unit is asked for.
        """
        if unit not in ("phrase", "document"):
            raise QueryError(f"a reader finds no {unit}: ask for phrases")
        retrieved = self.kb.search(texts, self.depth, "paragraph", backend, weights)
        answers = []
        for text, paragraphs in zip(texts, retrieved, strict=True):
            hits = self.reader.read(text, paragraphs)
            if unit == "document":
                hits = list({hit.phrase.document_id: hit for hit in reversed(hits)}.values())
                hits.sort(key=lambda hit: -hit.score)
            answers.append(hits[:k])
        return answers
