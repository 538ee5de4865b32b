"""Merging two systems' files and packaging a submission."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kbq.errors import EvaluationError, KbqError
from kbq.kilt.adapters import slot
from kbq.kilt.submission import merge, submit
from kbq.kilt.task import Task
from kbq.storage.locks import writing_alone

Write: TypeAlias = Callable[..., Path]
TREX = Task("trex", slot, "phrase", ("KILT-AC", "Accuracy"), "KILT-AC")
NQ = Task("nq", slot, "phrase", ("KILT-EM",), "KILT-EM")
FIVE = [{"wikipedia_id": str(page), "text": "long"} for page in range(5)]


def test_merge_takes_answers_from_one_file_and_pages_from_the_other(write: Write, tmp_path: Path) -> None:
    answers = write(
        "a",
        {"id": 1, "input": "i", "output": [{"answer": "é", "provenance": []}]},
        {"id": 2, "output": [{"answer": "y"}]},
    )
    rankings = write(
        "p",
        {"id": "2", "output": [{"provenance": FIVE}]},
        {"id": 1, "output": [{"provenance": FIVE[:1]}, {"answer": "z"}]},
    )
    assert merge(answers, rankings, tmp_path / "out") == 2
    lines = [json.loads(line) for line in (tmp_path / "out").read_text("utf-8").splitlines()]
    assert lines == [
        {"id": 1, "input": "i", "output": [{"answer": "é", "provenance": FIVE[:1]}]},
        {"id": 2, "output": [{"answer": "y", "provenance": FIVE}]},
    ]


def test_files_with_other_ids_are_not_merged(write: Write, tmp_path: Path) -> None:
    answers = write("a", {"id": 1, "output": [{"answer": "x"}]}, {"id": 2, "output": []})
    rankings = write("p", {"id": 3, "output": [{"provenance": []}]})
    with pytest.raises(EvaluationError) as caught:
        merge(answers, rankings, tmp_path / "out")
    assert caught.value.problems == (
        f"{answers}:2:2: has 0 outputs with answer, must have exactly one",
        f"{rankings}: has no pages for the answer of id 1",
        f"{answers}: has no answer for the pages of id 3",
    )
    assert not (tmp_path / "out").exists()


def test_a_submission_is_clean_complete_and_listed(write: Write, tmp_path: Path) -> None:
    inputs = write("inputs", {"id": "1"}, {"id": "2"})
    guesses = [{"id": n, "output": [{"answer": f"x{n}", "provenance": FIVE}]} for n in ("2", "1")]
    (entry,) = submit([write("g", *guesses)], [TREX], [inputs], tmp_path / "out")
    content = (tmp_path / "out" / "trex.jsonl").read_bytes()
    assert [json.loads(line)["id"] for line in content.splitlines()] == ["1", "2"]
    assert b"long" not in content
    assert (entry.lines, entry.bytes, entry.sha256) == (2, len(content), hashlib.sha256(content).hexdigest())
    manifest = json.loads((tmp_path / "out" / "submission.json").read_text("utf-8"))
    assert manifest["semantics"] == "kilt-2664322"
    assert manifest["files"][0]["metrics"] == ["KILT-AC", "Accuracy"]
    assert "* trex: `trex.jsonl`, 2 lines, KILT-AC" in (tmp_path / "out" / "UPLOAD.md").read_text("utf-8")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["UPLOAD.md", "submission.json", "trex.jsonl"]


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
    with writing_alone(out), pytest.raises(KbqError, match=r"another kbq process is writing to .*out: wait"):
        submit([guesses], [TREX], [], out)
    assert [path.name for path in out.iterdir()] == [".part-of-the-other"]
    submit([guesses], [TREX], [], out)
    assert sorted(path.name for path in out.iterdir()) == ["UPLOAD.md", "submission.json", "trex.jsonl"]


def test_a_task_is_submitted_once(write: Write, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="trex has several prediction files"):
        submit([write("g")] * 2, [TREX] * 2, [], tmp_path / "out")
