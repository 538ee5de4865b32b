"""Keep all tokens: the default model with a filter that lets everything pass.

python benchmarks/keep_all_tokens.py OUT
"""

import dataclasses
import sys
from pathlib import Path

from kbq.model.model import Model


def everything_kept(device: str = "cpu") -> Model:
    """The default model, without a filter: two devices keep the same tokens."""
    model = Model.open("default", device)
    model.config = dataclasses.replace(model.config, filter_threshold=float("-inf"), edge_threshold=float("-inf"))
    return model


def main() -> None:
    everything_kept().save(Path(sys.argv[1]), "int8")


if __name__ == "__main__":
    main()
