"""Dump: a phrase dump of DensePhrases becomes a knowledge base, with its vectors as they are. `kbq import dump`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kbq.dump.manifest import Manifest
from kbq.dump.shards import Counts
from kbq.errors import CorpusError, ModelError
from kbq.importing import hdf5
from kbq.importing.documents import LIMIT, Misfits, pages_of
from kbq.importing.likeness import warn_unlike
from kbq.model.model import Model
from kbq.model.official_checkpoint import OFFSET, STEP
from kbq.search.changing import publish_encoded
from kbq.storage.paths import as_path
from kbq.storage.progress import Note, Report, silent, unheard
from kbq.storage.strange_files import leads_within, refuse_strange_files


def opened_model(model: str | Path | Model, device: str) -> Model:
    """A model that reads queries and stores values as the official code does.

    Raises:
        ModelError: it is missing or damaged, or was not made of an official checkpoint.
    """
    opened = model if isinstance(model, Model) else Model.open(as_path(model, "a model"), device)
    if opened.config.value_offset != OFFSET or not np.allclose(opened.scale, STEP):
        raise ModelError(
            f"the model {opened.source} was not made of a checkpoint of DensePhrases: give the checkpoint that made "
            "the vectors"
        )
    return opened


@dataclass(frozen=True, slots=True)
class Imported:
    """A knowledge base that was imported, and the tokens of the dump at which it finds no phrase."""

    folder: Path
    manifest: Manifest
    misfits: Misfits


def import_dump(
    dump: str | Path,
    folder: str | Path,
    model: str | Path | Model,
    *,
    bm25: bool = True,
    device: str = "auto",
    report: Callable[[Counts], None] = unheard,
    report_stage: Report = silent,
    note: Note = unheard,
) -> Imported:
    """Make a knowledge base of a phrase dump, document by document; a run that was killed resumes.

    Args:
        dump: the folder that has `phrase/`, with its HDF5 files, and perhaps `filter/`.
        folder: of the new knowledge base.
        model: the checkpoint that the dump was made with, or the model that was made of it.
        bm25: index the words, too.
        note: called if vectors, texts and model do not seem to fit.

    Raises:
        CorpusError: a file is missing or damaged, or holds vectors of another model.
        ModelError: see `opened_model`.
        KnowledgeBaseError: the folder is in use, not writable, or holds something else.
    """
    source, out = as_path(dump, "a phrase dump"), as_path(folder, "the folder of a knowledge base")
    refuse_strange_files(source, "a dump", CorpusError, leads_within(source))
    hdf5.dump_files(source)
    hdf5.load_h5py()
    opened = opened_model(model, device)
    misfits = Misfits()
    manifest = publish_encoded(
        pages_of(hdf5.documents(source, opened.dim), misfits), hdf5.encoded, out, opened, phrases=LIMIT, bm25=bm25,
        report=report, report_stage=report_stage,
    )  # fmt: skip
    warn_unlike(manifest.open_shards(out), opened, note)
    return Imported(out, manifest, misfits)
