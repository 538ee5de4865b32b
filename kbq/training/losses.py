"""Losses: what training makes small."""

import torch
import torch.nn.functional as functional
from torch import Tensor


def marginal_losses(scores: Tensor, gold: Tensor, allowed: Tensor) -> Tensor:
    """Return -log of the gold tokens' share of the softmax over the allowed tokens; 0 for a query
    without gold.

    The mean over the tokens of the query's own passage, without title and padding, is L_single (Eq.
    5). Gold tokens always take part. Shapes: (queries, tokens), result (queries,).

    >>> everything, first = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[True, False, False]])
    >>> round(float(marginal_losses(torch.zeros(1, 3), first, everything)), 4)
    1.0986
    """
    # Finite: a query without a gold would have NaN as its gradient.
    lowest = torch.finfo(scores.dtype).min
    log_total = scores.masked_fill(~(allowed | gold), lowest).logsumexp(dim=1)
    log_gold = scores.masked_fill(~gold, lowest).logsumexp(dim=1)
    return (log_total - log_gold).where(gold.any(dim=1), 0.0)


def negatives_loss(
    scores: Tensor, gold: Tensor, answers: Tensor, queued: Tensor, false_negatives: Tensor
) -> Tensor:
    """Return L_neg: the gold tokens against those of other passages, of this batch and of the queue
    (Eq. 8).

    Args:
        scores: dot products with the batch's tokens; like `gold`, of shape (queries, tokens).
        answers: tokens that may serve as negatives. Shape: (queries, tokens) or (tokens,), bool.
        queued: dot products with the pre-batch queue's tokens. Shape: (queries, queue).
        false_negatives: tokens that carry the same answer. Shape: (queries, tokens + queue), bool.
    """
    everything = torch.cat([scores, queued], dim=1)
    gold = functional.pad(gold, (0, queued.shape[1]))
    allowed = functional.pad(answers, (0, queued.shape[1]), value=True) & ~false_negatives
    return marginal_losses(everything, gold, allowed).mean()


def filter_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Return L_filter: each token's own chance to open or close an answer, positives weighted up
    (appendix E).

    Shapes: logits and labels (windows, tokens, 2); mask (windows, tokens), bool.
    """
    taking_part = mask[..., None].to(logits.dtype)
    positive = (labels * taking_part).sum(dim=(0, 1)).clamp(min=1)
    weight = (mask.sum() / positive).clamp(max=200)
    total = functional.binary_cross_entropy_with_logits(
        logits, labels, taking_part, pos_weight=weight, reduction="sum"
    )
    return total / (2 * mask.sum())


def distillation_loss(
    scores: Tensor,
    teacher: Tensor,
    own_passage: Tensor,
    temperature: float = 1.0,
    trust: Tensor | None = None,
) -> Tensor:
    """Return L_distill: KL(reader ‖ student) over the tokens of the query's own passage (Eq. 7),
    averaged over queries.

    It is multiplied by the square of the temperature, so that its gradient is equally large at
    every temperature. `teacher` has the reader's logits; `own_passage` leaves out title, question
    and padding. Shapes: (queries, tokens).

    `trust`: a factor for each query; without it all count alike, as in the paper. Shape:
    (queries,).

    >>> own = torch.tensor([[True, True, False]])
    >>> reader, student = torch.tensor([[1.0, 1.0, 9.0]]), torch.log(torch.tensor([[0.25, 0.75, 0.9]]))
    >>> round(float(distillation_loss(student, reader, own)), 4)  # ½ log(½ ÷ ¼) + ½ log(½ ÷ ¾)
    0.1438
    """
    lowest = torch.finfo(scores.dtype).min
    reader = (teacher.masked_fill(~own_passage, lowest) / temperature).log_softmax(dim=1)
    student = (scores.masked_fill(~own_passage, lowest) / temperature).log_softmax(dim=1)
    parts = reader.exp() * (reader - student)
    divergence = parts.masked_fill(~own_passage, 0.0).sum(dim=1)
    if trust is not None:
        divergence = trust * divergence
    return temperature**2 * divergence.mean()


def trust_in(teacher: Tensor, gold: Tensor, own_passage: Tensor) -> Tensor:
    """Return the probability that a reader gives to the gold tokens of each query: `trust` for
    `distillation_loss`.
    """
    return marginal_losses(teacher, gold, own_passage).neg().exp()
