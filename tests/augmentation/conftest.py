"""Fixtures: a generator that has learned one question, and a reader that has learned to answer it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUESTION = "Marie was born in?"
CITIES = ("Paris", "Warsaw", "Zug", "Bern", "Rom", "Wien", "Kiel", "Genf")


def sentence(city: str) -> str:
    return f"Marie Curie was born in {city} in 1867."


@pytest.fixture(scope="session")
def generator(make_tokenizer: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 of one layer that asks the same, whatever it reads."""
    import torch
    import transformers

    tokenizer = make_tokenizer(eos_token="[SEP]")
    config = transformers.T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        dropout_rate=0.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    network = transformers.T5ForConditionalGeneration(config)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-2)
    text = tokenizer(
        ["generate question: Marie <hl> Paris <hl>", "the <hl> 1 <hl>"],
        padding=True,
        return_tensors="pt",
    )
    labels = torch.tensor(
        [[*tokenizer(QUESTION, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]] * 2
    )
    for _ in range(80):
        network(
            input_ids=text["input_ids"], attention_mask=text["attention_mask"], labels=labels
        ).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    folder = tmp_path_factory.mktemp("generator")
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def reader_folder(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader that answers the question with the city."""
    import json

    from kbq.training.reader import train_reader
    from kbq.training.settings import ReaderSettings

    folder = tmp_path_factory.mktemp("reader")
    lines = []
    for city in CITIES:
        answers = [{"text": city, "answer_start": sentence(city).index(city)}]
        lines.append(
            {"context": sentence(city), "title": city, "question": QUESTION, "answers": answers}
        )
    examples = folder / "examples.jsonl"
    examples.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = ReaderSettings(epochs=60, batch_tokens=300, learning_rate=1e-2)
    outcome = train_reader(examples, folder / "out", checkpoint, dev=examples, settings=settings)
    assert outcome.em == 100
    return folder / "out"


@pytest.fixture
def corpus(write_json_lines: Callable[..., Path]) -> Path:
    """Three pages of two paragraphs: a sentence that the reader knows, and one without any mention."""
    pages = [
        {
            "id": f"P{city}",
            "title": f"Life in {city}",
            "paragraphs": [sentence(city), "the river was in the city"],
        }
        for city in CITIES[:3]
    ]
    return write_json_lines("corpus.jsonl", *pages)
