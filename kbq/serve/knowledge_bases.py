"""Knowledge bases: folders become knowledge bases that are served by name, and reopened when they have changed."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from kbq.answers import IndexKind
from kbq.corpus.metadata import has_value
from kbq.corpus.pages import Page
from kbq.dump.manifest import MANIFEST, read_manifest
from kbq.dump.page_directory import Pages
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.search.verifying import verify
from kbq.serve.monitoring import Metrics
from kbq.serve.problems import RefusedError, without_paths
from kbq.serve.titles import PageTitles, TitleWords
from kbq.storage.machine import give_memory_back
from kbq.tables.relations import USUAL, preset

NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
UNSAFE = re.compile(r"[^\w /.,:;@!$'()*=-]+|(?<![^/])\.{1,2}(?![^/])")  # in an address, as `encodeURI` leaves it
ESCAPED = re.compile("(?:~[0-9A-F]{2})+")
PARTS = 4  # of a knowledge base that stay open
EVERY = 1.0  # seconds between two looks at a folder
TRIMS = 10  # looks after which freed memory is given back
AGAIN, MOST_AGAIN = 10.0, 600.0  # seconds until a refused folder is read again: ever more, up to ten minutes
FIRST = "kbq"  # is asked for before a knowledge base counts as open
Call = Callable[..., Awaitable[Any]]  # that of a `Batcher`: has its thread do some work
log = logging.getLogger("kbq.serve")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a knowledge base lies, and how it is opened."""

    path: Path
    model: str = ""  # a query encoder tuned for it; empty: its own
    index: IndexKind | None = None
    device: str = "auto"
    ray: str | None = None  # the address of a Ray cluster that searches it

    def opened(self, others: Iterable[ServedKb]) -> KnowledgeBase:
        """Open the knowledge base as it is now, with the encoders of one of the others where they are the same."""
        manifest = read_manifest(self.path)
        wanted = self.model or manifest.model, manifest.model_fingerprint
        models = (one.kb.model for one in others)
        shared = next((one for one in models if (one.source, one.config.phrase_fingerprint) == wanted), None)
        model = shared or self.model or None
        return KnowledgeBase.open(self.path, model, index=self.index, ray=self.ray, device=self.device)

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """Facts that differ when the knowledge base has been changed."""
        try:
            facts = (self.path / MANIFEST).stat()
        except OSError:
            return None
        return facts.st_ino, facts.st_mtime_ns, facts.st_size


def escaped_id(page_id: str) -> str:
    """Return an id that is the same in any address, whether a client encodes it, and how often: OpenRefine does half.

    >>> escaped_id("report.pdf#page=1"), escaped_id("a/../C# & Ü"), escaped_id("S001")
    ('report.pdf~23page=1', 'a/~2E~2E/C~23 ~26 Ü', 'S001')
    """
    return UNSAFE.sub(lambda found: "".join(f"~{byte:02X}" for byte in found[0].encode("utf-8", "replace")), page_id)


def unescaped_id(escaped: str) -> str:
    """Return the id that `escaped_id` was given; any other text stays as it is."""
    return ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("~", "")).decode("utf-8", "replace"), escaped)


class _Opened:
    """A knowledge base as it was opened, with the tables of its pages and titles."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb, self.pages, self.titles = kb, Pages(kb.shards), PageTitles(kb.shards)
        self.pages.is_known("")  # makes the table
        self.words = TitleWords(kb.shards, self.pages)
        self.parts: dict[object, KnowledgeBase] = {}  # some pages of it, by what they were chosen by


class ServedKb:
    """A named knowledge base, which is opened again when its folder has changed."""

    def __init__(self, name: str, folder: Folder, others: Iterable[ServedKb] = ()) -> None:
        """Open a knowledge base, with the encoders of one of the others if they are the same."""
        self.name = name
        self.problem = ""  # why the present content of the folder is not served
        self._folder, self._seen = folder, folder.stamp
        self._next, self._pause = 0.0, AGAIN  # when a refused folder is tried again, and the seconds after that
        self._opened = _Opened(folder.opened(others))

    @property
    def kb(self) -> KnowledgeBase:
        """The one that is open now; whoever has it goes on with it when it is replaced."""
        return self._opened.kb

    @property
    def titles(self) -> PageTitles:
        """Its pages in the order of their titles."""
        return self._opened.titles

    @property
    def words(self) -> TitleWords:
        """The words of its titles, to match names with."""
        return self._opened.words

    @property
    def relations(self) -> list[str]:
        """Relations to suggest: those that its query encoder was tuned on, or those that are often asked for."""
        return self.kb.model.config.tuned_relations or [one.name for one in preset(USUAL)]

    def page(self, page_id: str) -> Page:
        """Return a page. Raises RefusedError if there is none with this id."""
        pages = self._opened.pages
        page = pages.page(page_id) or pages.page(unescaped_id(page_id))
        if page is None:
            raise RefusedError(404, f"{self.name} has no page {page_id!r:.80}")
        return page

    def has_page(self, page_id: str) -> bool:
        """Whether there is a page with this id, as it is or escaped."""
        return self._opened.pages.is_known(page_id) or self._opened.pages.is_known(unescaped_id(page_id))

    def part(self, pages: Sequence[str], where: Mapping[str, str]) -> KnowledgeBase:
        """Return the knowledge base with these pages only and, of these, those whose metadata have these values.

        The last ones stay open, as the next request probably wants the same. Raises RefusedError if there is no page.
        """
        opened, wanted = self._opened, (tuple(pages), tuple(where.items()))
        if not any(wanted):
            return opened.kb
        if wanted not in opened.parts:
            chosen = {self.page(one).id for one in pages} or set(opened.pages.ids())
            if where:
                found = zip(opened.pages.ids(), opened.pages.metadata(), strict=True)
                chosen &= {page_id for page_id, fields in found if all(has_value(fields, *pair) for pair in wanted[1])}
            if not chosen:
                raise RefusedError(422, f"{self.name} has no page with these metadata: see `kbq pages`")
            while len(opened.parts) >= PARTS:
                del opened.parts[next(iter(opened.parts))]
            opened.parts[wanted] = opened.kb.with_pages(sorted(chosen))
        return opened.parts[wanted]

    def hidden(self, text: str) -> str:
        """Return a text with the name of this knowledge base instead of the place where it or its model lies."""
        model = self.kb.model
        places = {str(self._folder.path), str(self._folder.path.absolute()), str(self.kb.folder)}
        for place in sorted(places, key=len, reverse=True):
            text = text.replace(place, self.name)
        for place in (model.source, model.config.base or ""):
            text = text.replace(place, Path(place).name) if "/" in place else text
        return without_paths(text)

    async def reopen(self, call: Call, metrics: Metrics) -> None:
        """Open the folder again if it has changed and every file is whole; else keep what is open."""
        stamp, now = self._folder.stamp, time.monotonic()
        if stamp != self._seen:
            self._seen, self._pause = stamp, AGAIN
        elif not self.problem or now < self._next:
            return
        self._next, self._pause = now + self._pause, min(2 * self._pause, MOST_AGAIN)
        try:
            opened = await asyncio.to_thread(self._checked)
            await call(lambda: opened.kb.query(FIRST, 1), deadline=math.inf)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever is wrong with it, it is not taken: a tokenizer may even panic
            self.problem = self.hidden(str(error) or type(error).__name__)
            metrics.reopened.labels(self.name, "refused").inc()
            log.error("a changed knowledge base is refused", extra={"kb": self.name, "problem": str(error)})
            return
        self._opened, self.problem = opened, ""
        metrics.reopened.labels(self.name, "opened").inc()
        log.info("a changed knowledge base is open", extra={"kb": self.name, "pages": opened.kb.counts.pages})

    def _checked(self) -> _Opened:
        """Open the folder, after every file was compared with its digest."""
        found = verify(self._folder.path)
        if not found:
            raise KbqError(found.problems[0])
        return _Opened(self._folder.opened([self]))


class KnowledgeBases:
    """The knowledge bases of a service; the first is asked where none is named."""

    def __init__(self, served: Iterable[ServedKb]) -> None:
        self._by_name = {one.name: one for one in served}

    def __iter__(self) -> Iterator[ServedKb]:
        return iter(self._by_name.values())

    def named(self, name: str | None = None) -> ServedKb:
        """Return the knowledge base of a name or, without one, the first. Raises RefusedError if there is none."""
        found = self._by_name.get(name) if name else next(iter(self))
        if found is None:
            names = ", ".join(self._by_name)
            raise RefusedError(404, f"there is no knowledge base {name!r:.80}: choose from {names}")
        return found

    def hidden(self, text: str) -> str:
        """Return a text that names no place on this machine."""
        for one in self:
            text = one.hidden(text)
        return text

    async def watch(self, call: Call, metrics: Metrics) -> None:
        """Reopen what has changed, and give freed memory back to the system now and then, for ever."""
        for looks in count():
            for one in self:
                await one.reopen(call, metrics)
            if looks % TRIMS == 0:
                await asyncio.to_thread(give_memory_back)
            await asyncio.sleep(EVERY)


def open_knowledge_bases(folders: Mapping[str, Folder]) -> KnowledgeBases:
    """Open knowledge bases by name; those with the same encoders share them.

    Raises KbqError if one cannot be opened, or a name cannot be part of an address.
    """
    served: list[ServedKb] = []
    for name, folder in folders.items():
        if not NAME.fullmatch(name):
            raise KbqError(
                f"{name!r} cannot be the name of a knowledge base: write NAME={folder.path}, with letters, digits, "
                "dots and hyphens",
                is_usage=True,
            )
        served.append(ServedKb(name, folder, served))
    return KnowledgeBases(served)
