"""Sample: the knowledge base of the bundled articles, built on first use."""

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kbq
from kbq.dump.manifest import FORMAT, is_knowledge_base
from kbq.errors import KnowledgeBaseError
from kbq.model.model_folder import CONFIG, DEFAULT_MODEL
from kbq.storage.folders import discard_folder, make_folders
from kbq.storage.paths import PACKAGE, cache_folder
from kbq.storage.reports import Note, unheard
from kbq.storage.writing import move, writing_to
from kbq.words.bm25 import FOLDED

ARTICLES = PACKAGE / "sample" / "articles.jsonl"
TEMPORARY = "sample-"  # prefix of a folder in which the sample is being built; 8 characters follow
LONG = 86_400.0  # seconds after which such a folder is taken to be left from a killed process


def sample_folder(build: Callable[[Path, Path], object], note: Note = unheard) -> Path:
    """Return the folder of the sample knowledge base, built by `build(corpus, folder)` on first
    use.

    It is built next to its place and moved there, so two first uses at the same time do no harm.
    """
    parts = (
        bytes([FORMAT]),
        FOLDED.encode(),
        ARTICLES.read_bytes(),
        (DEFAULT_MODEL / CONFIG).read_bytes(),
    )
    # Digest of formats, articles, and the model's settings.
    digest = hashlib.sha256(b"".join(parts)).hexdigest()[:8]
    folder = cache_folder() / f"sample-{kbq.__version__}-{digest}"
    if is_knowledge_base(folder):
        return folder
    _remove_left(folder.parent)
    note(f"building the sample knowledge base, once, in {folder}")
    with writing_to(folder.parent, KnowledgeBaseError, "set KBQ_CACHE to a folder of yours"):
        make_folders(folder.parent)
        temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder.parent))

    try:
        build(ARTICLES, temporary / "kb")
        with contextlib.suppress(OSError):  # another process was faster
            move(temporary / "kb", folder)
    finally:
        discard_folder(temporary)

    return folder


def _remove_left(parent: Path) -> None:
    """Remove what killed first uses left behind; a folder that holds anything else is somebody's
    own.
    """
    for left in parent.glob(f"{TEMPORARY}{'?' * 8}"):
        with contextlib.suppress(OSError):
            is_old = time.time() - left.stat().st_mtime > LONG
            if is_old and {path.name for path in left.iterdir()} <= {"kb"}:
                discard_folder(left)
