"""Packaging: the wheel brings one name, all of its parts, and runs from anywhere."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import kbq

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def test_one_top_level_name(names: list[str]) -> None:
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"kbq"}
    assert len(top) == 2


@pytest.mark.parametrize(
    "name",
    [
        "kbq/cli.py",
        "kbq/py.typed",
        "kbq/__main__.py",
        "kbq/models/default/model.safetensors",
        "kbq/models/default/reader.safetensors",
        "kbq/sample/articles.jsonl",
        "kbq/sample/queries.jsonl",
        "kbq/kilt/evaluation.py",
        "kbq/tables/browser/review.html",
        "kbq/tables/browser/decisions.js",
        "kbq/tables/known.toml",
        "kbq/serve/templates/base.html",
        "kbq/serve/static/style.css",
        "kbq/serve/static/table.js",
    ],
)
def test_what_is_needed_is_there(name: str, names: list[str]) -> None:
    assert name in names


def test_every_module_is_there(names: list[str]) -> None:
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "kbq").rglob("*.py")}
    assert modules <= set(names)


def test_the_tasks_are_there(names: list[str]) -> None:
    tasks = {f"kbq/tasks/{path.name}" for path in (ROOT / "tasks").glob("*.py")}
    assert tasks
    assert tasks <= set(names)


def test_nothing_else_is_there(names: list[str]) -> None:
    assert [name for name in names if "__pycache__" in name or "test" in name] == []


def test_a_citation_names_this_version() -> None:
    assert f"\nversion: {kbq.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_it_runs_from_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """The wheel alone is installed; its dependencies come from where the tests run."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run([*install, "--quiet", "--disable-pip-version-check"], check=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("-packages"))
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str) -> str:
        found = subprocess.run(
            command, cwd=elsewhere, env=ours, capture_output=True, text=True, check=False
        )
        # A busy machine has lines of progress there.
        assert (found.returncode, "arning" in found.stderr) == (0, False), found.stderr
        return found.stdout

    where = run(
        str(python),
        "-c",
        "import kbq.storage.writing; print(kbq.storage.paths.resource_path('cli.py'))",
    )
    assert where.strip() == str(site / "kbq" / "cli.py")
    kbq = str(tmp_path / "env" / "bin" / "kbq")
    told = run(kbq, "--help")
    assert all(f"  {name} " in told for name in ("build", "query", "train", "info"))
    (elsewhere / "corpus.jsonl").write_text(
        '{"id": "1", "title": "Emma", "text": "Emma was written by Jane Austen."}\n'
    )
    assert run(kbq, "build", "corpus.jsonl", "kb").startswith("kb: 1 page, 1 paragraph")
    assert "Jane Austen" in run(kbq, "query", "Emma [SEP] author", "--kb", "kb", "-k", "1")
