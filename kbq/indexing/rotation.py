"""Rotation: fewer dimensions that keep what queries ask of the vectors. Queries are rotated, stored vectors never.

With C the second moment of the queries, h → C^½ h and q → C^-½ q leave every inner product as it is, and make an error
in h as large as the error of the scores. There the directions in which vectors are longest are kept (principal
components around zero, not around their mean: what is lost has a mean of zero, and scores of different shards can be
compared), and turned at random, so that one number of bits suits all of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Floats

FLOOR = 1e-3  # of C's largest eigenvalue: directions that these queries do not use may still be used by others
SAMPLE = 100_000  # rows that show where vectors are long


@dataclass(frozen=True, slots=True)
class Rotation:
    """Two matrices, for rows and for queries, with (h @ rows) · (q @ queries) ≈ h · q. Shapes: (dim, kept)."""

    rows: Floats
    queries: Floats

    @classmethod
    def fit(cls, vectors: NDArray[np.int8], queries: Floats, kept: int) -> Self:
        """Learn the matrices. Shapes: (rows, dim), (queries, dim)."""
        random = np.random.default_rng(0)
        picked = np.sort(random.choice(len(vectors), min(len(vectors), SAMPLE), replace=False))
        moment = queries.T.astype(np.float64) @ queries / max(1, len(queries))
        values, directions = np.linalg.eigh(moment)
        values = np.maximum(values, max(FLOOR * values[-1], 1e-12))
        root = (directions * values**0.5) @ directions.T
        inverse = (directions * values**-0.5) @ directions.T
        weighted = vectors[picked].astype(np.float64) @ root
        widest = np.linalg.eigh(weighted.T @ weighted)[1][:, ::-1][:, :kept]
        turned = widest @ np.linalg.qr(random.normal(size=(kept, kept)))[0]
        return cls((root @ turned).astype(np.float32), (inverse @ turned).astype(np.float32))

    def save(self, path: Path) -> None:
        np.save(path, np.stack([self.rows, self.queries]))

    @classmethod
    def open(cls, path: Path) -> Self:
        return cls(*np.load(path))
