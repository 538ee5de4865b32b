"""Array types: arrays by what they hold. Their shapes stand where they are used."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]  # numbers of rows of a phrase dump, mostly
Bools = NDArray[np.bool_]
