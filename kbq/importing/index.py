"""Index: an index of DensePhrases, and the metadata of its dump, become a knowledge base. `kbq import index`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Rows
from kbq.dump.arrays import new_array, save_array
from kbq.dump.damage import IMPORTED, LINK
from kbq.dump.manifest import IndexEntry, Manifest
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.shards import Counts
from kbq.errors import CorpusError
from kbq.importing.codes import FORMAT, LAYOUT, LISTS, PLACES, RUNS
from kbq.importing.documents import LIMIT, DocumentPage, Misfits, pages_of
from kbq.importing.dump import Imported, opened_model, warn_unlike
from kbq.importing.faiss_file import ID_BYTES, FaissFile, read_layout
from kbq.importing.hdf5 import load_h5py
from kbq.importing.ids import IndexedRows
from kbq.importing.metadata import METADATA, metadata_documents
from kbq.importing.official_checkpoint import AGAIN
from kbq.importing.official_codes import PROBES
from kbq.index.cells import load_faiss
from kbq.model.model import Model
from kbq.search.changing import publish_encoded
from kbq.storage.files import as_path, reading_from
from kbq.storage.folders import new_folder
from kbq.storage.progress import Note, Report, Stage, silent, unheard
from kbq.storage.records import write_record
from kbq.storage.seals import seal_folder
from kbq.storage.strange_files import leads_within, refuse_strange_files
from kbq.storage.writing import name_again, sync

IDS = "idx2id.hdf5"
TOGETHER = 2**20  # ids that are placed at a time


def import_index(
    dump: str | Path,
    folder: str | Path,
    model: str | Path | Model,
    name: str,
    *,
    bm25: bool = True,
    device: str = "auto",
    report: Callable[[Counts], None] = unheard,
    report_stage: Report = silent,
    note: Note = unheard,
) -> Imported:
    """Make a knowledge base of an index without its phrase dump; a run that was killed resumes.

    The codes stay where they are: the knowledge base has a link to them.

    Args: as `import_dump`, and
        dump: the folder that has `meta_compressed.pkl`.
        name: the folder of the index within `dump`, such as start/1048576_flat_OPQ96.

    Raises: as `import_dump`, and
        KnowledgeBaseError: faiss is not installed.
    """
    source, out = as_path(dump, "a dump"), as_path(folder, "the folder of a knowledge base")
    load_h5py(), load_faiss()
    refuse_strange_files(source, "a dump", CorpusError, leads_within(source))
    path = source / name / LINK
    with reading_from(path, CorpusError, f"{AGAIN}, or name another index with --name"):
        index = read_layout(path)
    opened = opened_model(model, device)
    if index.layout.dim != opened.dim:
        raise CorpusError(
            f"{path} has vectors of {index.layout.dim} dimensions, the model of {opened.dim}: give the checkpoint that "
            "it was made with"
        )
    rows, misfits = IndexedRows(source / name / IDS, index.layout.vectors), Misfits()
    documents = rows.documents(metadata_documents(source / METADATA))
    layout = replace(index.layout, step=float(opened.scale[0]), offset=opened.config.value_offset)

    def with_codes(manifest: Manifest) -> Manifest:
        return _with_codes(out, manifest, path, FaissFile(layout, index.lists), rows.runs(), report_stage)

    manifest = publish_encoded(
        pages_of(documents, misfits), _encoded, out, opened, phrases=LIMIT, bm25=bm25, report=report,
        report_stage=report_stage, index=with_codes,
    )  # fmt: skip
    warn_unlike(manifest.open_shards(out), opened, note)
    return Imported(out, manifest, misfits)


def _encoded(pages: Sequence[DocumentPage]) -> EncodedParagraphs:
    """Return the paragraphs of pages, with rows but without vectors; their filter's logits are not known."""
    return EncodedParagraphs.joined(
        page.encoded(np.empty((count, 0), np.int8), np.zeros(count, np.float32))
        for page, count in ((page, len(page.document.kept)) for page in pages)
    )


def _with_codes(folder: Path, manifest: Manifest, path: Path, index: FaissFile, runs: Rows, report: Report) -> Manifest:
    """Link the codes, write where they are, and return the manifest with their index.

    Raises CorpusError if the ids in the lists are not those that `idx2id` names.
    """
    codes = folder / IMPORTED
    new_folder(codes)
    name_again(path, codes / LINK)
    write_record(codes / LAYOUT, index.layout, FORMAT)
    save_array(codes / LISTS, index.lists)
    save_array(codes / RUNS, runs)
    seal_folder(codes)
    _write_places(folder, manifest, path, index, runs, Stage(report, "codes found", index.layout.vectors))
    return replace(
        manifest, index=IndexEntry("official", probes=min(PROBES, index.layout.lists), target=0.0, recall=0.0)
    )


def _write_places(folder: Path, manifest: Manifest, path: Path, index: FaissFile, runs: Rows, stage: Stage) -> None:
    """Write, for each shard, where the code of each row is."""
    begins = np.cumsum([0, *(shard.size.rows for shard in manifest.shards)])
    places = [_empty_places(folder / shard.name / IMPORTED, shard.size.rows) for shard in manifest.shards]
    for ids, begun in _listed(path, index):
        run = np.searchsorted(runs[:, 0], ids, side="right") - 1
        rows = runs[run, 1] + ids - runs[run, 0]
        strange = (ids < 0) | (run < 0) | (rows < 0) | (rows >= begins[-1])
        if strange.any():
            raise CorpusError(
                f"{path} has the id {ids[strange.argmax()]:,}, which {path.with_name(IDS)} lacks: {AGAIN}"
            )
        shards = np.searchsorted(begins, rows, side="right") - 1
        for number in np.unique(shards):
            here = shards == number
            places[number][rows[here] - begins[number]] = begun[here]
        stage.add(len(ids))
    for shard, written in zip(manifest.shards, places, strict=True):
        if len(written) and int(written.min()) < 0:
            raise CorpusError(f"{path} has an id twice, and lacks others that {path.with_name(IDS)} names: {AGAIN}")
        if len(written):
            written.flush()  # type: ignore[attr-defined]
            sync(folder / shard.name / IMPORTED / PLACES)
            seal_folder(folder / shard.name / IMPORTED, of=shard.seal)


def _empty_places(folder: Path, rows: int) -> Rows:
    """Make a file for the places of so many rows, none of which is known. Shape: (rows,)."""
    if not rows:
        return np.empty(0, np.int64)
    new_folder(folder)
    places: Rows = new_array(folder / PLACES, np.int64, rows)
    places[:] = -1
    return places


def _listed(path: Path, index: FaissFile) -> Iterator[tuple[Rows, Rows]]:
    """Yield the ids in all lists, and where their codes begin, some lists at a time. Shapes: (ids,)."""
    content: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
    ids: list[Rows] = []
    places: list[Rows] = []
    filled = index.lists[index.lists[:, 1] > 0]
    for number, (begin, size) in enumerate(filled.tolist(), start=1):
        after = begin + size * index.layout.code_bytes
        ids.append(content[after : after + ID_BYTES * size].view(np.int64))
        places.append(np.arange(begin, after, index.layout.code_bytes))
        if sum(map(len, ids)) >= TOGETHER or number == len(filled):
            yield np.concatenate(ids), np.concatenate(places)
            ids, places = [], []
