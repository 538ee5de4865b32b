"""Attention: compute it again in the backward pass, a few texts at a time.

On a CPU, the fused backward pass of PyTorch is slow, and the plain one keeps a matrix of all pairs
of tokens per layer: gigabytes, which the system hands out and takes back in every step. Here a few
texts at a time go through matrices that stay in the cache. Source: arXiv 2205.14135, section 3.1
(recomputation, and the row sums in `_backward`).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from kbq.model.backbone import hugging_face
from kbq.model.bert import SelfAttention

NAME = "kbq_recomputed"
PAIRS = 800_000  # pairs of tokens, over all heads, that are computed together


class RecomputedAttention(torch.autograd.Function):
    """softmax(scale · q kᵀ + mask) v."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
    ) -> Tensor:
        """Shapes: q, k, v, result (texts, heads, tokens, size); mask, True where to look (texts, 1,
        tokens, tokens).
        """
        result = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        ctx.save_for_backward(q, k, v, mask, result)
        ctx.scale = scale
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of q, k and v."""
        q, k, v, mask, result = ctx.saved_tensors
        texts, heads, tokens, _ = q.shape
        step = max(1, PAIRS // (heads * tokens * k.shape[2]))
        parts = []

        for first in range(0, texts, step):
            some = slice(first, first + step)
            matrices = [matrix[some].flatten(0, 1) for matrix in (q, k, v, result, gradients[0])]
            if mask is None:
                seen = None
            else:
                seen = mask[some].expand(-1, heads, -1, -1).flatten(0, 1)
            parts.append(_backward(*matrices, mask=seen, scale=ctx.scale))

        grads = [torch.cat(part) for part in zip(*parts, strict=True)]
        return (
            *(grad.view(matrix.shape) for grad, matrix in zip(grads, (q, k, v), strict=True)),
            None,
            None,
        )


def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    result: Tensor,
    gradient: Tensor,
    *,
    mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Shapes: (texts · heads, tokens, size); products in the type of q, everything else in float32
    or better.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q @ k.mT).to(wide).mul_(scale)
    if mask is not None:
        scores.masked_fill_(~mask, torch.finfo(wide).min)
    weights = scores.softmax(dim=-1)
    slopes = (gradient @ v.mT).to(wide)
    slopes -= (gradient.to(wide) * result.to(wide)).sum(dim=-1, keepdim=True)
    slopes = slopes.mul_(weights).mul_(scale).to(q.dtype)
    return slopes @ k, slopes.mT @ q, weights.to(q.dtype).mT @ gradient


def recompute_attention(module: nn.Module) -> None:
    """Let every network inside use this attention, if it is on a CPU and can take another than its
    own.
    """
    for part in module.modules():
        if isinstance(part, SelfAttention) and part.query.weight.is_cpu:
            part.attend = RecomputedAttention.apply
        elif (
            getattr(part, "_supports_attention_backend", False)
            and next(part.parameters()).device.type == "cpu"
        ):
            library = hugging_face()
            library.AttentionInterface.register(NAME, _attention)
            library.AttentionMaskInterface.register(NAME, library.masking_utils.sdpa_mask)
            part.set_attn_implementation(NAME)  # type: ignore[operator]


def _attention(
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend for transformers. Shapes: q, k, v (texts, heads, tokens, size); result (texts, tokens,
    heads, size).
    """
    scale = scaling
    if scaling is None:
        scale = q.shape[-1] ** -0.5
    result: Tensor = RecomputedAttention.apply(q, k, v, mask, scale)  # type: ignore[no-untyped-call]
    return result.transpose(1, 2).contiguous(), None
