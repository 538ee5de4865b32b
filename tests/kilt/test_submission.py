"""Packaging a submission."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError, KbqError
from kbq.kilt.submission import submit
from kbq.kilt.task import Task, slot
from kbq.storage.writing import writing_alone

Write: TypeAlias = Callable[..., Path]
TREX = Task("trex", slot, "phrase", ("KILT-AC", "Accuracy"), "KILT-AC")
NQ = Task("nq", slot, "phrase", ("KILT-EM",), "KILT-EM")
FIVE = [{"wikipedia_id": str(page), "text": "long"} for page in range(5)]


def test_a_submission_is_clean_complete_and_listed(write: Write, tmp_path: Path) -> None:
    inputs = write("inputs", {"id": "1"}, {"id": "2"})
    guesses = [{"id": n, "output": [{"answer": f"x{n}", "provenance": FIVE}]} for n in ("2", "1")]
    (entry,) = submit([write("g", *guesses)], [TREX], [inputs], tmp_path / "out")
    content = (tmp_path / "out" / "trex.jsonl").read_bytes()
    assert [json.loads(line)["id"] for line in content.splitlines()] == ["1", "2"]
    assert b"long" not in content
    assert (entry.lines, entry.bytes, entry.sha256) == (
        2,
        len(content),
        hashlib.sha256(content).hexdigest(),
    )
    manifest = json.loads((tmp_path / "out" / "submission.json").read_text("utf-8"))
    assert manifest["semantics"] == "kilt-2664322"
    assert manifest["files"][0]["metrics"] == ["KILT-AC", "Accuracy"]
    assert "* trex: `trex.jsonl`, 2 lines, KILT-AC" in (tmp_path / "out" / "UPLOAD.md").read_text(
        "utf-8"
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "UPLOAD.md",
        "submission.json",
        "trex.jsonl",
    ]


def test_nothing_is_written_where_one_file_has_errors(write: Write, tmp_path: Path) -> None:
    good = write("g", {"id": 1, "output": [{"answer": "x", "provenance": FIVE}]})
    bad = write("b", {"id": 1, "output": [{"answer": None, "provenance": FIVE}]})
    with pytest.raises(EvaluationError, match="answer is not text"):
        submit([good, bad], [TREX, NQ], [], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_is_submitted_to_by_one(write: Write, tmp_path: Path) -> None:
    guesses = write("g", {"id": "1", "input": "i", "output": [{"answer": "x", "provenance": FIVE}]})
    out = tmp_path / "out"
    (out / ".part-of-the-other").mkdir(parents=True)
    with (
        writing_alone(out),
        pytest.raises(KbqError, match=r"another kbq process is writing to .*out: wait"),
    ):
        submit([guesses], [TREX], [], out)
    assert [path.name for path in out.iterdir()] == [".part-of-the-other"]
    submit([guesses], [TREX], [], out)
    assert sorted(path.name for path in out.iterdir()) == [
        "UPLOAD.md",
        "submission.json",
        "trex.jsonl",
    ]


def test_a_task_is_submitted_once(write: Write, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="trex has several prediction files"):
        submit([write("g")] * 2, [TREX] * 2, [], tmp_path / "out")
