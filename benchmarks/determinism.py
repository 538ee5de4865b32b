"""Determinism: the same training twice, once more with another seed; every loss of every step and the weights compared.

    python benchmarks/determinism.py squad/train-v1.1.json.xz WORK --init ENCODER [--passages 300] [--epochs 2]

One thread: with more of them, sums come in another order.
"""

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path

import reporting
import torch
from ablation import write_examples

from kbq.training.encoders import train_encoders
from kbq.training.engine import StepReport
from kbq.training.examples import read_examples
from kbq.training.settings import TrainingSettings


@dataclass(frozen=True)
class Trained:
    """A run's losses, summed by step, and its weights."""

    losses: list[float]
    weights: bytes


def trained(examples: Path, out: Path, init: str, settings: TrainingSettings) -> Trained:
    """Train anew."""
    shutil.rmtree(out, ignore_errors=True)
    steps: list[StepReport] = []
    train_encoders(examples, out, init, settings=settings, device="cpu", on_step=steps.append)
    losses = [sum(step.means.values()) for step in steps]
    return Trained(losses, (out / "model.safetensors").read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("train", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--init", required=True)
    parser.add_argument("--passages", type=int, default=300)
    parser.add_argument("--epochs", type=float, default=2.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    passages = read_examples([options.train])[0][: options.passages]
    examples = write_examples(passages, options.work / "examples.jsonl")
    first, again, other = (
        trained(examples, options.work / "run", options.init, TrainingSettings(epochs=options.epochs, seed=seed))
        for seed in (0, 0, 1)
    )
    figures = {
        "passages": len(passages),
        "steps": len(first.losses),
        "first loss": round(first.losses[0], 4),
        "last loss": round(first.losses[-1], 4),
        "largest difference, same seed": _largest(first, again),
        "same weights": first.weights == again.weights,
        "largest difference, another seed": round(_largest(first, other), 4),
    }
    reporting.write("determinism", figures, [options.train], seed=0)


def _largest(one: Trained, other: Trained) -> float:
    """Of the steps that both have: another seed makes other batches, and maybe another number of them."""
    return max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=False))


if __name__ == "__main__":
    main()
