"""Run: the files of a table that is being filled, so that it resumes after a kill at any moment, with the same bytes.

Of `--out filled.csv`, filled.run.json describes the run, and filled.claims.partial has the claims of a run under way, a
line for each batch. When all is asked, the claims are in filled.claims.jsonl, and the same run writes them in other
formats, too, without asking again.
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
from kbq.filling.claims import Claim, Source, read_claims, write_claims
from kbq.system.files import write_json, writing_alone, writing_to

FACTS = ("begun", "command", "outputs")  # that do not decide the claims
NOT_OURS = "already exists and was not made by this run of kbq fill: choose another --out"


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
    """The files of a run, and what decides its claims."""

    def __init__(
        self, out: Path, description: Mapping[str, object], output: Mapping[str, object], command: str
    ) -> None:
        """A run that begins, goes on, or has come to its end.

        Args:
            description: what decides the claims, by the words in which a difference is told.
            output: what else decides the file `out`.

        Raises:
            KbqError: `out` is a folder, or a file is there that this run has not made.
        """
        self.out, self._output = out, json.loads(json.dumps(output))  # as it will be read
        stem, names = out.stem.removesuffix(".long"), ("run.json", "claims.jsonl", "claims.partial")
        self._facts, self._claims, self._partial = (out.with_name(f"{stem}.{name}") for name in names)
        if out.exists() and not out.is_file():
            raise KbqError(f"{out} is {'a folder' if out.is_dir() else 'not a file'}: give --out the name of a file")
        self._written = {"command": command, "outputs": {}} | json.loads(json.dumps(description))
        # An empty file is left by a run that was killed at once: nothing is lost, whoever began it.
        is_under_way = self._partial.exists() and self._partial.stat().st_size > 0
        there = [self._partial] * is_under_way + [path for path in (self._claims, out) if path.exists()]
        if there:
            self._written = self._read(there[0])

    def _read(self, there: Path) -> dict[str, Any]:
        if not self._facts.exists():
            raise KbqError(f"{there} {NOT_OURS}")
        try:
            written = dict(json.loads(self._facts.read_text("utf-8")))
            output = written["outputs"].get(self.out.name)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise KbqError(f"{self._facts} is damaged ({error!r:.80}): delete it and what the run has made") from None
        names = {*written, *self._written}.difference(FACTS)
        differing = [name for name in sorted(names) if written.get(name, ...) != self._written.get(name, ...)]
        instead = f"(see {self._facts.name}): choose another --out, or delete it"
        if differing:
            raise KbqError(f"{there} was made by a run that differs in {', '.join(differing)} {instead}")
        if self.out.exists() and output is None:
            raise KbqError(f"{self.out} {NOT_OURS}")
        others = [name for name, value in self._output.items() if self.out.exists() and output.get(name) != value]
        if others:
            raise KbqError(f"{self.out} was made with other {' and '.join(others)} {instead}")
        return written

    @property
    def source(self) -> Source:
        """What the claims come from; of a run that was killed, when and by which command it was begun."""
        names = ("version of kbq", "query encoder", "knowledge base", "command", "begun")
        return Source(*(str(self._written[name]) for name in names))

    def claims(self) -> list[Claim] | None:
        """All claims, if all was asked."""
        is_done = self._claims.exists() and not self._partial.exists()
        return list(read_claims(self._claims)) if is_done else None

    @contextmanager
    def going_on(self) -> Iterator[Progress]:
        """Begin, or go on where a run was killed; when the caller has asked all, the claims are written.

        Raises:
            KbqError: another process is at work, or a file cannot be written or is damaged.
        """
        with writing_to(self.out.parent, KbqError, "choose another --out"):
            self.out.parent.mkdir(parents=True, exist_ok=True)
        with (
            writing_to(self._partial, KbqError, goes_on=True),
            self._partial.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
            writing_alone(self._partial, self._claims),
        ):
            if self._partial.stat().st_size == 0:  # new, or of a run that was killed at once
                begun = datetime.now(UTC).isoformat(timespec="seconds")
                self._written = {"begun": begun} | self._written
                write_json(self._facts, self._written)
            progress = Progress(*self._done(), file)
            yield progress
            write_claims(self._claims, progress.claims)
            self._partial.unlink()

    def begin_output(self) -> None:
        """Note that `out` is this run's."""
        self._written["outputs"][self.out.name] = self._output
        with writing_to(self._facts, KbqError, goes_on=True):
            write_json(self._facts, self._written)

    def _done(self) -> tuple[int, list[Claim]]:
        """How many slots are done, and their claims; an unfinished last line, left by a killed run, is cut off."""
        slots, claims, end = 0, list[Claim](), 0
        with self._partial.open("r+b") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    fields = json.loads(line)
                    slots += fields["slots"]
                    claims += map(Claim.from_dict, fields["claims"])
                except (ValueError, KeyError, TypeError):
                    raise KbqError(f"{self._partial}:{number} is damaged: delete the file to begin anew") from None
                end += len(line)
            file.seek(end)
            file.truncate()
        return slots, claims
