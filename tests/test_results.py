"""Results: the command in each file is one that runs today, or results/README.md says which one
took its place.
"""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "results" / "README.md").read_text("utf-8")
RESULTS = sorted((ROOT / "results").glob("*.json"))
# What a command was called, and what it is called today: rows of a table.
TODAY = dict(re.findall(r"^\| `([\w. -]+)` \| `([^`|]+)` \|$", README, re.MULTILINE))


def options_of(program: Path) -> set[str]:
    """What a program declares, by `arguments` or by argparse itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(program.read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "arguments"
        ):
            found |= {f"--{one.arg.replace('_', '-')}" for one in node.keywords if one.arg}
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            found |= {str(value.value) for value in node.args if isinstance(value, ast.Constant)}
    return found


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_can_be_made_again(path: Path) -> None:
    runner, program, *words = shlex.split(json.loads(path.read_text("utf-8"))["command"])
    if runner == "kbq":
        assert TODAY[f"kbq {program}"].startswith("make -f recipes/Makefile")
        return
    name = Path(program).name
    if name in TODAY:
        name = TODAY[name].split()[0]
        words = []  # its options are not those of the program that was
    program_file = ROOT / "benchmarks" / name
    assert program_file.is_file()
    known = options_of(program_file)
    for option in (word for word in words if word.startswith("--")):
        assert option in known or f"{name} {option}" in TODAY, (
            f"{path.name}: {name} has no {option}"
        )


def test_what_took_the_place_of_a_command_is_there() -> None:
    assert TODAY
    for now in TODAY.values():
        program, *words = now.split()
        if program.endswith(".py"):
            known = options_of(ROOT / "benchmarks" / program)
            assert all(word in known for word in words if word.startswith("--"))


def is_option(value: ast.expr) -> bool:
    """Whether `arguments` makes an option of this: types, lists and frozen sets are arguments."""
    is_type = isinstance(value, ast.Name) and value.id in ("Path", "str", "int", "float")
    is_choice = isinstance(value, ast.Call) and ast.unparse(value.func) == "frozenset"
    return not is_type and not is_choice and not isinstance(value, ast.List | ast.Attribute)


@pytest.mark.parametrize(
    "program", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda program: program.stem
)
def test_the_first_lines_of_a_benchmark_name_its_options(program: Path) -> None:
    tree = ast.parse(program.read_text("utf-8"))
    declared = {
        f"--{one.arg.replace('_', '-')}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "arguments"
        for one in node.keywords
        if one.arg and is_option(one.value)
    }
    usage = re.findall(r"^    .*$", ast.get_docstring(tree, clean=False) or "", re.MULTILINE)
    named = set(re.findall(r"--[a-z][a-z0-9-]*", "\n".join(usage)))
    assert named == declared or program.stem == "unchanged"  # which has sub-commands
