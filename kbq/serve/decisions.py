"""Decisions: what people decide in their browsers is appended to a file for each knowledge base, for all to read.

They count in the order in which they arrive, whatever the clocks of the browsers say. A browser sends a decision again,
with the same id, until it knows that it is kept.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from kbq.errors import KbqError
from kbq.serve.api import Given, KbName, json_only
from kbq.serve.problems import DESCRIBED, RefusedError
from kbq.serve.services import WithServices
from kbq.storage.folders import make_folders
from kbq.storage.locks import lock
from kbq.storage.records import json_line
from kbq.storage.writing import open_to_grow, sync, sync_open, writing_to
from kbq.tables.decisions import LONGEST, decision_of

MOST, MOST_BYTES = 500, 1_000_000  # decisions that are sent at once, and bytes of those that come back
LONGEST_FILE = 200_000_000  # bytes: a million decisions
LARGEST = 2**53  # of the numbers of a place
PATIENCE = 10.0  # seconds
NAMES = ("subject", "relation", "value", "decision", "time", "reviewer", "id")
PLACE: dict[str, type] = {"page_id": str, "paragraph": int, "start": int, "end": int}
LOG = logging.getLogger("kbq.serve")
router = APIRouter(prefix="/v1", dependencies=[Depends(json_only)], responses={"4XX": DESCRIBED, "5XX": DESCRIBED})


class NotKeptError(RefusedError):
    """Decisions that cannot be written."""

    def __init__(self, message: str) -> None:
        super().__init__(507, message)


class Exchange(Given):
    """Somebody's decisions, and the byte of the file from which on the decisions of all are wanted."""

    kb: KbName = None
    since: Annotated[int, Field(ge=0)] = 0
    decisions: Annotated[list[dict[str, Any]], Field(default_factory=list, max_length=MOST)]


class KeptDecisions(BaseModel):
    """Decisions in the order in which they arrived; `more` of them lie behind `next`."""

    decisions: list[dict[str, Any]]
    next: int
    more: bool


@router.post("/decisions", tags=["reviewing"])
async def exchange(given: Exchange, services: WithServices) -> KeptDecisions:
    """Keep decisions, each {subject, relation, value, decision}, and give those that have arrived since.

    One whose `id` is that of a decision behind `since` is there already, and is not kept again.
    """
    folder = services.settings.decisions
    if folder is None:
        raise RefusedError(404, "decisions are not kept here: start kbq serve with --decisions FOLDER")
    lines = []
    for number, fields in enumerate(given.decisions):
        try:
            lines.append(_line(fields))
        except KbqError as error:
            raise RefusedError(422, f"decisions[{number}] {error}") from None
    return await asyncio.to_thread(_exchanged, _path(folder, services.kbs.named(given.kb).name), lines, given.since)


def check(folder: Path, names: Iterable[str]) -> None:
    """Cut off what a crash has left at the end of the files of these knowledge bases, before they are added to."""
    for path in (_path(folder, name) for name in names):
        if path.exists():
            with _alone(path) as file:
                _whole_lines(file, path, 0)


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.decisions.jsonl"


def _line(fields: dict[str, Any]) -> bytes:
    """Write a decision as it is kept: what `kbq fill`, `finetune` and `calibrate` read of it, and nothing else."""
    decision = decision_of(fields)
    line: dict[str, Any] = {
        "subject": decision.subject, "relation": decision.relation, "value": decision.value,
        "decision": decision.choice, "time": decision.time, "reviewer": decision.reviewer,
    }  # fmt: skip
    line |= {"id": decision.id} if decision.id else {}
    line |= {name: fields[name] for name, kind in PLACE.items() if type(fields.get(name)) is kind}
    for name, value in line.items():
        if name in PLACE and not (len(value) <= LONGEST if isinstance(value, str) else 0 <= value <= LARGEST):
            raise KbqError(f"has a {name} that is too long, or no number of a place: leave it out")
    line |= {"object": decision.value, "page": line.get("page_id", "")}
    return json_line(line).encode("utf-8", "backslashreplace") + b"\n"


def _exchanged(path: Path, lines: Sequence[bytes], since: int) -> KeptDecisions:
    """Append lines, which are on the disk when this returns, and read those behind a place."""
    with _alone(path) as file:
        first = since if _begins_line(file, since) else 0  # 0: the file has been replaced by another one
        if lines:
            _append(file, path, lines, first)
        end = file.seek(0, os.SEEK_END)
        file.seek(first)
        read = file.read(MOST_BYTES) + file.readline()
    whole = read[: read.rfind(b"\n") + 1]
    decisions = [found for line in whole.splitlines() if (found := _read(line))]
    return KeptDecisions(decisions=decisions, next=first + len(whole), more=first + len(read) < end)


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """Open a file that no one else writes to meanwhile; make it, and its folder, if there is none."""
    with writing_to(path, NotKeptError):
        make_folders(path.parent)
        is_new = not path.exists()
        with open_to_grow(path) as file:
            if is_new:
                sync(path.parent)
            until = time.monotonic() + PATIENCE
            while not lock(file.fileno()):  # others need it for milliseconds
                if time.monotonic() > until:
                    raise RefusedError(
                        503, f"another process has been writing to {path.name} for {PATIENCE:g} seconds: send it again"
                    )
                time.sleep(0.005)
            yield file


def _begins_line(file: BinaryIO, place: int) -> bool:
    file.seek(max(0, place - 1))
    return place == 0 or file.read(1) == b"\n"


def _append(file: BinaryIO, path: Path, lines: Sequence[bytes], first: int) -> None:
    """Append those of the lines that are not behind a place already; all of them are on the disk then, or none is."""
    there = {found.get("id") for line in _whole_lines(file, path, first).splitlines() if (found := _read(line))}
    new = [line for line in dict.fromkeys(lines) if json.loads(line).get("id", "") not in there]
    end = file.seek(0, os.SEEK_END)
    if new and end > LONGEST_FILE:
        raise NotKeptError(f"{path.name} has more than {LONGEST_FILE:,} bytes: no more decisions are kept in it")
    left, handle = memoryview(b"".join(new)), file.fileno()
    try:
        while left:  # unbuffered: what is left of it must not be written later
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, end)  # a full disk has taken a part of them
        raise


def _whole_lines(file: BinaryIO, path: Path, first: int) -> bytes:
    """Return the lines behind a place; cut off, say, and keep beside what a crash has left of one.

    A kill leaves the beginning of a line, a power cut zeros in place of what had not come to the disk.
    """
    file.seek(first)
    read = file.read()
    whole = read[: read.rfind(b"\n", 0, read.find(b"\0") if b"\0" in read else None) + 1]
    if len(whole) < len(read):
        beside = path.with_name(f"{path.name}.torn")
        with open_to_grow(beside) as other:
            other.seek(0, os.SEEK_END)
            other.write(read[len(whole) :] + b"\n")
            sync_open(other)
        file.truncate(first + len(whole))
        sync_open(file)
        LOG.warning("%s ended in a torn line, which is in %s now", path.name, beside.name)
    return whole


def _read(line: bytes) -> dict[str, Any] | None:
    """Read a line of the file; None where somebody has written something else into it."""
    try:
        fields = json.loads(line)
        decision_of(fields)
    except (ValueError, AttributeError, KbqError):
        return None
    return {name: fields[name] for name in NAMES if fields.get(name) or name == "value"}
