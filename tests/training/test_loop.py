"""Loop: it learns, it stops where it must, and a killed run ends with the same parameters."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from killed import Killed, steps_of

from kbq.errors import TrainingError
from kbq.model.model import Model
from kbq.training import batches as batching
from kbq.training import engine
from kbq.training.batches import PreparedPassage, collate, prepare, read_examples
from kbq.training.encoders import EncoderRun, ReaderOutputs
from kbq.training.engine import StepReport
from kbq.training.losses import filter_loss
from kbq.training.settings import PAPER, TrainingSettings

SETTINGS = TrainingSettings(epochs=3, batch_tokens=100, learning_rate=1e-2, pre_batches=2)


@pytest.fixture
def passages(model: Model, examples_file: Path) -> list[PreparedPassage]:
    prepared, unusable = prepare(
        model.query_tokenizer, model.config.window, read_examples([examples_file])[0], 12
    )
    assert (len(prepared), unusable) == (12, (0, 0))
    return prepared


def train(
    trained: Model,
    passages: list[PreparedPassage],
    checkpoint: Path,
    settings: TrainingSettings = SETTINGS,
    stop: int = 10**6,
) -> list[StepReport]:
    return steps_of(EncoderRun(trained, passages, settings), checkpoint, stop)


def test_the_losses_fall(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    reports = train(new_model(), passages, tmp_path / "c.pt", replace(SETTINGS, epochs=12))
    assert [step.step for step in reports] == list(range(1, reports[0].steps + 1))
    for name in ("single", "tokens", "filter"):
        losses = [step.means[name] for step in reports]
        assert sum(losses[-5:]) < 0.7 * sum(losses[:5]), name


def test_batches_of_queries_take_each_with_its_own_passage(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    """The loss of a passage is the mean of those of its queries, alone with the passage."""
    rng = torch.Generator().manual_seed(0)
    logits = [
        torch.randn(
            2, len(one.queries), sum(window.count for window in one.windows), generator=rng
        ).numpy()
        for one in passages
    ]
    teacher = ReaderOutputs(logits)
    whole = EncoderRun(new_model(), passages, SETTINGS, teacher)
    settings = replace(SETTINGS, batch_queries=5)
    single = EncoderRun(whole.model, passages, settings, teacher)
    queries = sum(len(one.queries) for one in passages)
    assert len(passages) < len(single.passages) == queries
    epoch = list(single.epoch(0))
    assert {len(members) for members in epoch[:-1]} == {5}
    assert sorted(chain(*epoch)) == list(range(queries)) != list(chain(*epoch))
    assert epoch != list(single.epoch(1))

    first = 0
    for number, passage in enumerate(passages):
        with torch.no_grad():
            expected, _ = whole.losses([number])
            parts = [single.losses([first + place])[0] for place in range(len(passage.queries))]
        for name in ("single", "distilled"):
            mean = sum(float(part[name]) for part in parts) / len(parts)
            assert mean == pytest.approx(float(expected[name]), rel=1e-4), name
        first += len(passage.queries)

    reports = train(new_model(), passages, tmp_path / "c.pt", replace(settings, epochs=2))
    assert reports[-1].step == reports[0].steps == 2 * len(epoch)


def test_the_recipe_of_the_paper_learns(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    settings = replace(PAPER, batch_queries=8, learning_rate=1e-2, epochs=12)
    reports = train(new_model(), passages, tmp_path / "c.pt", settings)
    losses = [step.means["single"] for step in reports]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_other_answers_of_the_same_passage_are_no_negatives(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    (first, *_) = (passage for passage in passages if len(passage.queries) > 1)
    for step in train(new_model(), [first], tmp_path / "c.pt", replace(SETTINGS, pre_batches=0)):
        assert step.means["negatives"] == 0.0
        assert step.means["tokens"] > 0.0


def test_the_same_seed_gives_the_same_loss_curve(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        one, same = (
            train(new_model(), passages, tmp_path / f"{name}.pt") for name in ("one", "same")
        )
    finally:
        torch.set_num_threads(threads)
    other = train(new_model(), passages, tmp_path / "other.pt", replace(SETTINGS, seed=1))
    assert (
        [step.means for step in one]
        == [step.means for step in same]
        != [step.means for step in other]
    )


def test_two_seeds_share_no_epoch(
    new_model: Callable[..., Model], passages: list[PreparedPassage]
) -> None:
    trainers = [
        EncoderRun(new_model(), [*passages] * 20, replace(SETTINGS, seed=seed))
        for seed in (0, 1, 2)
    ]
    epochs = [str(list(trainer.epoch(number))) for trainer in trainers for number in range(3)]
    assert len(set(epochs)) == len(epochs)


def test_accumulated_gradients_are_those_of_the_whole(
    new_model: Callable[..., Model], passages: list[PreparedPassage]
) -> None:
    # Losses that look at one passage at a time; L_neg has fewer negatives in smaller batches,
    # L_filter other weights.
    settings = replace(SETTINGS, negatives_weight=0.0, tokens_weight=0.0, filter_weight=0.0)
    parts = [[0, 1, 2], [3], [4, 5]]  # of 6, 2 and 4 queries
    gradients = []
    for members in (parts, [[place for part in parts for place in part]]):
        trainer = EncoderRun(new_model(), passages, settings)
        before = [value.clone() for value in trainer.optimizer.values()]
        report = trainer._one_step(members)
        moved = [value - old for value, old in zip(trainer.optimizer.values(), before, strict=True)]
        gradients.append((report.means["single"], torch.cat([part.flatten() for part in moved])))
    (loss, accumulated), (whole_loss, whole) = gradients
    assert loss == pytest.approx(whole_loss, rel=0.02)  # bfloat16 where the machine has it
    assert torch.nn.functional.cosine_similarity(accumulated, whole, dim=0) > 0.9


@pytest.mark.parametrize("accumulate", [2, 4, 100])
def test_several_batches_make_a_step(
    accumulate: int,
    new_model: Callable[..., Model],
    passages: list[PreparedPassage],
    tmp_path: Path,
) -> None:
    batches = EncoderRun(new_model(), passages, SETTINGS).steps
    reports = train(
        new_model(), passages, tmp_path / "c.pt", replace(SETTINGS, accumulate=accumulate)
    )
    assert [step.step for step in reports] == list(range(1, math.ceil(batches / accumulate) + 1))
    assert min(step.size for step in reports) > SETTINGS.batch_tokens  # of one batch: at most that


def test_word_embeddings_stay_frozen(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    model = new_model()
    before = model.phrases.backbone.get_input_embeddings().weight.clone()
    other = model.phrases.filter.weight.detach().clone()
    train(model, passages, tmp_path / "c.pt")
    assert (model.phrases.backbone.get_input_embeddings().weight == before).all()
    assert (model.phrases.filter.weight != other).any()


def test_dropout_leaves_out_other_values_in_every_step(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    still = replace(SETTINGS, learning_rate=0.0, epochs=2, dropout=0.2)
    without, first, again = (
        train(new_model(), passages, tmp_path / f"{number}.pt", replace(still, dropout=share))
        for number, share in enumerate((0.0, 0.2, 0.2))
    )
    assert first == again
    assert all(
        one.means["single"] != other.means["single"]
        for one, other in zip(without, first, strict=True)
    )
    trainer = EncoderRun(new_model(), passages, still)
    trainer.model.phrases.train()
    losses = set()
    for done in (0, 1, 1):
        trainer.optimizer.done = done
        losses.add(trainer._one_step([[0, 1]]).means["single"])
    assert len(losses) == 2  # by step


@pytest.mark.parametrize("saves", ["every step", "never"])
@pytest.mark.parametrize("stop", [1, 4, 9])
@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.2])
def test_a_killed_run_ends_with_the_same_parameters(
    dropout: float,
    stop: int,
    saves: str,
    new_model: Callable[..., Model],
    passages: list[PreparedPassage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = replace(SETTINGS, dropout=dropout)
    whole = new_model()
    steps = train(whole, passages, tmp_path / "whole.pt", settings)
    assert len(steps) > 9
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", -1.0 if saves == "every step" else 1e9)
    with pytest.raises(Killed):
        train(new_model(), passages, tmp_path / "killed.pt", settings, stop=stop)
    resumed = new_model()
    rest = train(resumed, passages, tmp_path / "killed.pt", settings)
    assert rest == steps[len(steps) - len(rest) :]
    assert len(rest) == len(steps) - (stop - 1 if saves == "every step" else 0)
    for one, other in zip(whole.phrases.parameters(), resumed.phrases.parameters(), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(whole.queries.parameters(), resumed.queries.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_finished_run_is_not_run_again(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    train(new_model(), passages, tmp_path / "c.pt")
    assert train(new_model(), passages, tmp_path / "c.pt") == []


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[3, 2, 4, 3], [2, 3, 3, 2], [4, 1, 1, 9]])
def test_epochs_may_differ_in_their_number_of_batches(
    sizes: list[int],
    new_model: Callable[..., Model],
    passages: list[PreparedPassage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = iter(range(30))

    def uneven(_: object, __: int, rng: random.Random) -> Iterator[list[int]]:
        assert next(asked, None) is not None, "the loop does not move on"
        epoch = next(
            number for number in range(30) if rng.getstate() == random.Random(number).getstate()
        )
        return iter([[(epoch + place) % 12] for place in range(sizes[epoch % 4])])

    monkeypatch.setattr(batching, "batches", uneven)
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", -1.0)
    whole = train(new_model(), passages, tmp_path / "whole.pt")
    assert [step.step for step in whole] == list(range(1, 3 * sizes[0] + 1))
    for stop in range(2, len(whole)):
        asked = iter(range(30))
        with pytest.raises(Killed):
            train(new_model(), passages, tmp_path / f"{stop}.pt", stop=stop)
        assert train(new_model(), passages, tmp_path / f"{stop}.pt") == whole[stop - 1 :]


@pytest.mark.parametrize(
    "change",
    [
        lambda passages, settings: (passages, replace(settings, learning_rate=1.0)),
        lambda passages, settings: (passages, replace(settings, seed=5)),
        lambda passages, settings: (passages[:-1], settings),
        lambda passages, settings: (
            [replace(passages[0], queries=((2, 3, 3),) * 2), *passages[1:]],
            settings,
        ),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    change: Callable[..., Any],
    new_model: Callable[..., Model],
    passages: list[PreparedPassage],
    tmp_path: Path,
) -> None:
    train(new_model(), passages, tmp_path / "c.pt")
    changed, settings = change(passages, SETTINGS)
    with pytest.raises(TrainingError, match=r"c\.pt was written with other"):
        train(new_model(), changed, tmp_path / "c.pt", settings)


def test_a_checkpoint_of_another_encoder_or_reader_is_refused(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    train(new_model(), passages, tmp_path / "c.pt")
    other = new_model()
    frozen = next(weights for weights in other.phrases.parameters() if not weights.requires_grad)
    frozen.data[5] += 0.5
    with pytest.raises(TrainingError, match=r"c\.pt was written with other"):
        train(other, passages, tmp_path / "c.pt")
    other = new_model()
    learning = next(weights for weights in other.phrases.parameters() if weights.requires_grad)
    learning.data[0] += 0.5
    with pytest.raises(TrainingError, match=r"c\.pt was written with other"):
        train(other, passages, tmp_path / "c.pt")
    taught = ReaderOutputs([], "a reader")
    with pytest.raises(TrainingError, match=r"c\.pt was written with other"):
        EncoderRun(new_model(), passages, SETTINGS, taught).run(
            tmp_path / "c.pt", lambda step: None
        )


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_dropout_is_of_hidden_states_alone(
    share: float, new_model: Callable[..., Model], passages: list[PreparedPassage]
) -> None:
    model = new_model()
    EncoderRun(model, passages, replace(SETTINGS, dropout=share))
    shares = {
        name: part.p
        for name, part in model.phrases.named_modules()
        if isinstance(part, torch.nn.Dropout)
    }
    of_attention = {name for name in shares if name.endswith("attention.self.dropout")}
    assert of_attention
    assert {shares[name] for name in of_attention} == {0.0}
    assert {shares[name] for name in shares.keys() - of_attention} == {share}


def test_the_filter_learns_where_answers_open_and_close(
    new_model: Callable[..., Model], passages: list[PreparedPassage]
) -> None:
    model = new_model()
    trainer = EncoderRun(model, passages, SETTINGS)
    members = [0, 1, 2]
    batch = collate(model, [passages[index] for index in members])
    with torch.inference_mode():
        logits = model.phrases(*batch.windows)[1].float()
    owned = (batch.passage_of_token >= 0).reshape(logits.shape[:2])
    opens, closes = (
        gold.any(dim=0).reshape(owned.shape) for gold in (batch.gold_starts, batch.gold_ends)
    )
    assert (opens != closes).any()
    assert not owned.all()
    expected = filter_loss(logits, torch.stack([opens, closes], dim=2).float(), owned)
    assert float(trainer.losses(members)[0]["filter"].detach()) == pytest.approx(
        float(expected), rel=1e-3
    )
    swapped = filter_loss(logits, torch.stack([closes, opens], dim=2).float(), owned)
    assert float(swapped) != pytest.approx(float(expected), rel=1e-3)


def test_a_full_disk_is_said(
    new_model: Callable[..., Model],
    passages: list[PreparedPassage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save = torch.save
    monkeypatch.setattr(torch, "save", lambda state, path: save(state, "/dev/full"))
    with pytest.raises(TrainingError, match=r"c\.pt cannot be written \(.+\): free disk space"):
        train(new_model(), passages, tmp_path / "c.pt")


@pytest.mark.parametrize(("pre_batches", "queued"), [(0, 0), (1, 1), (2, 2)])
def test_the_queue_holds_the_answers_of_the_last_batches(
    pre_batches: int,
    queued: int,
    new_model: Callable[..., Model],
    passages: list[PreparedPassage],
    tmp_path: Path,
) -> None:
    settings = replace(SETTINGS, pre_batches=pre_batches, pre_batches_from=0.0)
    trainer = EncoderRun(new_model(), passages, settings)
    seen: list[int] = []
    trainer.run(
        tmp_path / "c.pt", lambda step: seen.append(sum(len(part[2]) for part in trainer.queue))
    )
    starts, ends, answers = trainer._queue()
    if not queued:
        assert len(starts) == len(ends) == len(answers) == 0
    else:
        assert len(starts) == len(ends) == len(answers) == seen[-1]
        assert len(trainer.queue) == queued


def test_the_queue_is_used_after_its_warm_up(
    new_model: Callable[..., Model], passages: list[PreparedPassage], tmp_path: Path
) -> None:
    trainer = EncoderRun(new_model(), passages, replace(SETTINGS, pre_batches_from=0.5))
    used: list[bool] = []
    trainer.run(tmp_path / "c.pt", lambda step: used.append(len(trainer._queue()[0]) > 0))
    assert used == [step + 1 >= 0.5 * trainer.steps for step in range(trainer.steps)]


@pytest.mark.parametrize("same_answers", [False, True])
def test_the_same_answer_elsewhere_is_a_negative_where_that_is_wanted(
    same_answers: bool, new_model: Callable[..., Model], passages: list[PreparedPassage]
) -> None:
    # All queries have the same answer, and every passage has one query.
    same = [
        replace(one, queries=one.queries[:1], answers=(7,), golds=one.golds[:1]) for one in passages
    ]
    settings = replace(SETTINGS, same_answers=same_answers, pre_batches_from=0.0)
    trainer = EncoderRun(new_model(), same, settings)
    for members in ([0, 1], [2, 3]):  # the second batch has the first one in its queue
        losses, _ = trainer.losses(members)
        assert (float(losses["negatives"].detach()) > 0.01) == same_answers


def test_the_same_answer_elsewhere_is_spared_among_all_tokens(
    new_model: Callable[..., Model], passages: list[PreparedPassage]
) -> None:
    one = [
        replace(passage, queries=passage.queries[:1], golds=passage.golds[:1])
        for passage in passages[:2]
    ]
    losses = []
    for numbers in ((7, 7), (7, 8)):
        asked = [
            replace(passage, answers=(number,))
            for passage, number in zip(one, numbers, strict=True)
        ]
        losses.append(EncoderRun(new_model(), asked, SETTINGS).losses([0, 1])[0]["tokens"].detach())
    assert float(losses[0]) < float(losses[1])  # fewer negatives
