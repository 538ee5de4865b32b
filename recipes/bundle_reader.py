"""A reader for a model to bring: readers that were trained from it, averaged, as `reader.safetensors` of its folder.

    python recipes/bundle_reader.py MODEL READER… [--average FOLDER]

The readers must begin with the same weights: `kbq train --teacher --checkpoint MODEL` with one seed, or with an average
of such ones. --average writes it as an ordinary checkpoint, too: to train it further. Source: arXiv 2203.05482 (model
soups).
"""

import argparse
from pathlib import Path

from average_models import average

from kbq.encoding.bundled_reader import save_reader
from kbq.encoding.cross_encoder import CrossEncoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("readers", nargs="+")
    parser.add_argument("--average", type=Path)
    options = parser.parse_args()
    readers = [CrossEncoder.open(name, "cpu") for name in options.readers]
    average([reader.network for reader in readers])
    if options.average:
        readers[0].save(options.average)
    save_reader(readers[0].network, options.model)


if __name__ == "__main__":
    main()
