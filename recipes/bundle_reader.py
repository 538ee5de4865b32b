"""A reader for a model to bring: `reader.safetensors` of its folder, without the word embeddings that both have.

    python recipes/bundle_reader.py MODEL READER

The reader must have begun with the encoder that the model began with, or with the model. Several of one beginning are
better together: recipes/average_models.py.
"""

import argparse
from pathlib import Path

from kbq.reading.reader import Reader, save_reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("reader")
    options = parser.parse_args()
    save_reader(Reader.open(options.reader, "cpu").network, options.model)


if __name__ == "__main__":
    main()
