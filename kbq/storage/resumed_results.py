"""Resumed results: a run whose results grow in a file goes on where it was stopped."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from kbq.errors import KbqError
from kbq.storage.folders import make_folders
from kbq.storage.records import read_object
from kbq.storage.writing import open_to_grow, sync_open, write_json, writing_alone, writing_to


@contextmanager
def resumed(
    path: Path,
    facts: Path,
    description: Mapping[str, object],
    advice: str,
    undecisive: Collection[str] = (),
    *,
    anew: bool = False,
) -> Iterator[tuple[BinaryIO, dict[str, Any]]]:
    """Yield a file of results to read and to append to, and the description of the run that began
    it.

    The description is written before the first result, and the file is locked to the end: results
    never lie beside the description of another run.

    Args:
        path: the file of results; an empty one is new.
        facts: the file of the description.
        description: the facts that decide the results of this run.
        advice: on results of another run.
        undecisive: names of facts that may differ.
        anew: begin anew instead of refusing another run's results.

    Raises KbqError if they are another run's, cannot be written, or another process writes them.
    """
    if path.exists() and not path.is_file():
        raise KbqError(
            f"{path} is {'a folder' if path.is_dir() else 'not a file'}: give --out the name of a "
            "file"
        )

    with writing_to(path.parent, KbqError, "choose another --out"):
        make_folders(path.parent)
    with writing_to(path, KbqError, goes_on=True), open_to_grow(path) as file, writing_alone(path):
        begun = None
        if path.stat().st_size:
            try:
                begun = _begun(path, facts, description, advice, undecisive)
            except KbqError:
                if not anew:
                    raise
                file.truncate(0)

        if begun is None:
            write_json(facts, description)
        if begun is None:
            begun = dict(description)
        yield file, begun
        sync_open(file)


def _begun(
    path: Path,
    facts: Path,
    description: Mapping[str, object],
    advice: str,
    undecisive: Collection[str],
) -> dict[str, Any]:
    """Return the written description. Raises KbqError if it is missing, damaged or another run's."""
    if not facts.exists():
        raise KbqError(f"{path} already exists and was not made by kbq: {advice}")
    try:
        written = read_object(facts)
    except (OSError, ValueError) as error:
        raise KbqError(f"{facts} is damaged ({error!r:.80}): {advice}") from None

    names = dict.fromkeys((*description, *written))
    differing = [name for name in names if written.get(name, ...) != description.get(name, ...)]
    if others := [
        name.removesuffix("_sha256").replace("_", " ")
        for name in differing
        if name not in undecisive
    ]:
        raise KbqError(
            f"{path} was made by a run that differs in {', '.join(others)} (see {facts.name}): "
            f"{advice}"
        )

    return written
