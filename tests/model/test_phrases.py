"""Phrases: the vector of a token depends on its own window alone."""

import copy

import numpy as np
import pytest
import torch

from kbq.corpus.pages import Page
from kbq.model import devices
from kbq.model import model as phrases
from kbq.model.model import Model, encode_windows, window_tensors
from kbq.model.tokenizer import Window, tokenize, windows


@pytest.fixture(autouse=True)
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """16-bit products of a random network say nothing about right and wrong."""
    monkeypatch.setattr(devices, "fast_dtype", lambda device: torch.float32)


@pytest.fixture
def cut(model: Model, pages: list[Page]) -> list[Window]:
    texts = [paragraph.text for page in pages for paragraph in page.paragraphs]
    title, *paragraphs = tokenize(model.tokenizer, ["the city", *texts])
    return [
        window
        for paragraph in paragraphs
        for window in windows(model.tokenizer, title.ids, paragraph, model.config.window)
    ]


def encode(model: Model, cut: list[Window]) -> list[np.ndarray]:
    found = {
        index: np.concatenate([vectors, logits], axis=1)
        for index, vectors, logits in encode_windows(
            model.phrases, cut, model.tokenizer.pad_token_id, model.uses_segments
        )
    }
    return [found[index] for index in range(len(cut))]


def test_vectors_do_not_depend_on_batch_mates(
    model: Model, cut: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = encode(model, cut)
    assert [part.shape for part in together] == [(window.count, 18) for window in cut]
    monkeypatch.setattr(phrases, "batch_tokens", lambda device: 1)
    for one, other in zip(together, encode(model, cut), strict=True):
        assert np.abs(one - other).max() < 1e-4


def test_vectors_equal_those_of_the_backbone_in_float64(model: Model, cut: list[Window]) -> None:
    found = encode(model, cut)
    exact = copy.deepcopy(model.phrases.backbone).double()
    for window, vectors in zip(cut, found, strict=True):
        ids, mask, segments = window_tensors([window], 0, True, torch.device("cpu"))
        with torch.inference_mode():
            states = exact(
                input_ids=ids, attention_mask=mask, token_type_ids=segments
            ).last_hidden_state
        own = states[0, window.first : window.first + window.count].numpy()
        assert np.abs(vectors[:, :16] - own).max() < 1e-4, window


def test_tensors_of_windows() -> None:
    short, long = (
        Window([2, 7, 3], [0, 1, 1], 1, 1, 0),
        Window([2, 8, 3, 9, 3], [0, 0, 0, 1, 1], 3, 1, 0),
    )
    ids, mask, segments = window_tensors([short, long], 0, True, torch.device("cpu"))
    assert ids.tolist() == [[2, 7, 3, 0, 0], [2, 8, 3, 9, 3]]
    assert mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert segments is not None
    assert segments.tolist() == [[0, 1, 1, 0, 0], [0, 0, 0, 1, 1]]
    assert window_tensors([short], 0, False, torch.device("cpu"))[2] is None
