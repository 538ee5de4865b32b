"""Merging: what several query encoders have learned is added up, and only where they began alike."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from kbq.errors import ModelError, TrainingError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.model.model_folder import read_config, write_config
from kbq.tuning.merge_models import MergeOutcome, merge_models

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def tuned(
    judging_kb: KnowledgeBase,
    rows: Rows,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Path]:
    """Two query encoders, one for each relation."""
    folder = tmp_path_factory.mktemp("tuned")
    made = []
    for relation in ("birth", "place of birth"):
        triples = folder / f"{relation}.csv"
        mine = [row for row in rows if row["relation"] == relation]
        lines = ["subject,relation,object,page", *(",".join(f'"{value}"' for value in row.values()) for row in mine)]
        triples.write_text("\n".join(lines), "utf-8")
        settings: dict[str, Any] = {"k": 10, "epochs": 1, "batch": 5, "learning_rate": 1e-2, "keep": 0.0}
        outcome = judging_kb.finetune(triples, folder / relation, dev=triples, **settings)
        made.append(outcome.out)
    return made


def weights(source: str | Path | MergeOutcome) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = Model.open(os.fspath(source), "cpu").queries.state_dict()
    return found


def test_all_changes_are_added_up(judging_kb: KnowledgeBase, tuned: list[Path], tmp_path: Path) -> None:
    outcome = merge_models(tuned, tmp_path / "both", device="cpu")
    before, both = weights(judging_kb.model.source), weights(outcome.out)
    first, second = (weights(one) for one in tuned)
    for name, value in both.items():
        expected = before[name].double() + sum(each[name].double() - before[name].double() for each in (first, second))
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=1e-6)
        if torch.equal(before[name], first[name]) and torch.equal(before[name], second[name]):
            assert torch.equal(value, before[name])
    assert outcome.judged == ["birth", "place of birth"]
    kb = judging_kb.with_model(outcome.out)
    judges = [
        one.judge.state_dict() for one in (judging_kb.with_model(one).reranking.relation_judge for one in tuned) if one
    ]
    assert kb.reranking.relation_judge is not None
    assert len(judges) == 2
    for name, value in kb.reranking.relation_judge.judge.state_dict().items():
        torch.testing.assert_close(value, (judges[0][name] + judges[1][name]) / 2)
    assert kb.query("Marie [SEP] birth", 1)[0].probability is None


def test_what_was_merged_is_merged_with_more(judging_kb: KnowledgeBase, tuned: list[Path], tmp_path: Path) -> None:
    first, second = tuned
    both = merge_models(tuned, tmp_path / "both", device="cpu")
    three = merge_models([both.out, second], tmp_path / "three", device="cpu")
    at_once = merge_models([first, second, second], tmp_path / "at-once", device="cpu")
    assert three.relations == at_once.relations == both.relations
    one, other = weights(three), weights(at_once)
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-5)


def test_what_does_not_fit_is_refused(
    judging_kb: KnowledgeBase, model_folder: Path, tuned: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="1 query encoder is given: give two or more"):
        merge_models(tuned[:1], tmp_path / "out")
    with pytest.raises(ModelError, match=f"{re.escape(judging_kb.model.source)} is not a tuned query encoder"):
        merge_models([tuned[0], judging_kb.model.source], tmp_path / "out")
    with pytest.raises(ModelError, match="missing"):
        merge_models([tuned[0], tmp_path / "missing"], tmp_path / "out")
    with pytest.raises(TrainingError, match="already exists"):
        merge_models(tuned, tuned[0])
    config = read_config(tuned[1])
    changed = dict(config.training["finetuning"]) | {"begun_with": "0123456789abcdef"}  # type: ignore[call-overload]
    write_config(tuned[1], dataclasses.replace(config, training=config.training | {"finetuning": changed}))
    with pytest.raises(ModelError, match=r"tuned from the query encoder 0123456789abcdef, not from \w{16}, that of"):
        merge_models(tuned, tmp_path / "out", device="cpu")
    write_config(tuned[1], config)
    assert not (tmp_path / "out").exists()
