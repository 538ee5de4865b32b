"""Sparta: what a sentence weighs for every word piece that a query may hold. Source: arXiv 2009.13013, section 3.

    impact(t, s) = log(1 + ReLU(max over the tokens j of sentence s of (e_t · s_j) + b))

e is a table of its own, begun as a copy of the word embeddings; s_j are hidden states of the sentence in its context.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kbq.encoding.backbone import hidden_states, pad
from kbq.sparse.sentences import SentenceWindow


class Sparta(nn.Module):
    """Encoder of sentences and table of query terms; queries are looked up, never encoded."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.terms = nn.Parameter(backbone.get_input_embeddings().weight.detach().clone())  # Shape: (terms, dim)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor, terms: Tensor) -> Tensor:
        """Impacts of these terms. Shapes: windows (sentences, tokens), terms (terms,), result (sentences, terms)."""
        states = hidden_states(self.backbone, ids, mask, segments)
        return self.impacts(self.best_products(states, segments, terms))

    def best_products(self, states: Tensor, segments: Tensor, terms: Tensor) -> Tensor:
        """The largest product of each term with a token of the sentence: neither context nor padding takes part.

        Shapes: states (sentences, tokens, dim), segments (sentences, tokens), result (sentences, terms).
        """
        products = states @ self.terms[terms].T
        best: Tensor = products.masked_fill(segments[:, :, None] == 0, -torch.inf).amax(dim=1)
        return best

    def impacts(self, best_products: Tensor) -> Tensor:
        """log(1 + ReLU(y + b)), whatever the shape."""
        return torch.relu(best_products.float() + self.bias).log1p()


def query_scores(impacts: Tensor, counts: Tensor) -> Tensor:
    """The sum of the impacts of each query's terms; a term that stands twice counts twice.

    Shapes: impacts (sentences, terms), counts (queries, terms), result (queries, sentences).
    """
    return counts @ impacts.T


def sentence_tensors(
    windows: Sequence[SentenceWindow], pad_id: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """ids, mask and segments. Shapes: (sentences, longest)."""
    ids = pad((window.ids for window in windows), pad_id, device)
    lengths = torch.tensor([len(window.ids) for window in windows], device=device)
    mask = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
    return ids, mask, pad((window.segments for window in windows), 0, device)
