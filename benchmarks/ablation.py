"""Ablation: train with and without each part of the loss, on SQuAD. Source: arXiv 2012.12624,
Tables 5 and 6; of hard negatives, arXiv 2109.08133, Table 3.

    python benchmarks/ablation.py squad/train-v1.1.json.xz squad/dev-v1.1.json.xz WORK
        --init ENCODER [--runs NAME …] [--reader READER] [--generated EXAMPLES.jsonl] [--share 0.2] [--epochs 1]
        [--passages 300] [--asked 12] [--seed 0] [--name ablation]

All runs have the same passages, seed and number of epochs, except one, which has as many steps as
with generated questions. Scores are with the gold paragraph given and with all dev paragraphs as
the knowledge base, and every phrase is a candidate. Runs with distillation need --reader, the one
with generated questions --generated (from `kbq augment`). `--asked` limits the questions of a
passage. A killed run resumes; results/NAME.json is written after each.
"""

import random
from dataclasses import asdict, replace
from pathlib import Path

import reporting
from keep_all_tokens import without_filter
from measuring import arguments, write_records
from negatives import losses

from kbq.augmentation.augment import augment
from kbq.augmentation.options import AugmentOptions, Negatives
from kbq.corpus.pages import Page
from kbq.dump.manifest import is_knowledge_base
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.model.model_folder import ModelConfig
from kbq.training.batches import Passage, read_examples
from kbq.training.encoders import train_encoders
from kbq.training.quantisation import evaluate_reading
from kbq.training.settings import TrainingSettings

PLAIN = TrainingSettings(
    epochs=1.0, negatives_weight=0.0, tokens_weight=0.0, pre_batches=0, equal_trust=True
)
IN_BATCH = replace(PLAIN, negatives_weight=1.0)
ALL_TOKENS = replace(IN_BATCH, tokens_weight=1.0)
RUNS = {
    "none": PLAIN,
    "in-batch": IN_BATCH,
    "pre-batch, C = 1": replace(IN_BATCH, pre_batches=1),
    "pre-batch, C = 2": replace(IN_BATCH, pre_batches=2),
    "pre-batch, C = 4": replace(IN_BATCH, pre_batches=4),
    "in-batch, all tokens": ALL_TOKENS,
    "C = 2, all tokens": replace(ALL_TOKENS, pre_batches=2),
    "C = 2, distillation": replace(IN_BATCH, pre_batches=2),
    "C = 2, all tokens, distillation": replace(ALL_TOKENS, pre_batches=2),
    "C = 2, all tokens, distillation, generated": replace(ALL_TOKENS, pre_batches=2),
    # As many steps as with the 2,859 generated questions of results/ablation.json: 270 instead of
    # 205.
    "C = 2, all tokens, distillation, 1.317 epochs": replace(
        ALL_TOKENS, pre_batches=2, epochs=1.317
    ),
    "in-batch, two query encoders": IN_BATCH,
    "in-batch, half batches": replace(IN_BATCH, batch_tokens=IN_BATCH.batch_tokens // 2),
    # With one question of each passage, as many passages in a batch as without negatives.
    "in-batch, BM25 negatives": replace(IN_BATCH, batch_tokens=2 * IN_BATCH.batch_tokens),
    "in-batch, phrase negatives": replace(IN_BATCH, batch_tokens=2 * IN_BATCH.batch_tokens),
}
NEGATIVES: dict[str, Negatives] = {
    "in-batch, BM25 negatives": "bm25",
    "in-batch, phrase negatives": "phrase",
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


def with_negatives(train: Path, folder: Path, kind: Negatives) -> Path:
    """Return the training file with a hard negative of each question, out of its own passages."""
    out = folder / f"train-{kind}.jsonl"
    if not out.exists():
        kb = folder / "kb"
        corpus = [
            Page(str(number), passage.title, passage.text)
            for number, passage in enumerate(read_examples([train])[0])
        ]
        if not is_knowledge_base(kb):
            KnowledgeBase.build(corpus, kb).close()
        augment(kb, out, AugmentOptions(questions=train, negatives=kind))
    return out


def main() -> None:
    options = arguments(
        __doc__, train=Path, dev=Path, work=Path, init="", runs=tuple(RUNS), reader=None, generated=None,
        share=0.2, epochs=1.0, passages=300, asked=12, seed=0, name="ablation",
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
        "questions of a passage": options.asked,
        "dev passages": options.passages,
    }
    figures: dict[str, object] = {"scale": scale}
    for name in options.runs:
        reader = options.reader if "distillation" in name else ""
        generated = [options.generated] if "generated" in name else []
        if reader is None or generated == [None]:
            figures[name] = f"not run: needs {'--reader' if reader is None else '--generated'}"
            continue
        out = options.work / name.replace(", ", "-").replace(" ", "")
        if not out.exists():
            files = [train, *generated]
            if name in NEGATIVES:
                files = [with_negatives(train, options.work, NEGATIVES[name])]
            settings = replace(
                RUNS[name],
                epochs=options.epochs * RUNS[name].epochs,
                max_queries=options.asked,
                seed=options.seed,
            )
            train_encoders(
                files,
                out,
                options.init,
                dev=dev_file,
                distill=reader,
                settings=settings,
                config=ModelConfig(shared_query_encoder="two query encoders" not in name),
                on_step=print,
            )
        # The paper's tables come before its filter; here each run would have a filter and a length
        # penalty of its own.
        model = without_filter(Model.open(out))
        model.config = replace(model.config, length_penalty=0.0)
        scores = asdict(evaluate_reading(model, dev))
        told_apart = losses(model, dev, options.passages, others=50)
        figures[name] = (
            {"queries trained on": model.config.training["queries"]} | scores | told_apart
        )
        reporting.write(options.name, figures, [options.train, options.dev], options.seed)


if __name__ == "__main__":
    main()
