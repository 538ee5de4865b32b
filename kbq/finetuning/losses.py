"""Losses of query-side fine-tuning, as functions of scores. Source: arXiv 2012.12624, Eq. 11; arXiv 2109.08133, Eq. 5.

A row that opens (or closes) several phrases competes once, and is right if one of its phrases is. The official code
counts it with every phrase, so that the right end of a wrong start is pushed away.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from kbq.finetuning.candidates import Phrases
from kbq.finetuning.labels import Bools

Term = Literal["joint", "start", "end"]
TERMS: tuple[Term, ...] = ("joint", "start", "end")


@dataclass(frozen=True, slots=True)
class Choice:
    """What competes in one term, and what should win. Shapes: (queries, phrases), bool."""

    counted: Tensor
    positive: Tensor


def marginal_loss(scores: Tensor, choice: Choice) -> Tensor:
    """-log of the positives' share of the softmax, for each query; 0 for one without positives or with nothing else.

    Shapes: scores (queries, phrases), result (queries,).

    >>> everything = torch.ones(1, 3, dtype=torch.bool)
    >>> first = torch.tensor([[True, False, False]])
    >>> round(float(marginal_loss(torch.zeros(1, 3), Choice(everything, first))), 4)
    1.0986
    """
    lowest = torch.finfo(scores.dtype).min
    of_all = scores.masked_fill(~choice.counted, lowest).logsumexp(dim=1)
    of_positives = scores.masked_fill(~(choice.positive & choice.counted), lowest).logsumexp(dim=1)
    return (of_all - of_positives).where((choice.positive & choice.counted).any(dim=1), 0.0)


def choices(phrases: Phrases, positive: Bools) -> dict[Term, tuple[Bools, Bools]]:
    """(counted, positive) of each term for one query. Shapes: (phrases,)."""
    starts, ends = (phrases.shards * 2**40 + rows for rows in (phrases.starts, phrases.ends))
    return {
        "joint": (np.ones(len(positive), bool), positive),
        "start": (_first_of_each(starts), np.isin(starts, starts[positive])),
        "end": (_first_of_each(ends), np.isin(ends, ends[positive])),
    }


def _first_of_each(rows: np.ndarray) -> Bools:
    first = np.zeros(len(rows), bool)
    first[np.unique(rows, return_index=True)[1]] = True
    return first
