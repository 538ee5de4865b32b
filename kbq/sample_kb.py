"""The sample knowledge base: built from the bundled articles on first use, kept in the user's cache folder."""

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import kbq
from kbq.dump.manifest import FORMAT, is_knowledge_base
from kbq.dump.shards import Counts
from kbq.encoding.model_files import CONFIG
from kbq.encoding.model_folder import DEFAULT_MODEL
from kbq.errors import KnowledgeBaseError
from kbq.system.files import writing_to
from kbq.system.paths import PACKAGE, cache_folder

ARTICLES = PACKAGE / "sample" / "articles.jsonl"

Building = Callable[[Path], AbstractContextManager[Callable[[Counts], None]]]  # what is told while a folder is built


def quietly(folder: Path) -> AbstractContextManager[Callable[[Counts], None]]:
    """A report that nobody reads."""
    return contextlib.nullcontext(lambda counts: None)


def sample_folder(build: Callable[..., object], building: Building = quietly) -> Path:
    """The folder of the sample knowledge base, built by `build(corpus, folder, report=…)` on first use.

    It is built beside its place and moved there: two first uses at the same time do no harm.

    Raises:
        KnowledgeBaseError: the cache folder cannot be written.
    """
    folder = cache_folder() / f"sample-{kbq.__version__}-{_digest()}"
    if is_knowledge_base(folder):
        return folder
    with building(folder) as report:
        with writing_to(folder.parent, KnowledgeBaseError, "set KBQ_CACHE to a folder that can"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix="sample-", dir=folder.parent))
        try:
            build(ARTICLES, temporary / "kb", report=report)
            with contextlib.suppress(OSError):  # another process was faster
                (temporary / "kb").rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _digest() -> str:
    """A digest of all that decides what is built: the format, the articles, and the model by its configuration."""
    parts = bytes([FORMAT]), ARTICLES.read_bytes(), (DEFAULT_MODEL / CONFIG).read_bytes()
    return hashlib.sha256(b"".join(parts)).hexdigest()[:8]
