"""The sample knowledge base: built from the bundled articles on first use, kept in the user's cache folder."""

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import kbq
from kbq.answers import IndexKind
from kbq.corpus.readers import read_corpus
from kbq.dump.manifest import FORMAT, is_knowledge_base
from kbq.dump.shards import Counts
from kbq.encoding.model import Model
from kbq.encoding.model_folder import CONFIG, DEFAULT_MODEL
from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.system.files import writing_to
from kbq.system.paths import PACKAGE, cache_folder

ARTICLES = PACKAGE / "sample" / "articles.jsonl"


Building = Callable[[Path], AbstractContextManager[Callable[[Counts], None]]]  # what is told while a folder is built


def quietly(folder: Path) -> AbstractContextManager[Callable[[Counts], None]]:
    """A report for nobody."""
    return contextlib.nullcontext(lambda counts: None)


def open_sample(
    building: Building = quietly, model: str | None = None, device: str = "auto", index: IndexKind | None = None
) -> KnowledgeBase:
    """The sample knowledge base, built on first use.

    Raises:
        KnowledgeBaseError: the cache folder cannot be written.
    """
    folder = cache_folder() / f"sample-{kbq.__version__}-{_digest()}"
    if not is_knowledge_base(folder):
        with building(folder) as report:
            _build(folder, Model.open("default", device), report)
    return KnowledgeBase.open(folder, model, device, index)


def _build(folder: Path, model: Model, report: Callable[[Counts], None]) -> None:
    """Build beside the final place and move it there: two first uses at the same time do no harm."""
    with writing_to(folder.parent, KnowledgeBaseError, "set KBQ_CACHE to a folder that can"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix="sample-", dir=folder.parent))
    try:
        KnowledgeBase.build(read_corpus(str(ARTICLES)), workshop / "kb", model, report=report)
        with contextlib.suppress(OSError):  # another process was faster
            (workshop / "kb").rename(folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _digest() -> str:
    """A digest of all that decides what is built: the format, the articles, and the model by its configuration."""
    parts = bytes([FORMAT]), ARTICLES.read_bytes(), (DEFAULT_MODEL / CONFIG).read_bytes()
    return hashlib.sha256(b"".join(parts)).hexdigest()[:8]
