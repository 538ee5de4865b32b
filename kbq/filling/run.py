"""Run: the files of a table that is being filled, so that it resumes after a kill at any moment, with the same bytes.

OUT.run.json describes the run, OUT.partial has the claims of a run under way, a line for each batch. When it is done,
the claims are in OUT.claims.jsonl, whose name is that of OUT without its suffix, and OUT.partial is gone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from kbq.errors import KbqError
from kbq.filling.claims import Claim, Source
from kbq.system.files import run_file, write_json, writing_alone, writing_to


@dataclass(slots=True)
class Progress:
    """How far a run is."""

    slots: int = 0  # that are done
    claims: list[Claim] = field(default_factory=list)
    file: TextIO | None = None  # has them, too

    def add(self, batch: Sequence[Sequence[Claim]]) -> None:
        """A batch is done: the claims of each of its slots."""
        claims = list(chain(*batch))
        if self.file is not None:
            line = {"slots": len(batch), "claims": [claim.to_dict() for claim in claims]}
            self.file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self.file.flush()
        self.slots += len(batch)
        self.claims += claims


class Run:
    """The files of a run, and what decides its outcome."""

    def __init__(self, out: Path, description: Mapping[str, object], command: str) -> None:
        """Raises KbqError if `out` is a folder, or it or the claims beside it are of another run."""
        self._out, self._command = out, command
        self._description = json.loads(json.dumps(description))  # as it will be read
        self.claims = out.with_name(f"{out.stem}.claims.jsonl")
        self.partial = out.with_name(f"{out.name}.partial")
        if out.exists() and not out.is_file():
            raise KbqError(f"{out} is {'a folder' if out.is_dir() else 'not a file'}: give --out the name of a file")
        there = next((path for path in (out, self.claims, self.partial) if path.exists()), None)
        if there is None:
            return
        if not run_file(out).exists():
            raise KbqError(f"{there} already exists and was not made by kbq fill: choose another --out")
        written = self._written()
        names = {*self._description, *written} - {"begun", "command"}
        differing = sorted(name for name in names if written.get(name, ...) != self._description.get(name, ...))
        if differing:
            raise KbqError(
                f"{there} was made by a run that differs in {', '.join(differing)} (see {run_file(out).name}): choose "
                "another --out, or delete it"
            )

    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return self._out.exists() and self.claims.exists() and not self.partial.exists()

    @property
    def source(self) -> Source:
        """What the claims come from. Who goes on with a run tells when, and by which command, it was begun."""
        written = self._written()
        names = ("version of kbq", "query encoder", "knowledge base", "command", "begun")
        return Source(*(str(written[name]) for name in names))

    @contextmanager
    def going_on(self) -> Iterator[Progress]:
        """Begin, or go on where a run was killed. In the end what the caller writes is complete.

        Raises:
            KbqError: another process is at work, or a file cannot be written or is damaged.
        """
        with writing_to(self._out.parent, KbqError, "choose another --out"):
            self._out.parent.mkdir(parents=True, exist_ok=True)
        with (
            writing_to(self.partial, KbqError, goes_on=True),
            self.partial.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
            writing_alone(self.partial, self._out),
        ):
            if self.partial.stat().st_size == 0:  # new, or of a run that was killed at once
                begun = datetime.now(UTC).isoformat(timespec="seconds")
                write_json(run_file(self._out), {"begun": begun, "command": self._command} | self._description)
            yield Progress(*self._done(), file)
            self.partial.unlink()

    def _written(self) -> Mapping[str, Any]:
        path = run_file(self._out)
        try:
            return dict(json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError) as error:
            raise KbqError(f"{path} is damaged ({error}): delete it and the files beside it") from None

    def _done(self) -> tuple[int, list[Claim]]:
        """How many slots are done, and their claims; an unfinished last line, left by a killed run, is cut off."""
        slots, claims, end = 0, list[Claim](), 0
        with self.partial.open("r+b") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    fields = json.loads(line)
                    slots += fields["slots"]
                    claims += map(Claim.from_dict, fields["claims"])
                except (ValueError, KeyError, TypeError):
                    raise KbqError(f"{self.partial}:{number} is damaged: delete the file to begin anew") from None
                end += len(line)
            file.seek(end)
            file.truncate()
        return slots, claims
