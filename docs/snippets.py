"""The examples of a page, run from top to bottom.

    python docs/snippets.py README.md docs/guides/*.md      in a temporary folder for each page
    python docs/snippets.py --write README.md               put what is printed into the page

| block | how it is run |
|---|---|
| bash | by bash, which must end with status 0; a `text` block right below it is what it prints |
| python | in one session for the whole page; a `text` block right below it is what it prints |
| console | commands behind `$ `, each followed by what it prints |
| anything below `<!-- not run: reason -->` | not at all |

What is printed may differ in blanks at the ends of lines, and in decimal numbers by two percent and
in whole percents by three, as they depend on the CPU. A line `...` stands for any lines. Standard
error is not compared.
"""

import argparse
import contextlib
import difflib
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
            for _, expected, printed in outputs(snippet, folder, session):
                compare(expected, printed)
        except SnippetError as error:
            raise SnippetError(f"{page}:{snippet.line}: {error}") from None
    return count


def rewritten_page(page: Path, folder: Path) -> str:
    """Run the blocks of a page in a folder; the page with what they print now."""
    session: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text("utf-8")
    at = 0
    for snippet in snippets(text):
        for code, expected, printed in outputs(snippet, folder, session):
            at = text.index(code, at) + len(code)
            start = text.index(expected, at)
            now = rewritten(expected, printed)
            text = text[:start] + now + text[start + len(expected) :]
            at = start + len(now)
    return text


def outputs(
    snippet: Snippet, folder: Path, session: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Run one block; its code or commands, what the page says that each prints, what it prints."""
    if snippet.kind == "console":
        for command, expected in commands(snippet.code):
            yield f"{command}\n", expected, shell(command, folder)
        return
    printed = (
        shell(snippet.code, folder)
        if snippet.kind == "bash"
        else python(snippet.code, folder, session)
    )
    if snippet.printed is not None:
        yield snippet.code, snippet.printed, printed


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


def rewritten(expected: str, printed: str) -> str:
    """What a page should say: its own lines where they agree, or else those that were printed.

    >>> rewritten("a 1.00\\n...\\nd\\n", "a 1.01\\nb\\nc\\ne\\n")
    'a 1.00\\n...\\ne\\n'
    """
    said, found = expected.rstrip().splitlines(), printed.rstrip().splitlines()
    if fits([line.rstrip() for line in said], [line.rstrip() for line in found]):
        return expected
    shapes = [[NUMBER.sub("#", line.rstrip()) for line in lines] for lines in (said, found)]
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, *shapes, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        before, now = said[first:last], found[begin:end]
        if kind == "equal":
            pairs = zip(before, now, strict=True)
            lines += [old if same_line(old.rstrip(), new.rstrip()) else new for old, new in pairs]
        elif "..." in before:
            head = before.index("...")
            tail = len(before) - 1 - head
            lines += [*now[:head], "...", *(now[-tail:] if tail else [])]
        else:
            lines += now
    return "\n".join(lines) + expected[len(expected.rstrip()) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for page in options.pages:
        with tempfile.TemporaryDirectory() as folder:
            try:
                if options.write:
                    page.write_text(rewritten_page(page.resolve(), Path(folder)), "utf-8")
                else:
                    run_page(page.resolve(), Path(folder))
            except SnippetError as error:
                sys.exit(str(error))
        sys.stdout.write(f"{page}: {len(list(snippets(page.read_text('utf-8'))))} blocks ran\n")


if __name__ == "__main__":
    main()
