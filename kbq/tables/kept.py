"""Kept answers: the answers to every query that was asked, in a file or in memory, so that nothing is asked twice.

A line of the file is a query with its answers, best first. Texts are not in it: they are read from the knowledge base.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from io import BytesIO
from typing import IO, Any

from kbq.answers import Answer
from kbq.corpus.pages import Page
from kbq.dump.page_directory import Pages
from kbq.dump.shards import Shard
from kbq.errors import KbqError
from kbq.storage.writing import whole_lines

READ_AGAIN = ("text", "title", "context", "metadata")  # that the page has
KEPT = tuple(one.name for one in fields(Answer) if one.name not in READ_AGAIN)
PAGES = 1024  # in memory: the relations of a subject are answered from the same ones


class Kept:
    """Answers by query; those in the file are there from the beginning."""

    def __init__(self, shards: Sequence[Shard], file: IO[bytes] | None = None, name: str = "answers") -> None:
        """An unfinished last line, left by a killed run, is cut off.

        Args:
            file: to read and to append to; None: memory.
            name: of the file, for messages.

        Raises:
            KbqError: a line of the file is damaged.
        """
        self._file: IO[bytes] = BytesIO() if file is None else file
        self._name, self._pages = name, Pages(shards)
        self._shards, self._page = shards, lru_cache(PAGES)(self._read_page)
        self._places = self._read()  # of lines, in bytes

    def __contains__(self, query: str) -> bool:
        return query in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, queries: Iterable[str], answers: Iterable[Sequence[Answer]]) -> None:
        """Keep the answers to some queries; they are in the file when this returns."""
        place = self._file.seek(0, 2)
        for query, found in zip(queries, answers, strict=True):
            line = {"query": query, "answers": [[getattr(answer, name) for name in KEPT] for answer in found]}
            written = json.dumps(line).encode() + b"\n"
            self._file.write(written)
            self._places[query] = place
            place += len(written)
        self._file.flush()

    def __getitem__(self, query: str) -> list[Answer]:
        """The answers to a query, best first. Raises KeyError if it was not asked."""
        self._file.seek(self._places[query])
        try:
            return [
                self._answer(dict(zip(KEPT, one, strict=True))) for one in json.loads(self._file.readline())["answers"]
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
        place = self._pages.place(page_id)
        if place is None:
            raise KeyError(page_id)
        page = self._shards[place.shard].page(place.page)
        return page, {paragraph.number: paragraph.text for paragraph in page.paragraphs}

    def _read(self) -> dict[str, int]:
        places: dict[str, int] = {}
        place = 0
        for number, line in enumerate(whole_lines(self._file), start=1):
            try:
                kept = json.loads(line)
                is_whole = isinstance(kept["query"], str) and isinstance(kept["answers"], list)
            except (ValueError, KeyError, TypeError):
                is_whole = False
            if not is_whole:
                raise KbqError(f"{self._name}:{number} is damaged: delete the file to ask again")
            places[kept["query"]] = place
            place += len(line)
        return places
