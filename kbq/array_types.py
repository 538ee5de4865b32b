"""Array types: NumPy arrays by element type. Shapes are given where arrays are used."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]  # indices, mostly of rows of a phrase dump
Bools = NDArray[np.bool_]
