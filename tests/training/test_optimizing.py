"""Optimizing: the steps of AdamW with this schedule, and checkpoints that are whole or refused."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from teach_second_look import give_rates
from torch import nn

from kbq.errors import TrainingError
from kbq.training.checkpoint import read_checkpoint, write_checkpoint
from kbq.training.engine import Optimizer

CPU = torch.device("cpu")
NO_RUN = {"settings": {}, "data": ""}


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))


def slide(optimizer: Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.add((optimizer.parameters[0] ** 2).sum())
        optimizer.step()


@pytest.mark.parametrize(
    ("warmup", "steps", "shares"),
    [
        (0.5, 4, [0.5, 1, 1, 0.5]),
        (0.2, 10, [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        (0.05, 4, [1, 1, 2 / 3, 1 / 3]),
        (0.0, 1, [1]),
        (1.0, 2, [0.5, 1]),
    ],
)
def test_the_learning_rate_rises_and_falls(warmup: float, steps: int, shares: list[float]) -> None:
    optimizer = Optimizer([parameter()], 0.1, warmup, steps)
    rates = []
    for _ in range(steps):
        slide(optimizer, 1)
        rates.append(optimizer.adam.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1 * share for share in shares])
    assert optimizer.done == steps


def test_steps_are_those_of_adamw_with_clipped_gradients() -> None:
    ours, plain = parameter(), parameter()
    slide(Optimizer([ours], 0.1, 0.2, 10), 10)
    optimizer = torch.optim.AdamW([plain], lr=0.1, weight_decay=0.01)
    for share in (0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8):
        optimizer.param_groups[0]["lr"] = 0.1 * share
        optimizer.zero_grad()
        (plain**2).sum().backward()  # type: ignore[no-untyped-call]
        assert plain.grad is not None
        plain.grad *= min(1.0, 1.0 / float(plain.grad.norm()))
        optimizer.step()
    assert ours.tolist() == pytest.approx(plain.tolist(), abs=1e-5)


def test_some_parameters_have_a_rate_of_their_own() -> None:
    both = [parameter(), parameter()]
    optimizer = Optimizer(both, 0.1, 0.5, 4)
    give_rates(optimizer, {both[1]: 0.01})
    optimizer.add(sum((one**2).sum() for one in both))  # type: ignore[arg-type]
    optimizer.step()
    moved = [(one.detach() - parameter().detach()).abs().tolist() for one in both]
    # The first step of AdamW is as large as the rate.
    assert moved[0] == pytest.approx([0.05] * 3, rel=0.05)
    assert moved[1] == pytest.approx([0.005] * 3, rel=0.05)


def test_the_rates_of_others_change_nothing() -> None:
    alone, beside = parameter(), parameter()
    slide(Optimizer([alone], 0.1, 0.2, 10), 10)
    unmoved = nn.Parameter(torch.zeros(1))
    optimizer = Optimizer([beside, unmoved], 0.1, 0.2, 10)
    give_rates(optimizer, {unmoved: 0.5})
    slide(optimizer, 10)
    assert beside.tolist() == alone.tolist()


def test_gradients_of_several_losses_add_up_and_are_forgotten_after_a_step() -> None:
    optimizer = Optimizer([parameter()], 0.1, 0.0, 9)
    for weight in (0.25, 0.75):
        optimizer.add(weight * optimizer.parameters[0].sum())
    gradient = optimizer.parameters[0].grad
    assert gradient is not None
    assert gradient.tolist() == [1.0, 1.0, 1.0]
    optimizer.step()
    assert optimizer.parameters[0].grad is None


def test_a_checkpoint_holds_all_that_later_steps_depend_on(tmp_path: Path) -> None:
    whole, killed, resumed = (Optimizer([parameter()], 0.1, 0.2, 10) for _ in range(3))
    slide(whole, 10)
    slide(killed, 4)
    write_checkpoint(tmp_path / "deep" / "c.pt", {"settings": {}, "data": ""} | killed.state())
    slide(killed, 1)  # must not reach what was written
    state = read_checkpoint(tmp_path / "deep" / "c.pt", CPU, NO_RUN, "triples")
    assert state is not None
    resumed.load_state(state)
    assert resumed.done == 4
    slide(resumed, 6)
    assert torch.equal(resumed.parameters[0], whole.parameters[0])
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["c.pt"]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_moves_nothing(wrong: float) -> None:
    optimizer = Optimizer([parameter()], 0.1, 0.0, 9)
    slide(optimizer, 2)
    before = optimizer.parameters[0].tolist()
    message = rf"the loss is {wrong} at step 2: delete the checkpoint .* learning_rate=… below 0\.1"
    with pytest.raises(TrainingError, match=message):  # noqa: PT012
        optimizer.add((optimizer.parameters[0] ** 2).sum() * wrong)
        optimizer.step()
    assert (optimizer.parameters[0].tolist(), optimizer.done) == (before, 2)


def test_the_first_of_several_losses_is_looked_at() -> None:
    optimizer = Optimizer([parameter()], 0.1, 0.0, 9)
    slide(optimizer, 1)
    with pytest.raises(TrainingError, match="the loss is inf at step 1"):  # noqa: PT012
        optimizer.add(optimizer.parameters[0].sum() + float("inf"))  # its gradient is finite
        optimizer.add(optimizer.parameters[0].sum())
        optimizer.step()


def test_a_gradient_that_is_no_number_moves_nothing() -> None:
    optimizer = Optimizer([parameter()], 0.1, 0.0, 9)
    before = optimizer.parameters[0].tolist()
    with pytest.raises(TrainingError, match="at step 0: delete the checkpoint"):  # noqa: PT012
        # The loss is 0, its gradient 0 × ∞.
        optimizer.add((optimizer.parameters[0] * 0).abs().sqrt().sum())
        optimizer.step()
    assert optimizer.parameters[0].tolist() == before


def test_no_checkpoint_is_a_fresh_start(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "c.pt", CPU, NO_RUN, "triples") is None


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        (
            {"seed": 1},
            "abc",
            r"c\.pt was written with other settings \(seed 0 then, 1 now\): use these again, or delete it",
        ),
        ({"seed": 0}, "abd", r"c\.pt was written with other triples: delete it to start again"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    settings: dict[str, int], data: str, message: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "c.pt", {"settings": {"seed": 0}, "data": "abc"})
    with pytest.raises(TrainingError, match=message):
        read_checkpoint(tmp_path / "c.pt", CPU, {"settings": settings, "data": data}, "triples")


class RunsWhenRead:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.marker,)


def cut(path: Path, size: int) -> None:
    """Write a checkpoint, and then only its first bytes, or all but its last ones."""
    write_checkpoint(path, {"settings": {}, "data": "", "best": [torch.zeros(100)]})
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    "write",
    [
        lambda path, marker: cut(path, 0),
        lambda path, marker: cut(path, 10),
        lambda path, marker: cut(path, -20),
        lambda path, marker: torch.save({"settings": RunsWhenRead(marker)}, path),
        lambda path, marker: path.write_bytes(pickle.dumps(RunsWhenRead(marker), protocol=2)),
        lambda path, marker: path.write_bytes(b"\x80\x02}q"),
        lambda path, marker: torch.save([1, 2], path),
        lambda path, marker: torch.save({"steps": 3}, path),
    ],
)
def test_a_checkpoint_that_is_damaged_or_from_elsewhere_is_refused_and_runs_no_code(
    write: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    write(tmp_path / "c.pt", tmp_path / "marker")
    with pytest.raises(
        TrainingError, match=r"c\.pt is damaged \(.*\): delete it to start again"
    ) as refusal:
        read_checkpoint(tmp_path / "c.pt", CPU, NO_RUN, "triples")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "marker").exists()


def test_a_kill_while_writing_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "c.pt", {"settings": {}, "data": "first"})

    def half(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path / "c.pt", {"settings": {}, "data": "second"})
    assert read_checkpoint(
        tmp_path / "c.pt", CPU, {"settings": {}, "data": "first"}, "triples"
    ) == {
        "settings": {},
        "data": "first",
    }
