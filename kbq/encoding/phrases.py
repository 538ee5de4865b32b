"""Phrases: every token of a paragraph becomes a vector, and the filter says which to keep.

A phrase is the vector of its first and the vector of its last token, both from one encoder.
Source: arXiv 2012.12624, sections 3.2 and 4 (filter: section 4.4).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kbq.array_types import Floats
from kbq.encoding.backbone import buckets, fast_copy, hidden_states, pad
from kbq.encoding.windows import Window

BATCH_TOKENS = 2048  # longer batches fall out of the CPU's cache; a GPU takes more
BATCH_TOKENS_CUDA = 65536


class PhraseEncoder(nn.Module):
    """Token vectors, and for each token how likely it opens (column 0) or closes (column 1) an answer."""

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
    """ids, mask and segments of a batch of windows. Shapes: (windows, longest)."""
    ids = pad((window.ids for window in batch), pad_id, device)
    lengths = torch.tensor([len(window.ids) for window in batch], device=device)
    mask = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
    segments = pad((window.segments for window in batch), 0, device) if uses_segments else None
    return ids, mask, segments


@torch.inference_mode()
def encode_windows(
    encoder: PhraseEncoder, batch: Sequence[Window], pad_id: int, uses_segments: bool
) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield (index of the window, vectors of its own tokens, their filter logits), batched by length.

    Shapes: vectors (tokens, dim), logits (tokens, 2).
    """
    device = encoder.filter.weight.device
    fast = fast_copy(encoder.backbone, device)
    limit = BATCH_TOKENS if device.type == "cpu" else BATCH_TOKENS_CUDA
    for members in buckets([len(window.ids) for window in batch], limit):
        states = hidden_states(fast, *window_tensors([batch[i] for i in members], pad_id, uses_segments, device))
        vectors, logits = states.cpu().numpy(), encoder.filter(states).cpu().numpy()
        for place, index in enumerate(members):
            own = slice(batch[index].first, batch[index].first + batch[index].count)
            yield index, vectors[place, own], logits[place, own]
