"""Calibration: the threshold keeps the stated share of the answers, and no value is clipped."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kbq.encoding.model import Model
from kbq.encoding.phrases import encode_windows
from kbq.training.batches import PreparedPassage, prepare
from kbq.training.calibration import calibrate
from kbq.training.examples import read_examples


def encode(model: Model, passage: PreparedPassage) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and better filter logits of a passage's tokens."""
    found = {
        index: (vectors, logits)
        for index, vectors, logits in encode_windows(
            model.phrases, passage.windows, model.tokenizer.pad_token_id, model.uses_segments
        )
    }
    vectors, logits = zip(*(found[index] for index in range(len(found))), strict=True)
    return np.concatenate(vectors), np.concatenate(logits).max(axis=1)


@pytest.mark.parametrize("answers_kept", [0.5, 0.9, 0.99, 1.0])
def test_the_stated_share_of_answers_passes_the_filter(
    answers_kept: float, new_model: Callable[..., Model], examples_file: Path
) -> None:
    model = new_model()
    passages, _ = prepare(model.reader, model.config.window, read_examples([examples_file])[0], 12)
    share = calibrate(model, passages, answers_kept)
    threshold = model.config.filter_threshold
    chances = [encode(model, passage)[1] for passage in passages]
    passing = [
        any(chance[first] > threshold and chance[last] > threshold for first, last in places)
        for passage, chance in zip(passages, chances, strict=True)
        for places in passage.golds
    ]
    assert len(passing) == 24
    wanted = math.ceil(answers_kept * 24)
    assert wanted <= sum(passing) <= wanted + 1
    assert share == pytest.approx(float((np.concatenate(chances) > threshold).mean()), abs=0.02)


def test_a_step_is_a_127th_of_the_largest_value(new_model: Callable[..., Model], examples_file: Path) -> None:
    model = new_model()
    passages, _ = prepare(model.reader, model.config.window, read_examples([examples_file])[0], 12)
    calibrate(model, passages)
    largest = np.max([np.abs(encode(model, passage)[0]).max(axis=0) for passage in passages], axis=0)
    assert model.scale.dtype == np.float32
    assert model.scale == pytest.approx(largest / 127, rel=0.05)
