"""Losses: the parts of Eq. 9 that need no teacher, as pure functions of scores. Source: arXiv 2012.12624, section 4.

Shapes use `queries`, `tokens` (all tokens of a batch's windows, side by side) and `golds`. A query may have
several gold tokens (the answer stands twice): the loss asks for their total probability.
"""

import torch
import torch.nn.functional as functional
from torch import Tensor


def marginal_nll(scores: Tensor, gold: Tensor, allowed: Tensor) -> Tensor:
    """-log of the gold tokens' share of the softmax over the allowed tokens, averaged over queries.

    Args:
        scores: dot products. Shape: (queries, tokens).
        gold: the right tokens, at least one of each query. Shape: (queries, tokens), bool.
        allowed: tokens that take part; gold ones always do. Shape: (queries, tokens), bool.
    """
    every = scores.masked_fill(~(allowed | gold), -torch.inf).logsumexp(dim=1)
    right = scores.masked_fill(~gold, -torch.inf).logsumexp(dim=1)
    return (every - right).mean()


def single_passage_loss(scores: Tensor, gold: Tensor, own_passage: Tensor) -> Tensor:
    """L_single: softmax over the tokens of the query's own passage, title and padding excluded (Eq. 5)."""
    return marginal_nll(scores, gold, own_passage)


def negatives_loss(scores: Tensor, gold: Tensor, answers: Tensor, queued: Tensor, false_negatives: Tensor) -> Tensor:
    """L_neg: the gold tokens against those of other passages, of this batch and of the queue (Eq. 8).

    Args:
        scores: dot products with the batch's tokens. Shape: (queries, tokens).
        gold: the right tokens of each query. Shape: (queries, tokens), bool.
        answers: tokens that may serve as negatives. Shape: (tokens,), bool.
        queued: dot products with the pre-batch queue's tokens. Shape: (queries, queue).
        false_negatives: tokens that carry the same answer. Shape: (queries, tokens + queue), bool.
    """
    everything = torch.cat([scores, queued], dim=1)
    gold = functional.pad(gold, (0, queued.shape[1]))
    allowed = functional.pad(answers, (0, queued.shape[1]), value=True) & ~false_negatives
    return marginal_nll(everything, gold, allowed)


def filter_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """L_filter: each token's own chance to open or close an answer, positives weighted up (section 4.4).

    Shapes: logits and labels (windows, tokens, 2); mask (windows, tokens), bool.
    """
    logits, labels = logits[mask], labels[mask]
    weight = (mask.sum() / labels.sum(dim=0).clamp(min=1)).clamp(max=200)
    return functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=weight)
