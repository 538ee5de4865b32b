"""SPARTA's training: the loss is that of the definition, and a few steps find the right sentences."""

import math
import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from kbq.encoding.windows import WindowShape
from kbq.errors import TrainingError
from kbq.sparse.sparta_model import SpartaConfig, SpartaModel, strongest_impacts
from kbq.training.examples import Passage, TrainingQuery
from kbq.training.sparta import (
    SpartaRequest,
    SpartaSettings,
    SpartaTrainer,
    calibrate_bias,
    neighbouring,
    prepare,
    train_sparta,
)


def passage(group: str, text: str, *queries: tuple[str, str]) -> Passage:
    asked = (
        TrainingQuery(str(number), question, ((text.index(answer), text.index(answer) + len(answer)),), (answer,))
        for number, (question, answer) in enumerate(queries)
    )
    return Passage("Curie", text, tuple(asked), group)


PASSAGES = [
    passage("a", "Marie was born in Warsaw. The river of Paris.", ("born in", "Warsaw"), ("river of", "Paris")),
    passage("a", "Curie was the city. In birth.", ("the city the", "Curie")),
    passage("b", "Paris of Paris. Born in the city.", ("place", "of"), ("who was born", "city")),
    passage("b", "The place of birth.", ("[SEP]", "birth"), ("birth", "place of")),
]


@pytest.fixture
def model(checkpoint: Path) -> SpartaModel:
    torch.manual_seed(0)
    made = SpartaModel.new(str(checkpoint), SpartaConfig(WindowShape(length=48, overlap=0)))
    for module in made.network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return made


def test_queries_point_at_the_sentences_of_their_answers(model: SpartaModel) -> None:
    examples = prepare(model, PASSAGES)
    assert [example.golds for example in examples] == [((0,), (1,)), ((0,),), ((0,), (1,)), ((0,),)]
    city, the = model.tokenizer.convert_tokens_to_ids(["city", "the"])
    assert examples[1].queries == (Counter({the: 2, city: 1}),)


def test_the_loss_is_the_cross_entropy_over_all_sentences_of_the_batch(
    model: SpartaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("kbq.training.sparta", "kbq.sparse.sparta_model"):
        monkeypatch.setattr(f"{module}.autocast", lambda device: torch.autocast("cpu", enabled=False))
    model.network.bias.data.fill_(-2.0)
    model.network.eval()
    examples = prepare(model, PASSAGES)
    windows = [window for example in examples for window in example.windows]
    impacts: list[dict[int, float]] = [{}] * len(windows)
    for index, terms, weights in strongest_impacts(model, windows, 10_000):
        impacts[index] = dict(zip(terms.tolist(), weights.tolist(), strict=True))
    losses = []
    first = 0
    for example in examples:
        for query, gold in zip(example.queries, example.golds, strict=True):
            scores = [sum(count * of.get(term, 0.0) for term, count in query.items()) for of in impacts]
            losses.append(math.log(sum(map(math.exp, scores))) - scores[first + gold[0]])
        first += len(example.windows)
    loss = SpartaTrainer(model, examples, SpartaSettings()).loss(examples)
    assert float(loss.detach()) == pytest.approx(sum(losses) / len(losses), abs=1e-5)


def test_it_learns(model: SpartaModel) -> None:
    examples = prepare(model, PASSAGES)
    calibrate_bias(model, examples, share=0.3)
    losses: list[float] = []
    settings = SpartaSettings(steps=100, passages=4, learning_rate=3e-3)
    SpartaTrainer(model, examples, settings).run(lambda step, loss: losses.append(loss))
    assert losses[-1] < losses[0] / 2


def test_the_bias_lets_a_share_of_the_impacts_be_positive(model: SpartaModel) -> None:
    examples = prepare(model, PASSAGES)
    model.network.eval()
    calibrate_bias(model, examples, share=0.25)
    windows = [window for example in examples for window in example.windows]
    kept = sum(len(terms) for _, terms, _ in strongest_impacts(model, windows, 10_000))
    assert kept / (len(windows) * len(model.terms)) == pytest.approx(0.25, abs=0.08)


def test_neighbours_share_a_batch(model: SpartaModel) -> None:
    batches = neighbouring(prepare(model, PASSAGES), 2, random.Random(0))
    groups = [[example.group for example in next(batches)] for _ in range(6)]
    assert all(one == other for one, other in groups)
    assert {group for group, _ in groups} == {"a", "b"}


def test_a_loss_that_is_no_number_stops(model: SpartaModel) -> None:
    model.network.bias.data.fill_(float("nan"))
    with pytest.raises(TrainingError, match="the loss is nan at step 0: lower --learning-rate"):
        SpartaTrainer(model, prepare(model, PASSAGES), SpartaSettings(steps=1)).run()


def test_from_a_file_to_a_model_folder(examples_file: Path, checkpoint: Path, tmp_path: Path) -> None:
    steps = []
    request = SpartaRequest([examples_file], tmp_path / "m", str(checkpoint), SpartaSettings(steps=3, passages=4))
    loss = train_sparta(request, lambda step, total: steps.append((step, total)))
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert 0 < loss < 10
    assert SpartaModel.open(tmp_path / "m", "cpu").config.training["settings"] == {
        "steps": 3,
        "passages": 4,
        "learning_rate": 3e-5,
        "seed": 0,
    }
    with pytest.raises(TrainingError, match="m already exists: choose another folder"):
        train_sparta(request)
