"""Weights of several rounds of one model, averaged: better than any of the rounds.

    python recipes/average_models.py OUT MODEL MODEL… [--dev EXAMPLES]

Every model must go on from the one before, or from a common one: weights trained apart do not fit together. Length
penalty and filter threshold are those of the first, or calibrated on EXAMPLES. Source: arXiv 2203.05482 (model soups),
arXiv 2109.01903 (the average of before and after).
"""

import argparse
import dataclasses
from pathlib import Path

from torch import nn

from kbq.encoding.model import Model
from kbq.training.calibration import calibrate
from kbq.training.examples import read_examples
from kbq.training.train import CALIBRATION_PASSAGES


def average(networks: list[nn.Module]) -> None:
    """Make the first network the average of all."""
    own, *others = (network.state_dict() for network in networks)
    # What is the same in all, such as frozen word embeddings, must stay the same to the last bit.
    moved = {name: sum(other[name] - value for other in others) / len(networks) for name, value in own.items()}
    networks[0].load_state_dict({name: value + moved[name] for name, value in own.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--dev", type=Path)
    options = parser.parse_args()
    models = [Model.open(name) for name in options.models]
    facts = {"averaged": [model.config.training for model in models]}
    average([model.phrases for model in models])
    average([model.queries for model in models])
    model = models[0]
    model.scale = sum(one.scale for one in models) / len(models)
    model.config = dataclasses.replace(model.config, base="", training=facts)
    if options.dev:
        calibrate(model, read_examples([options.dev], doubtful=True)[0][:CALIBRATION_PASSAGES])
    model.save(options.out, "int8")


if __name__ == "__main__":
    main()
