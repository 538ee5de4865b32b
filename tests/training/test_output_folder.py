"""Output folder: a result gets its name when it is whole, and what was made until a kill stays."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import kbq
from kbq.errors import TrainingError
from kbq.storage.reading import file_digest
from kbq.storage.writing import writing_alone
from kbq.training.output_folder import output_folder, versions


def test_a_result_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    with output_folder(tmp_path / "deep" / "out") as folder:
        assert folder == tmp_path / "deep" / "out.partial"
        (folder / "checkpoint.pt").write_text("")
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text("1")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "weights").read_text() == "1"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


@pytest.mark.parametrize("made", [[], ["checkpoint.pt"]])
def test_what_was_made_until_a_kill_stays(made: list[str], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), output_folder(tmp_path / "out") as folder:  # noqa: PT012
        for name in made:
            (folder / name).write_text("")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.rglob("*")] == (["out.partial", *made] if made else [])


def test_what_stands_in_the_way_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(TrainingError, match="file already exists: choose another folder"),
        output_folder(tmp_path / "file"),
    ):
        pass
    out = tmp_path / "file" / "out"
    with (
        pytest.raises(TrainingError, match=r"out cannot be written \(Not a directory\)"),
        output_folder(out),
    ):
        pass


def test_what_was_half_saved_is_no_part_of_another_result(tmp_path: Path) -> None:
    (tmp_path / "out.partial" / "model").mkdir(parents=True)
    (tmp_path / "out.partial" / "model" / "casing.json").write_text(
        "of a run that was killed while it saved"
    )
    with output_folder(tmp_path / "out") as folder:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text("1")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["weights"]


def test_another_process_may_finish_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> None:
        with output_folder(tmp_path / "out") as folder:
            (folder / "model").mkdir()
            (folder / "model" / "weights").write_text("1")

    def train_first(path: Path) -> AbstractContextManager[None]:
        monkeypatch.setattr("kbq.training.output_folder.writing_alone", writing_alone)
        train()  # the other process
        path.mkdir()
        return writing_alone(path)

    monkeypatch.setattr("kbq.training.output_folder.writing_alone", train_first)
    with pytest.raises(TrainingError, match="out already exists: choose another folder"):
        train()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_versions_and_digests(tmp_path: Path) -> None:
    assert set(versions()) == {"kbq", "torch", "transformers"}
    assert versions()["kbq"] == kbq.__version__
    (tmp_path / "file").write_text("abc")
    assert file_digest(tmp_path / "file") == "ba7816bf8f01cfea"


def test_a_pipe_in_an_unfinished_run_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    os.mkfifo(tmp_path / "out.partial" / "checkpoint.pt")
    with (
        pytest.raises(
            TrainingError,
            match=r"checkpoint.pt is a device or a pipe, and an unfinished run has none: put",
        ),
        output_folder(tmp_path / "out"),
    ):
        pass
