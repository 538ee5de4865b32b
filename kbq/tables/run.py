"""Run: the files of a table that is being filled: answers are kept, and whatever is written is a view of them.

Of `--out filled.csv`, filled.answers.jsonl has the answers to every query (see `Kept`), filled.run.json what decides
them and which files are views, and filled.claims.jsonl the claims of the latest view. A run that was killed at any
moment goes on, and one with another threshold, format, row or column asks only for what is not there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbq.dump.shards import Shard
from kbq.errors import KbqError
from kbq.storage.files import file_digest
from kbq.storage.folders import make_folders
from kbq.storage.locks import writing_alone
from kbq.storage.records import read_object
from kbq.storage.writing import open_to_grow, sync_open, write_json, writing_to
from kbq.tables.claims import Source
from kbq.tables.kept import Kept

FACTS = ("begun", "outputs")  # that do not decide the answers
INSTEAD = "choose another --out, or say --force"
UNFINISHED = ""  # instead of the digest of an output


class FillRun:
    """The files of a run, and what decides its answers."""

    def __init__(self, out: Path, description: Mapping[str, object], command: str, force: bool = False) -> None:
        """A run that begins or goes on.

        Args:
            description: what decides the answers, by the words in which a difference is told.
            force: overwrite what others have made, and ask again where the answers are not to this run's questions.

        Raises:
            KbqError: `out` is a folder, or a file is there that this run has not made.
        """
        self.out, self._command = out, command
        stem, names = out.stem.removesuffix(".long"), ("run.json", "answers.jsonl", "claims.jsonl")
        self._facts, self._answers, self.claims = (out.with_name(f"{stem}.{name}") for name in names)
        if out.exists() and not out.is_file():
            raise KbqError(f"{out} is {'a folder' if out.is_dir() else 'not a file'}: give --out the name of a file")
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        self._written = {"begun": begun} | json.loads(json.dumps(description)) | {"outputs": {}}
        self._asks_again = False
        there = [path for path in (self._answers, self.claims, out) if path.exists() and path.stat().st_size > 0]
        if there:
            try:
                self._written = self._before(there)
            except KbqError:
                if not force:
                    raise
                self._asks_again = True
            else:
                self._refuse_others(force)

    def _before(self, there: Sequence[Path]) -> dict[str, Any]:
        """What was written of this run before; raises KbqError if its answers are not to the same questions."""
        if not self._facts.exists():
            raise KbqError(f"{there[0]} already exists and was not made by kbq fill: {INSTEAD}")
        try:
            written = read_object(self._facts)
            dict(written["outputs"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise KbqError(f"{self._facts} is damaged ({error!r:.80}): {INSTEAD}") from None
        names = {*written, *self._written}.difference(FACTS)
        differing = [name for name in sorted(names) if written.get(name, ...) != self._written.get(name, ...)]
        if differing:
            raise KbqError(
                f"{there[0]} has answers to what was asked with another {' and '.join(differing)} (see "
                f"{self._facts.name}): {INSTEAD} to ask again"
            )
        return written

    def _refuse_others(self, force: bool) -> None:
        """Raises KbqError if `out` is not as this run has written it."""
        known = self._written["outputs"].get(self.out.name)
        if force or not self.out.exists() or known == UNFINISHED:
            return
        if known is None:
            raise KbqError(f"{self.out} already exists and was not made by kbq fill: {INSTEAD}")
        if known != file_digest(self.out):
            raise KbqError(f"{self.out} was changed after kbq fill had written it: {INSTEAD} to overwrite it")

    @property
    def source(self) -> Source:
        """What the claims come from, and since when it was asked."""
        version, model, kb, begun = (
            str(self._written[name]) for name in ("version of kbq", "query encoder", "knowledge base", "begun")
        )
        return Source(version, model, kb, self._command, begun)

    @contextmanager
    def answers(self, shards: Sequence[Shard]) -> Iterator[Kept]:
        """The answers that are kept, to be added to; no other process adds to them, or writes a view.

        Raises:
            KbqError: another process is at work, or a file cannot be written or is damaged.
        """
        with writing_to(self.out.parent, KbqError, "choose another --out"):
            make_folders(self.out.parent)
        with (
            writing_to(self._answers, KbqError, goes_on=True),
            open_to_grow(self._answers) as file,
            writing_alone(self._answers, self._answers),
        ):
            if self._asks_again:
                file.truncate(0)
            write_json(self._facts, self._written)
            yield Kept(shards, file, str(self._answers))
            sync_open(file)

    @contextmanager
    def view(self) -> Iterator[None]:
        """Write `out`: before, it is noted as this run's, and then what it holds, so that no change of it is lost."""
        self._note(UNFINISHED)
        yield
        self._note(file_digest(self.out))

    def _note(self, digest: str) -> None:
        self._written["outputs"][self.out.name] = digest
        with writing_to(self._facts, KbqError, goes_on=True):
            write_json(self._facts, self._written)
