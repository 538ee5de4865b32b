"""Keeping: what a query encoder answered to other queries before tuning, and how far it has moved from that.

Source: arXiv 1606.09282 (learning without forgetting), Eq. 2. Beyond the paper: the answers that compete are those that
a search found for each query, and the queries are made from the knowledge base, so that no old training data is needed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from kbq.model.devices import autocast, padded
from kbq.search.search import BATCH
from kbq.tuning.labels import Phrases, penalties, retrieve, vectors

if TYPE_CHECKING:
    from kbq.asking import OpenKnowledgeBase


class Distillation:
    """Remembers what the query encoder of a knowledge base answers when this is made."""

    def __init__(self, kb: "OpenKnowledgeBase", learned: Sequence[str], watched: Sequence[str], k: int) -> None:
        """Search for the answers.

        Args:
            learned: queries whose answers `divergences` compares.
            watched: queries whose answers `agreement` compares.
            k: phrases found for a learned query that compete.
        """
        self._kb = kb
        self._ids = [kb.model.query_tokenizer.ids_of(text) for text in learned]
        self._phrases: list[Phrases] = []
        for first in range(0, len(learned), BATCH):
            self._phrases += retrieve(kb, *kb.model.encode_queries(learned[first : first + BATCH]), k)
        self._watched = watched
        self._before = self._answers()

    def divergences(self, members: Sequence[int]) -> Tensor:
        """How far learned queries have moved, by number (counted on from 0 after the last). Shape: (members,).

        It is the Kullback–Leibler divergence of the shares that their phrases have now from those that they had.
        """
        chosen = [member % len(self._ids) for member in members]
        model = self._kb.model
        tensors = padded([self._ids[query] for query in chosen], model.tokenizer.pad_token_id, model.device)
        with autocast(model.device):
            starts, ends = model.queries(*tensors)
        return torch.stack([self._moved(*each) for each in zip(chosen, starts, ends, strict=True)])

    def _moved(self, query: int, start: Tensor, end: Tensor) -> Tensor:
        """The divergence of one query with these vectors. Shapes: (dim,)."""
        phrases = self._phrases[query]
        columns = (phrases.scores, penalties(self._kb, phrases), *vectors(self._kb, phrases))
        before, penalty, starts, ends = (torch.from_numpy(column).to(start.device) for column in columns)
        now = starts @ start + ends @ end - penalty
        return kl_div(now.log_softmax(0), before.log_softmax(0), reduction="sum", log_target=True)

    def agreement(self) -> float:
        """The share of the watched queries whose best phrase is the same text of the same page as before."""
        pairs = zip(self._answers(), self._before, strict=True)
        return sum(now == before for now, before in pairs) / max(1, len(self._watched))

    def _answers(self) -> list[list[tuple[str, str]]]:
        found = self._kb.query(self._watched, 1, "phrase", "dense", rerank=0)
        return [[(hit.page_id, hit.text) for hit in hits] for hits in found]
