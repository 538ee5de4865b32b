"""Devices: which one is taken, and the copy of a network that computes fast there."""

from pathlib import Path

import pytest
import torch

from kbq.encoding import devices
from kbq.encoding.backbone import hidden_states, pretrained_backbone
from kbq.encoding.devices import choose_device
from kbq.errors import ModelError


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_devices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(name) == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "'cuda' asked for, but 0 CUDA devices are here: use --device cpu or auto"),
        ("cuda:1", "'cuda:1' asked for, but 0 CUDA devices are here"),
        ("gpu", "'gpu' is unknown: choose auto, cpu, cuda"),
        ("", "'' is unknown: choose auto, cpu, cuda"),
        ("meta", "'meta' is unknown: choose auto, cpu, cuda"),
    ],
)
def test_devices_that_are_not_there(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ModelError, match=message):
        choose_device(name)


def test_a_gpu_that_does_not_compute_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "_why_not", lambda gpu: None)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    monkeypatch.setattr(devices, "_why_not", lambda gpu: "CUDA error: no kernel image is available")
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ModelError, match=r"'cuda' cannot be used \(CUDA error: no kernel image is available\): use"):
        choose_device("cuda")


def test_the_gpu_that_is_asked_for_is_the_one_that_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(devices, "_why_not", tried.append)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert tried == [torch.device("cuda:1")]


def test_why_a_device_does_not_compute() -> None:
    assert devices._why_not(torch.device("cpu")) is None
    assert "meta" in str(devices._why_not(torch.device("meta")))


def test_a_fast_copy_is_one_of_its_own(checkpoint: Path) -> None:
    trained = pretrained_backbone(checkpoint).train()
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    fast = devices.fast_copy(trained, torch.device("cpu"))
    assert (fast.training, trained.training) == (False, True)
    assert {value.dtype for value in fast.parameters()} == {devices.fast_dtype(torch.device("cpu"))}
    assert all(torch.equal(before[name], value) for name, value in trained.state_dict().items())


def test_a_fast_copy_computes_the_same_states(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "fast_dtype", lambda device: torch.float32)
    trained = pretrained_backbone(checkpoint).eval()
    ids, mask = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.inference_mode():
        states, fast = (
            hidden_states(network, ids, mask, None)
            for network in (trained, devices.fast_copy(trained, torch.device("cpu")))
        )
    assert torch.allclose(states[mask.bool()], fast[mask.bool()], atol=1e-5)  # fused attention against plain
