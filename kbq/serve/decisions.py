"""Decisions: what people decide on the values of tables, in a file for each knowledge base.

Decisions count in the order in which they arrive, whatever the clocks of the browsers say. A
browser sends a decision again, with the same id, until it knows that it is kept.
"""

import asyncio
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, get_args

import msgspec
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field, WithJsonSchema

from kbq.errors import KbqError
from kbq.serve.api import ClientObject, KbName, json_only
from kbq.serve.filling import WithServices
from kbq.serve.problems import DESCRIBED, RefusedError
from kbq.storage.folders import make_folders
from kbq.storage.records import json_line
from kbq.storage.writing import (
    StrangeFileError,
    lock,
    open_to_grow,
    sync_folder,
    sync_open,
    writing_to,
)
from kbq.tables.deciding import LONGEST, LONGEST_ID, Choice, decision_of

# Decisions that are sent at once, and bytes of those that come back.
MOST = 500
MOST_BYTES = 1_000_000
LONGEST_FILE = 200_000_000  # bytes: a million decisions
LARGEST = 2**53  # largest number of a place
PATIENCE = 10.0  # seconds
RECOGNISED = 4096  # bytes before a place by which a file is known again
NAMES = ("subject", "relation", "value", "decision", "time", "reviewer", "id")
PLACE: dict[str, type] = {"page_id": str, "paragraph": int, "start": int, "end": int}
LOG = logging.getLogger("kbq.serve")
router = APIRouter(
    prefix="/v1", dependencies=[Depends(json_only)], responses={"4XX": DESCRIBED, "5XX": DESCRIBED}
)


class NotKeptError(RefusedError):
    """Decisions that cannot be written."""

    def __init__(self, message: str) -> None:
        super().__init__(507, message)


_NAME = {"type": "string", "pattern": r"\S", "maxLength": LONGEST}
_TEXT = {"type": "string", "maxLength": LONGEST}
DESCRIBED_DECISION = {
    "type": "object",
    "required": ["subject", "relation", "value", "decision"],
    "properties": {"subject": _NAME, "relation": _NAME, "value": _TEXT}
    | {"decision": {"enum": get_args(Choice)}, "reviewer": _TEXT, "time": _TEXT}
    | {
        "id": {
            "type": "string",
            "maxLength": LONGEST_ID,
            "description": "by which it is known when it is sent again",
        }
    },
}


class DecisionsRequest(ClientObject):
    """Somebody's decisions, and the byte of the file from which everybody's decisions are wanted."""

    kb: KbName = None
    since: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    decisions: Annotated[
        list[Annotated[dict[str, Any], WithJsonSchema(DESCRIBED_DECISION)]],
        Field(default_factory=list, max_length=MOST),
    ]


class KeptDecisions(BaseModel):
    """Decisions in the order in which they arrived, and the byte after them; `more`: there are
    others there.
    """

    decisions: list[dict[str, Any]]
    next: int
    more: bool


class _Line(msgspec.Struct):
    """What must be known of a line that is there already."""

    decision: Choice
    id: str = ""


_DECODER = msgspec.json.Decoder(_Line)


class DecisionsFile:
    """The decisions on the values from one knowledge base; of a file that grows, only what is new
    is looked at.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._known = 0, 0  # the device and the number of the file that has been looked at
        # End of its whole lines, and the bytes before that.
        self._end = 0
        self._before = b""
        self._ids = set[str]()

    def repair(self) -> None:
        """Look at the file, if there is one, and move a torn tail beside it. Raises NotKeptError if
        that fails.
        """
        if os.path.lexists(self._path):
            with self._alone() as file:
                self._look(file)

    def exchanged(self, lines: Sequence[bytes], since: int) -> KeptDecisions:
        """Append lines, which are on the disk when this returns, and read those after a place.

        Raises NotKeptError if they cannot be kept, and RefusedError if another process does not end
        its writing.
        """
        with self._alone() as file:
            file.seek(max(0, min(since, LONGEST_FILE * 2) - 1))
            # Elsewhere the file has been replaced.
            first = 0
            if since and file.read(1) == b"\n":
                first = since
            if lines:
                self._append(file, lines)
            end = file.seek(0, os.SEEK_END)
            file.seek(first)
            read = file.read(MOST_BYTES) + file.readline()

        whole = read[: read.rfind(b"\n") + 1]
        decisions = [decision for line in whole.splitlines() if (decision := _read(line))]
        return KeptDecisions(
            decisions=decisions, next=first + len(whole), more=first + len(read) < end
        )

    @contextmanager
    def _alone(self) -> Iterator[BinaryIO]:
        """Open the file, made if need be, that nobody else writes to meanwhile."""
        until = time.monotonic() + PATIENCE
        busy = (
            f"another process has been writing to {self._path.name} for {PATIENCE:g} seconds: "
            "send it again"
        )
        if not self._turn.acquire(timeout=PATIENCE):
            raise RefusedError(503, busy)
        try:
            with writing_to(self._path, NotKeptError):
                make_folders(self._path.parent)
                is_new = not self._path.exists()
                with open_to_grow(self._path) as file:
                    if is_new:
                        sync_folder(self._path.parent)
                    while not lock(file.fileno()):  # others hold it for milliseconds
                        if time.monotonic() > until:
                            raise RefusedError(503, busy)
                        time.sleep(0.005)
                    yield file
        except StrangeFileError as error:
            raise NotKeptError(str(error)) from None
        finally:
            self._turn.release()

    def _append(self, file: BinaryIO, lines: Sequence[bytes]) -> None:
        """Append the lines that are not yet there. Either all of them reach the disk, or none does."""
        end = file.seek(0, os.SEEK_END)
        if end > LONGEST_FILE:
            raise NotKeptError(
                f"{self._path.name} has more than {LONGEST_FILE:,} bytes: no more decisions are "
                "kept in it"
            )

        self._look(file)
        new = [line for line in dict.fromkeys(lines) if _id(line) not in self._ids]
        end = file.seek(0, os.SEEK_END)
        left = memoryview(b"".join(new))
        handle = file.fileno()

        try:
            while left:  # unbuffered: what is left of it must not be written later
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, end)  # a full disk has taken a part of them
            raise

    def _look(self, file: BinaryIO) -> None:
        """Learn the ids in the lines that are new; move the torn line that a crash has left to a
        file beside.

        A kill leaves the beginning of a line, a power cut zeros in place of bytes that had not
        reached the disk.
        """
        self._recognise(file)
        size = file.seek(0, os.SEEK_END)
        file.seek(self._end)
        for line in file:
            if not line.endswith(b"\n") or b"\0" in line:
                break
            self._end += len(line)
            self._before = (self._before + line)[-RECOGNISED:]
            known = _id(line)
            if known:
                self._ids.add(known)

        if self._end < size:
            self._move_torn(file)

    def _recognise(self, file: BinaryIO) -> None:
        """Forget what is known of another file: somebody may have replaced this one, or removed
        lines of it.
        """
        facts = os.fstat(file.fileno())
        file.seek(self._end - len(self._before))
        if (
            self._known != (facts.st_dev, facts.st_ino)
            or file.read(len(self._before)) != self._before
        ):
            self._known = (facts.st_dev, facts.st_ino)
            self._end = 0
            self._before = b""
            self._ids = set()

    def _move_torn(self, file: BinaryIO) -> None:
        """Move the unfinished last line into a file of its own."""
        beside = self._path.with_name(f"{self._path.name}.torn")
        with open_to_grow(beside) as other:
            other.seek(0, os.SEEK_END)
            file.seek(self._end)
            shutil.copyfileobj(file, other)
            other.write(b"\n")
            sync_open(other)
        file.truncate(self._end)
        sync_open(file)
        LOG.warning("%s ended in a torn line, which is in %s now", self._path.name, beside.name)


class DecisionsFolder:
    """The files of decisions of a service, each NAME.decisions.jsonl; without a folder, browsers
    keep them.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files = dict[str, DecisionsFile]()

    def of(self, name: str) -> DecisionsFile:
        """Return the file of a knowledge base. Raises RefusedError if there is no folder."""
        if self._folder is None:
            raise RefusedError(
                404, "decisions are not kept here: start `kbq serve --decisions FOLDER`"
            )
        return self._files.setdefault(name, DecisionsFile(self._folder / f"{name}.decisions.jsonl"))

    def repair(self, names: Iterable[str]) -> None:
        """Look at the files of knowledge bases; where that fails, say why, as no other request
        needs them.
        """
        if self._folder is None:
            return
        for name in names:
            try:
                self.of(name).repair()
            except KbqError as error:
                LOG.warning("decisions are not kept: %s", error)


async def _of(request: Request) -> DecisionsFolder:
    folder: DecisionsFolder = request.app.state.decisions
    return folder


@router.post("/decisions", tags=["reviewing"])
async def exchange(
    given: DecisionsRequest,
    services: WithServices,
    folder: Annotated[DecisionsFolder, Depends(_of)],
) -> KeptDecisions:
    """Keep decisions, each {subject, relation, value, decision}, and return those that have arrived
    since.

    A decision whose `id` is already there is not kept again.
    """
    file = folder.of(services.kbs.named(given.kb).name)
    lines = []
    for number, fields in enumerate(given.decisions):
        try:
            lines.append(_line(fields))
        except KbqError as error:
            raise RefusedError(422, f"decisions[{number}] {error}") from None
    return await asyncio.to_thread(file.exchanged, lines, given.since)


def _line(fields: dict[str, Any]) -> bytes:
    """Return the line of a decision, with only the fields that `kbq fill`, `finetune` and
    `calibrate` read.
    """
    decision = decision_of(fields)
    line: dict[str, Any] = {
        "subject": decision.subject,
        "relation": decision.relation,
        "value": decision.value,
        "decision": decision.choice,
        "time": decision.time,
        "reviewer": decision.reviewer,
    }
    if decision.id:
        line["id"] = decision.id
    line |= {name: fields[name] for name, kind in PLACE.items() if type(fields.get(name)) is kind}

    for name, value in line.items():
        if name in PLACE and not (
            len(value) <= LONGEST if isinstance(value, str) else 0 <= value <= LARGEST
        ):
            raise KbqError(f"has a {name} that is too long, or no number of a place: leave it out")

    line |= {"object": decision.value, "page": line.get("page_id", "")}
    return json_line(line).encode("utf-8", "backslashreplace") + b"\n"


def _id(line: bytes) -> str:
    """Return the id of the decision in a line, or "" if it has none."""
    try:
        return _DECODER.decode(line).id
    except (
        msgspec.DecodeError,
        ValueError,
    ):  # also half of a surrogate pair, which Python's JSON takes
        return str((_read(line) or {}).get("id", ""))


def _read(line: bytes) -> dict[str, Any] | None:
    """Return the decision in a line of the file, or None if somebody has written something else
    into it.
    """
    try:
        fields = json.loads(line)
        decision_of(fields)
    except (ValueError, AttributeError, KbqError, RecursionError):
        return None
    return {name: fields[name] for name in NAMES if fields.get(name) or name == "value"}
