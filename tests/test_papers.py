"""The page of the papers: the functions that it names exist, and its commands can be parsed."""

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli import app

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "explanation" / "papers.md").read_text("utf-8")
COMMANDS = sorted(set(re.findall(r"`kbq ([^`]+)`", PAGE)))
PLACES = sorted(set(re.findall(r"`([\w/]+\.py):(\w+)`", PAGE)))


def test_there_is_something_to_check() -> None:
    assert len(COMMANDS) > 20
    assert len(PLACES) > 25


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_functions_are_where_the_page_says(file: str, name: str) -> None:
    tree = ast.parse((ROOT / "kbq" / file).read_text("utf-8"))
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_can_be_parsed(line: str) -> None:
    words = shlex.split(line)
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    with command.make_context(
        line, words
    ) as context:  # which raises for an unknown option; nothing runs
        assert context.params
