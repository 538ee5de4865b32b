"""Distillation: the reader's logits are kept as they are, where the student's tokens stand,
whatever is killed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch

from kbq.array_types import Floats
from kbq.errors import KbqError, TrainingError
from kbq.model.model import Model
from kbq.model.tokenizer import Window
from kbq.reading.reader import Reader
from kbq.storage.writing import writing_alone
from kbq.training import encoders
from kbq.training.batches import PreparedPassage, collate
from kbq.training.encoders import EncoderRun, ReaderOutputs, reader_outputs, teacher_logits
from kbq.training.engine import StepReport
from kbq.training.losses import distillation_loss
from kbq.training.reader import reading_examples
from kbq.training.settings import TrainingSettings


def quiet(done: int, passages: int) -> None:
    pass


def test_outputs_are_what_the_reader_says(
    reader: Reader, few_prepared: list[PreparedPassage], tmp_path: Path
) -> None:
    outputs = reader_outputs(reader, few_prepared, tmp_path, quiet)
    first, second, third = reader.score(
        [example.windows for example in reading_examples(reader, few_prepared)]
    )
    assert outputs.logits[0].shape == (2, 2, len(few_prepared[0].text))
    assert outputs.logits[1].shape == (2, 1, len(few_prepared[1].text))
    assert outputs.logits[0] == pytest.approx(np.stack([first, second], axis=1), rel=1e-2)
    assert outputs.logits[1] == pytest.approx(third[:, None], rel=1e-2)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 4 * (
        2 * first.shape[1] + third.shape[1]
    )


@pytest.mark.parametrize("kept", [0, 1, 30, 31, 250, 10**6])
def test_a_killed_reading_goes_on(
    kept: int,
    reader: Reader,
    few_prepared: list[PreparedPassage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoders, "AT_A_TIME", 1)
    reader_outputs(reader, few_prepared, tmp_path, quiet)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    read: list[int] = []
    plain = reader.score

    def counted(examples: Sequence[Sequence[Window]]) -> list[Floats]:
        read.append(len(examples))
        return plain(examples)

    monkeypatch.setattr(reader, "score", counted)
    outputs = reader_outputs(reader, few_prepared, tmp_path, quiet)
    assert path.read_bytes() == whole
    first = 4 * 2 * len(few_prepared[0].text)  # bytes of the first passage
    assert read == ([2, 1] if kept < first else [1] if kept < len(whole) else [])
    assert outputs.logits[1].shape[1] == 1


def test_another_reader_or_other_passages_are_another_file(
    new_reader: Callable[..., Reader], few_prepared: list[PreparedPassage], tmp_path: Path
) -> None:
    for seed, passages in (
        (3, few_prepared),
        (3, few_prepared),
        (4, few_prepared),
        (3, few_prepared[:1]),
    ):
        reader_outputs(new_reader(seed), passages, tmp_path, quiet)
    assert len(list(tmp_path.iterdir())) == 3


def test_one_training_at_a_time_lets_the_reader_read(
    reader: Reader, few_prepared: list[PreparedPassage], tmp_path: Path
) -> None:
    whole = reader_outputs(reader, few_prepared, tmp_path, quiet)
    (path,) = tmp_path.iterdir()
    with writing_alone(path):
        assert (
            reader_outputs(reader, few_prepared, tmp_path, quiet).logits[0] == whole.logits[0]
        ).all()  # nothing is missing
        path.write_bytes(path.read_bytes()[:-2])
        with pytest.raises(KbqError, match="another kbq process is writing to"):
            reader_outputs(reader, few_prepared, tmp_path, quiet)


def test_a_full_disk_is_said(
    reader: Reader, few_prepared: list[PreparedPassage], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        TrainingError, match=r"cannot be written \(Not a directory\): choose another name"
    ):
        reader_outputs(reader, few_prepared, tmp_path / "file" / "cache", quiet)


def test_logits_stand_at_the_tokens_of_their_passage(
    model: Model, few_prepared: list[PreparedPassage]
) -> None:
    batch = collate(model, few_prepared)
    shapes = [(2, len(passage.queries), len(passage.text)) for passage in few_prepared]
    given = [np.arange(np.prod(shape), dtype=np.float16).reshape(shape) for shape in shapes]
    taught = teacher_logits(batch, given)
    assert taught.shape == (2, 3, len(batch.passage_of_token))
    for row, number in enumerate(batch.passage_of_query.tolist()):
        own = batch.passage_of_token == number
        expected = given[number][:, row if number == 0 else 0]
        assert taught[:, row, own].numpy() == pytest.approx(expected)
        assert (taught[:, row, ~own] == -torch.inf).all()


OWN = torch.tensor([[True, True, False]])
READER = torch.tensor([[1.0, 1.0, 9.0]])  # ½ and ½


@pytest.mark.parametrize(
    ("student", "temperature", "loss"),
    [
        ([log(1), log(3), 7.0], 1.0, (log(2) + log(2 / 3)) / 2),
        ([log(1), log(9), -7.0], 2.0, 4 * (log(2) + log(2 / 3)) / 2),
        ([log(1), log(3), 0.0], 0.5, (log(10 / 2) + log(10 / 18)) / 8),
        ([5.0, 5.0, 99.0], 1.0, 0.0),
    ],
)
def test_distillation_loss(student: list[float], temperature: float, loss: float) -> None:
    scores = torch.tensor([student], requires_grad=True)
    given = distillation_loss(scores, READER.masked_fill(~OWN, -torch.inf), OWN, temperature)
    assert float(given.detach()) == pytest.approx(loss, abs=1e-6)
    given.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[0, 2] == 0


def test_trust_weighs_queries() -> None:
    scores = torch.tensor([[log(1), log(3), 0.0], [0.0, 0.0, 0.0]])
    taught = READER.expand(2, 3)
    one = distillation_loss(scores[:1], READER, OWN, 1.0)
    trusted = distillation_loss(scores, taught, OWN.expand(2, 3), 1.0, torch.tensor([0.5, 1.0]))
    assert float(trusted) == pytest.approx(0.5 * float(one) / 2)  # the second query agrees already


def test_a_reader_that_is_wrong_teaches_nothing(
    new_model: Callable[..., Model], few_prepared: list[PreparedPassage]
) -> None:
    model = new_model()

    def taught(gold: float, other: float) -> ReaderOutputs:
        """Logits that are `gold` on right tokens."""
        said = []
        for passage in few_prepared:
            batch = collate(model, [passage])
            sides = torch.stack([batch.gold_starts, batch.gold_ends])[
                :, :, batch.passage_of_token == 0
            ]
            said.append(torch.where(sides, gold, other).numpy().astype(np.float16))
        return ReaderOutputs(said)

    def distilled(outputs: ReaderOutputs, trust_by_gold: bool) -> float:
        trainer = EncoderRun(
            model, few_prepared, TrainingSettings(equal_trust=not trust_by_gold), outputs
        )
        return float(trainer.losses([0, 1])[0]["distilled"].detach())

    right, wrong = taught(60.0, 0.0), taught(-60.0, 0.0)
    assert distilled(right, True) == pytest.approx(distilled(right, False), rel=1e-4)
    assert distilled(wrong, False) > 0.01
    assert distilled(wrong, True) == pytest.approx(0, abs=1e-6)


def own_scores(model: Model, passages: Sequence[PreparedPassage]) -> ReaderOutputs:
    """A reader that says what the student says."""
    said = []
    for passage in passages:
        batch = collate(model, [passage])
        with torch.inference_mode():
            vectors = model.phrases(*batch.windows)[0].flatten(0, 1)[batch.passage_of_token == 0]
            sides = [queries @ vectors.T for queries in model.queries(*batch.queries)]
        said.append(torch.stack(sides).numpy().astype(np.float16))
    return ReaderOutputs(said)


def test_nothing_is_to_be_learned_from_oneself(
    new_model: Callable[..., Model], few_prepared: list[PreparedPassage]
) -> None:
    model = new_model()
    trainer = EncoderRun(model, few_prepared, TrainingSettings(), own_scores(model, few_prepared))
    other = EncoderRun(
        model, few_prepared, TrainingSettings(), own_scores(new_model(seed=9), few_prepared)
    )
    order = [1, 0]  # not the order in which they were read
    assert float(trainer.losses(order)[0]["distilled"].detach()) == pytest.approx(0, abs=0.01)
    assert float(other.losses(order)[0]["distilled"].detach()) > 0.1


def test_a_student_learns_from_a_reader(
    new_model: Callable[..., Model],
    reader: Reader,
    few_prepared: list[PreparedPassage],
    tmp_path: Path,
) -> None:
    model = new_model()
    settings = TrainingSettings(
        epochs=40, learning_rate=1e-2, tokens_weight=0.0, negatives_weight=0.0, equal_trust=True
    )
    taught = reader_outputs(reader, few_prepared, tmp_path, quiet)
    steps: list[StepReport] = []
    EncoderRun(model, few_prepared, settings, taught).run(tmp_path / "c.pt", steps.append)
    losses = [step.means["distilled"] for step in steps]
    assert losses[-1] < 0.5 * losses[0]
    plain: list[StepReport] = []
    EncoderRun(new_model(), few_prepared, replace(settings, epochs=1)).run(
        tmp_path / "plain.pt", plain.append
    )
    assert "distilled" not in plain[0].means
