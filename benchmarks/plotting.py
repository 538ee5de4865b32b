"""Plotting: pictures of figures, written to docs/NAME.png."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

DOCS = Path(__file__).parents[1] / "docs" / "results"


@contextmanager
def picture(name: str, columns: int = 1) -> Iterator[Any]:
    """Axes to draw in (an array of them for several columns); on leaving, the picture is saved."""
    figure, axes = pyplot.subplots(1, columns, figsize=(6.4 if columns == 1 else 4.5 * columns, 4))
    yield axes
    for each in figure.axes:
        each.grid(alpha=0.3, which="both")
        each.legend(fontsize="medium" if columns == 1 else "small")
    figure.tight_layout()
    figure.savefig(DOCS / f"{name}.png", dpi=110)
