"""Reading: answer SQuAD dev with the gold paragraph given, and with all dev paragraphs as the
knowledge base.

    python benchmarks/reading.py squad/dev-v1.1.json.xz [--model MODEL] [--name reading]
    python benchmarks/reading.py squad/dev-v1.1.json.xz --curve 500 --name filter_curve

`--curve` takes so many paragraphs of the file, at thresholds of the filter that keep fewer and
fewer tokens (arXiv 2109.08133, Fig. 4); plotting.py draws the curve.
"""

import dataclasses
from pathlib import Path

import reporting
from measuring import arguments

from kbq.model.model import Model
from kbq.training.batches import read_examples
from kbq.training.quantisation import DevSample, encode_tokens, evaluate_reading, filter_curve


def main() -> None:
    options = arguments(__doc__, dev=Path, model="default", curve=0, name="reading")
    model, (passages, _) = Model.open(options.model), read_examples([options.dev], doubtful=True)
    if options.curve:
        passages = passages[:: max(1, len(passages) // options.curve)][: options.curve]
        sample = DevSample.of(model, passages, encode_tokens(model, passages))
        points = [
            dataclasses.asdict(point) for point in filter_curve(sample, model.config.length_penalty)
        ]
        found = {"threshold": model.config.filter_threshold, "points": points}
    else:
        found = dataclasses.asdict(evaluate_reading(model, passages))
    figures = {"model": Path(options.model).name, "passages": len(passages)}
    reporting.write(options.name, figures | found, [options.dev])


if __name__ == "__main__":
    main()
