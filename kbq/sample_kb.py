"""The sample knowledge base: built from the bundled articles on first use, and kept in the user's cache folder."""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import kbq
from kbq.dump.manifest import FORMAT, is_knowledge_base
from kbq.dump.shards import Counts
from kbq.errors import KbqError, KnowledgeBaseError
from kbq.model.model_folder import CONFIG, DEFAULT_MODEL
from kbq.storage.files import PACKAGE, cache_folder
from kbq.storage.writing import discard_folder, make_folders, move, remove_left, writing_alone, writing_to
from kbq.words.bm25 import FOLDED

ARTICLES = PACKAGE / "sample" / "articles.jsonl"
TEMPORARY = "sample-"  # how the name of a folder begins in which the sample is being built; 8 characters follow

Building = Callable[[Path], AbstractContextManager[Callable[[Counts], None]]]  # what is told while a folder is built


def quietly(folder: Path) -> AbstractContextManager[Callable[[Counts], None]]:
    """Return a report that nobody reads."""
    return contextlib.nullcontext(lambda counts: None)


def sample_folder(build: Callable[..., object], building: Building = quietly) -> Path:
    """Return the folder of the sample knowledge base, built by `build(corpus, folder, report=…)` on first use.

    It is built beside its place and moved there: two first uses at the same time do no harm.
    """
    folder = cache_folder() / f"sample-{kbq.__version__}-{_digest()}"
    _remove_left(folder.parent)
    if is_knowledge_base(folder):
        return folder
    with building(folder) as report, _temporary(folder.parent) as temporary:
        build(ARTICLES, temporary / "kb", report=report)
        with contextlib.suppress(OSError):  # another process was faster
            move(temporary / "kb", folder)
    return folder


@contextlib.contextmanager
def _temporary(parent: Path) -> Iterator[Path]:
    """Yield a new folder that is locked as long as it is used, and removed at the end."""
    with contextlib.ExitStack() as lock:
        with writing_to(parent, KnowledgeBaseError, "set KBQ_CACHE to a folder of yours"):
            make_folders(parent)
            temporary = _locked(parent, lock)
        try:
            yield temporary
        finally:
            discard_folder(temporary)


def _locked(parent: Path, lock: contextlib.ExitStack) -> Path:
    while True:
        temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=parent))
        try:
            lock.enter_context(writing_alone(temporary))
        except (KbqError, FileNotFoundError):  # another first use has just taken it for one that was left
            continue
        return temporary


def _remove_left(parent: Path) -> None:
    """Remove what killed first uses left behind; a folder that holds anything else is somebody's own."""
    for left in parent.glob(f"{TEMPORARY}{'?' * 8}"):
        with contextlib.suppress(OSError):
            if {path.name for path in left.iterdir()} <= {"kb"}:
                remove_left(left)


def _digest() -> str:
    """Return a digest of all that decides what is built: formats, articles, and the model's settings."""
    parts = bytes([FORMAT]), FOLDED.encode(), ARTICLES.read_bytes(), (DEFAULT_MODEL / CONFIG).read_bytes()
    return hashlib.sha256(b"".join(parts)).hexdigest()[:8]
