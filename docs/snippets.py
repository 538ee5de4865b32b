"""The examples of a page, run from top to bottom.

    python docs/snippets.py README.md docs/guides/*.md      in a temporary folder for each page

| block | how it is run |
|---|---|
| bash | by bash, which must end with status 0; a `text` block right below it is what it prints |
| python | in one session for the whole page; a `text` block right below it is what it prints |
| console | commands behind `$ `, each followed by what it prints |
| anything below `<!-- not run: reason -->` | not at all |

What is printed may differ in blanks at the ends of lines, and in decimal numbers by two percent and
in whole
percents by three, as they depend on the
CPU. A line `...` stands for any lines. Standard error is not compared.
"""

import contextlib
import io
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"^(?P<skipped><!-- not run: [^\n]+ -->\n)?"
    r"^```(?P<kind>bash|python|console)\n(?P<code>.*?)^```$"
    r"(?:\n+^```text\n(?P<printed>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"-?\d+\.\d+|\d+(?= %)")  # a decimal number, or whole percents
TOLERANCE, PERCENTS = 0.02, 3
SECONDS = 300  # for one command
PROGRAMS = str(Path(sys.executable).parent)  # folders of `kbq` and `python`


class SnippetError(AssertionError):
    """An example that fails, or prints something else than its page says."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """One block: its kind, its text, what it prints (None: not said), and its first line in the
    page.
    """

    kind: str
    code: str
    printed: str | None
    line: int


def snippets(text: str) -> Iterator[Snippet]:
    """The blocks of a page that are to be run, in order."""
    for match in BLOCK.finditer(text):
        if not match["skipped"]:
            yield Snippet(
                match["kind"],
                match["code"],
                match["printed"],
                text.count("\n", 0, match.start("code")) + 1,
            )


def run_page(page: Path, folder: Path) -> int:
    """Run the blocks of a page in a folder; how many there were.

    Raises:
        SnippetError: names page and line.
    """
    session: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for snippet in snippets(page.read_text("utf-8")):
        count += 1
        try:
            run(snippet, folder, session)
        except SnippetError as error:
            raise SnippetError(f"{page}:{snippet.line}: {error}") from None
    return count


def run(snippet: Snippet, folder: Path, session: dict[str, Any]) -> None:
    """Run one block and compare what it prints."""
    if snippet.kind == "console":
        for command, expected in commands(snippet.code):
            compare(expected, shell(command, folder))
        return
    printed = (
        shell(snippet.code, folder)
        if snippet.kind == "bash"
        else python(snippet.code, folder, session)
    )
    if snippet.printed is not None:
        compare(snippet.printed, printed)


def commands(code: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what is shown below it."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def shell(code: str, folder: Path) -> str:
    """What bash prints; `kbq` and `python` are those of this Python."""
    path = os.pathsep.join([PROGRAMS, os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=os.environ | {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    if done.returncode:
        raise SnippetError(f"status {done.returncode} of\n{code}\n{done.stdout}{done.stderr}")
    return done.stdout


def python(code: str, folder: Path, session: dict[str, Any]) -> str:
    """What Python code prints; names stay in the session."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, "<snippet>", "exec"), session)
        except Exception as error:
            raise SnippetError(f"{type(error).__name__}: {error} in\n{code}") from error
    return printed.getvalue()


def compare(expected: str, printed: str) -> None:
    """Raise SnippetError where the two differ by more than the page may."""
    wanted, found = (
        [line.rstrip() for line in text.strip().splitlines()] for text in (expected, printed)
    )
    if not fits(wanted, found):
        raise SnippetError(f"the page says\n{expected}\nprinted was\n{printed}")


def fits(expected: list[str], printed: list[str]) -> bool:
    """Whether lines agree.

    >>> fits(["a 1.00", "...", "c"], ["a 1.01", "b", "b", "c"])
    True
    >>> fits(["a 1.00"], ["a 1.10"])
    False
    """
    if not expected:
        return not printed
    if expected[0] == "...":
        return any(fits(expected[1:], printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and same_line(expected[0], printed[0]) and fits(expected[1:], printed[1:])


def same_line(expected: str, printed: str) -> bool:
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=False)
    return all(starmap(near, pairs)) and NUMBER.sub("#", expected) == NUMBER.sub("#", printed)


def near(one: str, other: str) -> bool:
    if "." not in one + other:
        return abs(int(one) - int(other)) <= PERCENTS
    return math.isclose(float(one), float(other), rel_tol=TOLERANCE, abs_tol=0.01)


def main() -> None:
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                count = run_page(Path(name).resolve(), Path(folder))
            except SnippetError as error:
                sys.exit(str(error))
        sys.stdout.write(f"{name}: {count} blocks ran\n")


if __name__ == "__main__":
    main()
