"""Fixtures: a tiny reader of this test run's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbq.model.model import Model
from kbq.reading.reader import Reader
from kbq.training.batches import Passage, PreparedPassage, TrainingQuery, prepare

LONG = "Marie Curie was born in Warsaw, in the city of Paris by the river. " * 16


@pytest.fixture
def new_reader(checkpoint: Path) -> Callable[..., Reader]:
    """Makes a reader with random weights; all heads of one seed are equal."""
    import torch

    def make(seed: int = 3, source: Path = checkpoint) -> Reader:
        torch.manual_seed(seed)
        reader = Reader.new(str(source), "cpu")
        with torch.no_grad():
            head: Any = reader.network.qa_outputs
            head.weight.copy_(torch.randn_like(head.weight))
        reader.network.eval()
        return reader

    return make


@pytest.fixture
def reader(new_reader: Callable[..., Reader]) -> Reader:
    """One of them."""
    return new_reader()


@pytest.fixture
def few_passages() -> list[Passage]:
    """A short passage with two queries, and a long one (several windows) with one."""
    short = "Marie was born in Paris."

    def query(text: str, passage: str, answer: str) -> TrainingQuery:
        start = passage.rindex(answer)
        return TrainingQuery("", text, ((start, start + len(answer)),), (answer,))

    return [
        Passage(
            "Marie",
            short,
            (query("born in?", short, "Paris"), query("Marie [SEP] birth", short, "Marie")),
            "a",
        ),
        Passage("the city", LONG, (query("Curie [SEP] place of birth", LONG, "river"),), "b"),
    ]


@pytest.fixture
def few_prepared(model: Model, few_passages: list[Passage]) -> list[PreparedPassage]:
    """The same, as token ids."""
    prepared, unusable = prepare(model.query_tokenizer, model.config.window, few_passages, 12)
    assert (len(prepared), unusable) == (2, (0, 0))
    return prepared
