"""Plots: a calibration becomes reliability.png and risk-coverage.png, with matplotlib where it is installed."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kbq.errors import EvaluationError
from kbq.kilt.reliability import Confidence
from kbq.storage.folders import make_folders
from kbq.storage.writing import replacing, writing_to


def require_matplotlib() -> None:
    """Find out before anything is computed.

    Raises:
        EvaluationError: matplotlib is not installed.
    """
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise EvaluationError("matplotlib is not installed, which --plots needs: pip install matplotlib") from error


def write_plots(calibration: Confidence, folder: Path) -> None:
    """Draw both plots.

    Raises:
        EvaluationError: matplotlib is not installed, or the folder cannot be written.
    """
    draw_reliability(calibration, folder / "reliability.png")
    draw_risk_coverage(calibration, folder / "risk-coverage.png")


def draw_reliability(calibration: Confidence, path: Path) -> None:
    """The share right of each bin over its confidence; bars show where it lies for 95 % of calibrated models."""
    bins = calibration.reliability.bins if calibration.reliability else ()
    confidences = np.array([one.confidence for one in bins])
    ends = np.array([(one.low, one.high) for one in bins]).reshape(-1, 2)
    with picture(path) as axes:
        axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
        axes.vlines(confidences, *ends.T, color="tab:blue", alpha=0.3, linewidth=6, label="calibrated: 95 %")
        axes.plot(confidences, [one.right for one in bins], "o-", color="tab:blue", label="these predictions")
        axes.set(xlabel="probability", ylabel=f"right ({calibration.right_by})", xlim=(0, 1), ylim=(0, 1))


def draw_risk_coverage(calibration: Confidence, path: Path) -> None:
    """The share of wrong answers over the share of queries answered, beside that of the best order of these answers."""
    curve = calibration.curve
    coverage = np.arange(1, calibration.answers + 1) / calibration.queries
    right = calibration.answered * (calibration.right or 0)
    with picture(path) as axes:
        axes.plot(curve.coverage, curve.risk, color="tab:blue", label="these predictions")
        axes.plot(coverage, np.maximum(0, 1 - right / coverage), "--", color="grey", label="the best order of them")
        axes.set(
            xlabel="coverage: queries answered", ylabel=f"risk: answers wrong ({calibration.right_by})", xlim=(0, 1)
        )
        axes.set_ylim(bottom=0)


@contextmanager
def picture(path: Path) -> Iterator[Any]:
    """Axes to draw in; on leaving, the picture is written."""
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(6.4, 4.8))  # without pyplot: no window
    axes = figure.subplots()
    yield axes
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    with writing_to(path, EvaluationError, "choose another folder"):
        make_folders(path.parent)
        with replacing(path) as partial:
            figure.savefig(partial, format="png", dpi=110)
