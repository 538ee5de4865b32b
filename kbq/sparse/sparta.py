"""Sparta: what a sentence weighs for every word piece that a query may hold. Source: arXiv 2009.13013, section 3.

    impact(t, s) = log(1 + ReLU(max over the tokens j of sentence s of (e_t · s_j) + b))

e is a table of its own, begun as a copy of the word embeddings; s_j are hidden states of the sentence in its context.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kbq.encoding.backbone import hidden_states
from kbq.encoding.padding import pad, padded
from kbq.sparse.sentences import SentenceWindow


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
