"""A copy of a model whose reader judges the phrases of a search, taught with phrases that were mined.

    python recipes/teach_second_look.py MODEL OUT EXAMPLES.jsonl… [--epochs 1] [--seed 0] [--learning-rate 1.5e-4]
        [--half 0] [--larger READER READER]

MODEL is a folder with a reader (recipes/bundle_reader.py), or `default`; EXAMPLES are files of recipes/mine_phrases.py.
A larger reader, a checkpoint of `kbq train reader`, learns the same from --half 0 of the queries, another from --half
1; with --larger, both teach the model's reader, each on the queries that it has not seen. A killed run resumes.
Several of other seeds are better together: recipes/average_models.py --readers.
"""

import argparse
import sys
from pathlib import Path

from kbq.errors import KbqError
from kbq.training.engine import StepReport
from kbq.training.reranker import TeachingSettings, teach_reranker

EVERY = 25  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("examples", type=Path, nargs="+")
    parser.add_argument("--epochs", type=float, default=TeachingSettings().epochs)
    parser.add_argument("--seed", type=int, default=TeachingSettings().seed)
    parser.add_argument("--learning-rate", type=float, default=TeachingSettings().learning_rate)
    parser.add_argument("--half", type=int, choices=(0, 1))
    parser.add_argument("--larger", nargs=2, default=())
    parser.add_argument("--dropout", type=float, default=TeachingSettings().dropout)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    settings = TeachingSettings(
        epochs=options.epochs, seed=options.seed, learning_rate=options.learning_rate, dropout=options.dropout
    )
    command = "recipes/teach_second_look.py"
    try:
        outcome = teach_reranker(
            options.examples, options.out, options.model, settings=settings, half=options.half, larger=options.larger,
            device=options.device, command=command, on_step=show,
        )  # fmt: skip
    except KbqError as error:
        sys.exit(str(error))
    print(f"{options.out}: {outcome.queries} queries, {outcome.left_out} left out, {outcome.steps} steps")


def show(step: StepReport) -> None:
    if step.step % EVERY == 0:
        losses = ", ".join(f"{name} {value:.3f}" for name, value in step.means.items())
        print(f"step {step.step} of {step.steps}: {losses}", file=sys.stderr)


if __name__ == "__main__":
    main()
