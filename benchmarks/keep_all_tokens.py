"""Keep all tokens: the default model with a filter that lets everything pass.

python benchmarks/keep_all_tokens.py OUT
"""

import dataclasses
import sys
from pathlib import Path

from kbq.encoding.model import Model


def main() -> None:
    model = Model.open("default", "cpu")
    model.config = dataclasses.replace(model.config, filter_threshold=float("-inf"), edge_threshold=float("-inf"))
    model.save(Path(sys.argv[1]), "int8")


if __name__ == "__main__":
    main()
