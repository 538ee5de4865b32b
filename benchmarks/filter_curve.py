"""Filter curve: vectors of a passage against open EM and top-5 passage accuracy. Source: arXiv 2109.08133, Fig. 4.

    python benchmarks/filter_curve.py squad/dev-v1.1.json.xz [--model MODEL] [--passages 500] [--name filter_curve]

Passages are taken evenly from the whole file; all of them are the knowledge base. plotting.py draws the curve.
"""

import dataclasses
from pathlib import Path

import reporting
from measuring import arguments

from kbq.model.model import Model
from kbq.training.examples import read_examples
from kbq.training.quantisation import DevSample, encode_tokens, filter_curve


def main() -> None:
    options = arguments(__doc__, dev=Path, model="default", passages=500, name="filter_curve")
    model = Model.open(options.model)
    everything, _ = read_examples([options.dev], doubtful=True)
    passages = everything[:: max(1, len(everything) // options.passages)][: options.passages]
    points = filter_curve(DevSample.of(model, passages, encode_tokens(model, passages)), model.config.length_penalty)
    figures = {
        "model": Path(options.model).name,
        "passages": len(passages),
        "threshold": model.config.filter_threshold,
        "points": [dataclasses.asdict(point) for point in points],
    }
    reporting.write(options.name, figures, [options.dev])


if __name__ == "__main__":
    main()
