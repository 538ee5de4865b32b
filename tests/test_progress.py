"""Progress: what a person who waits reads, at a terminal and in a log."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbq import progress
from kbq.dump.shards import Counts
from kbq.progress import Bar, LateBar, expected_pages
from kbq.training.engine import StepReport


class Stream(io.StringIO):
    """Standard error, perhaps of a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def build() -> None:
    with Bar("t") as bar:
        bar.pages(Counts(1, 1, 1_000, 400))  # of an earlier run
        bar.pages(Counts(3, 9, 5_000, 2_000))
        bar.stage("words indexed, paragraphs", 4, 9)


def stages() -> None:
    with Bar("t") as bar:
        bar.stage("shards", 1, 2_000)
        bar.stage("queries", 64, 200)


def train() -> None:
    with Bar("t") as bar:
        bar.reading(1_000, 2_000)
        bar.step(StepReport(1, 20, {"single": 2.0}, 4_000))
        bar.step(StepReport(2, 20, {"single": 1.0}, 4_000))


def finetune() -> None:
    with Bar("t") as bar:
        bar.step(StepReport(1, 20, {"loss": 2.0, "found": 0.5}, 400, 0.25))
        bar.step(StepReport(2, 20, {"loss": 1.0, "found": 1.0}, 400, 0.25))


def augment() -> None:
    with Bar("t", is_counted=False) as bar:
        bar.questions(1_000, 70)


def count() -> None:
    with Bar("t") as bar:
        bar.count(5, 1_000)


CASES: list[tuple[Callable[[], None], list[str]]] = [
    (
        build,
        [
            "t: 1 page, 1,000 tokens, 0 tokens/s",
            "t: 3 pages, 5,000 tokens, ",
            "t: words indexed, paragraphs: 4 of 9",
        ],
    ),
    (stages, ["t: shards: 1 of 2,000", "t: queries: 64 of 200"]),
    (
        train,
        [
            "t: the reader has read 1,000 of 2,000 passages",
            "t: step 1/20, single 2.000, ",
            "t: step 2/20, single 1.970",
        ],
    ),
    (
        finetune,
        [
            "t: step 1/20, loss 2.000, found 0.500, dev 25.0%, ",
            "t: step 2/20, loss 1.970, found 0.515, dev 25.0%",
        ],
    ),
    (augment, ["t: 1,000 paragraphs, 70 questions"]),
    (count, ["t: 5 of 1,000"]),
]


def written(work: Callable[[], None], is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    work()
    return stream.getvalue()


@pytest.mark.parametrize(("work", "lines"), CASES)
def test_a_log_gets_lines(
    work: Callable[[], None], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", -1.0)
    found = written(work, False, monkeypatch).splitlines()
    assert len(found) == len(lines)
    assert all(line.startswith(begin) for line, begin in zip(found, lines, strict=True))


def test_a_log_gets_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(train, False, monkeypatch) == ""


def test_work_in_python_gets_a_bar_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def index() -> None:
        with LateBar("t") as bar:
            bar.to("stage")("shards", 1, 2)
            monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 1e9))  # later
            bar.to("stage")("shards", 2, 2)

    monkeypatch.setenv("COLUMNS", "200")
    shown = written(index, True, monkeypatch)
    assert "t: shards: 2 of 2" in shown
    assert "1 of 2" not in shown


@pytest.mark.parametrize(("wanted", "given"), [("0", None), ("1", lambda *facts: None)])
def test_work_in_python_gets_no_bar_where_none_is_wanted(
    wanted: str, given: Callable[..., None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setenv("KBQ_PROGRESS", wanted)

    def index() -> None:
        with LateBar("t", given) as bar:
            bar.to("stage")("shards", 1, 2)

    assert written(index, True, monkeypatch) == ""


def test_a_program_without_a_terminal_gets_a_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", -1.0)

    def index() -> None:
        with LateBar("t") as bar:
            bar.to("count")(1, 2)
        progress.warn("see --empty")

    with caplog.at_level("INFO", "kbq"):
        assert written(index, False, monkeypatch) == ""
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", "t: 1 of 2"),
        ("WARNING", "see empty=…"),
    ]


@pytest.mark.parametrize(("work", "lines"), CASES)
def test_a_terminal_gets_a_bar(
    work: Callable[[], None], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert lines[-1] in written(work, True, monkeypatch)


def test_times_are_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with Bar("building a-knowledge-base-with-a-long-name") as bar:
        bar.stage("words indexed, paragraphs of all the shards that there are", 1_000, 2_000)
    shown = re.sub(r"\x1b\[[0-9;?]*\w", "", stream.getvalue()).splitlines()
    assert " 50% 0:00:0" in shown[-1]
    assert shown[-1].endswith("-:--:--")


def test_a_build_shows_how_much_of_its_corpus_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": "1"}\n' * 8)

    def build_half() -> None:
        with Bar("t", corpus=corpus) as bar:
            bar.pages(Counts(4, 9, 1_000, 400))

    monkeypatch.setenv("COLUMNS", "200")
    shown = re.sub(r"\x1b\[[0-9;?]*\w", "", written(build_half, True, monkeypatch))
    assert "t: 4 of about 8 pages, 1,000 tokens" in shown
    assert " 50% " in shown


def test_pages_are_expected_where_something_tells_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SAMPLED", 20)
    (tmp_path / "c.jsonl").write_text("123456789\n" * 6)
    (tmp_path / "c.jsonl.gz").write_bytes(b"\n\n\n")
    (tmp_path / "one.json").write_text("{}\n")
    told = {
        name: expected_pages(tmp_path / name)
        for name in ("c.jsonl", "c.jsonl.gz", "one.json", "nothing.jsonl")
    }
    assert told == {"c.jsonl": 6, "c.jsonl.gz": None, "one.json": None, "nothing.jsonl": None}
    assert (expected_pages(["a", "b"]), expected_pages(iter("ab")), expected_pages("-")) == (
        2,
        None,
        None,
    )
    assert expected_pages(str(tmp_path)) == 3
    (tmp_path / "many.pdf").touch()
    assert expected_pages(tmp_path) is None
