"""Reader: train a reader, which sees a question with its passage. `kbq train reader`.

The loss is L_single: the answer's tokens against all tokens of the passage, in whichever window. A
larger reader can teach it, as it teaches the encoders. Source: arXiv 2012.12624, section 4.1.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kbq.array_types import Floats
from kbq.model.tokenizer import WindowShape, tokenize
from kbq.reading.reader import Reader
from kbq.search.spans import best_ends
from kbq.training import batches
from kbq.training.encoders import ReaderOutputs, read_by, teacher_logits
from kbq.training.engine import StepReport
from kbq.training.losses import distillation_loss, marginal_losses, trust_in
from kbq.training.output_folder import (
    example_digests,
    initial_checkpoint,
    output_folder,
    training_facts,
    write_facts,
)
from kbq.training.quantisation import answer_scores
from kbq.training.settings import ReaderSettings

AT_A_TIME = 64  # passages read together


@dataclass(frozen=True, slots=True)
class ReaderOutcome:
    """The result of training, also written into `training.json`. Scores are percentages of dev
    queries.
    """

    passages: int
    queries: int
    repairs: batches.Repairs
    too_long: int  # queries left out
    surplus: int  # queries left out: beyond the `max_queries` of their passage
    steps: int
    dev_queries: int
    em: float  # the gold passage is given
    f1: float


class ReaderRun(batches.PassageRun):
    """Trains a reader."""

    settings: ReaderSettings

    def __init__(
        self,
        reader: Reader,
        passages: Sequence[batches.PreparedPassage],
        settings: ReaderSettings,
        teacher: ReaderOutputs | None = None,
    ) -> None:
        """`teacher`: the outputs of a larger reader for the passages."""
        self.reader = reader
        self.examples = reading_examples(reader, passages)
        self.teacher = teacher
        self.places = [
            (number, row)
            for number, passage in enumerate(passages)
            for row in range(len(passage.queries))
        ]
        self.weights = {"reading": 1.0, "distilled": settings.distill_weight}
        super().__init__(
            [reader.network], self.examples, settings, teacher.digest if teacher else ""
        )

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return L_single of the reader's logits, and L_distill if there is a larger reader."""
        batch = batches.collate(self.reader, [self.examples[index] for index in members])
        own_passage = batch.passage_of_token == batch.passage_of_query[:, None]
        logits = [
            side.flatten().expand(len(members), -1) for side in self.reader.logits(*batch.windows)
        ]
        golds = (batch.gold_starts, batch.gold_ends)
        single = [
            marginal_losses(*side, own_passage).mean() for side in zip(logits, golds, strict=True)
        ]
        losses = {"reading": (single[0] + single[1]) / 2}
        if self.teacher is not None:
            places = [self.places[index] for index in members]
            teacher = teacher_logits(
                batch, [self.teacher.logits[number][:, row : row + 1] for number, row in places]
            )
            distilled = [
                distillation_loss(
                    scores, side, own_passage, trust=trust_in(side, gold, own_passage)
                )
                for scores, side, gold in zip(logits, teacher, golds, strict=True)
            ]
            losses["distilled"] = (distilled[0] + distilled[1]) / 2

        return losses, batch.size


def reading_examples(
    reader: Reader, passages: Sequence[batches.PreparedPassage]
) -> list[batches.PreparedPassage]:
    """Make each query a passage of its own, whose windows have the question in place of the title."""
    examples: list[batches.PreparedPassage] = []
    for passage in passages:
        text = passage.text
        for query, answer, places in zip(
            passage.queries, passage.answers, passage.golds, strict=True
        ):
            windows = tuple(reader.windows(query, text))
            tokens = sum(len(window.ids) for window in windows)
            # Each in a group of its own: the questions of a passage need not stay together.
            examples.append(
                batches.PreparedPassage(
                    windows, tokens, (query,), (answer,), (places,), str(len(examples))
                )
            )

    return examples


def train_reader(
    examples: batches.Files,
    out: str | Path,
    init: str | Path,
    *,
    dev: str | Path | None = None,
    distill: str = "",
    settings: ReaderSettings | None = None,
    device: str = "auto",
    command: str = "",
    on_step: Callable[[StepReport], None] = lambda step: None,
    on_reading: Callable[[int, int], None] = lambda done, passages: None,
) -> ReaderOutcome:
    """Train and score a reader, and save it in a new folder. A killed run resumes from
    `OUT.partial/checkpoint.pt`.

    Args:
        init: a BERT-like encoder, a kbq model or a reader: hub name or folder.
        dev: examples to score on; without them a twentieth of the passages is set aside.
        distill: a larger reader to learn from, too: hub name or folder.
        command: kept in `training.json`.
        on_reading: called with the number of passages that the larger reader has read, and of all
            passages.

    Raises:
        TrainingError: see `train_encoders`.
        ModelError: the encoder to start from is missing or not BERT-like, or the larger reader does
            not fit it.
    """
    settings = settings or ReaderSettings()
    with output_folder(Path(out)) as folder:
        digests = example_digests(examples)
        torch.manual_seed(settings.seed)
        reader = Reader.new(initial_checkpoint(init), device)
        passages, repairs = batches.read_examples(examples)
        passages, dev_passages = batches.set_aside(passages, dev, settings.seed)
        prepared, left_out = batches.prepare(
            reader.query_tokenizer, WindowShape(), passages, settings.max_queries
        )
        batches.refuse_unreadable(prepared, dev_passages, reader.query_tokenizer)
        teacher = (
            None
            if not distill
            else read_by(distill, reader.tokenizer, prepared, device, on_reading)
        )
        run = ReaderRun(reader, prepared, settings, teacher)
        run.run(folder / "checkpoint.pt", on_step)
        em, f1, dev_queries = evaluate_reader(reader, dev_passages)
        queries = sum(len(passage.queries) for passage in prepared)
        outcome = ReaderOutcome(
            len(prepared), queries, repairs, *left_out, run.steps, dev_queries, em, f1
        )
        reader.save(folder / "model")
        facts = training_facts(
            command, init, digests, settings, outcome=dataclasses.asdict(outcome)
        )
        write_facts(folder / "model", facts)

    return outcome


def evaluate_reader(
    reader: Reader, passages: Sequence[batches.Passage]
) -> tuple[float, float, int]:
    """Return EM and F1 in percent, given the gold passage, and the number of queries; unreadable
    ones are left out.
    """
    pairs: list[tuple[str, Sequence[str]]] = []
    for first in range(0, len(passages), AT_A_TIME):
        batch = [
            (query, passage.text)
            for passage in passages[first : first + AT_A_TIME]
            for query in passage.queries
        ]
        answers = read_answers(reader, [(query.text, text) for query, text in batch])
        pairs += [
            (answer, query.answers)
            for answer, (query, _) in zip(answers, batch, strict=True)
            if answer is not None
        ]

    given = [answer for answer, _ in pairs]
    golds = [right for _, right in pairs]
    em, f1 = answer_scores(given, golds)
    return em, f1, len(pairs)


def read_answers(reader: Reader, pairs: Sequence[tuple[str, str]]) -> list[str | None]:
    """Return the best phrase for each (question, passage), or None if it cannot be read or the
    passage is empty.
    """
    texts = list(dict.fromkeys(text for _, text in pairs))
    pieces = dict(zip(texts, tokenize(reader.tokenizer, texts), strict=True))
    readable = [
        place
        for place, (question, text) in enumerate(pairs)
        if reader.query_tokenizer.accepts(question) and pieces[text].ids
    ]
    windows = [
        reader.windows(reader.query_tokenizer.ids_of(pairs[place][0]), pieces[pairs[place][1]].ids)
        for place in readable
    ]
    answers: list[str | None] = [None] * len(pairs)

    for place, logits in zip(readable, reader.score(windows), strict=True):
        text = pairs[place][1]
        start, end = best_span(logits)
        answers[place] = text[pieces[text].starts[start] : pieces[text].ends[end]]

    return answers


def best_span(logits: Floats) -> tuple[int, int]:
    """Return first and last token of the phrase with the largest sum of logits. Shape: (2, tokens).

    >>> import numpy as np
    >>> best_span(np.float32([[1, 5, 0], [7, 0, 2]]))
    (0, 0)
    """
    sums, lasts = best_ends(logits)
    start = int(sums.argmax())
    return start, int(lasts[start])
