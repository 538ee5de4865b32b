"""Knowledge bases: the served ones by name, reopened after a change."""

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
from urllib.parse import unquote

from kbq.answers import IndexKind, PageName
from kbq.corpus.pages import Page, has_value
from kbq.dump.manifest import MANIFEST, read_manifest
from kbq.dump.page_directory import Pages
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.maintain.verify import verify
from kbq.model.bert import keep_packed
from kbq.serve.metrics import Metrics
from kbq.serve.problems import RefusedError, without_paths
from kbq.serve.titles import PageTitles, TitleWords
from kbq.storage.machine import give_memory_back
from kbq.tables.relations import USUAL, preset
from kbq.text.normal_forms import normalised

NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
# Characters that `encodeURI` does not leave in an address.
UNSAFE = re.compile(r"[^\w /.,:;@!$'()*=-]+|(?<![^/])\.{1,2}(?![^/])")
ESCAPED = re.compile("(?:~[0-9A-F]{2})+")
PARTS = 4  # parts of a knowledge base that stay open
EVERY = 1.0  # seconds between two looks at a folder
TRIMS = 10  # looks after which freed memory is given back
# Seconds until a refused folder is read again: ever more, up to ten minutes.
AGAIN = 10.0
MOST_AGAIN = 600.0
FIRST = "kbq"  # the query that is asked before a knowledge base counts as open
Call = Callable[..., Awaitable[Any]]  # `Batcher.call`
log = logging.getLogger("kbq.serve")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a knowledge base lies, and how to open it."""

    path: Path
    model: str = ""  # a query encoder tuned for it; empty: its own
    index: IndexKind | None = None
    device: str = "auto"
    ray: str | None = None  # the address of a Ray cluster that searches it

    def opened(self, others: Iterable[ServedKb]) -> KnowledgeBase:
        """Open the knowledge base as it is now, sharing encoders with another one that has the
        same.
        """
        manifest = read_manifest(self.path)
        encoders = self.model or manifest.model, manifest.model_fingerprint
        models = (other.kb.model for other in others)
        shared = next(
            (
                opened
                for opened in models
                if (opened.source, opened.config.phrase_fingerprint) == encoders
            ),
            None,
        )
        model = shared or self.model or None

        return KnowledgeBase.open(
            self.path, model, index=self.index, ray=self.ray, device=self.device
        )

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """Facts that a change of the knowledge base changes."""
        try:
            facts = (self.path / MANIFEST).stat()
        except OSError:
            return None
        return facts.st_ino, facts.st_mtime_ns, facts.st_size


def escaped_id(page_id: str) -> str:
    """Return an id that stays the same in an address, however often a client encodes it; OpenRefine
    encodes half.

    >>> escaped_id("report.pdf#page=1"), escaped_id("a/../C# & Ü"), escaped_id("S001")
    ('report.pdf~23page=1', 'a/~2E~2E/C~23 ~26 Ü', 'S001')
    """
    return UNSAFE.sub(
        lambda unsafe: "".join(f"~{byte:02X}" for byte in unsafe[0].encode("utf-8", "replace")),
        page_id,
    )


def unescaped_id(escaped: str) -> str:
    """Return the id that an escaped one stands for, even if a client has encoded it once too often.

    >>> unescaped_id("C~23 and F~23.md"), unescaped_id("C~23%20and%20F~23.md"), unescaped_id("S001")
    ('C# and F#.md', 'C# and F#.md', 'S001')
    """
    plain = unquote(escaped)  # escaped ids have no %
    return ESCAPED.sub(
        lambda match: bytes.fromhex(match[0].replace("~", "")).decode("utf-8", "replace"), plain
    )


class OpenedKb:
    """A knowledge base as it was opened, with the tables of its pages and titles: what one request
    is answered from.
    """

    def __init__(self, name: str, kb: KnowledgeBase) -> None:
        shards = kb.searcher.shards
        self.name = name
        self.kb = kb
        self.titles = PageTitles(shards)
        self._pages = Pages(shards)
        self._pages.is_known("")  # makes the table
        self.words = TitleWords(shards, self._pages)  # words of its titles, for matching names
        # Some pages of it, by what they were chosen by.
        self._parts: dict[object, KnowledgeBase] = {}

    def listed(self, text: str, first: int, count: int) -> tuple[list[PageName], int]:
        """Return pages whose titles begin with a text, and then those that have its words
        elsewhere; count all.
        """
        names, beginning = self.titles.listed(text, first, count)
        start = normalised(text)
        others = [
            PageName(page.page_id, page.title)
            for page in (self.words.having(text) if start else ())
            if not normalised(page.title).startswith(start)
        ]
        behind = max(0, first - beginning)
        return [*names, *others[behind : behind + count - len(names)]], beginning + len(others)

    @property
    def relations(self) -> list[str]:
        """Relations to suggest: those its query encoder was tuned on, or usual ones."""
        return self.kb.model.config.tuned_relations or [relation.name for relation in preset(USUAL)]

    def page(self, page_id: str) -> Page:
        """Return the page with this id. Raises RefusedError if there is none."""
        page = self._pages.page(page_id) or self._pages.page(unescaped_id(page_id))
        if page is None:
            raise RefusedError(404, f"{self.name} has no page {page_id!r:.80}")
        return page

    def has_page(self, page_id: str) -> bool:
        """Whether there is a page with this id, plain or escaped."""
        return self._pages.is_known(page_id) or self._pages.is_known(unescaped_id(page_id))

    def part(self, pages: Sequence[str], where: Mapping[str, str]) -> KnowledgeBase:
        """Return the knowledge base with only the pages that have these ids, if any, and these
        values as metadata.

        The last few stay open for the next requests. Raises RefusedError if there is no page.
        """
        choice = tuple(pages), tuple(where.items())
        if not any(choice):
            return self.kb
        if choice not in self._parts:
            chosen = {self.page(page).page_id for page in pages} or set(self._pages.ids())
            if where:
                all_fields = zip(self._pages.ids(), self._pages.metadata(), strict=True)
                chosen &= {
                    page_id
                    for page_id, fields in all_fields
                    if all(has_value(fields, *pair) for pair in choice[1])
                }

            if not chosen:
                raise RefusedError(
                    422, f"{self.name} has no page with these metadata: see `kbq pages`"
                )

            while len(self._parts) >= PARTS:
                del self._parts[next(iter(self._parts))]
            self._parts[choice] = self.kb.with_pages(sorted(chosen))

        return self._parts[choice]


def make_ready(kb: KnowledgeBase) -> None:
    """Have a knowledge base answer, and drop the weights that only training needs."""
    kb.query(FIRST, 1)
    keep_packed(kb.model.queries, kb.model.queries.start.get_input_embeddings())
    give_memory_back()


class ServedKb:
    """A named knowledge base, opened again when its folder has changed."""

    def __init__(self, name: str, folder: Folder, others: Iterable[ServedKb] = ()) -> None:
        self.name = name
        self.problem = ""  # why the present content of the folder is not served
        self._folder = folder
        self._seen = folder.stamp
        self._next = 0.0  # when a refused folder is tried again
        self._pause = AGAIN  # seconds until the time after that
        self._opened = OpenedKb(name, folder.opened(others))

    @property
    def now(self) -> OpenedKb:
        """The one that is open now; requests that have it go on with it when it is replaced."""
        return self._opened

    @property
    def kb(self) -> KnowledgeBase:
        return self._opened.kb

    def hidden(self, text: str) -> str:
        """Return a text with the name of this knowledge base in place of its folder, and no path."""
        for folder in (self._folder.path.absolute(), self.kb.folder, self._folder.path):
            text = text.replace(str(folder), self.name)
        return without_paths(text)

    async def reopen(self, call: Call, metrics: Metrics) -> None:
        """Open the folder again if it has changed and every file is whole."""
        stamp = self._folder.stamp
        now = time.monotonic()
        if stamp != self._seen:
            self._seen = stamp
            self._pause = AGAIN
        elif not self.problem or now < self._next:
            return

        self._next, self._pause = now + self._pause, min(2 * self._pause, MOST_AGAIN)
        try:
            opened = await asyncio.to_thread(self._checked)
            await call(lambda: make_ready(opened.kb), deadline=math.inf)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # also a tokenizer's panic
            self.problem = self.hidden(str(error) or type(error).__name__)
            metrics.reopened.labels(self.name, "refused").inc()
            log.error(
                "a changed knowledge base is refused",
                extra={"kb": self.name, "problem": str(error)},
            )
            return

        self._opened = opened
        self.problem = ""
        metrics.reopened.labels(self.name, "opened").inc()
        log.info(
            "a changed knowledge base is open",
            extra={"kb": self.name, "pages": opened.kb.counts.pages},
        )

    def _checked(self) -> OpenedKb:
        verified = verify(self._folder.path)
        if not verified:
            raise KbqError(verified.problems[0])
        return OpenedKb(self.name, self._folder.opened([self]))


class KnowledgeBases:
    """The knowledge bases of a service; requests that name none get the first."""

    def __init__(self, served: Iterable[ServedKb]) -> None:
        self._by_name = {served_kb.name: served_kb for served_kb in served}

    def __iter__(self) -> Iterator[ServedKb]:
        return iter(list(self._by_name.values()))  # others may come meanwhile

    def add(self, served: ServedKb) -> None:
        """Serve one more."""
        self._by_name[served.name] = served

    def named(self, name: str | None = None) -> OpenedKb:
        """Return the knowledge base of a name as it is now, by default the first.

        A request takes it once, so that its answer is of one state. Raises RefusedError if there is
        none.
        """
        if name:
            served = self._by_name.get(name)
        else:
            served = next(iter(self))
        if served is None:
            names = ", ".join(self._by_name)
            raise RefusedError(404, f"there is no knowledge base {name!r:.80}: choose from {names}")
        return served.now

    def problem_of(self, name: str) -> str:
        """Say why the present folder of the one with this name is not served; "" if it is."""
        return self._by_name[name].problem

    def hidden(self, text: str) -> str:
        """Return a text without the places on this machine."""
        for served in self:
            text = served.hidden(text)
        return text

    async def watch(self, call: Call, metrics: Metrics) -> None:
        """Reopen changed folders, and give freed memory back to the system now and then, for ever."""
        for looks in count():
            for served in self:
                await served.reopen(call, metrics)
            if looks % TRIMS == 0:
                await asyncio.to_thread(give_memory_back)
            await asyncio.sleep(EVERY)


def open_knowledge_bases(folders: Mapping[str, Folder]) -> KnowledgeBases:
    """Open knowledge bases by name; they share encoders if these are the same.

    Raises KbqError if one cannot be opened, or a name cannot be part of an address.
    """
    served: list[ServedKb] = []
    for name, folder in folders.items():
        if not NAME.fullmatch(name):
            advice = f"write NAME={folder.path}, with letters, digits, dots and hyphens"
            raise KbqError(
                f"{name!r} cannot be the name of a knowledge base: {advice}", is_usage=True
            )
        served.append(ServedKb(name, folder, served))
    return KnowledgeBases(served)
