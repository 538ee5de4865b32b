"""Decisions: what people decide in their browsers is appended to a file for each knowledge base, for all to read."""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from kbq.errors import KbqError
from kbq.serve.api import Given, KbName, json_only
from kbq.serve.problems import DESCRIBED, RefusedError
from kbq.serve.services import WithServices
from kbq.storage.folders import make_folders
from kbq.storage.locks import lock
from kbq.storage.writing import open_to_grow, sync_open, writing_to
from kbq.tables.decisions import decision_of

MOST, MOST_BYTES = 500, 1_000_000  # decisions that are sent at once, and bytes of those that come back
LONGEST_FILE = 200_000_000  # bytes: a million decisions
PATIENCE = 10.0  # seconds
NAMES = ("subject", "relation", "value", "decision", "time", "reviewer")
PLACE: dict[str, type] = {"page_id": str, "paragraph": int, "start": int, "end": int}
router = APIRouter(prefix="/v1", dependencies=[Depends(json_only)], responses={"4XX": DESCRIBED, "5XX": DESCRIBED})


class Exchange(Given):
    """Somebody's decisions, and the byte of the file from which on the decisions of all are wanted."""

    kb: KbName = None
    since: Annotated[int, Field(ge=0)] = 0
    decisions: Annotated[list[dict[str, Any]], Field(default_factory=list, max_length=MOST)]


class KeptDecisions(BaseModel):
    """Decisions in the order in which they were made; `more` of them lie behind `next`."""

    decisions: list[dict[str, Any]]
    next: int
    more: bool


@router.post("/decisions")
async def exchange(given: Exchange, services: WithServices) -> KeptDecisions:
    """Keep decisions, each {subject, relation, value, decision}, and give those that were made since."""
    folder = services.settings.decisions
    if folder is None:
        raise RefusedError(404, "decisions are not kept here: start kbq serve with --decisions FOLDER")
    lines = []
    for number, fields in enumerate(given.decisions):
        try:
            lines.append(_line(fields))
        except KbqError as error:
            raise RefusedError(422, f"decisions[{number}] {error}") from None
    path = folder / f"{services.kbs.named(given.kb).name}.decisions.jsonl"
    return await asyncio.to_thread(_exchanged, path, lines, given.since)


def _line(fields: dict[str, Any]) -> bytes:
    """Write a decision as it is kept: what `kbq fill`, `finetune` and `calibrate` read of it, and nothing else."""
    decision = decision_of(fields)
    line: dict[str, Any] = {
        "subject": decision.subject, "relation": decision.relation, "value": decision.value,
        "decision": decision.choice, "time": decision.time, "reviewer": decision.reviewer,
    }  # fmt: skip
    line |= {name: fields[name] for name, kind in PLACE.items() if type(fields.get(name)) is kind}
    line |= {"object": decision.value, "page": line.get("page_id", "")}
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _exchanged(path: Path, lines: Sequence[bytes], since: int) -> KeptDecisions:
    """Append whole lines, which are on the disk when this returns, and read those behind a place."""
    with writing_to(path, KbqError):
        make_folders(path.parent)
        with open_to_grow(path) as file:
            _wait_for(file.fileno(), path)
            end = _whole(file)
            if lines and end > LONGEST_FILE:
                raise KbqError(f"{path.name} has more than {LONGEST_FILE:,} bytes: no more decisions are kept in it")
            if lines:
                file.truncate(end)
                file.seek(end)
                file.write(b"".join(lines))
                sync_open(file)
            first = since if since <= end else 0  # the file has been replaced by a shorter one
            file.seek(first)
            read = file.read(MOST_BYTES)
    whole = read[: read.rfind(b"\n") + 1] or (read if len(read) == MOST_BYTES else b"")  # a longer line, part by part
    decisions = [found for line in whole.splitlines() if (found := _read(line))]
    return KeptDecisions(decisions=decisions, next=first + len(whole), more=len(read) == MOST_BYTES)


def _wait_for(handle: int, path: Path) -> None:
    """Wait until nobody else writes: it takes them milliseconds."""
    until = time.monotonic() + PATIENCE
    while not lock(handle):
        if time.monotonic() > until:
            raise KbqError(f"another process has been writing to {path.name} for {PATIENCE:g} seconds: send it again")
        time.sleep(0.005)


def _whole(file: IO[bytes]) -> int:
    """Count the bytes up to the end of the last whole line: a process that was killed may have left a part of one."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_BYTES))
    tail = file.read()
    return size - len(tail) + tail.rfind(b"\n") + 1


def _read(line: bytes) -> dict[str, Any] | None:
    """Read a line of the file; None where somebody has written something else into it."""
    try:
        fields = json.loads(line)
        decision_of(fields)
    except (ValueError, AttributeError, KbqError):
        return None
    return {name: fields[name] for name in NAMES if fields.get(name) or name == "value"}
