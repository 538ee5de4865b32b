"""Sparta: looked-up impacts sum up to the training score; padding and context change nothing; words are counted."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from kbq.encoding.windows import WindowShape
from kbq.errors import ModelError
from kbq.sparse import sparta_model
from kbq.sparse.sentences import SentenceWindow, sentence_windows
from kbq.sparse.sparta import query_scores, sentence_tensors
from kbq.sparse.sparta_model import SpartaConfig, SpartaModel, strongest_impacts

TEXT = "Marie was born in Warsaw. The city of Paris. The river, a long long river of the city."


@pytest.fixture(scope="module")
def sparta(checkpoint: Path) -> SpartaModel:
    """Untrained, with a bias at which some of the terms are positive."""
    torch.manual_seed(0)
    made = SpartaModel.new(str(checkpoint), SpartaConfig(WindowShape(length=32, overlap=0)))
    made.network.bias.data.fill_(-3.0)
    made.network.eval()
    return made


@pytest.fixture(scope="module")
def windows(sparta: SpartaModel) -> list[SentenceWindow]:
    return [
        window
        for text in (TEXT, "Paris.")
        for window in sentence_windows(sparta.tokenizer, [7], text, sparta.config.window)
    ]


def by_definition(sparta: SpartaModel, window: SentenceWindow, term: int) -> float:
    """log(1 + ReLU(max e·s + b)) with one unpadded window, in float64."""
    ids, segments = torch.tensor([window.ids]), torch.tensor([window.segments])
    with torch.no_grad():
        states = sparta.network.backbone(input_ids=ids, token_type_ids=segments).last_hidden_state[0].double()
    products = states[segments[0] == 1] @ sparta.network.terms[term].detach().double()
    return float(torch.relu(products.max() + sparta.network.bias.detach()).log1p())


def test_impacts_are_those_of_the_definition_with_and_without_padding(
    sparta: SpartaModel, windows: list[SentenceWindow]
) -> None:
    terms = sparta.terms[::9]
    tensors = sentence_tensors(windows, sparta.tokenizer.pad_token_id, torch.device("cpu"))
    assert tensors[1].sum(dim=1).tolist() == [32, 32, 32, 6]  # the last one is padded
    with torch.no_grad():
        impacts = sparta.network(*tensors, terms)
    for row, window in zip(impacts, windows, strict=True):
        assert row.tolist() == pytest.approx([by_definition(sparta, window, int(t)) for t in terms], abs=1e-5)
    assert 0.05 < float((impacts > 0).float().mean()) < 0.95


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_the_index_sum_is_the_training_score(
    chunk: int, sparta: SpartaModel, windows: list[SentenceWindow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparta_model, "CHUNK", chunk)
    monkeypatch.setattr(sparta_model, "autocast", lambda device: torch.autocast("cpu", enabled=False))
    query = Counter(sparta.query_terms("the river, the city of Warsaw"))
    terms = sorted(query)
    with torch.no_grad():
        tensors = sentence_tensors(windows, sparta.tokenizer.pad_token_id, torch.device("cpu"))
        impacts = sparta.network(*tensors, torch.tensor(terms))
        (scores,) = query_scores(impacts, torch.tensor([[query[term] for term in terms]], dtype=torch.float32))
    for index, found, weights in strongest_impacts(sparta, windows, k=10_000):
        looked_up = dict(zip(found.tolist(), weights.tolist(), strict=True))
        total = sum(count * looked_up.get(term, 0.0) for term, count in query.items())
        assert total == pytest.approx(float(scores[index]), abs=1e-5)
        assert min(looked_up.values()) > 0


def test_the_strongest_stay(sparta: SpartaModel, windows: list[SentenceWindow]) -> None:
    for (index, every, impacts), (same, few, largest) in zip(
        strongest_impacts(sparta, windows, 10_000), strongest_impacts(sparta, windows, 5), strict=True
    ):
        assert (index, impacts[:5].tolist()) == (same, largest.tolist())
        assert set(every[impacts > largest[-1]].tolist()) <= set(few.tolist())
        assert (impacts.diff() <= 0).all()


def test_a_word_that_stands_twice_counts_twice(sparta: SpartaModel) -> None:
    impacts, counts = torch.tensor([[1.0, 0.5], [0.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 1.0]])
    assert query_scores(impacts, counts).tolist() == [[1.5, 2.0], [2.5, 2.0]]
    pieces = sparta.tokenizer.convert_ids_to_tokens(sparta.query_terms("the river [SEP] the city ʘ"))
    assert pieces == ["the", "river", "the", "city"]


def test_special_and_unused_pieces_are_no_terms(sparta: SpartaModel) -> None:
    pieces = sparta.tokenizer.convert_ids_to_tokens(sparta.terms.tolist())
    assert not {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[unused1]"} & set(pieces)
    assert "river" in pieces


def test_a_saved_model_is_the_same(sparta: SpartaModel, windows: list[SentenceWindow], tmp_path: Path) -> None:
    sparta.save(tmp_path / "m")
    again = SpartaModel.open(tmp_path / "m", "cpu")
    assert again.config == sparta.config
    for (_, *one), (_, *other) in zip(
        strongest_impacts(sparta, windows, 9), strongest_impacts(again, windows, 9), strict=True
    ):
        assert [values.tolist() for values in one] == [values.tolist() for values in other]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sparta.json", None, "is no SPARTA model"),
        ("sparta.json", "{", "is damaged"),
        ("sparta.json", '{"format": 9}', "of another format than 1"),
        ("model.safetensors", "x", "is damaged"),
    ],
)
def test_a_damaged_model_is_refused(
    name: str, content: str | None, message: str, sparta: SpartaModel, tmp_path: Path
) -> None:
    sparta.save(tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    if content is not None:
        (tmp_path / "m" / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        SpartaModel.open(tmp_path / "m")
