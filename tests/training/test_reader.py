"""Reader: it learns to read, a killed run ends with the same reader, and the best phrase is found."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kbq.errors import KbqError
from kbq.reading.reader import Reader
from kbq.training.batches import Passage, TrainingQuery
from kbq.training.engine import StepReport
from kbq.training.reader import best_span, evaluate_reader, read_answers, train_reader
from kbq.training.settings import ReaderSettings

Asked = dict[str, Any]  # arguments of `train_reader`


@pytest.fixture
def asked(checkpoint: Path, examples_file: Path, tmp_path: Path) -> Asked:
    settings = ReaderSettings(epochs=3, batch_tokens=300, learning_rate=1e-2)
    return {
        "examples": [examples_file],
        "out": tmp_path / "out",
        "init": checkpoint,
        "settings": settings,
        "command": "kbq train",
    }


def test_it_learns(asked: Asked, examples_file: Path, tmp_path: Path) -> None:
    steps: list[StepReport] = []
    settings = replace(asked["settings"], epochs=60)
    outcome = train_reader(
        **asked | {"dev": examples_file, "settings": settings}, on_step=steps.append
    )
    assert (outcome.passages, outcome.queries, outcome.dev_queries, outcome.too_long) == (
        12,
        24,
        24,
        0,
    )
    losses = [step.means["reading"] for step in steps]
    assert losses[0] > 2 > 1 > losses[-1]
    assert outcome.em > 50
    assert outcome.f1 >= outcome.em
    facts = json.loads((tmp_path / "out" / "training.json").read_text())
    assert facts["outcome"]["em"] == outcome.em
    assert list(facts["examples"]) == ["examples.jsonl"]
    passage = Passage(
        "", "Marie was born in Paris.", (TrainingQuery("", "Where?", ((18, 23),), ("Paris",)),), ""
    )
    assert evaluate_reader(Reader.open(str(tmp_path / "out"), "cpu"), [passage])[2] == 1


def test_a_killed_run_gives_the_same_reader(asked: Asked, goes_on: Callable[..., None]) -> None:
    goes_on(train_reader, asked, 4, ("model.safetensors", "training.json"))


def test_it_learns_from_a_larger_reader(asked: Asked, larger_reader: Path) -> None:
    steps: list[StepReport] = []
    read: list[tuple[int, int]] = []
    settings = replace(asked["settings"], epochs=40)
    train_reader(
        **asked | {"distill": str(larger_reader), "settings": settings},
        on_step=steps.append,
        on_reading=lambda *counts: read.append(counts),
    )
    losses = [step.means["distilled"] for step in steps]
    assert losses[-1] < 0.7 * losses[0]
    assert read[-1] == (11, 11)  # a twentieth is set aside


def test_a_killed_distillation_gives_the_same_reader(
    asked: Asked, larger_reader: Path, goes_on: Callable[..., None]
) -> None:
    goes_on(
        train_reader,
        asked | {"distill": str(larger_reader)},
        4,
        ("model.safetensors", "training.json"),
    )


@pytest.fixture
def larger_reader(asked: Asked, tmp_path: Path) -> Path:
    settings = replace(asked["settings"], epochs=20)
    train_reader(**asked | {"out": tmp_path / "larger", "settings": settings})
    return tmp_path / "larger"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda asked: asked | {"out": asked["examples"][0]},
            "already exists: choose another folder",
        ),
        (lambda asked: asked | {"init": "/none"}, "is not a checkpoint that transformers can read"),
        (lambda asked: asked | {"examples": "/none"}, "none: cannot be read"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    change: Callable[[Asked], Asked], message: str, asked: Asked
) -> None:
    with pytest.raises(KbqError, match=message):
        train_reader(**change(asked))


def logits(starts: list[float], ends: list[float]) -> NDArray[np.float32]:
    return np.array([starts, ends], np.float32)


@pytest.mark.parametrize(
    ("starts", "ends", "span"),
    [
        ([1, 5, 0], [7, 0, 2], (0, 0)),  # (1, 0) would have 12, but ends before it starts
        ([1, 5, 0], [3, 0, 2], (1, 2)),
        ([0], [0], (0, 0)),
        ([9] + [0] * 19, [0] * 19 + [9], (0, 19)),  # 20 tokens
        ([9] + [0] * 20, [0] * 20 + [8], (0, 0)),  # 21 are too many
    ],
)
def test_best_span(starts: list[float], ends: list[float], span: tuple[int, int]) -> None:
    assert best_span(logits(starts, ends)) == span


def test_answers_are_whole_words_of_the_text(reader: Reader) -> None:
    text = "Marie Curie was born in Zug."
    asked = [
        ("Where?", text),
        ("city " * 140, text),
        ("Where?", ""),
        (" ", text),
        ("Who [SEP] birth", text),
    ]
    found = read_answers(reader, asked)
    assert [answer is None for answer in found] == [False, True, True, True, False]
    for answer in (found[0], found[4]):
        assert answer
        assert f" {answer}" in f" {text}"
        assert answer[-1] == "." or not text[text.index(answer) + len(answer)].isalpha()
