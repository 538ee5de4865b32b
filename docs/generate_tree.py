"""The tree of the code, from the first line of every module's docstring, written into
docs/explanation/tree.md.

python docs/generate_tree.py            writes the tree
python docs/generate_tree.py --check    exit status 1 where the page is stale
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "tree.md"
BEGIN, END = "<!-- tree -->", "<!-- /tree -->"
COLUMN, WIDTH = 32, 120  # where the explanations begin, and the longest line


def main() -> None:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: python docs/generate_tree.py [--check]")
    before = PAGE.read_text("utf-8")
    lines = "\n".join([line("cli.py", purpose(ROOT / "cli.py"), 0), *tree("tasks"), *tree("kbq")])
    page = f"{before.partition(BEGIN)[0]}{BEGIN}\n```text\n{lines}\n```\n{END}{before.partition(END)[2]}"
    if sys.argv[1:] == ["--check"]:
        if page != before:
            sys.exit(f"{PAGE.relative_to(ROOT)} is stale: run python docs/generate_tree.py")
    else:
        PAGE.write_text(page, "utf-8")


def tree(folder: str) -> Iterator[str]:
    """A line for the folder and one for each module and folder below it."""
    yield from branch(ROOT / folder, 0)


def branch(folder: Path, depth: int) -> Iterator[str]:
    """Modules first, then folders, by name."""
    start = folder / "__init__.py"
    yield line(f"{folder.name}/", purpose(start) if start.is_file() else "", depth)
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield line(path.name, purpose(path), depth + 1)
    for below in sorted(path for path in folder.iterdir() if any(path.glob("*.py"))):
        yield from branch(below, depth + 1)


def line(name: str, text: str, depth: int) -> str:
    shown = f"{'    ' * depth}{name}".ljust(COLUMN - 1)
    return (
        textwrap.fill(text, WIDTH, initial_indent=f"{shown} ", subsequent_indent=" " * COLUMN)
        if text
        else shown.rstrip()
    )


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring, without the module's own name."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    text = re.split(r"\.(?= [A-Z`])", docstring.partition("\n")[0].removesuffix("."))[0]
    name, colon, rest = text.partition(": ")
    names = (path.stem.casefold(), path.parent.name.casefold())
    return rest if colon and re.sub(r"[ -]", "_", name.casefold()) in names else text


if __name__ == "__main__":
    main()
