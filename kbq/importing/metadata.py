"""Metadata: `meta_compressed.pkl` becomes the documents of a dump, one at a time, without the vectors.

It is a pickled dict {number: {word2char_start, word2char_end, f2o_start, context: compressed bytes; title: text;
dtypes: NumPy's types of the first three}}.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kbq.array_types import Rows
from kbq.errors import CorpusError
from kbq.importing.blosc import decompressed
from kbq.importing.documents import OfficialDocument
from kbq.importing.hdf5 import ENDS, KEPT, STARTS, is_number
from kbq.importing.pickles import UnsafePickleError, pickled_items
from kbq.model.official_checkpoint import AGAIN
from kbq.storage.files import reading_from

METADATA = "meta_compressed.pkl"


def metadata_documents(path: Path) -> Iterator[OfficialDocument]:
    """Yield all documents of a file, in its order.

    Raises CorpusError if it is missing or damaged, or asks to run something.
    """
    with reading_from(path, CorpusError, AGAIN), path.open("rb") as file:
        try:
            for number, facts in pickled_items(file):
                yield _document(number, facts, path)
        except UnsafePickleError as error:
            advice = "nothing of it was run; use a file from a source that you know"
            raise CorpusError(f"{path} is not the metadata of a dump ({error}): {advice}") from None


def _document(number: Any, facts: Any, path: Path) -> OfficialDocument:
    """Read a document. Raises ValueError if an item is not one."""
    if not is_number(number) or not isinstance(facts, dict):
        raise ValueError(f"{number[:40]!r} is not the number of a document")
    try:
        title, text = facts["title"], decompressed(facts["context"]).decode()
        if not isinstance(title, str):
            raise ValueError("its title is not a text")
        starts, ends, kept = (_numbers(facts, name) for name in (STARTS, ENDS, KEPT))
        return OfficialDocument(number, title, text, starts, ends, kept, path)
    except KeyError as error:
        raise ValueError(f"document {number} has no {error.args[0]}") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"document {number}: {error}") from None


def _numbers(facts: dict[str, Any], name: str) -> Rows:
    dtype = facts["dtypes"][name]
    if not isinstance(dtype, np.dtype) or dtype not in (np.dtype("<i4"), np.dtype("<i8")):
        raise ValueError(f"{name} does not hold int32 or int64")
    return np.frombuffer(decompressed(facts[name]), dtype).astype(np.int64)
