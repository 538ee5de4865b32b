"""The help: nothing in it is cut at 80 columns; shells complete commands and options."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from command_line import Run

from cli import app
from kbq.commands.options import EXTRA, summary

GROUPS = ((), ("train",), ("index",), ("import",), ("cluster",))


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("Make a model of a checkpoint.", 40, "Make a model of a checkpoint"),
        (
            "Read what others published: dumps, indexes.",
            80,
            "Read what others published: dumps, indexes",
        ),
        ("Read what others published: dumps, indexes.", 38, "Read what others published"),
        (
            "Check, clean and package\npredictions, at once. More.",
            40,
            "Check, clean and package predictions",
        ),
        ("Too long for any room", 3, "Too long for any room"),
        ("", 40, ""),
    ],
)
def test_a_summary_has_whole_clauses(text: str, room: int, shown: str) -> None:
    assert summary(text, room) == shown


@pytest.mark.parametrize("group", GROUPS)
def test_help_is_not_cut_at_80_columns(
    group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command: Any = typer.main.get_command(app)
    command(args=[*group, "--help"], prog_name="kbq", standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines[1:] if line.endswith("...")]
    topics = lines[max(number for number, line in enumerate(lines) if line == "Options:") :]
    rows = [
        line
        for line in topics
        if line.startswith("  ") and not line.startswith("    ") and "--" not in line
    ]
    assert len(rows) == len(command.commands[group[0]].commands if group else command.commands)


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    asked = {"_KBQ_COMPLETE": "complete_bash", "COMP_WORDS": "kbq evaluate-", "COMP_CWORD": "1"}
    program = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'kbq'; from kbq.__main__ import main; main()",
    ]
    told = subprocess.run(
        program, env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["evaluate-table"]
    asked |= {"COMP_WORDS": "kbq fill --dat", "COMP_CWORD": "2"}
    told = subprocess.run(
        program, env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["--dates"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "fill t.csv born",
            "Got unexpected extra argument(s) (born): the columns to fill go after --relations",
        ),
        (
            "explain who was she",
            "Got unexpected extra argument(s) (was she): put quotes around a query of several",
        ),
        ("predict q.jsonl kb --task trex --out o", "(kb): the knowledge base goes after --kb"),
        (
            "index vectors kb tiny",
            "the kind of index goes after --kind, a file of queries after --queries",
        ),
        ("index kb", "No such command 'kb': choose from vectors, bm25, sparta"),
        ("index vector kb", "No such command 'vector'. Did you mean 'vectors'?"),
        ("serve --kb X", "--kb: give the knowledge base as an argument"),
        ("mcp --kb X", "--kb: give the knowledge base as an argument"),
        ("info --kb X", "--kb: give the knowledge base as an argument"),
        ("augment c --kb X", "--kb: give the knowledge base as an argument"),
        ("evaluate p g --csv s.csv", "(s.csv): --csv takes no file, so redirect what it prints"),
    ],
)
def test_an_argument_too_many_is_told_its_option(typed: str, said: str, run: Run) -> None:
    told = run(*typed.split())
    assert (told.status, said in " ".join(told.err.split())) == (2, True)


@pytest.mark.parametrize(
    "typed",
    ["query x --backend bm52", "query x -k 0", "query x -k many", "index vectors k --recall 2"],
)
def test_a_wrong_value_is_told_in_plain_words(typed: str, run: Run) -> None:
    told = run(*typed.split()).err
    assert told.splitlines()[-1].startswith("Error: Invalid value for '-")
    assert "Value error" not in told
    assert "Input should" not in told


def test_advice_names_commands_and_options_that_exist() -> None:
    for name, advice in EXTRA.items():
        command: Any = typer.main.get_command(app)
        for part in name.split():
            command = command.commands[part]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word.strip(",") for word in advice.split() if word.startswith("--")} <= options, (
            name
        )


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_by_itself_prints_its_help_line_by_line(group: tuple[str, ...], run: Run) -> None:
    told = "".join(run(*group)[1:])
    assert "\\n" not in told
    assert "Options:" in told.splitlines()
