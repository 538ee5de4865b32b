"""Devices: the choice of a device, its fast number type, padding, and batches of texts of similar
length.
"""

import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kbq.errors import ModelError
from kbq.model import devices
from kbq.model.backbone import hidden_states, pretrained_backbone
from kbq.model.devices import buckets, choose_device, pad, padded, readable_length


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_devices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(name) == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cuda",
            "'cuda' does not exist, this machine has 0 CUDA devices.*: use device=cpu or auto",
        ),
        ("cuda:1", "'cuda:1' does not exist, this machine has 0 CUDA devices"),
        ("gpu", "'gpu' is unknown: choose auto, cpu, cuda"),
        ("", "'' is unknown: choose auto, cpu, cuda"),
        ("meta", "'meta' is unknown: choose auto, cpu, cuda"),
    ],
)
def test_devices_that_are_not_there(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ModelError, match=message):
        choose_device(name)


def test_a_driver_that_is_too_old_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old() -> None:
        raise RuntimeError(
            "The NVIDIA driver on your system is too old (found version 10010).\nPlease update it."
        )

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "init", too_old)
    with pytest.raises(
        ModelError,
        match=r"0 CUDA devices \(The NVIDIA driver .* \(found version 10010\)\.\): use dev",
    ):
        choose_device("cuda")


def test_auto_takes_the_cpu_and_says_once_that_the_driver_is_too_old(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def too_old() -> bool:
        warnings.warn(
            "CUDA initialization: The NVIDIA driver is too old (found version 10010).\nUpdate",
            stacklevel=2,
        )
        return False

    monkeypatch.setattr(torch.cuda, "is_available", too_old)
    devices._log_once.cache_clear()
    assert [choose_device("auto"), choose_device("auto")] == [torch.device("cpu")] * 2
    told = (
        "PyTorch warns of the GPU: CUDA initialization: The NVIDIA driver is too old (found "
        "version 10010)."
    )
    assert [record.message for record in caplog.records] == [told]


def test_a_gpu_that_does_not_compute_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "_why_not", lambda gpu: None)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    monkeypatch.setattr(devices, "_why_not", lambda gpu: "CUDA error: no kernel image is available")
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(
        ModelError, match=r"'cuda' cannot be used \(CUDA error: no kernel image is available\): use"
    ):
        choose_device("cuda")


def test_the_gpu_that_is_asked_for_is_the_one_that_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(devices, "_why_not", tried.append)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert tried == [torch.device("cuda:1")]


def test_why_a_device_does_not_compute() -> None:
    assert devices._why_not(torch.device("cpu")) is None
    assert "meta" in str(devices._why_not(torch.device("meta")))


@pytest.mark.parametrize(("knows_bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_without_bf16_computes_in_float16(
    knows_bf16: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda gpu: nullcontext())
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation: knows_bf16 or including_emulation,
    )
    assert devices.fast_dtype.__wrapped__(torch.device("cuda:0")) == dtype


def test_a_fast_copy_is_one_of_its_own(checkpoint: Path) -> None:
    trained = pretrained_backbone(checkpoint).train()
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    fast = devices.fast_copy(trained, torch.device("cpu"))
    assert (fast.training, trained.training) == (False, True)
    assert {value.dtype for value in fast.parameters()} == {devices.fast_dtype(torch.device("cpu"))}
    assert all(torch.equal(before[name], value) for name, value in trained.state_dict().items())


def test_a_fast_copy_computes_the_same_states(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "fast_dtype", lambda device: torch.float32)
    trained = pretrained_backbone(checkpoint).eval()
    ids, mask = (
        torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]),
        torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    )
    with torch.inference_mode():
        states, fast = (
            hidden_states(network, ids, mask, None)
            for network in (trained, devices.fast_copy(trained, torch.device("cpu")))
        )
    # Fused attention against plain.
    assert torch.allclose(states[mask.bool()], fast[mask.bool()], atol=1e-5)


@given(st.lists(st.integers(1, 40)), st.integers(1, 100))
def test_buckets_hold_every_text_once_and_respect_the_limit(
    lengths: list[int], max_tokens: int
) -> None:
    batches = buckets(lengths, max_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= max_tokens


def test_buckets_group_texts_of_similar_length() -> None:
    assert buckets([5, 1, 4, 1], max_tokens=8) == [[1, 3], [2], [0]]
    assert buckets([], max_tokens=8) == []


@pytest.mark.parametrize(
    ("longest", "padded"), [(1, 1), (159, 159), (160, 160), (161, 176), (176, 176), (250, 256)]
)
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
