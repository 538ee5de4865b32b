"""`--recipe paper`: the papers' values, but for those that stand in the command line."""

from pathlib import Path
from typing import Any, NoReturn

import pytest
from command_line import Run

from kbq.errors import KbqError
from kbq.training.settings import PAPER, TrainingSettings
from kbq.tuning.settings import PAPER_TUNING, FinetuningSettings


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the commands give to the library, which stops there."""
    seen: dict[str, Any] = {}

    def stop(*_: object, **words: Any) -> NoReturn:
        seen.update(words)
        raise KbqError("enough")

    class Opened:
        finetune = stop

        @staticmethod
        def open(*_: object, **__: object) -> "Opened":
            return Opened()

    monkeypatch.setattr("kbq.training.encoders.train_encoders", stop)
    monkeypatch.setattr("kbq.KnowledgeBase", Opened)
    return seen


def test_training_by_the_paper(run: Run, given: dict[str, Any], tmp_path: Path) -> None:
    words = ["train", "encoders", "squad.json", "--init", "x", "--out", tmp_path / "out"]
    assert (
        run(
            *words, "--recipe", "paper", "--epochs", 2, "--distill", "r", "--distill-weight", 3
        ).status
        == 1
    )
    settings = given["settings"]
    assert (settings.single_weight, settings.distill_weight, settings.negatives_weight) == (
        1.0,
        3.0,
        4.0,
    )
    assert (
        settings.epochs,
        settings.pre_batches,
        settings.pre_batches_from,
        settings.tokens_weight,
    ) == (2, 2, 0.5, 0)
    assert (settings.learning_rate, settings.equal_trust, settings.same_answers) == (
        3e-5,
        True,
        True,
    )
    assert given["config"].shared_query_encoder is False
    run(*words)
    assert (given["settings"], given["config"].shared_query_encoder) == (TrainingSettings(), True)
    assert (PAPER.batch_queries, PAPER.without_penalty) == (84, True)
    for option in (("--recipe", "paper"), ("--batch-queries", 84)):
        refused = run(*words, *option, "--batch-tokens", 4096)
        assert (refused.status, "--batch-tokens" in refused.err) == (2, True)


def test_tuning_by_the_paper(run: Run, given: dict[str, Any], tmp_path: Path) -> None:
    words = ["finetune", "a.jsonl", "b.jsonl:nq", "--kb", "kb", "--out", tmp_path / "out"]
    run(*words, "--recipe", "paper", "--examples", 5000, "-k", 50)
    found = FinetuningSettings(
        **{name: given[name] for name in FinetuningSettings.__dataclass_fields__}
    )
    assert found == FinetuningSettings(
        learning_rate=3e-5, warmup=0.0, objective="phrase", terms="joint", k=50, epochs=10, patience=10,
        batch=12, keep=0.0, found_alone=True, random_sample=True,
    )  # fmt: skip
    assert given["examples"] == 5000
    assert PAPER_TUNING.k == 100
    run(*words)
    assert (given["keep"], given["epochs"], given["random_sample"]) == (0.5, 3, False)
