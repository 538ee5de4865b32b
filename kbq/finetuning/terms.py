"""What competes in each term of the fine-tuning loss. Source: arXiv 2012.12624, Eq. 11; arXiv 2109.08133, Eq. 5.

A row that opens (or closes) several phrases competes once, and is right if one of its phrases is. The official code
counts it with every phrase, so that the right end of a wrong start is pushed away.
"""

from typing import Literal

import numpy as np

from kbq.array_types import Bools
from kbq.finetuning.retrieval import Phrases

Term = Literal["joint", "start", "end"]
TERMS: tuple[Term, ...] = ("joint", "start", "end")


def choices(phrases: Phrases, positive: Bools) -> dict[Term, tuple[Bools, Bools]]:
    """(counted, positive) of each term for one query; what is positive is counted. Shapes: (phrases,)."""
    starts, ends = (phrases.shards * 2**40 + rows for rows in (phrases.starts, phrases.ends))
    first_start, first_end = _first_of_each(starts), _first_of_each(ends)
    return {
        "joint": (np.ones(len(positive), bool), positive),
        "start": (first_start, first_start & np.isin(starts, starts[positive])),
        "end": (first_end, first_end & np.isin(ends, ends[positive])),
    }


def _first_of_each(rows: np.ndarray) -> Bools:
    first = np.zeros(len(rows), bool)
    first[np.unique(rows, return_index=True)[1]] = True
    return first
