"""Dump: a phrase dump of DensePhrases becomes a knowledge base, with its vectors as they are. `kbq import dump`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from kbq.corpus.pages import Page
from kbq.dump.manifest import Manifest
from kbq.dump.page_encoder import encode_pages
from kbq.dump.shards import Counts, Shard
from kbq.errors import CorpusError, ModelError
from kbq.importing import hdf5
from kbq.importing.documents import LIMIT, Misfits, pages_of
from kbq.importing.official_checkpoint import OFFSET, STEP
from kbq.model.model import Model
from kbq.search.changing import publish_encoded
from kbq.storage.files import as_path
from kbq.storage.progress import Note, Report, silent, unheard
from kbq.storage.strange_files import leads_within, refuse_strange_files

LONGEST, FEWEST, TRIED = 200, 4, 100  # tokens and rows of a paragraph, and paragraphs that are tried
ALIKE = 0.7  # correlation, less the mean of all tokens: of the vectors 1.0, of their codes above 0.9, of others about 0


def opened_model(model: str | Path | Model, device: str) -> Model:
    """Open a model that reads queries and stores values as the official code does.

    Raises ModelError if it is missing or damaged, or was not made of an official checkpoint.
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


def warn_unlike(shards: Sequence[Shard], model: Model, note: Note) -> None:
    """Encode the first paragraph that can be compared again; note if vectors, texts and model do not seem to fit."""
    for shard, paragraph in islice(_short_paragraphs(shards), TRIED):
        place = f"paragraph {shard.paragraph_numbers[paragraph]} of document {shard.answer(paragraph, 0.0).page_id}"
        page = Page("", shard.title_of(paragraph), shard.texts[paragraph])
        encoded = encode_pages(model, [page])
        if encoded.tokens[0] != shard.paragraph_tokens[paragraph]:
            continue  # it was cut into several windows
        rows = shard.rows_of(paragraph)
        pair = shard.vectors_of(rows), encoded.vectors[shard.positions[rows]]
        likeness = float(np.corrcoef(*((side - side.mean(axis=0)).ravel() for side in pair))[0, 1])
        if likeness < ALIKE:
            found = f"other vectors than the model gives it (their correlation is {likeness:.2f})"
            note(f"{place} has {found}: is this the checkpoint that it was made with, and are all files of one dump?")
        return


def _short_paragraphs(shards: Sequence[Shard]) -> Iterator[tuple[Shard, int]]:
    """Yield paragraphs with some rows that are probably in one window, whatever its length was."""
    for shard in shards:
        short = (shard.paragraph_sizes() >= FEWEST) & (shard.paragraph_tokens <= LONGEST)
        yield from ((shard, int(paragraph)) for paragraph in np.flatnonzero(short))
