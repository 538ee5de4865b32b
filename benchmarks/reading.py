"""Reading: SQuAD dev with the gold paragraph given, and with all dev paragraphs as the knowledge base.

python benchmarks/reading.py squad/dev-v1.1.json.xz [--model MODEL] [--name reading]
"""

import dataclasses
from pathlib import Path

import reporting
from measuring import arguments

from kbq.model.model import Model
from kbq.training.evaluation import evaluate_reading
from kbq.training.examples import read_examples


def main() -> None:
    options = arguments(__doc__, dev=Path, model="default", name="reading")
    passages, _ = read_examples([options.dev], doubtful=True)
    scores = evaluate_reading(Model.open(options.model), passages)
    figures = {"model": Path(options.model).name, "passages": len(passages), **dataclasses.asdict(scores)}
    reporting.write(options.name, figures, [options.dev])


if __name__ == "__main__":
    main()
