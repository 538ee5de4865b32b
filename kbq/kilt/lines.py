"""Lines: lines become a file, whole or not at all; files that a command cannot read or write are refused first."""

from collections.abc import Iterable
from pathlib import Path

from kbq.errors import EvaluationError
from kbq.kilt.records import Source
from kbq.storage.files import pipe_name
from kbq.storage.folders import make_folders
from kbq.storage.writing import replacing, writing_to


def refuse_missing(*sources: Source | None) -> None:
    """Say once that a file cannot be read, before every record of another one misses its partner.

    Raises:
        EvaluationError: a path is not a file.
    """
    for path in sources:
        if not isinstance(path, Path) or str(path) == "-":
            continue
        try:
            why = "a folder" if path.is_dir() else "" if path.exists() else "no such file"
        except OSError as error:  # records as text, say, given for a path
            why = error.strerror or "no such file"
        if why:
            raise EvaluationError(f"{path} cannot be read ({why})")


def refuse_pipes(*sources: Source | None) -> None:
    """A file that is read several times would be empty the second time.

    Raises:
        EvaluationError: one is standard input or another pipe.
    """
    for path in sources:
        if isinstance(path, Path) and (pipe := pipe_name(path)):
            raise EvaluationError(f"{pipe} can be read only once, and is needed several times: give the name of a file")


def refuse_replacing(outputs: Iterable[Path | None], inputs: Iterable[Source | None]) -> None:
    """Never write to a file that is read.

    Raises:
        EvaluationError: an output is one of the inputs, another output, or a folder.
    """
    taken = {path.resolve(): "one of the inputs" for path in inputs if isinstance(path, Path)}
    for path in outputs:
        if path is None:
            continue
        if path.is_dir():
            raise EvaluationError(f"{path} is a folder: give the name of a file")
        if path.resolve() in taken:
            raise EvaluationError(f"{path} is {taken[path.resolve()]}: write to another file")
        taken[path.resolve()] = "another output, too"


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write UTF-8 lines, each ended by a line feed, and return how many; an old file is replaced at the end.

    Raises:
        EvaluationError: the file cannot be written.
    """
    if path.is_dir():
        raise EvaluationError(f"{path}: cannot be written (a folder): give the name of a file")
    count = 0
    with writing_to(path, EvaluationError, "check the folder and its rights"):
        make_folders(path.parent)
        # Half a surrogate pair is not UTF-8: its escape is valid JSON.
        with (
            replacing(path) as partial,
            partial.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream,
        ):
            for line in lines:
                stream.write(line + "\n")
                count += 1
    return count
