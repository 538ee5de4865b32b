"""Calibration: after training, the size of an int8 step and the filter's threshold are read off real passages."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbq.encoding.model import Model
from kbq.encoding.phrases import encode_windows
from kbq.training.batches import PreparedPassage

Floats = NDArray[np.float32]
ANSWERS_KEPT = 0.95  # share of gold answers whose first and last token pass; on SQuAD the open EM falls by 0.4


def calibrate(model: Model, passages: Sequence[PreparedPassage], answers_kept: float = ANSWERS_KEPT) -> float:
    """Set the model's `scale` and filter threshold; returns the share of tokens that the filter keeps.

    `passages` should be ones that the model was not trained on.
    """
    flat = [window for passage in passages for window in passage.windows]
    owners = [number for number, passage in enumerate(passages) for _ in passage.windows]
    largest = np.full(model.dim, 1e-6, np.float32)
    chances: list[dict[int, float]] = [{} for _ in passages]  # position of a token → its better filter logit
    for index, vectors, logits in encode_windows(
        model.phrases, flat, model.tokenizer.pad_token_id, model.uses_segments
    ):
        largest = np.maximum(largest, np.abs(vectors).max(axis=0))
        for offset, chance in enumerate(logits.max(axis=1)):
            chances[owners[index]][flat[index].position + offset] = float(chance)
    model.scale = (largest / 127).astype(np.float32)
    weakest = [
        max(min(chance[first], chance[last]) for first, last in places)
        for passage, chance in zip(passages, chances, strict=True)
        for places in passage.golds
    ]
    # A token passes above the threshold, so that it stands just below the weakest answer that is kept.
    weakest_kept = np.quantile(np.array(weakest, np.float32), 1 - answers_kept, method="lower")
    threshold = float(np.nextafter(weakest_kept, np.float32(-np.inf)))
    model.config = dataclasses.replace(model.config, filter_threshold=threshold)
    everything = np.concatenate([np.fromiter(chance.values(), np.float32) for chance in chances])
    return float((everything > threshold).mean())
