"""SPARTA's training: the loss is that of the definition, and a few steps find the right sentences."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from killed import Killed, steps_of

from kbq.commands.teach import sparta_lines
from kbq.errors import TrainingError
from kbq.model.tokenizer import WindowShape
from kbq.training import engine
from kbq.training.batches import Passage, TrainingQuery, read_examples
from kbq.training.engine import StepReport
from kbq.training.settings import SpartaSettings
from kbq.training.sparta import (
    SentenceExample,
    SpartaRun,
    calibrate_bias,
    drawn_negatives,
    mean_reciprocal_rank,
    prepare,
    train_sparta,
)
from kbq.words.sparta import SentenceWindow, SpartaConfig, SpartaModel, strongest_impacts

SETTINGS = SpartaSettings(epochs=6, batch_tokens=60, learning_rate=3e-3)


def passage(group: str, text: str, *queries: tuple[str, str]) -> Passage:
    asked = (
        TrainingQuery(
            str(number),
            question,
            ((text.index(answer), text.index(answer) + len(answer)),),
            (answer,),
        )
        for number, (question, answer) in enumerate(queries)
    )
    return Passage("Curie", text, tuple(asked), group)


PASSAGES = [
    passage(
        "a",
        "Marie was born in Warsaw. The river of Paris.",
        ("born in", "Warsaw"),
        ("river of", "Paris"),
    ),
    passage("a", "Curie was the city. In birth.", ("the city the", "Curie")),
    passage("b", "Paris of Paris. Born in the city.", ("place", "of"), ("who was born", "city")),
    passage("b", "The place of birth.", ("[SEP]", "birth"), ("birth", "place of")),
]


@pytest.fixture
def new_sparta(checkpoint: Path) -> Callable[..., SpartaModel]:
    """Makes an untrained model, always the same."""

    def make(marked: bool = False) -> SpartaModel:
        torch.manual_seed(0)
        made = SpartaModel.new(
            str(checkpoint), SpartaConfig(WindowShape(length=48, overlap=0), marked)
        )
        made.network.bias.data.fill_(-2.0)
        return made

    return make


@pytest.fixture(params=["marked", "shared"])
def model(request: pytest.FixtureRequest, new_sparta: Callable[..., SpartaModel]) -> SpartaModel:
    return new_sparta(request.param == "marked")


def train(
    model: SpartaModel,
    examples: Sequence[SentenceExample],
    checkpoint: Path,
    settings: SpartaSettings = SETTINGS,
    stop: int = 10**6,
) -> list[StepReport]:
    return steps_of(SpartaRun(model, examples, settings), checkpoint, stop)


def windows_of(examples: Sequence[SentenceExample]) -> list[SentenceWindow]:
    return [window for example in examples for window in example.windows]


def test_queries_point_at_the_sentences_of_their_answers(model: SpartaModel) -> None:
    examples = prepare(model, PASSAGES)
    assert [example.golds for example in examples] == [((0,), (1,)), ((0,),), ((0,), (1,)), ((0,),)]
    city, the = model.tokenizer.convert_tokens_to_ids(["city", "the"])
    assert examples[1].queries == (Counter({the: 2, city: 1}),)


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute networks and impacts without 16 bits."""
    monkeypatch.setattr(
        "kbq.training.sparta.autocast", lambda device: torch.autocast("cpu", enabled=False)
    )
    monkeypatch.setattr("kbq.model.devices.fast_dtype", lambda device: torch.float32)


def summed(
    model: SpartaModel, examples: Sequence[SentenceExample]
) -> list[tuple[list[float], list[int]]]:
    """The score of each sentence for each query, added up term by term, and the right sentences."""
    impacts: list[dict[int, float]] = [{} for example in examples for _ in example.sentences]
    for index, terms, weights in strongest_impacts(model, windows_of(examples), 10_000):
        impacts[index] = dict(zip(terms.tolist(), weights.tolist(), strict=True))
    sums = []
    first = 0
    for example in examples:
        for query, gold in zip(example.queries, example.golds, strict=True):
            scores = [
                sum(count * of.get(term, 0.0) for term, count in query.items()) for of in impacts
            ]
            sums.append((scores, [first + place for place in gold]))
        first += len(example.sentences)
    return sums


@pytest.mark.usefixtures("in_float32")
def test_the_loss_is_the_cross_entropy_over_all_sentences_of_the_batch(model: SpartaModel) -> None:
    model.network.eval()
    examples = prepare(model, PASSAGES)
    losses = [
        math.log(sum(map(math.exp, scores))) - scores[right[0]]
        for scores, right in summed(model, examples)
    ]
    loss = SpartaRun(model, examples, SpartaSettings()).losses(range(len(examples)))[0]["sentences"]
    assert float(loss.detach()) == pytest.approx(sum(losses) / len(losses), abs=1e-5)


def test_it_learns(model: SpartaModel, tmp_path: Path) -> None:
    examples = prepare(model, PASSAGES)
    calibrate_bias(model, windows_of(examples), share=0.3)
    steps = train(
        model, examples, tmp_path / "c.pt", replace(SETTINGS, epochs=60, batch_tokens=1000)
    )
    assert steps[-1].means["sentences"] < 0.75 * steps[0].means["sentences"]


@pytest.mark.parametrize("saves", ["every step", "never"])
@pytest.mark.parametrize("stop", [1, 5])
def test_a_killed_run_ends_with_the_same_parameters(
    stop: int,
    saves: str,
    new_sparta: Callable[..., SpartaModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, killed, resumed = new_sparta(), new_sparta(), new_sparta()
    examples = prepare(whole, PASSAGES)
    steps = train(whole, examples, tmp_path / "whole.pt")
    assert len(steps) > 5
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", -1.0 if saves == "every step" else 1e9)
    with pytest.raises(Killed):
        train(killed, examples, tmp_path / "killed.pt", stop=stop)
    rest = train(resumed, examples, tmp_path / "killed.pt")
    assert rest == steps[len(steps) - len(rest) :]
    assert len(rest) == len(steps) - (stop - 1 if saves == "every step" else 0)
    for one, other in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("examples", "settings", "message"),
    [
        (2, SETTINGS, "written with other passages or dev examples"),
        (4, replace(SETTINGS, seed=1), "written with other settings"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    examples: int,
    settings: SpartaSettings,
    message: str,
    new_sparta: Callable[..., SpartaModel],
    tmp_path: Path,
) -> None:
    model = new_sparta()
    train(model, prepare(model, PASSAGES), tmp_path / "c.pt")
    with pytest.raises(TrainingError, match=message):
        train(model, prepare(model, PASSAGES[:examples]), tmp_path / "c.pt", settings)


def test_the_bias_lets_a_share_of_the_impacts_be_positive(model: SpartaModel) -> None:
    examples = prepare(model, PASSAGES)
    model.network.eval()
    windows = windows_of(examples)
    calibrate_bias(model, windows, share=0.25)
    found = [len(terms) for _, terms, _ in strongest_impacts(model, windows, 10_000)]
    assert sum(found) / (len(found) * len(model.terms)) == pytest.approx(0.25, abs=0.08)


def test_from_a_file_to_a_model_folder_and_on_from_there(
    examples_file: Path, checkpoint: Path, tmp_path: Path
) -> None:
    reports: list[StepReport] = []
    settings = SpartaSettings(epochs=0.5, batch_tokens=256)
    outcome = train_sparta(
        [examples_file], tmp_path / "m", checkpoint, settings=settings, on_step=reports.append
    )
    assert [(step.step, step.steps) for step in reports] == [(1, outcome.steps)]
    assert (outcome.passages, outcome.queries, outcome.left_out) == (12, 24, 0)
    made = SpartaModel.open(tmp_path / "m", "cpu")
    assert made.config.training["settings"] == asdict(settings)
    assert [path.name for path in tmp_path.glob("m*")] == ["m"]
    with pytest.raises(TrainingError, match="m already exists: choose another folder"):
        train_sparta(examples_file, tmp_path / "m", checkpoint, settings=settings)
    with pytest.raises(TrainingError, match="m was trained without marked=…: leave it out"):
        train_sparta(
            examples_file, tmp_path / "other", tmp_path / "m", marked=True, settings=settings
        )
    still = replace(settings, learning_rate=0.0)
    train_sparta(str(examples_file), tmp_path / "n", str(tmp_path / "m"), settings=still)
    assert SpartaModel.open(tmp_path / "n", "cpu").fingerprint() == made.fingerprint()


def test_queries_without_a_sentence_are_no_examples(
    write_json_lines: Callable[..., Path], checkpoint: Path, tmp_path: Path
) -> None:
    question = {"question": "the river", "answers": [{"text": "city. The", "answer_start": 0}]}
    file = write_json_lines(
        "q.jsonl", {"title": "t", "context": "city. The river", "questions": [question]}
    )
    with pytest.raises(TrainingError, match="no query has its answer within a sentence"):
        train_sparta(file, tmp_path / "m", checkpoint)


def test_half_of_the_drawn_negatives_are_near_by() -> None:
    gold = torch.zeros((40, 30), dtype=torch.bool)
    near = torch.zeros((40, 30), dtype=torch.bool)
    gold[:, 2] = near[:, :10] = True
    drawn = drawn_negatives(gold, near, 7, torch.Generator().manual_seed(1))
    assert not (drawn & gold).any()
    assert (drawn & near).sum(dim=1).tolist() == [4] * 40
    assert (drawn & ~near).sum(dim=1).tolist() == [3] * 40
    assert drawn.any(dim=0).sum() == 29  # every sentence but the right one is drawn for some query
    few = drawn_negatives(gold, near, 50, torch.Generator())
    assert few.sum(dim=1).tolist() == [9 + 20] * 40


@pytest.mark.usefixtures("in_float32")
def test_dev_queries_are_ranked_by_the_sums_of_impacts(
    model: SpartaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two windows at a time or all."""
    model.network.train()
    examples = prepare(model, PASSAGES)
    expected = []
    for scores, right in summed(model, examples):
        best = max(scores[place] for place in right)
        expected.append(1 / sum(score >= best for score in scores))
    assert 0 < sum(expected) < len(expected)  # neither all right nor all wrong
    for together in (2, 64):
        monkeypatch.setattr("kbq.training.sparta.SCORED_TOGETHER", together)
        found = mean_reciprocal_rank(model, examples)
        assert found == pytest.approx(sum(expected) / len(expected))
    assert model.network.training


def test_of_equal_sentences_the_right_one_is_last(model: SpartaModel) -> None:
    model.network.bias.data.fill_(-1e9)  # no impact is left
    assert mean_reciprocal_rank(model, prepare(model, PASSAGES[:1])) == 0.5


class Scored:
    """Stands for the scores of dev examples: gives those that are set, keeps the parameters, and is
    killed once, at a scoring.
    """

    def __init__(self, killed_at: int | None, *scores: float) -> None:
        self.killed_at = killed_at
        self.given = scores
        self.seen: dict[int, list[torch.Tensor]] = {}
        self.run: SpartaRun | None = None

    def __call__(self, model: SpartaModel, dev: object) -> float:
        assert self.run
        number = len(self.run.scores)
        if number == self.killed_at:
            self.killed_at = None
            raise Killed
        self.seen[number] = [value.detach().clone() for value in model.network.parameters()]
        return self.given[number]

    def finish(
        self,
        new_model: Callable[..., SpartaModel],
        settings: SpartaSettings,
        path: Path,
        stop: int = 10**6,
    ) -> tuple[SpartaRun, SpartaModel, list[StepReport]]:
        """Train, and once more if it was killed."""
        for last in (stop, 10**6):
            model = new_model()
            examples = prepare(model, PASSAGES)
            self.run = SpartaRun(model, examples, settings, examples[:1])
            try:
                return self.run, model, steps_of(self.run, path, last)
            except Killed:
                pass
        raise AssertionError("killed twice")


@pytest.fixture
def scored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scored:
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", -1.0)
    stand_in = Scored(*request.param)
    monkeypatch.setattr("kbq.training.sparta.mean_reciprocal_rank", stand_in)
    return stand_in


@pytest.mark.parametrize(
    ("scored", "stop", "kept"),
    [
        ((killed, *scores), stop, kept)
        for killed, stop in ((None, 3), (None, 4), (None, 5), (None, 99), (0, 99), (1, 99), (2, 99))
        for scores, kept in (((0.1, 0.5, 0.3), 4), ((0.5, 0.1, 0.5), 0), ((0.1, 0.2, 0.3), 8))
    ],
    indirect=["scored"],
)
def test_the_best_step_on_dev_examples_is_kept(
    stop: int,
    kept: int,
    scored: Scored,
    new_sparta: Callable[..., SpartaModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by a run that is killed before, at or after a step or in a scoring."""
    monkeypatch.setattr("kbq.training.batches.SCORED", 2)
    settings = replace(SETTINGS, epochs=4, batch_tokens=64)
    run, model, steps = scored.finish(new_sparta, settings, tmp_path / "c.pt", stop)
    assert run.steps == 8
    assert (tuple(run.scores), run.kept) == (scored.given, kept)
    expected = [scored.given[(step.step - 1) // 4] for step in steps]
    assert [step.dev for step in steps] == expected
    of_kept = scored.seen[kept // 4]
    for value, best in zip(model.network.parameters(), of_kept, strict=True):
        assert torch.equal(value, best)


@pytest.mark.parametrize("scored", [(killed, *range(11)) for killed in (None, 1, 3)], indirect=True)
@pytest.mark.parametrize(
    ("accumulate", "epochs", "dropout"), [(1, 4, 0.0), (3, 7, 0.2), (2, 0.4, 0.0), (3, 11, 0.1)]
)
def test_scores_of_dev_examples_change_no_step(
    accumulate: int,
    epochs: float,
    dropout: float,
    scored: Scored,
    new_sparta: Callable[..., SpartaModel],
    tmp_path: Path,
) -> None:
    """If each score is better, a run ends as one without dev examples."""
    settings = replace(
        SETTINGS, epochs=epochs, batch_tokens=64, accumulate=accumulate, dropout=dropout
    )
    plain = new_sparta()
    steps = train(plain, prepare(plain, PASSAGES), tmp_path / "plain.pt", settings)
    run, model, _ = scored.finish(new_sparta, settings, tmp_path / "c.pt")
    assert (run.steps, len(run.scores)) == (len(steps), 1 + min(10, len(steps)))
    for value, other in zip(model.network.parameters(), plain.network.parameters(), strict=True):
        assert torch.equal(value, other)


@pytest.mark.parametrize("scored", [(None, 0.1, math.nan), (None, math.inf)], indirect=True)
def test_a_score_that_is_no_number_ends_a_run(
    scored: Scored, new_sparta: Callable[..., SpartaModel], tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=r"the score of dev data is (nan|inf) at step \d: "):
        scored.finish(new_sparta, SETTINGS, tmp_path / "c.pt")


def test_a_checkpoint_with_other_dev_examples_is_refused(
    new_sparta: Callable[..., SpartaModel], tmp_path: Path
) -> None:
    model = new_sparta()
    examples = prepare(model, PASSAGES)
    steps_of(SpartaRun(model, examples, SETTINGS, examples[:1]), tmp_path / "c.pt")
    for dev in (examples[:2], []):
        other = SpartaRun(new_sparta(), examples, SETTINGS, dev)
        with pytest.raises(TrainingError, match="written with other passages or dev examples"):
            steps_of(other, tmp_path / "c.pt")


def test_dev_examples_choose_the_step_of_a_saved_model(
    examples_file: Path, checkpoint: Path, tmp_path: Path
) -> None:
    settings = SpartaSettings(epochs=1, batch_tokens=64, learning_rate=3e-3)
    reports: list[StepReport] = []
    outcome = train_sparta(
        examples_file,
        tmp_path / "m",
        checkpoint,
        dev=examples_file,
        settings=settings,
        on_step=reports.append,
    )
    assert outcome.dev_queries == outcome.queries
    assert len(outcome.scores) == 1 + min(10, outcome.steps)
    assert round(100 * (reports[-1].dev or 0), 2) in outcome.scores
    made = SpartaModel.open(tmp_path / "m", "cpu")
    assert list(made.config.training["dev"]) == [examples_file.name]  # type: ignore[call-overload]
    passages = read_examples(examples_file)[0]
    random.Random(0).shuffle(passages)
    examples = prepare(made, passages)
    assert 100 * mean_reciprocal_rank(made, examples) == pytest.approx(
        max(outcome.scores), abs=0.01
    )
    line = f"after {outcome.kept:,} steps  ({outcome.dev_queries:,} queries)"
    assert sparta_lines(tmp_path / "m", outcome)[1].endswith(line)


def test_dev_examples_without_a_sentence_are_refused(
    examples_file: Path,
    write_json_lines: Callable[..., Path],
    checkpoint: Path,
    tmp_path: Path,
) -> None:
    question = {"question": "the river", "answers": [{"text": "city. The", "answer_start": 0}]}
    dev = write_json_lines(
        "dev.jsonl", {"title": "t", "context": "city. The river", "questions": [question]}
    )
    with pytest.raises(
        TrainingError, match=r"dev\.jsonl: no query has its answer within a sentence"
    ):
        train_sparta(examples_file, tmp_path / "m", checkpoint, dev=dev)


def test_a_window_without_room_is_refused(
    examples_file: Path, checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        TrainingError, match="2 tokens has no room for a sentence: give window=… 128"
    ):
        train_sparta(
            examples_file,
            tmp_path / "out",
            str(checkpoint),
            marked=True,
            settings=SpartaSettings(window=2),
        )


def test_all_tokens_need_marked_sentences(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError,
        match="all tokens of a window count for one sentence only: give marked=…, too",
    ):
        train_sparta(
            "nowhere", tmp_path / "out", str(checkpoint), settings=SpartaSettings(all_tokens=True)
        )
