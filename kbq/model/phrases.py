"""Phrases: windows become token vectors, with the logits of the filter that decides which tokens to keep.

A phrase is represented by the vectors of its first and its last token, both from one encoder.
Source: arXiv 2012.12624, sections 3.2 and 4 (filter: section 4.4).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from kbq.array_types import Floats
from kbq.model.backbone import hidden_states
from kbq.model.devices import batch_tokens, buckets, fast_copy, pad, padded
from kbq.model.windows import Window


class PhraseEncoder(nn.Module):
    """Token vectors, and for each token the logits of opening (column 0) and closing (column 1) an answer."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.filter = nn.Linear(int(backbone.config.hidden_size), 2)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None) -> tuple[Tensor, Tensor]:
        """Shapes: inputs (windows, tokens); vectors (windows, tokens, dim), filter logits (windows, tokens, 2)."""
        vectors = hidden_states(self.backbone, ids, mask, segments)
        return vectors, self.filter(vectors)


def window_tensors(
    batch: Sequence[Window], pad_id: int, uses_segments: bool, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the ids, mask and segments of a batch of windows. Shapes: (windows, longest)."""
    ids, mask = padded([window.ids for window in batch], pad_id, device)
    segments = pad([window.segments for window in batch], 0, device) if uses_segments else None
    return ids, mask, segments


class EncodedBatch(NamedTuple):
    """Windows that were encoded together; tensors are on the encoder's device."""

    members: list[int]  # indices of the windows
    vectors: Tensor  # Shape: (windows, tokens, dim), float32; title and padding included
    logits: Tensor  # of the filter. Shape: (windows, tokens, 2)
    own: Tensor  # which tokens the window owns. Shape: (windows, tokens), bool


@torch.inference_mode()
def encode_batches(
    encoder: PhraseEncoder, windows: Sequence[Window], pad_id: int, uses_segments: bool, fast: Any = None
) -> Iterator[EncodedBatch]:
    """Encode windows, batched by length; `fast`: a `fast_copy` of the backbone, by default made here."""
    device = encoder.filter.weight.device
    fast = fast or fast_copy(encoder.backbone, device)
    for members in buckets([len(window.ids) for window in windows], batch_tokens(device)):
        batch = [windows[i] for i in members]
        vectors = hidden_states(fast, *window_tensors(batch, pad_id, uses_segments, device))
        spans = np.array([(window.first, window.first + window.count) for window in batch])
        first, stop = torch.from_numpy(spans).to(device).T[..., None]
        tokens = torch.arange(vectors.shape[1], device=device)
        yield EncodedBatch(members, vectors, encoder.filter(vectors), (tokens >= first) & (tokens < stop))


def encode_windows(
    encoder: PhraseEncoder, windows: Sequence[Window], pad_id: int, uses_segments: bool
) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield (index of a window, vectors of its own tokens, their filter logits), batched by length.

    Shapes: vectors (tokens, dim), logits (tokens, 2).
    """
    for batch in encode_batches(encoder, windows, pad_id, uses_segments):
        vectors, logits, is_own = (part.cpu().numpy() for part in batch[1:])
        for row, index in enumerate(batch.members):
            yield index, vectors[row, is_own[row]], logits[row, is_own[row]]
