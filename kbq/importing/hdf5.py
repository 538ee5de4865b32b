"""HDF5: the files of a phrase dump become its documents, one at a time; each file is looked at before it is believed.

dump/phrase/NAME.hdf5   a group for each document, named by its number: context, title, offset and scale; start (the
                        int8 rows), f2o_start (the token of each row), word2char_start and word2char_end (of each token)
dump/filter/NAME.hdf5   optional: filter_start and filter_end, the logits of each token
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from kbq.array_types import Floats
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.errors import CorpusError, KbqError
from kbq.importing.documents import DocumentPage, OfficialDocument
from kbq.importing.official_checkpoint import AGAIN, OFFSET, STEP
from kbq.storage.files import reading_problem

LARGEST = 2**28  # bytes of a dataset: a document has far fewer
MOST_COMPRESSED = 2000  # times: zlib reaches 1,032
ROWS, KEPT, STARTS, ENDS = "start", "f2o_start", "word2char_start", "word2char_end"


def load_h5py() -> Any:
    """Import h5py on demand. Raises KbqError if it is not installed."""
    try:
        import h5py
    except ImportError:
        advice = "install it with pip install h5py"
        raise KbqError(f"the dumps and indexes of DensePhrases are read with h5py: {advice}") from None
    return h5py


def dump_files(dump: Path) -> list[Path]:
    """Return the files of a phrase dump, in the order of their names. Raises CorpusError if there are none."""
    files = sorted((dump / "phrase").glob("*.hdf5"))
    if not files:
        also = " (kbq import index reads an index without one)" if (dump / "start").is_dir() else ""
        raise CorpusError(f"{dump} has no phrase dump{also}: give the folder in which phrase/ has .hdf5 files")
    return files


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file, and name it in the CorpusError for whatever goes wrong while it is read."""
    h5py = load_h5py()
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is not a file")
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise CorpusError(reading_problem(path, error, AGAIN)) from None


def is_number(name: object) -> bool:
    """Whether a name is the number of a document."""
    return isinstance(name, str) and name.isascii() and name.isdecimal() and len(name) < 19


def group(file: Any, name: str) -> Any:
    """Return a group that lies in this file: a link may lead anywhere, to a pipe that never ends, say.

    Raises ValueError if it is elsewhere, or no group.
    """
    h5py = load_h5py()
    found = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(found, h5py.Group):
        raise ValueError(f"{name[:40]!r} is not a group in this file")
    return found


def values(dataset: Any) -> Any:
    """Read all values of a dataset, which a file may say are more than it has.

    Raises ValueError if they are far more than a document has, or than are stored.
    """
    stored = dataset.id.get_storage_size()
    if dataset.nbytes > min(LARGEST, MOST_COMPRESSED * stored):
        raise ValueError(f"{dataset.name} says that it has {dataset.nbytes:,} bytes, of which {stored:,} are stored")
    return dataset[:]


def dataset(group: Any, name: str, kind: type[np.generic] | str, dimensions: int = 1) -> Any:
    """Return a dataset that lies in its file, of this kind of numbers.

    Raises ValueError if it is missing, elsewhere, or of another type.
    """
    h5py = load_h5py()
    link = group.get(name, getlink=True) if name in group else None
    found = group[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
        where = "is not in this file" if link is not None else "is missing"
        raise ValueError(f"{name} of document {group.name.strip('/')} {where}")
    if not np.issubdtype(found.dtype, kind) or found.ndim != dimensions:
        raise ValueError(f"{name} of document {group.name.strip('/')} holds {found.dtype} {found.shape}")
    if (piece := math.prod(found.chunks or ()) * found.dtype.itemsize) > LARGEST:  # one is read whole
        raise ValueError(f"{name} of document {group.name.strip('/')} is stored in pieces of {piece:,} bytes")
    return found


def documents(dump: Path, dim: int) -> Iterator[OfficialDocument]:
    """Yield all documents of a dump, in the order of files and groups.

    Raises CorpusError if a file is missing or damaged, or the vectors are not those of a model of `dim` dimensions.
    """
    for path in dump_files(dump):
        with opened(path) as file:
            for name in file:
                if not is_number(name):
                    raise ValueError(f"the group {name[:40]!r} is not named by the number of a document")
                yield _document(group(file, name), path, dim)


def _document(group: Any, path: Path, dim: int) -> OfficialDocument:
    """Read a document. Raises ValueError if the group does not hold one."""
    name = group.name.strip("/")
    title, text = (group.attrs.get(attribute) for attribute in ("title", "context"))
    if not (isinstance(title, str) and isinstance(text, str)):
        raise ValueError(f"document {name} has no title or no context")
    for attribute, expected in (("offset", OFFSET), ("scale", 1 / STEP)):
        found = float(group.attrs.get(attribute, expected))
        if found != expected:
            raise ValueError(f"document {name} has the {attribute} {found:g}, only {expected:g} is read")
    kept, starts, ends = (values(dataset(group, part, np.integer)).astype(np.int64) for part in (KEPT, STARTS, ENDS))
    rows = dataset(group, ROWS, np.int8, 2)
    if rows.shape[1] != dim:
        raise CorpusError(
            f"{path} has vectors of {rows.shape[1]} dimensions, the model of {dim}: give the checkpoint that made it"
        )
    if len(rows) != len(kept):
        raise ValueError(f"document {name} has {len(rows):,} vectors for {len(kept):,} kept tokens")
    try:
        return OfficialDocument(name, title, text, starts, ends, kept, path)
    except ValueError as error:
        raise ValueError(f"document {name}: {error}") from None


def encoded(pages: Sequence[DocumentPage]) -> EncodedParagraphs:
    """Return the paragraphs of pages with their vectors and, where they are known, the logits of the filter.

    Raises CorpusError if a file is damaged.
    """
    parts: list[EncodedParagraphs] = []
    for path, of_file in itertools.groupby(pages, key=lambda page: page.document.source):
        filters = path.parents[1] / "filter" / path.name
        with opened(path) as file, opened(filters) if filters.is_file() else nullcontext() as logits:
            for page in of_file:
                rows = values(dataset(group(file, page.id), ROWS, np.int8, 2))
                parts.append(page.encoded(rows, _logits(logits, page)))
    return EncodedParagraphs.joined(parts)


def _logits(file: Any, page: DocumentPage) -> Floats:
    """Return the filter's higher logit of each row; 0 where none was written. Raises ValueError."""
    kept, tokens = page.document.kept, len(page.document.starts)
    if file is None or page.id not in file:
        return np.zeros(len(kept), np.float32)
    of_page = group(file, page.id)
    start, end = (values(dataset(of_page, f"filter_{side}", np.floating)) for side in ("start", "end"))
    if len(start) != tokens or len(end) != tokens:
        raise ValueError(f"document {page.id} has {tokens:,} tokens, and logits for {len(start):,}")
    logits: Floats = np.maximum(start, end)[kept].astype(np.float32)
    return logits
