"""Calibration: the regression is the best one; its file is read as it was written, for its own
search only.
"""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.optimize import minimize

from kbq.errors import ModelError
from kbq.reading.probability import (
    BELIEF,
    FEATURES,
    PENALTY,
    Calibration,
    SearchMode,
    chances_of,
    fit,
    own_calibration,
)

MODE = SearchMode("q1", "r1", "vectors + 4 BM25", 10)
CALIBRATION = Calibration(
    MODE, {name: number / 4 for number, name in enumerate(FEATURES)}, -1.5, 40, 30, {"0.9": 0.8}, {}
)


def test_the_regression_has_the_least_penalised_loss() -> None:
    source = np.random.default_rng(0)
    rows = source.normal(size=(200, 3)) * [1.0, 20.0, 0.01] + [0.0, 5.0, 1.0]
    right = source.random(200) < 1 / (1 + np.exp(-(rows[:, 0] + 0.1 * (rows[:, 1] - 5))))
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)

    def loss(solution: Any) -> float:
        logits = standard @ solution[:-1] + solution[-1]
        return float(
            np.logaddexp(0, np.where(right, -logits, logits)).sum()
            + PENALTY / 2 * (solution[:-1] ** 2).sum()
        )

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-7}).x
    expected = 1 / (1 + np.exp(-(standard @ best[:-1] + best[-1])))
    weights, intercept = fit(rows, right)
    assert chances_of(rows, weights, intercept) == pytest.approx(expected, abs=1e-5)


def test_a_feature_that_never_varies_counts_nothing() -> None:
    rows = np.column_stack([np.arange(40.0), np.full(40, 3.0)])
    weights, intercept = fit(rows, np.arange(40) > 20)
    assert weights[1] == 0.0
    assert np.isfinite([*weights, intercept]).all()
    assert chances_of(rows, weights, intercept)[0] < 0.05


def test_features_that_part_right_and_wrong_give_no_certainty() -> None:
    weights, intercept = fit(np.arange(40.0)[:, None], np.arange(40) > 20)
    assert (chances_of(np.array([[1e9], [-1e9]]), weights, intercept) % 1 != 0).all()


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    CALIBRATION.write(tmp_path / "c.json")
    assert Calibration.read(tmp_path / "c.json") == CALIBRATION
    assert len((tmp_path / "c.json").read_bytes()) < 2000
    assert '"second_look": 10' in (tmp_path / "c.json").read_text()  # files keep the name


def _with(change: Any) -> str:
    fields = msgspec.to_builtins(CALIBRATION)
    change(fields)
    return json.dumps({"format": 2, "digest": "0"} | fields)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "c.json is damaged"),
        ("[1]", "c.json is damaged"),
        (_with(lambda fields: None), "c.json is damaged"),  # its digest
        (_with(lambda fields: fields.pop("mode")), "c.json is damaged"),
        (json.dumps({"a": 1}), "c.json is not a calibration: make one with `kbq calibrate`"),
        (
            json.dumps({"format": 7}),
            "c.json has format version 7, this kbq reads 2: calibrate again",
        ),
    ],
)
def test_a_damaged_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        Calibration.read(tmp_path / "c.json")


def test_of_an_earlier_calibration_a_feature_that_it_lacks_counts_nothing() -> None:
    earlier = dataclasses.replace(CALIBRATION, weights={"judged": 0.5, "share": 2.0})
    assert earlier.all_weights == [2.0, 0.0, 0.5, *[0.0] * (len(FEATURES) - 3)]


def test_one_of_other_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it has weights for height, not for share"):
        dataclasses.replace(CALIBRATION, weights={"height": 1.0})


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"c.json does not exist: make it with `kbq calibrate`"):
        Calibration.read(tmp_path / "c.json")
    with pytest.raises(ModelError, match="nowhere"):
        CALIBRATION.write(tmp_path / "nowhere" / "c.json")


class _Model:
    """The part of a model that says where its calibrations are."""

    def __init__(self, source: Path, base: Path | None = None) -> None:
        self.source = str(source)
        self.config = SimpleNamespace(base=base and str(base))


def test_cells_have_a_calibration_of_their_own_where_there_is_one(tmp_path: Path) -> None:
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    of = {
        name: dataclasses.replace(CALIBRATION, intercept=intercept)
        for name, intercept in (
            ("base", 1.0),
            ("base cells", 2.0),
            ("tuned", 3.0),
            ("tuned cells", 4.0),
        )
    }
    for folder in (base, tuned):
        folder.mkdir()
    model: Any = _Model(tuned, base)
    assert own_calibration(model) is None
    of["base"].write(base / "calibration.json")
    assert (own_calibration(model), own_calibration(model, "cell")) == (of["base"], of["base"])
    of["base cells"].write(base / "calibration-of-cells.json")
    assert (own_calibration(model), own_calibration(model, "cell")) == (
        of["base"],
        of["base cells"],
    )
    of["tuned"].write(tuned / "calibration.json")
    assert (own_calibration(model), own_calibration(model, "cell")) == (of["tuned"], of["tuned"])
    of["tuned cells"].write(tuned / "calibration-of-cells.json")
    assert (own_calibration(model), own_calibration(model, "cell")) == (
        of["tuned"],
        of["tuned cells"],
    )


def test_what_differs_is_named() -> None:
    assert MODE.differences(MODE) == []
    assert MODE.differences(SearchMode("q2", "r1", "vectors", 10)) == [
        "query encoder q1, not q2",
        "scores vectors + 4 BM25, not vectors",
    ]


def test_few_items_change_little_and_none_nothing() -> None:
    random = np.random.default_rng(1)
    rows, right = random.normal(size=(400, len(FEATURES))), random.random(400) < 0.5
    rows[:, 0] += 2.0 * right
    weights, intercept = fit(rows, right)
    before = Calibration(
        MODE, dict(zip(FEATURES, weights, strict=True)), intercept, 400, int(right.sum()), {}, {}
    )
    assert fit(rows[:0], right[:0], before) == (weights, intercept)
    few, _ = fit(rows[:3], ~right[:3], before)
    many, _ = fit(np.tile(rows, (20, 1)), np.tile(~right, 20), before)
    assert few[0] == pytest.approx(weights[0], rel=0.3)
    assert many[0] < 0 < weights[0]


def test_drawing_is_a_penalty_on_the_distance() -> None:
    random = np.random.default_rng(2)
    rows, right = random.normal(size=(50, len(FEATURES))), random.random(50) < 0.4
    before = Calibration(MODE, dict.fromkeys(FEATURES, 0.5), -1.0, 1, 1, {}, {})

    def cost(solution: Any) -> float:
        scales, means = rows.std(axis=0), rows.mean(axis=0)
        logits = rows @ (solution[:-1] / scales) + solution[-1] - (solution[:-1] / scales) @ means
        expected = np.append(0.5 * scales, -1.0 + 0.5 * means.sum())
        loss = np.logaddexp(0, np.where(right, -logits, logits)).sum()
        return float(loss + BELIEF / 2 * ((solution - expected) ** 2).sum())

    found = minimize(cost, np.zeros(len(FEATURES) + 1), method="BFGS", options={"gtol": 1e-7}).x
    weights, _ = fit(rows, right, before)
    assert weights == pytest.approx(found[:-1] / rows.std(axis=0), abs=1e-4)
