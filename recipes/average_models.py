"""Weights of several rounds of one model, averaged: better on what no round was trained for than any of them.

    python recipes/average_models.py OUT squad-dev.json.xz MODEL MODEL…

Every model must go on from the one before, or from a common one: weights trained apart do not fit together. Int8 step,
length penalty and filter threshold are calibrated anew. Source: arXiv 2203.05482 (model soups), arXiv 2109.01903 (the
average of before and after).
"""

import argparse
import dataclasses
from pathlib import Path

from torch import nn

from kbq.encoding.model import Model
from kbq.training.calibration import calibrate
from kbq.training.examples import read_examples
from kbq.training.training import CALIBRATION_PASSAGES


def average(network: nn.Module, others: list[nn.Module]) -> None:
    """Make the network the average of itself and the others."""
    states = [one.state_dict() for one in (network, *others)]
    network.load_state_dict({name: sum(state[name] for state in states) / len(states) for name in states[0]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("out", "dev"):
        parser.add_argument(name, type=Path)
    parser.add_argument("models", nargs="+")
    options = parser.parse_args()
    model, *others = (Model.open(name) for name in options.models)
    average(model.phrases, [other.phrases for other in others])
    average(model.queries, [other.queries for other in others])
    points = calibrate(model, read_examples([options.dev], doubtful=True)[0][:CALIBRATION_PASSAGES])
    facts = {
        "averaged": [other.config.training for other in (model, *others)],
        "filter": [dataclasses.asdict(point) for point in points],
    }
    model.config = dataclasses.replace(model.config, training=facts)
    model.save(options.out, "int8")


if __name__ == "__main__":
    main()
