"""Filter curve: vectors of a passage against open EM and top-5 passage accuracy. Source: arXiv 2109.08133, Fig. 4.

    python benchmarks/filter_curve.py squad/dev-v1.1.json.xz [--model MODEL] [--passages 500] [--name filter_curve]

Passages are taken evenly from the whole file; all of them are the knowledge base. Draws docs/NAME.png.
"""

import argparse
import dataclasses
from pathlib import Path

import reporting
from plotting import picture

from kbq.model.model import Model
from kbq.training.examples import read_examples
from kbq.training.quantisation import DevSample, FilterPoint, encode_tokens, filter_curve


def draw(points: tuple[FilterPoint, ...], threshold: float, name: str) -> None:
    vectors = [point.vectors for point in points]
    shipped = next(point for point in reversed(points) if point.threshold <= threshold or point is points[0])
    with picture(name) as axes:
        axes.plot(vectors, [point.open_passage_5 for point in points], marker="o", label="gold passage among the top 5")
        axes.plot(vectors, [point.open_em for point in points], marker="o", label="answer (open EM)")
        axes.axvline(shipped.vectors, color="grey", linestyle=":", label="the model's threshold, about")
        axes.set_xlabel("vectors of a passage")
        axes.set_ylabel("percent of queries")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dev", type=Path)
    parser.add_argument("--model", default="default")
    parser.add_argument("--passages", type=int, default=500)
    parser.add_argument("--name", default="filter_curve")
    options = parser.parse_args()
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
    draw(points, model.config.filter_threshold, options.name)


if __name__ == "__main__":
    main()
