"""Ablation: train with and without each part of the loss, on SQuAD. Source: arXiv 2012.12624,
Tables 5 and 6.

    python benchmarks/ablation.py squad/train-v1.1.json.xz squad/dev-v1.1.json.xz WORK --init
    ENCODER \\
        [--reader READER] [--generated EXAMPLES.jsonl] [--share 0.2] [--epochs 1] [--passages 300]
        [--seed 0]

All runs have the same passages, seed and number of epochs, except the last, which has as many steps
as the one before. Scores are with the gold paragraph given and with all dev paragraphs as the
knowledge base, and every phrase is a candidate. Runs with distillation need --reader, the one with
generated questions --generated (from `kbq augment`). A killed run resumes; results/ablation.json is
written after each.
"""

import dataclasses
import random
from pathlib import Path

import reporting
from keep_all_tokens import without_filter
from measuring import arguments, write_records

from kbq.model.model import Model
from kbq.training.batches import Passage, read_examples
from kbq.training.encoders import train_encoders
from kbq.training.quantisation import evaluate_reading
from kbq.training.settings import TrainingSettings

# As in the paper.
PLAIN = {
    "negatives_weight": 0.0,
    "tokens_weight": 0.0,
    "pre_batches": 0,
    "trust_by_gold": False,
}
IN_BATCH = PLAIN | {"negatives_weight": 1.0}
RUNS = {
    "none": PLAIN,
    "in-batch": IN_BATCH,
    "pre-batch, C = 1": IN_BATCH | {"pre_batches": 1},
    "pre-batch, C = 2": IN_BATCH | {"pre_batches": 2},
    "pre-batch, C = 4": IN_BATCH | {"pre_batches": 4},
    "in-batch, all tokens": IN_BATCH | {"tokens_weight": 1.0},
    "C = 2, all tokens": IN_BATCH | {"pre_batches": 2, "tokens_weight": 1.0},
    "C = 2, distillation": IN_BATCH | {"pre_batches": 2},
    "C = 2, all tokens, distillation": IN_BATCH | {"pre_batches": 2, "tokens_weight": 1.0},
    "C = 2, all tokens, distillation, generated": IN_BATCH
    | {"pre_batches": 2, "tokens_weight": 1.0},
    # As many steps as with the 2,859 generated questions of results/ablation.json: 270 instead of
    # 205.
    "C = 2, all tokens, distillation, 1.317 epochs": IN_BATCH
    | {"pre_batches": 2, "tokens_weight": 1.0, "epochs": 1.317},
}


def example(passage: Passage) -> dict[str, object]:
    """Return a passage as a line of a training file."""
    questions = []
    for query in passage.queries:
        answers = [
            {"text": passage.text[start:end], "answer_start": start} for start, end in query.places
        ]
        questions.append({"id": query.id, "question": query.text, "answers": answers})
    return {
        "title": passage.title,
        "context": passage.text,
        "group": passage.group,
        "questions": questions,
    }


def main() -> None:
    options = arguments(
        __doc__, train=Path, dev=Path, work=Path, init="", reader=None, generated=None, share=0.2, epochs=1.0,
        passages=300, seed=0,
    )  # fmt: skip
    options.work.mkdir(parents=True, exist_ok=True)
    rng = random.Random(options.seed)
    passages, _ = read_examples([options.train])
    some = rng.sample(passages, int(options.share * len(passages)))
    train = write_records(options.work / "train.jsonl", list(map(example, some)))
    dev, _ = read_examples([options.dev], doubtful=True)
    dev = rng.sample(dev, options.passages)
    dev_file = write_records(options.work / "dev.jsonl", list(map(example, dev)))
    scale = {
        "share of SQuAD": options.share,
        "epochs": options.epochs,
        "dev passages": options.passages,
    }
    figures: dict[str, object] = {"scale": scale}
    for name, changes in RUNS.items():
        reader = options.reader if "distillation" in name else ""
        generated = [options.generated] if "generated" in name else []
        if reader is None or generated == [None]:
            figures[name] = f"not run: needs {'--reader' if reader is None else '--generated'}"
            continue
        out = options.work / name.replace(", ", "-").replace(" ", "")
        settings = TrainingSettings(**{"epochs": options.epochs, "seed": options.seed} | changes)
        if not out.exists():
            train_encoders(
                [train, *generated],
                out,
                options.init,
                dev=dev_file,
                distill=reader,
                settings=settings,
            )
        # The paper's tables come before its filter; here each run would have a filter and a length
        # penalty of its own.
        model = without_filter(Model.open(out))
        model.config = dataclasses.replace(model.config, length_penalty=0.0)
        scores = dataclasses.asdict(evaluate_reading(model, dev))
        figures[name] = {"queries trained on": model.config.training["queries"], **scores}
        reporting.write("ablation", figures, [options.train, options.dev], options.seed)


if __name__ == "__main__":
    main()
