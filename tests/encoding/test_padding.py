"""Padding: rows of equal length, and batches of texts of similar length."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kbq.encoding.devices import buckets, pad, padded, readable_length


@given(st.lists(st.integers(1, 40)), st.integers(1, 100))
def test_buckets_hold_every_text_once_and_respect_the_limit(lengths: list[int], max_tokens: int) -> None:
    batches = buckets(lengths, max_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= max_tokens


def test_buckets_group_texts_of_similar_length() -> None:
    assert buckets([5, 1, 4, 1], max_tokens=8) == [[1, 3], [2], [0]]
    assert buckets([], max_tokens=8) == []


@pytest.mark.parametrize(("longest", "padded"), [(1, 1), (159, 159), (160, 160), (161, 176), (176, 176), (250, 256)])
def test_long_rows_are_padded_to_a_multiple(longest: int, padded: int) -> None:
    matrix = pad([[7] * longest, [8]], 0, torch.device("cpu"))
    assert matrix.tolist() == [[7] * longest + [0] * (padded - longest), [8] + [0] * (padded - 1)]


@pytest.mark.parametrize(
    ("positions", "wanted", "length"),
    [(512, 256, 256), (250, 256, 240), (150, 256, 150), (170, 165, 160), (512, 24, 24)],
)
def test_what_a_network_reads_it_reads_padded(positions: int, wanted: int, length: int) -> None:
    network = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=positions))
    assert readable_length(network, wanted) == length
    assert pad([[1] * length], 0, torch.device("cpu")).shape[1] <= positions


def test_a_network_without_a_limit_reads_what_is_wanted() -> None:
    assert readable_length(SimpleNamespace(config=SimpleNamespace()), 384) == 384


def test_what_is_there_is_said() -> None:
    ids, mask = padded([[5, 6], [7], [8, 9, 4]], 1, torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 1], [7, 1, 1], [8, 9, 4]]
    assert mask.tolist() == [[1, 1, 0], [1, 0, 0], [1, 1, 1]]
