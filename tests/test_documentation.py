"""Documentation: what the pages show can be run, and prints what they say."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from forking import forking

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]


@pytest.fixture(scope="module")
def snippets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("snippets", ROOT / "docs" / "snippets.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["snippets"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def with_forks(snippets: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands of examples are forks of one process."""
    folder = tmp_path_factory.mktemp("programs")
    with forking(folder), pytest.MonkeyPatch.context() as patched:
        patched.setattr(snippets, "PROGRAMS", f"{folder}{os.pathsep}{snippets.PROGRAMS}")
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("with_forks", "few_watched")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(
    page: Path, snippets: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.tuning.finetune.ENOUGH", 1)
    count = snippets.run_page(page, tmp_path)
    assert count == len(list(snippets.snippets(page.read_text("utf-8")))) > 0


def test_an_example_that_prints_something_else_is_noticed(
    snippets: ModuleType, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```console\n$ echo 1.00 a\n1.01 a\n$ echo b\nc\n```\n", "utf-8")
    with pytest.raises(snippets.SnippetError, match=r"page\.md:4: the page says\nc\n"):
        snippets.run_page(page, tmp_path)


def test_a_page_is_rewritten_with_what_its_examples_print(
    snippets: ModuleType, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    console = "```console\n$ echo 1.00 a\n1.01 a\n\n$ true\n$ echo b\n{}\n```\n"
    bash = "```bash\necho c\n```\n\n```text\n{}\n```\n"
    page.write_text("# A page\n\n" + console.format("c") + bash.format("1"), "utf-8")
    now = "# A page\n\n" + console.format("b") + bash.format("c")
    assert snippets.rewritten_page(page, tmp_path) == now
