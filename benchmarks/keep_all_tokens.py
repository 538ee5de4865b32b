"""Keep all tokens: save the default model with a filter that keeps every token.

    python benchmarks/keep_all_tokens.py OUT

Two devices, whose filters may round differently, then keep the same tokens.
"""

import dataclasses
from pathlib import Path

from measuring import arguments

from kbq.model.model import Model


def without_filter(model: Model) -> Model:
    """Keep every token, so that two devices keep the same ones."""
    model.config = dataclasses.replace(
        model.config, filter_threshold=float("-inf"), edge_threshold=float("-inf")
    )
    return model


if __name__ == "__main__":
    without_filter(Model.open("default", "cpu")).save(arguments(__doc__, out=Path).out, "int8")
