"""Training of a generator: it learns to ask, a killed run ends with the same generator, and bad input is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbq.errors import KbqError
from kbq.training.engine import StepReport
from kbq.training.examples import Passage, TrainingQuery
from kbq.training.generator import LONGEST, Generator, Marked, asked_answers, new_generator, perplexity, train_generator
from kbq.training.settings import GeneratorSettings

from .conftest import CITIES, sentence

Asked = dict[str, Any]  # arguments of `train_generator`
RIVER = "- - - river - - - {}"


@pytest.fixture
def examples(write_json_lines: Callable[..., Path]) -> Path:
    """Two sentences about some cities; of one the city is asked for, of the other the river."""
    lines = []
    for city in CITIES[:4]:
        asked = [(sentence(city), city, "the city?"), (RIVER.format(city), "river", "was born?")]
        for text, answer, question in asked:
            answers = [{"text": answer, "answer_start": text.index(answer)}]
            lines.append({"context": text, "questions": [{"question": question, "answers": answers}]})
    return write_json_lines("examples.jsonl", *lines)


@pytest.fixture
def given(checkpoint: Path, examples: Path, tmp_path: Path) -> Asked:
    settings = GeneratorSettings(epochs=3, batch_tokens=300, learning_rate=1e-2)
    return {
        "examples": [examples],
        "out": tmp_path / "out",
        "init": checkpoint,
        "dev": examples,
        "settings": settings,
        "device": "cpu",
        "command": "kbq train",
    }


def test_it_learns_what_to_ask(given: Asked, tmp_path: Path) -> None:
    steps: list[StepReport] = []
    settings = replace(given["settings"], epochs=300)
    outcome = train_generator(**given | {"settings": settings}, on_step=steps.append)
    assert (outcome.passages, outcome.queries, outcome.dev_queries) == (8, 8, 8)
    assert steps[0].means["question"] > 2 > 1 > steps[-1].means["question"]
    assert 1 <= outcome.perplexity < 2
    asked = [Marked("Marie Curie was born in ", "Rom", " in 1867."), Marked("- - - ", "river", " - - - Rom")]
    found = Generator.open(str(tmp_path / "out"), device="cpu").questions(asked)
    assert [text.replace(" ", "") for text in found] == ["thecity?", "wasborn?"]
    facts = json.loads((tmp_path / "out" / "training.json").read_text())
    assert facts["outcome"]["perplexity"] == outcome.perplexity
    assert list(facts["examples"]) == ["examples.jsonl"]


def test_a_generator_goes_on_learning(given: Asked, tmp_path: Path) -> None:
    settings = replace(given["settings"], epochs=30)
    begun: list[StepReport] = []
    steps: list[StepReport] = []
    first = train_generator(**given | {"out": tmp_path / "first", "settings": settings}, on_step=begun.append)
    more = given | {"init": tmp_path / "first", "settings": settings}
    second = train_generator(**more, on_step=steps.append)
    assert begun[0].means["question"] > 2 > 1.5 > steps[0].means["question"]
    assert second.perplexity < first.perplexity


def test_a_killed_run_gives_the_same_generator(given: Asked, goes_on: Callable[..., None]) -> None:
    goes_on(train_generator, given, 4, ("model.safetensors", "training.json"))


def test_a_question_that_is_too_long_is_left_out(checkpoint: Path) -> None:
    generator = new_generator(str(checkpoint), "cpu")
    place = ((0, 5),)
    questions = ["where ?", "the " * LONGEST, "the " * (LONGEST - 1)]
    queries = tuple(TrainingQuery("", question, place, ("Paris",)) for question in questions)
    asked = asked_answers(generator, [Passage("", "Paris.", queries, "")])
    assert [len(one.queries[0]) for one in asked] == [len(generator.tokenizer.tokenize("where ?")) + 1, LONGEST]
    assert {one.queries[0][-1] for one in asked} == {generator.tokenizer.sep_token_id}
    assert asked_answers(generator, []) == []


def test_perplexity_is_that_of_all_pieces_alike(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = new_generator(str(checkpoint), "cpu")
    generator.network.eval()
    queries = tuple(TrainingQuery("", question, ((0, 5),), ("Paris",)) for question in ("where?", "the city", "was"))
    asked = asked_answers(generator, [Passage("", "Paris.", queries, "")])
    whole = perplexity(generator, asked)
    monkeypatch.setattr("kbq.training.generator.AT_A_TIME", 1)
    assert perplexity(generator, asked) == pytest.approx(whole, rel=2e-2)  # bf16
    assert whole > 2


def test_a_long_answer_is_cut_to_what_the_network_reads(checkpoint: Path) -> None:
    generator = new_generator(str(checkpoint), "cpu")
    (ids,) = generator.prompts([Marked("", "river " * 400, "")])
    assert len(ids) == 256


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda given: given | {"out": given["examples"][0]}, "already exists: choose another folder"),
        (lambda given: given | {"init": "/none"}, "/none has no tokenizer that transformers can read"),
        (lambda given: given | {"examples": "/none"}, "none: cannot be read"),
    ],
)
def test_what_cannot_be_trained_is_refused(change: Callable[[Asked], Asked], message: str, given: Asked) -> None:
    with pytest.raises(KbqError, match=message):
        train_generator(**change(given))


def test_questions_that_are_all_too_long_are_refused(given: Asked, write_json_lines: Callable[..., Path]) -> None:
    long = {"question": "the " * 60, "answers": [{"text": "Rom", "answer_start": 0}]}
    passages = [{"context": f"Rom. {number}", "questions": [long]} for number in range(2)]
    examples = write_json_lines("long.jsonl", *passages)
    with pytest.raises(KbqError, match="no question of the training passages is short enough: at most 48"):
        train_generator(**given | {"examples": [examples]})
    with pytest.raises(KbqError, match="no question of the dev passages is short enough: at most 48 word pieces"):
        train_generator(**given | {"dev": examples})


def test_an_encoder_that_cannot_decode_is_refused(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    import transformers

    config = transformers.DistilBertConfig(vocab_size=200, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    source = make_checkpoint(tmp_path / "distil", config)
    with pytest.raises(KbqError, match="cannot become a generator"):
        new_generator(str(source), "cpu")
