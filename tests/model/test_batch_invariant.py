"""Apart: a query has the same bits alone and in any batch, and but for rounding the vectors that a
batch has.
"""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from kbq.model import bert
from kbq.model.backbone import pretrained_backbone
from kbq.model.bert import alike, in_shape
from kbq.model.devices import autocast, padded
from kbq.model.model import Model
from kbq.model.queries import QueryEncoder, encode_queries

SOURCE = np.random.default_rng(0)
IDS = [[2, *SOURCE.integers(7, 90, length).tolist(), 3] for length in SOURCE.integers(1, 28, 40)]
CPU = torch.device("cpu")


@pytest.fixture(params=["bert", "distilbert"])
def backbone(
    request: pytest.FixtureRequest,
    checkpoint: Path,
    make_checkpoint: Callable[..., Path],
    tmp_path: Path,
) -> object:
    """kbq's own BERT, and another network, which transformers reads."""
    if request.param == "bert":
        return pretrained_backbone(checkpoint)
    config = transformers.DistilBertConfig(
        vocab_size=200, dim=16, n_layers=2, n_heads=2, hidden_dim=32
    )
    return pretrained_backbone(make_checkpoint(tmp_path / "other", config))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_query_has_the_same_bits_in_any_batch(
    backbone: object, shared: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.model.devices.fast_dtype", lambda device: dtype)
    encoder = QueryEncoder(backbone, shared).eval()
    alone = [encode_queries(encoder, [ids], 0) for ids in IDS]
    for first, stop in ((0, 40), (0, 2), (5, 12), (39, 40), (7, 38)):
        for side, vectors in enumerate(encode_queries(encoder, IDS[first:stop], 0)):
            expected = np.concatenate([vector[side] for vector in alone[first:stop]])
            assert vectors.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shared", [True, False])
def test_apart_is_as_together_but_for_rounding(
    backbone: object, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.model.devices.fast_dtype", lambda device: torch.float32)
    encoder = QueryEncoder(backbone, shared).eval()
    with torch.inference_mode():
        together = [side.numpy() for side in encoder(*padded(IDS, 0, CPU))]
    for apart, expected in zip(encode_queries(encoder, IDS, 0), together, strict=True):
        assert np.abs(apart - expected).max() < 1e-4


def test_all_batches_of_a_gpu_have_one_shape_for_a_length(
    backbone: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, shapes = QueryEncoder(backbone, True).eval(), set()

    def remembering(ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shapes.add(tuple(ids.shape))
        return QueryEncoder.forward(encoder, ids, mask)

    expected = encode_queries(encoder, IDS, 0)
    monkeypatch.setattr(encoder, "forward", remembering)
    monkeypatch.setattr(bert, "is_batch_invariant", lambda encoder, device: False)
    monkeypatch.setattr(bert, "batch_shape", lambda device: (16, 8))
    for found, vectors in zip(encode_queries(encoder, IDS, 0), expected, strict=True):
        assert np.abs(found - vectors).max() < 0.05
    assert shapes == {(16, 8), (16, 16), (16, 24), (16, 32)}


def test_a_batch_is_filled_with_its_first_text() -> None:
    ids, mask = in_shape([[2, 5, 3], [2, 3]], (3, 4), 0, CPU)
    assert ids.tolist() == [[2, 5, 3, 0], [2, 3, 0, 0], [2, 5, 3, 0]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]]


def test_texts_of_one_length_are_batched() -> None:
    assert list(alike([8, 9, 1, 8, 16], 2, 8)) == [([0, 2], 8), ([3], 8), ([1, 4], 16)]
    assert list(alike([3, 1, 3], 1, 1)) == [([1], 1), ([0], 3), ([2], 3)]
    assert list(alike([], 2, 8)) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_is_recorded_follows_inputs_shapes_and_weights(model_folder: Path) -> None:
    model, device = Model.open(model_folder, "cuda"), torch.device("cuda")
    queries, many = model.queries, torch.randint(1, 30, (4, 16), device=device)
    recorded = queries.recorded(device)

    def check() -> None:
        for ids in (many, many.flip(0), many[:, :8], many):
            given = ids, torch.ones_like(ids)
            with torch.inference_mode(), autocast(device, queries.start):
                expected = queries(*given)
            assert [
                torch.equal(one, other)
                for one, other in zip(recorded(*given), expected, strict=True)
            ] == [True] * 2

    check()
    with torch.no_grad():
        queries.start_head.get_parameter("weight").mul_(2)  # as an optimiser does
    check()
    for weight in queries.parameters():
        weight.data = weight.data + 0.01  # as moving a network does
    check()
    assert queries.recorded(device) is recorded
    assert copy.deepcopy(queries)._recorded is None
