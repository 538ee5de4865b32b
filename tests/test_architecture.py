"""Architecture: imports point one way, and what is light stays light."""

import ast
import re
import subprocess
import sys
from functools import cache
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import FrameType

import pytest
from command_line import Run

from kbq.kb import KnowledgeBase

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kbq"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = (
    "torch", "transformers", "faiss", "bm25s", "numpy", "safetensors", "huggingface_hub",
    "tokenizers",
)  # fmt: skip
# A file or folder of kbq/ imports only from the rows above its own, for types, too: they are the
# order to read it in.
LAYERS = (
    ("errors", "array_types", "plugins"),
    ("options",),
    ("text",),
    ("answers", "storage"),
    ("worker_pool",),
    ("english",),
    ("corpus",),
    ("model",),
    ("dump",),
    ("index",),
    ("words",),
    ("search",),
    ("reading",),
    ("cluster",),
    ("asking",),
    ("maintain",),
    ("kilt",),
    ("training",),
    ("sample_kb", "description"),
    ("tuning",),
    ("tables",),
    ("progress",),
    ("kb",),
    ("augmentation",),
    ("importing",),
    ("serve",),
    ("commands",),
    ("__main__",),
)
# Short files with one importer, which one would look for by their names.
FOUND_BY_NAME = {
    "kbq.asking.plan", "kbq.asking.workers", "kbq.english.kinship",
    "kbq.english.language_check", "kbq.index.placement",
    "kbq.maintain.compact", "kbq.maintain.merge", "kbq.maintain.update",
    "kbq.reading.earlier_mention",
    "kbq.sample_kb", "kbq.serve.log_lines",
    "kbq.training.attention",
    "kbq.training.checkpoint",
}  # fmt: skip
LEVELS = {part: level for level, parts in enumerate(LAYERS) for part in parts}


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, wherever in the file and for whatever; `from a import b`
    gives a and a.b.
    """
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import from {'.' * node.level}: write the whole name"
            assert node.module
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(names)


def below(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_imports_point_one_way() -> None:
    up = []
    for path in FILES:
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part != "__init__":
            names = {
                name.split(".")[1] for name in imported(path) if name.startswith("kbq.")
            } & set(LEVELS)
            up += [
                (module_of(path), name)
                for name in names
                if name != part and LEVELS[name] >= LEVELS[part]
            ]
        up += [
            (module_of(path), name)
            for name in imported(path)
            if below(name, "cli") or below(name, "tasks")
        ]
    assert up == []


def test_no_files_import_each_other_in_a_circle() -> None:
    files = {module_of(path): path for path in FILES if path.name != "__init__.py"}
    left = {
        name: {other for other in imported(path) if other in files} - {name}
        for name, path in files.items()
    }
    while free := {name for name, needed in left.items() if not needed & set(left)}:
        left = {name: needed for name, needed in left.items() if name not in free}
    assert left == {}


def test_only_their_folders_name_ray_and_the_files_of_another_program() -> None:
    """The core knows of both by a name alone: what reads files of DensePhrases is a plugin, a
    cluster an address.
    """
    for path in FILES:
        part = path.relative_to(PACKAGE).parts[0]
        if part not in ("cluster", "importing", "commands"):
            assert not [
                name
                for name in imported(path)
                if below(name, "ray") or below(name, "kbq.importing")
            ], path
            assert "DensePhrases" not in path.read_text("utf-8"), path


def test_files_are_few_and_imports_a_small_part_of_them() -> None:
    modules = [path for path in FILES if path.name != "__init__.py"]
    lines = [line for path in modules for line in path.read_text("utf-8").splitlines()]
    assert len(modules) <= 177
    assert sum(bool(re.match(r"\s*(?:import|from) ", line)) for line in lines) / len(lines) <= 0.07


def test_a_short_file_has_several_importers() -> None:
    """What one file alone uses stands in it, unless one would look for it by its name."""
    needing = {
        module_of(path): [other for other in FILES if module_of(path) in imported(other)]
        for path in FILES
    }
    short = {module_of(path) for path in FILES if len(path.read_text("utf-8").splitlines()) < 150}
    alone = {name for name, importers in needing.items() if name in short and len(importers) == 1}
    assert alone <= FOUND_BY_NAME


def test_a_query_crosses_few_files(sample: KnowledgeBase, run: Run) -> None:
    """An open knowledge base has 31, the command 46; they were 25 and 38 before files were parted
    by subject.
    """
    text = "Marie Curie [SEP] place of birth"
    for most, ask in (
        (31, lambda: sample.query(text)),
        (46, lambda: run("query", text, "--kb", sample.folder)),
    ):
        ask()  # what is opened once is not counted
        crossed: set[str] = set()

        def watch(frame: FrameType, event: str, _: object, crossed: set[str] = crossed) -> None:
            is_call = (
                event == "call"
                and frame.f_code.co_flags & CO_NEWLOCALS
                and frame.f_code.co_name != "<module>"
            )
            if is_call and frame.f_code.co_filename.startswith(
                (str(PACKAGE), str(ROOT / "cli.py"))
            ):
                crossed.add(frame.f_code.co_filename)

        sys.setprofile(watch)
        try:
            ask()
        finally:
            sys.setprofile(None)
        assert 10 < len(crossed) <= most, sorted(crossed)


def test_every_part_has_its_layer() -> None:
    assert set(LEVELS) == {
        path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES
    } - {"__init__"}


def test_scores_need_neither_torch_nor_faiss() -> None:
    names = [name for path in (PACKAGE / "kilt").rglob("*.py") for name in imported(path)]
    assert not [
        name for name in names for away in ("torch", "transformers", "faiss") if below(name, away)
    ]


@pytest.mark.parametrize(
    "path", [ROOT / "cli.py", *sorted((ROOT / "tasks").glob("*.py"))], ids=lambda path: path.name
)
def test_files_at_the_top_import_only_kbq(path: Path) -> None:
    allowed = {"kbq", "typer", *sys.stdlib_module_names}
    assert {name.partition(".")[0] for name in imported(path)} <= allowed


def test_transformers_is_made_quiet_where_it_is_imported() -> None:
    found = [
        (path, name) for path in FILES for name in imported(path) if below(name, "transformers")
    ]
    assert found == [(PACKAGE / "model" / "backbone.py", "transformers")]


def test_no_assert_print_or_exit_in_the_package() -> None:
    nodes = (
        (file, node) for file in FILES for node in ast.walk(ast.parse(file.read_text("utf-8")))
    )
    for path, node in nodes:
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.Assert), where
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert (
                node.func.id not in ("print", "exit", "quit") or path.parent.name == "commands"
            ), where
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, where


def loaded_after(code: str) -> set[str]:
    """The heavy libraries in memory after this code, in a process of its own."""
    tail = f"\nimport sys\nsys.stderr.write(' '.join(set({HEAVY!r}) & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", code + tail], capture_output=True, text=True, check=True
    )
    return set(found.stderr.split())


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("kbq.kilt.evaluation", {"numpy"}),
        ("kbq.corpus.readers", {"numpy"}),
        ("kbq.storage.lines", set()),
        ("kbq.answers", set()),
        ("kbq.errors", set()),
    ],
)
def test_light_modules_load_no_heavy_library(module: str, allowed: set[str]) -> None:
    assert loaded_after(f"import {module}") <= allowed


@pytest.mark.parametrize("option", ["--help", "--version", "query --help"])
def test_help_loads_no_heavy_library(option: str) -> None:
    code = (
        f"import sys\nsys.argv = ['kbq', *{option.split()!r}]\nfrom kbq.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    )
    assert loaded_after(code) == set()


def test_an_answer_needs_torch_but_not_transformers(kb_folder: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom kbq.kb import KnowledgeBase\n"
        f"kb = KnowledgeBase.open(Path({str(kb_folder)!r}), device='cpu')\n"
        "assert kb.query(['the river'], 1)[0]\n"
        "assert not {'scipy', 'sympy', 'torch._dynamo'} & set(sys.modules)\n"
        "writing = {'kbq.maintain.build', 'kbq.dump.page_encoder', 'kbq.corpus.readers'}\n"
        "assert not writing & set(sys.modules)"
    )
    assert "transformers" not in loaded_after(code)


@pytest.mark.parametrize("program", ["generate_tree.py", "generate_commands.py"])
def test_what_programs_write_into_the_documentation_is_up_to_date(program: str) -> None:
    command = [sys.executable, str(ROOT / "docs" / program), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_every_result_says_what_it_shows() -> None:
    listed = set(re.findall(r"`([\w.-]+)`", (ROOT / "results" / "README.md").read_text("utf-8")))
    results = {path.stem for path in (ROOT / "results").glob("*.json")}
    assert results
    assert not results - listed
