"""Generative reader: its answer is that of transformers' own T5 with encoder outputs that are
joined by hand.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kbq.answers import Answer
from kbq.errors import ModelError, QueryError
from kbq.kb import KnowledgeBase
from kbq.reading import generative
from kbq.reading.generative import (
    LENGTH,
    MAX_QUERY,
    PROMPT,
    GenerativeReader,
    PromptTokenizer,
    open_any,
    placed,
)

QUERY = "Marie Curie [SEP] place of birth"


@pytest.fixture(scope="module")
def t5(make_tokenizer: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random T5 of two layers, whose answers depend on all that it reads."""
    transformers = pytest.importorskip("transformers")
    tokenizer = make_tokenizer(eos_token="[SEP]")
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, initializer_factor=3.0,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("t5")
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generative, "LONGEST", 8)


def paragraphs(*texts: str) -> list[Answer]:
    return [
        Answer(
            text,
            9.0 - number,
            str(number // 2),
            "Title",
            number,
            0,
            len(text),
            text,
            (0, len(text)),
        )
        for number, text in enumerate(texts)
    ]


def by_hand(folder: Path, hits: Sequence[Answer]) -> str:
    """Encode each paragraph by itself, join what the encoder gives, and take the likeliest token
    eight times.
    """
    import transformers

    network = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    states = []
    for hit in hits:
        text = PROMPT.format(query=QUERY, title=hit.title, context=hit.context)
        ids = tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt")["input_ids"]
        states.append(network.encoder(input_ids=ids).last_hidden_state)
    joined = transformers.modeling_outputs.BaseModelOutput(
        last_hidden_state=torch.cat(states, dim=1)
    )
    written = torch.tensor([[network.config.decoder_start_token_id]])
    for _ in range(8):
        logits = network(encoder_outputs=joined, decoder_input_ids=written).logits
        written = torch.cat([written, logits[:, -1].argmax(dim=1, keepdim=True)], dim=1)
        if written[0, -1] == network.config.eos_token_id:
            break
    return " ".join(tokenizer.decode(written[0], skip_special_tokens=True).split())


@pytest.mark.usefixtures("short")
def test_an_answer_is_that_of_joined_encoder_outputs(t5: Path) -> None:
    reader = open_any(str(t5), "cpu")
    assert isinstance(reader, GenerativeReader)
    hits = paragraphs(
        "Marie was born in Warsaw", "the river", "Paris city birth place of Marie Curie in the city"
    )
    expected = [by_hand(t5, some) for some in (hits[:1], hits, hits[::-1])]
    assert [reader.write(QUERY, some) for some in (hits[:1], hits, hits[::-1])] == expected
    assert len(set(expected)) > 1


@pytest.mark.usefixtures("short")
def test_it_answers_queries_and_kilt_records_of_any_task(t5: Path, kb: KnowledgeBase) -> None:
    (found,) = [kb.query(QUERY, 3, reader=t5, depth=2)]
    assert len(found) == 2
    assert len({answer.text for answer in found}) == 1
    for task in ("fever", "wow", "nq"):
        (line,) = kb.predict(
            [{"id": "1", "input": "Marie was born in Paris"}], task, reader=str(t5), depth=2
        )
        (output,) = line["output"]
        assert isinstance(output["answer"], str)
        assert output["provenance"]
    (line,) = kb.predict([{"id": "1", "input": "Marie was born in Paris"}], "fever")
    assert "answer" not in line["output"][0]


def test_a_written_text_stands_where_it_occurs() -> None:
    hits = paragraphs("the river", "born in Warsaw in 1867", "Warsaw")
    first, second, third = placed("warsaw", hits)
    assert (first.page_id, first.paragraph, first.start, first.end) == ("0", 1, 8, 14)
    assert (second.paragraph, second.start, second.end) == (0, 0, 9)
    assert (third.paragraph, third.start, third.end) == (2, 0, 6)
    assert [hit.paragraph for hit in placed("Vienna", hits)] == [0, 1, 2]
    assert [hit.paragraph for hit in placed("", hits)] == [0, 1, 2]


def changed(folder: Path, copy: Path, **config: object) -> Path:
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    for name in ("config.json", "generation_config.json"):
        facts = json.loads((copy / name).read_text()) | config
        (copy / name).write_text(
            json.dumps({key: value for key, value in facts.items() if value is not None})
        )
    return copy


def test_a_checkpoint_without_a_decoder_start_token_is_refused(t5: Path, tmp_path: Path) -> None:
    folder = changed(t5, tmp_path, decoder_start_token_id=None)
    with pytest.raises(
        ModelError,
        match="names no decoder start token, with which an answer begins: add decoder_st",
    ):
        open_any(str(folder), "cpu")


def test_a_checkpoint_that_is_larger_than_memory_is_refused(
    t5: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generative, "available_memory", lambda: 1000.0)
    with pytest.raises(
        ModelError, match=r"needs 0\.0 GB of memory, 0\.0 GB are free: use a smaller checkpoint"
    ):
        open_any(str(t5), "cpu")


def test_a_query_may_have_a_hundred_tokens() -> None:
    def by_blanks(text: str, add_special_tokens: bool) -> dict[str, list[str]]:
        return {"input_ids": text.split()}

    tokenizer = PromptTokenizer(by_blanks)
    assert MAX_QUERY == 100
    assert tokenizer.is_short_enough("word " * 100)
    assert len(tokenizer.ids_of("word " * 100)) == 100
    assert not tokenizer.is_short_enough("word " * 101)
    with pytest.raises(QueryError, match="has 101 tokens, the reader reads 100"):
        tokenizer.ids_of("word " * 101)


def test_a_query_that_leaves_no_room_is_refused(t5: Path, kb: KnowledgeBase) -> None:
    with pytest.raises(QueryError, match="tokens, the "):
        kb.query("river " * 120, reader=str(t5))
