"""Run: keep the answers of a table that is being filled, so that it resumes.

With `--out filled.csv`, filled.answers.jsonl has the answers to every query (see `AnswerCache`),
filled.run.json the facts that decide them, and filled.claims.jsonl the claims of the latest table.
A run that was killed at any moment resumes, and one with another threshold, row or column asks only
for the missing answers. A table with decisions that is written beside another one begins with its
answers.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO

from kbq.answers import Answer
from kbq.corpus.pages import Page
from kbq.dump.page_directory import Pages
from kbq.dump.shards import Shard
from kbq.errors import KbqError
from kbq.storage.reading import file_digest
from kbq.storage.records import read_object
from kbq.storage.resumed_results import resumed
from kbq.storage.writing import whole_lines, write_json, writing_to
from kbq.tables.claims import CLAIMS, RUN
from kbq.tables.relations import Relation

INSTEAD = "choose another --out, or say --force"
ANSWERS = ".answers.jsonl"
UNDECISIVE = ("begun", "tables", "command", "relations")  # facts that do not decide the answers
UNFINISHED = ""  # instead of the digest of a table
READ_AGAIN = ("text", "title", "context", "metadata")  # fields of an answer that are on its page
KEPT = tuple(field.name for field in fields(Answer) if field.name not in READ_AGAIN)
PAGES = 1024  # pages in memory: the relations of a subject have answers from the same ones


class AnswerCache:
    """The answers to every query, in a file or in memory, so that none is asked twice.

    A line of the file is a query with its answers, best first, without texts, which are read from
    the knowledge base.
    """

    def __init__(
        self, shards: Sequence[Shard], file: IO[bytes] | None = None, name: str = "answers"
    ) -> None:
        """Read a file (by default one in memory) that answers will be added to, and cut off an
        unfinished last line.

        `name`: of the file, for messages.
        """
        self._file: IO[bytes] = BytesIO() if file is None else file
        self._name = name
        self._pages = Pages(shards)
        self._page = lru_cache(PAGES)(self._read_page)
        self._places = self._read()  # places of lines, in bytes

    def __contains__(self, query: str) -> bool:
        return query in self._places

    def add(self, queries: Iterable[str], answers: Iterable[Sequence[Answer]]) -> None:
        """Keep the answers to queries, one line each."""
        place = self._file.seek(0, 2)
        for query, found in zip(queries, answers, strict=True):
            line = {
                "query": query,
                "answers": [[getattr(answer, name) for name in KEPT] for answer in found],
            }
            self._places[query] = place
            place += self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def __getitem__(self, query: str) -> list[Answer]:
        """Return the answers to a query, best first. Raises KeyError if it was not asked."""
        self._file.seek(self._places[query])
        try:
            return [
                self._answer(dict(zip(KEPT, values, strict=True)))
                for values in json.loads(self._file.readline())["answers"]
            ]
        except (ValueError, KeyError, TypeError):
            raise KbqError(f"{self._name} is damaged: delete it to ask again") from None

    def _answer(self, kept: Mapping[str, Any]) -> Answer:
        page, texts = self._page(kept["page_id"])
        context = texts[kept["paragraph"]]
        text = context[kept["start"] : kept["end"]]
        again = {"text": text, "title": page.title, "context": context, "metadata": page.metadata}
        return Answer(**dict(kept) | again | {"unit": tuple(kept["unit"])})

    def _read_page(self, page_id: str) -> tuple[Page, dict[int, str]]:
        page = self._pages.page(page_id)
        if page is None:
            raise KeyError(page_id)
        return page, {paragraph.number: paragraph.text for paragraph in page.paragraphs}

    def _read(self) -> dict[str, int]:
        """Return where the answers to each query begin. Raises KbqError if a line is damaged."""
        places: dict[str, int] = {}
        place = 0
        for number, line in enumerate(whole_lines(self._file), start=1):
            try:
                kept = json.loads(line)
                if not (isinstance(kept["query"], str) and isinstance(kept["answers"], list)):
                    raise TypeError
            except (ValueError, KeyError, TypeError):
                raise KbqError(
                    f"{self._name}:{number} is damaged: delete the file to ask again"
                ) from None
            places[kept["query"]] = place
            place += len(line)

        return places


class FillRun:
    """The files of a run, and the facts that decide its answers."""

    def __init__(
        self,
        out: Path,
        description: Mapping[str, object],
        relations: Iterable[Relation],
        command: str,
        force: bool = False,
    ) -> None:
        """Begin or resume a run; raise KbqError if `out` is not a file.

        Args:
            description: the facts that decide the answers, by their names in messages about
                differences.
            relations, command: kept for exports.
            force: overwrite files that others have made, and ask again if the answers are of
                another run.
        """
        if out.exists() and not out.is_file():
            raise KbqError(
                f"{out} is {'a folder' if out.is_dir() else 'not a file'}: give --out the name of "
                "a file"
            )

        self.out = out
        self.claims = out.with_suffix(CLAIMS)
        self._answers = out.with_suffix(ANSWERS)
        self._facts = out.with_suffix(RUN)
        self._force = force
        self._for_exports = {
            "command": command,
            "relations": [asdict(relation) for relation in relations],
        }
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        # As they are read again: with lists for tuples.
        self._written: dict[str, Any] = json.loads(
            json.dumps({"begun": begun, **description, "tables": {}})
        )

    @contextmanager
    def answers(self, shards: Sequence[Shard], takes_over: bool = False) -> Iterator[AnswerCache]:
        """Yield the kept answers; meanwhile no other process adds to them or writes a table.

        `takes_over`: a new table begins with the answers of another one in its folder, if the same
        facts decide them.
        """
        for path in (self.claims, self.out):
            if (
                path.exists()
                and path.stat().st_size
                and not self._facts.exists()
                and not self._force
            ):
                raise KbqError(f"{path} already exists and was not made by kbq: {INSTEAD}")

        with suppress(OSError, ValueError):  # a power cut may keep the table, and lose the answers
            tables = read_object(self._facts).get("tables")
            if isinstance(tables, dict):
                self._written["tables"] = tables
            else:
                self._written["tables"] = {}

        with resumed(
            self._answers, self._facts, self._written, INSTEAD, UNDECISIVE, anew=self._force
        ) as (
            file,
            self._written,
        ):
            self._refuse_others()
            if takes_over and not self._answers.stat().st_size:
                self._take_over(file)
            self._written |= self._for_exports
            write_json(self._facts, self._written)
            yield AnswerCache(shards, file, str(self._answers))

    def _take_over(self, file: BinaryIO) -> None:
        """Begin with the answers of another run in this folder that the same facts decide; the run
        with the most.
        """
        others = []
        for facts in self.out.parent.glob(f"*{RUN}"):
            answers = facts.with_name(facts.name.removesuffix(RUN) + ANSWERS)
            with suppress(OSError, ValueError):  # anything else may have such a name
                if facts != self._facts and _decisive(read_object(facts)) == _decisive(
                    self._written
                ):
                    others.append((answers.stat().st_size, answers))

        if others:
            with max(others)[1].open("rb") as known:
                shutil.copyfileobj(known, file)
            file.flush()

    def _refuse_others(self) -> None:
        """Raise KbqError if `out` is not as this run has written it, since people edit tables."""
        known = self._written["tables"].get(self.out.name)
        if self._force or not self.out.exists() or known == UNFINISHED:
            return
        if known is None:
            raise KbqError(f"{self.out} already exists and was not made by kbq: {INSTEAD}")
        if known != file_digest(self.out):
            raise KbqError(
                f"{self.out} was changed after kbq fill had written it: {INSTEAD} to overwrite it"
            )

    @contextmanager
    def table(self) -> Iterator[None]:
        """Note, around the writing of `out`, that it is this run's, and its digest, so that no edit
        of it is lost.
        """
        self._note(UNFINISHED)
        yield
        self._note(file_digest(self.out))

    def _note(self, digest: str) -> None:
        self._written["tables"][self.out.name] = digest
        with writing_to(self._facts, KbqError, goes_on=True):
            write_json(self._facts, self._written)


def _decisive(facts: Mapping[str, object]) -> dict[str, object]:
    """Return the facts that must not change while a run is resumed."""
    return {name: fact for name, fact in facts.items() if name not in UNDECISIVE}
