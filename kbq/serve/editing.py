"""Editing: documents from the browser become knowledge bases while the service goes on.

Documents of NAME lie in NAME.documents, beside the folder NAME of the knowledge base. What has
arrived stays there, whether a tab is closed or the service killed: the rest is sent another time,
and a build resumes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import textwrap
import threading
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from kbq.corpus.documents import LOCK, OTHERS, is_document
from kbq.corpus.options import DocumentOptions
from kbq.corpus.readers import preview, read_corpus
from kbq.corpus.reading import INSTALL, lacks_library
from kbq.dump.manifest import is_knowledge_base
from kbq.dump.resumable_build import OtherCorpusError
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.serve.api import ClientObject, json_only
from kbq.serve.filling import WithServices
from kbq.serve.knowledge_bases import NAME, Folder, ServedKb, make_ready
from kbq.serve.pages import html_page
from kbq.serve.problems import RefusedError, without_paths
from kbq.storage.folders import make_folders, remove_folder
from kbq.storage.lines import without_compression
from kbq.storage.reading import LARGEST
from kbq.storage.rows import SUFFIXES
from kbq.storage.writing import move, write_received, writing_to

if TYPE_CHECKING:
    from kbq.corpus.pages import Page
    from kbq.dump.shards import Counts
    from kbq.serve.filling import Services

DOCUMENTS = ".documents"  # suffix of their folders
EACH = 2  # documents of a kind that are shown before the build
SHOWN = 300  # characters of each
# altogether; in one request; left out, with their reasons.
MOST_FILES = 100_000
MOST_OFFERED = 2000
MOST_TOLD = 1000
CORPORA = (".zip", ".json", *SUFFIXES)  # read as a corpus where it is the only file
router = APIRouter(prefix="/new", include_in_schema=False)
log = logging.getLogger("kbq.serve")
State = Literal["open", "waiting", "building", "ready", "failed"]


class StoppedError(KbqError):
    """A build that somebody has stopped."""


@dataclass(slots=True, eq=False)
class NewKb:
    """A knowledge base that is being made, its documents, and how far it is."""

    name: str
    folder: Path  # folder of all
    state: State = "open"
    files: dict[str, int] = field(default_factory=dict)  # bytes by path
    # Files by kind, and why it is not read.
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Documents that cannot be read, and why.
    left_out: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    # Pages up to the end of each document that has been read.
    ends: list[int] = field(default_factory=list)
    encoded: int = 0  # pages
    stage: str = ""
    is_stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def kb(self) -> Path:
        """The folder of the knowledge base."""
        return self.folder / self.name

    @property
    def documents(self) -> Path:
        """The folder of its documents."""
        return self.folder / f"{self.name}{DOCUMENTS}"

    @property
    def source(self) -> Path:
        """What is read: the folder or, of one file, this file, which may be a corpus."""
        if len(self.files) == 1:
            return self.documents / next(iter(self.files))
        return self.documents

    def facts(self) -> dict[str, Any]:
        """Say how far it is."""
        left_out = len(self.left_out)
        facts: dict[str, Any] = {
            "name": self.name,
            "state": self.state,
            "files": len(self.files),
            "bytes": sum(self.files.values()),
        }
        progress = {
            "read": len(self.ends) + left_out,
            "done": bisect_right(self.ends, self.encoded) + left_out,
            "documents": len(self.ends),
            "pages": self.encoded,
            "stage": self.stage,
        }
        skipped = self.skipped.most_common(MOST_TOLD)
        problems = {
            "problem": self.problem,
            "skipped": [[kind, why, count] for (kind, why), count in skipped],
            "left_out": self.left_out[:MOST_TOLD],
            "left_out_count": left_out,
            "notes": self.notes,
        }

        return facts | progress | problems

    def wanted(self, offered: Mapping[str, int]) -> list[str]:
        """Return the paths of files to send: documents that are not there yet. The others are
        counted.
        """
        paths = []
        for path, size in offered.items():
            kind = kind_of(path)
            why = why_not(path, size)
            if why:
                self.skipped[kind, why] += 1
            elif self.files.get(path) != size:
                paths.append(path)
        return paths

    def keep(self, path: str, content: bytes) -> None:
        """Keep a document that has arrived."""
        self.refuse_built()
        why = why_not(path, len(content))
        if why:
            raise RefusedError(422, f"{path!r:.80} is not taken: it {why}")
        if len(self.files) >= MOST_FILES:
            raise RefusedError(
                413, f"there are {MOST_FILES:,} documents already: build another knowledge base"
            )

        file = self.documents / path
        with writing_to(file, KbqError):
            make_folders(file.parent)
            write_received(file, content)

        self.files[path] = len(content)

    def refuse_built(self) -> None:
        """Raise RefusedError if it is built, or will be in a moment."""
        if self.state in ("waiting", "building", "ready"):
            raise RefusedError(
                409,
                f"{self.name} is {self.state}: wait until it is open again, or make another one",
            )

    def previews(self) -> dict[str, Any]:
        """Show how some documents of each kind will be read."""
        notes: list[str] = []
        documents = [
            document._asdict()
            | {"words": textwrap.shorten(document.words, SHOWN, placeholder=" …")}
            for document in preview(self.source, EACH, note=notes.append)
        ]
        return {"documents": documents, "notes": list(map(self.hidden, notes))}

    def build(self) -> None:
        """Build it of all documents that can be read. Raises KbqError, and StoppedError if somebody
        stops it.
        """
        self.left_out = []
        self.notes = []
        self.ends = []
        self.encoded = 0
        self.stage = ""
        self.is_stopped.clear()
        self.state = "building"
        try:
            self._build()
        except OtherCorpusError:  # documents have come since an earlier build was stopped
            remove_folder(self.kb)
            self.left_out = []
            self.ends = []
            self._build()

    def hidden(self, text: str) -> str:
        """Return a text without the places on this machine."""
        return without_paths(
            text.replace(f"{self.documents}/", "").replace(str(self.documents), "the folder")
        )

    def _build(self) -> None:
        """Build the knowledge base from the documents."""
        # Each document that cannot be read is told, where otherwise some are named, and the others
        # counted.
        pages = read_corpus(
            self.source,
            on_bad_line=self._leave_out,
            note=self._note,
            documents=DocumentOptions(strict=True),
        )
        KnowledgeBase.build(
            self._counted(pages),
            self.kb,
            lazy=True,
            note=self._note,
            report=self._report,
            report_stage=self._report_stage,
        )

    def _counted(self, pages: Iterator[Page]) -> Iterator[Page]:
        """Yield pages, and count the documents that they are of."""
        before = ""
        for number, page in enumerate(pages, start=1):
            self._refuse_stopped()
            document = re.split("#(?:page|line|row|sheet)=", page.page_id)[0]
            if document != before:
                self.ends.append(number)
            self.ends[-1] = number
            before = document
            yield page

    def _leave_out(self, problem: KbqError) -> None:
        self._refuse_stopped()
        name, _, why = self.hidden(str(problem)).partition(": ")
        self.left_out.append((name, why or "it cannot be read"))

    def _note(self, text: str) -> None:
        self.notes.append(self.hidden(text))

    def _report(self, counts: Counts) -> None:
        self._refuse_stopped()
        self.encoded = counts.pages

    def _report_stage(self, stage: str, done: int, total: int) -> None:
        self._refuse_stopped()
        self.stage = stage

    def _refuse_stopped(self) -> None:
        if self.is_stopped.is_set():
            raise StoppedError("the build was stopped")


def kind_of(path: str) -> str:
    """Return the kind of a file, by its name.

    >>> kind_of("a/B.PDF"), kind_of("notes.txt.gz"), kind_of(".git/config"), kind_of("a/README")
    ('.pdf', '.txt', 'hidden', 'without a suffix')
    """
    if any(part.startswith((".", LOCK)) for part in path.split("/")):
        return "hidden"
    return without_compression(PurePath(path)).suffix.lower() or "without a suffix"


def why_not(path: str, size: int) -> str:
    """Say why a file is not taken; "" if it is.

    >>> why_not("a/b.txt", 10), why_not("film.mov", 10), why_not("a/../b.txt", 10)
    ('', 'is of no kind that kbq reads', 'has a name that no file may have here')
    """
    parts = path.split("/")
    kind = kind_of(path)
    is_safe = all(
        0 < len(part.encode("utf-8", "replace")) <= 255 and part not in (".", "..")
        for part in parts
    )
    if (
        not is_safe
        or len(path) > 1000
        or re.search(r"[\x00-\x1f\x7f\\\ud800-\udfff]", path)
        or PurePath(path).drive
    ):
        return "has a name that no file may have here"

    if kind == "hidden":
        return "is hidden, or the lock of a program"
    if not is_document(PurePath(path)) and kind not in CORPORA:
        return OTHERS.get(kind) or (
            f"needs a further package: {INSTALL}" if lacks_library(kind) else UNKNOWN
        )

    if size > LARGEST:
        return f"has {size:,} bytes, {LARGEST:,} at most are read: divide it"
    return ""


UNKNOWN = "is of no kind that kbq reads"


class Editor:
    """The knowledge bases that are being made in a folder; one thread builds them, one after the
    other.
    """

    def __init__(self, folder: Path, services: Services) -> None:
        self._folder = folder
        self._services = services
        self._thread = ThreadPoolExecutor(1, "build")
        self._tasks = set[asyncio.Task[None]]()
        self._all = {upload.name: upload for upload in self._left()}

    @property
    def folder(self) -> Path:
        """Where they lie."""
        return self._folder.absolute()

    @property
    def unfinished(self) -> list[NewKb]:
        """Those that are not built yet."""
        return [
            upload
            for upload in self._all.values()
            if upload.state != "ready" and (upload.files or upload.state != "open")
        ]

    def named(self, name: str) -> NewKb:
        """Return the one with this name. Raises RefusedError if there is none."""
        if name not in self._all:
            raise RefusedError(
                404, f"no new knowledge base is named {name!r:.80}: drop its documents again"
            )
        return self._all[name]

    def made(self, wanted: str) -> NewKb:
        """Make one, whose name is as much like the wanted one as it can be."""
        name = name_of(wanted)
        number = 1
        free = name
        while self._is_taken(free):
            number += 1
            free = f"{name}-{number}"
        upload = NewKb(free, self._folder)
        with writing_to(self._folder, KbqError):
            make_folders(upload.documents)
        self._all[upload.name] = upload
        return upload

    def renamed(self, upload: NewKb, name: str) -> NewKb:
        """Give another name to one that is not built. Raises RefusedError if the name cannot be, or
        is taken.
        """
        upload.refuse_built()
        if name == upload.name:
            return upload
        if not NAME.fullmatch(name) or name.startswith("."):
            raise RefusedError(
                422, f"{name!r:.80} cannot be the name: write letters, digits, dots and hyphens"
            )

        if self._is_taken(name):
            raise RefusedError(
                422, f"there is a knowledge base {name!r} already: choose another name"
            )

        documents = upload.documents
        kb = upload.kb
        del self._all[upload.name]
        upload.name = name
        self._all[name] = upload
        with writing_to(self._folder, KbqError):
            move(documents, upload.documents)
            if kb.exists():  # left by a build that was stopped
                move(kb, upload.kb)

        return upload

    def discard(self, upload: NewKb) -> None:
        """Remove one that is not built, and its documents."""
        upload.refuse_built()
        with writing_to(self._folder, KbqError):
            remove_folder(upload.documents)
            remove_folder(upload.kb)
        del self._all[upload.name]

    def start(self, upload: NewKb) -> None:
        """Build one in the background, and then serve it."""
        upload.refuse_built()
        if not upload.files:
            raise RefusedError(422, f"{upload.name} has no documents: drop some first")
        upload.state = "waiting"
        upload.problem = ""
        task = asyncio.create_task(self._make(upload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop all builds; they resume another time."""
        for upload in self._all.values():
            upload.is_stopped.set()
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def _make(self, upload: NewKb) -> None:
        """Build and open a new knowledge base, and serve it with the others."""
        services = self._services
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, upload.build)
            served = await asyncio.to_thread(
                ServedKb, upload.name, Folder(upload.kb), list(services.kbs)
            )
            await services.batcher.call(partial(make_ready, served.kb), deadline=math.inf)
        except StoppedError:
            upload.state = "open"
        except KbqError as error:
            upload.state, upload.problem = "failed", upload.hidden(str(error))
        except Exception:
            log.exception("a build failed", extra={"kb": upload.name})
            upload.state = "failed"
            upload.problem = "something has failed here: the log of the service says more"
        else:
            services.kbs.add(served)
            upload.state = "ready"

    def _is_taken(self, name: str) -> bool:
        """Return whether a knowledge base has this name, or a folder of one is there."""
        names = {served.name for served in self._services.kbs} | set(self._all)
        if name.casefold() in map(str.casefold, names):
            return True
        places = self._folder / name, self._folder / f"{name}{DOCUMENTS}"
        return any(path.exists() for path in places)

    def _left(self) -> Iterator[NewKb]:
        """Yield those of an earlier run that have documents, and are not built."""
        for documents in sorted(self._folder.glob(f"*{DOCUMENTS}")):
            upload = NewKb(documents.name.removesuffix(DOCUMENTS), self._folder)
            if is_knowledge_base(upload.kb):
                continue
            paths = [path for path in sorted(documents.rglob("*")) if path.is_file()]
            names = {path: path.relative_to(documents).as_posix() for path in paths}
            upload.files = {
                name: path.stat().st_size
                for path, name in names.items()
                if kind_of(name) != "hidden"
            }
            yield upload


def built_in(folder: Path) -> dict[str, Path]:
    """Return the knowledge bases in a folder that can be served, by name, the last one that was
    built first.
    """
    folders = [
        path for path in folder.glob("*") if NAME.fullmatch(path.name) and is_knowledge_base(path)
    ]
    return {path.name: path for path in sorted(folders, key=lambda path: -path.stat().st_mtime)}


def name_of(wanted: str) -> str:
    """Return a name that a knowledge base can have.

    >>> name_of("Briefe & Bücher (2024)"), name_of("…"), name_of(".git")
    ('Briefe-Bucher-2024', 'documents', 'git')
    """
    plain = unicodedata.normalize("NFKD", wanted).encode("ascii", "ignore").decode()
    return re.sub(r"[^\w.-]+", "-", plain).strip("-.")[:40] or "documents"


def _editor_of(request: Request) -> Editor:
    editor: Editor = request.app.state.editor
    return editor


WithEditor = Annotated[Editor, Depends(_editor_of)]
Name = Annotated[str, Field(min_length=1, max_length=255)]


class WantedName(ClientObject):
    """A name for a new knowledge base."""

    name: Name


class OfferedFiles(ClientObject):
    """Files that a browser has: their paths and sizes."""

    files: Annotated[dict[str, int], Field(max_length=MOST_OFFERED)]


@router.get("")
async def new(
    request: Request, services: WithServices, editor: WithEditor, name: str = ""
) -> Response:
    """Show the page that takes documents."""
    view = {
        "name": editor.named(name).name if name else "",
        "unfinished": editor.unfinished,
        "folder": editor.folder,
    }
    return html_page("new.html", request, services, services.kbs.named(), view)


@router.post("", dependencies=[Depends(json_only)])
async def make(given: WantedName, editor: WithEditor) -> dict[str, Any]:
    """Make a knowledge base without documents."""
    return editor.made(given.name).facts()


@router.get("/{name}")
async def state(name: str, editor: WithEditor) -> dict[str, Any]:
    """Say how far it is."""
    return editor.named(name).facts()


@router.post("/{name}/offer", dependencies=[Depends(json_only)])
async def offer(name: str, given: OfferedFiles, editor: WithEditor) -> dict[str, list[str]]:
    """Say which of some files are to be sent."""
    return {"wanted": editor.named(name).wanted(given.files)}


@router.post("/{name}/file")
async def send(
    name: str, path: Annotated[str, Query()], request: Request, editor: WithEditor
) -> dict[str, Any]:
    """Take a document."""
    upload = editor.named(name)
    content = await request.body()
    await asyncio.to_thread(upload.keep, path, content)
    return {"files": len(upload.files)}


@router.get("/{name}/preview")
async def previewed(name: str, editor: WithEditor) -> dict[str, Any]:
    """Show how some of the documents will be read."""
    upload = editor.named(name)
    try:
        return await asyncio.to_thread(upload.previews)
    except KbqError as error:
        raise RefusedError(422, upload.hidden(str(error))) from None


@router.post("/{name}/build", dependencies=[Depends(json_only)])
async def build(name: str, given: WantedName, editor: WithEditor) -> dict[str, Any]:
    """Build it under this name, in the background."""
    upload = editor.renamed(editor.named(name), given.name)
    editor.start(upload)
    return upload.facts()


@router.post("/{name}/stop", dependencies=[Depends(json_only)])
async def stop(name: str, editor: WithEditor) -> dict[str, Any]:
    """Stop its build, which another one resumes."""
    upload = editor.named(name)
    upload.is_stopped.set()
    return upload.facts()


@router.post("/{name}/discard", dependencies=[Depends(json_only)])
async def discard(name: str, editor: WithEditor) -> dict[str, Any]:
    """Throw away what is not built."""
    upload = editor.named(name)
    await asyncio.to_thread(editor.discard, upload)
    return upload.facts()
