"""Generator: it reads the marked answer, and whatever is no generator is refused."""

from pathlib import Path

import pytest

from kbq.augmentation.augment import AROUND, Generator, Marked
from kbq.errors import ModelError, TrainingError

from .conftest import QUESTION


@pytest.mark.parametrize("beams", [1, 3])
def test_it_writes_what_it_learned(generator: Path, beams: int) -> None:
    asked = [Marked("", "Paris", ""), Marked("the city ", "Zug", " by the river")]
    found = Generator.open(str(generator), beams=beams, device="cpu").questions(asked)
    assert [text.replace(" ", "") for text in found] == [QUESTION.replace(" ", "")] * 2


def test_nothing_is_asked_for_nothing(generator: Path) -> None:
    assert Generator.open(str(generator), device="cpu").questions([]) == []


def test_long_contexts_are_cut_at_words(generator: Path) -> None:
    made = Generator.open(str(generator), "{title}|{before}|{answer}|{after}", device="cpu")
    words = "city " * 400
    title, before, answer, after = made._prompt(Marked(words, "Zug", f" {words}", "T")).split("|")
    assert (title, answer) == ("T", "Zug")
    for text in (before, after):
        assert AROUND - 10 < len(text) <= AROUND
        assert set(text.split()) == {"city"}


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("no answer", "does not hold {answer}"),
        ("{answer} {question}", "has 'question': write {before}, {answer}, {after}, {title}"),
        ("{answer", "expected '}' before end of string"),
        ("{} {answer}", "write {before}"),
    ],
)
def test_prompts_are_checked(generator: Path, prompt: str, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        Generator.open(str(generator), prompt, device="cpu")


def test_an_encoder_is_no_generator(checkpoint: Path, tmp_path: Path) -> None:
    for source in (checkpoint, tmp_path / "none"):
        with pytest.raises(ModelError, match="is not a sequence-to-sequence checkpoint"):
            Generator.open(str(source), device="cpu")
