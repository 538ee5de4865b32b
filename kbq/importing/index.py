"""Index: import an index of DensePhrases with its dump's metadata. `kbq import index`.

`index.faiss` has these parts; faiss itself would believe their sizes, and hold the direct map in
memory, 16 bytes a vector:

    IxPT    a transform before an index: LTra, a rotation without a bias
    IwPQ    inverted lists of product codes, for inner products: IxFI, the means of lists; a direct
            map, which is skipped; whether codes are of residuals; the centroids; ilar, sizes and
            contents of the lists

`idx2id.hdf5` has a group for each part of the index, named by the id of its first vector: `doc`,
the number of the document, and `word`, the row among the kept tokens of that document. An index may
leave rows out, so neighbouring ids need not be neighbouring tokens.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from kbq.array_types import Rows
from kbq.dump.manifest import IMPORTED, LINK, IndexEntry, Manifest
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.shards import Counts, new_array, save_array
from kbq.errors import CorpusError
from kbq.importing.checkpoint import AGAIN
from kbq.importing.codes import CENTROIDS, FORMAT, LAYOUT, LISTS, PLACES, PROBES, RUNS, CodesLayout
from kbq.importing.dump import (
    LIMIT,
    DocumentPage,
    Imported,
    Misfits,
    OfficialDocument,
    dataset,
    is_number,
    load,
    opened,
    opened_model,
    pages_of,
    warn_unlike,
)
from kbq.importing.dump import group as part_of
from kbq.importing.metadata import METADATA, metadata_documents
from kbq.index.cells import load_faiss
from kbq.maintain.build import publish_encoded
from kbq.model.model import Model
from kbq.storage.folders import leads_within, new_folder, refuse_strange_files
from kbq.storage.paths import as_path
from kbq.storage.reading import reading_from
from kbq.storage.records import write_record
from kbq.storage.reports import Note, Report, Stage, silent, unheard
from kbq.storage.seals import seal_folder
from kbq.storage.writing import name_again, sync

INNER_PRODUCT = 0
HASH_TABLE = 2
ID_BYTES = 8
KINDS = {
    b"IxPT": "a transform",
    b"LTra": "a rotation",
    b"IwPQ": "an inverted file of product codes",
    b"IxFI": "the means of lists",
    b"ilar": "its lists",
}

CHUNK = 2**22  # ids that are read at a time
OTHER = "give the metadata and the index of one dump"

IDS = "idx2id.hdf5"
TOGETHER = 2**20  # ids that are placed at a time


@dataclass(frozen=True, slots=True)
class FaissFile:
    """Where the parts of a file are. `lists`: first byte and number of codes of each. Shape:
    (lists, 2).
    """

    layout: CodesLayout
    lists: Rows


class _Reader:
    """Reads numbers and skips arrays, as long as they fit in the file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._size = size

    def index(self) -> FaissFile:
        """Read the whole file, from its first byte to its last."""
        self._expect(b"IxPT")
        dim, vectors = self._header()
        self._same("numbers of transforms", self._numbers("<i"), (1,))
        self._expect(b"LTra")
        has_bias = self._numbers("<?")
        rotation = self._array(4, dim * dim)
        self._same(
            "biases and dimensions", (*has_bias, *self._numbers("<Qii?")[:3]), (False, 0, dim, dim)
        )
        self._expect(b"IwPQ")
        self._same("dimensions or vectors", self._header(), (dim, vectors))
        lists, _ = self._numbers("<QQ")  # and how many are probed
        self._expect(b"IxFI")
        self._same("dimensions or lists", self._header(), (dim, lists))
        means = self._array(4, lists * dim)
        kind, listed = self._numbers("<bQ")  # the direct map's
        self._skip(ID_BYTES * listed)
        if kind == HASH_TABLE:
            self._array(2 * ID_BYTES, vectors)
        is_residual, code_bytes, pq_dim, parts, bits = self._numbers("<?QQQQ")
        self._same(
            "code bytes, bits or dimensions",
            (is_residual, pq_dim, parts, bits),
            (True, dim, code_bytes, 8),
        )
        if not code_bytes or dim % code_bytes:
            raise ValueError(f"its codes of {code_bytes} bytes do not divide {dim} dimensions")
        centroids = self._array(4, CENTROIDS * dim)
        contents, codes = self._lists(lists, code_bytes, vectors)
        layout = CodesLayout(
            dim, code_bytes, lists, vectors, rotation, means, centroids, codes, self._size
        )

        return FaissFile(layout, contents)

    def _header(self) -> tuple[int, int]:
        """Read dimensions and vectors of an index for inner products."""
        dim, vectors, _, _, _, metric = self._numbers("<iqqq?i")
        if metric != INNER_PRODUCT:
            raise ValueError(
                f"it has the metric {metric}, an official index has inner products "
                f"({INNER_PRODUCT})"
            )
        if dim < 1 or vectors < 0:
            raise ValueError(f"it says that it has {vectors} vectors of {dim} dimensions")
        return dim, vectors

    def _lists(self, lists: int, code_bytes: int, vectors: int) -> tuple[Rows, int]:
        """Return first byte and number of codes of each list, and where the first one begins."""
        self._expect(b"ilar")
        self._same("lists or code bytes", self._numbers("<QQ"), (lists, code_bytes))
        kind = self._read(4)
        count = self._numbers("<Q")[0]
        if kind not in (b"full", b"sprs"):
            raise ValueError("the sizes of its lists are not in it")
        self._same(
            "sizes of lists", (kind == b"sprs" or count == lists, count <= 2 * lists), (True, True)
        )
        sizes = written = np.frombuffer(self._read(8 * count), np.int64)
        if kind == b"sprs":  # pairs of a list and its size
            sizes = np.zeros(lists, np.int64)
            if count % 2 or (count and not 0 <= written[::2].min() <= written[::2].max() < lists):
                raise ValueError("it gives sizes of lists that it does not have")
            sizes[written[::2]] = written[1::2]

        begin = self._file.tell()
        total = sum(sizes.tolist())  # Python's numbers do not wrap
        if (sizes < 0).any() or total != vectors:
            raise ValueError(f"its lists hold {total:,} vectors, it says {vectors:,}")
        end = begin + total * (code_bytes + ID_BYTES)
        if end != self._size:
            raise ValueError(f"it has {self._size:,} of {end:,} bytes")
        begins = begin + np.cumsum([0, *sizes[:-1]]) * (code_bytes + ID_BYTES)

        return np.stack([begins, sizes], axis=1), begin

    def _expect(self, kind: bytes) -> None:
        found = self._read(4)
        if found != kind:
            raise ValueError(
                f"it has {found.decode('ascii', 'replace')!r} where an official index has "
                f"{kind.decode()!r}, {KINDS[kind]}: only OPQ indexes of DensePhrases are read"
            )

    def _same(self, what: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if found != expected:
            raise ValueError(f"its {what} are {found} in one place and {expected} in another")

    def _array(self, item: int, expected: int) -> int:
        """Skip an array of this many items; return where the first one is."""
        self._same("sizes of arrays", self._numbers("<Q"), (expected,))
        begin = self._file.tell()
        self._skip(item * expected)
        return begin

    def _numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._read(struct.calcsize(form)))

    def _read(self, count: int) -> bytes:
        begin = self._file.tell()
        self._skip(count)
        self._file.seek(begin)
        return self._file.read(count)

    def _skip(self, count: int) -> None:
        if self._file.tell() + count > self._size:
            raise ValueError(f"it ends after {self._size:,} bytes, in the middle of a part")
        self._file.seek(count, 1)


class IndexedRows:
    """The rows that an index has, document by document, each a run of ids."""

    def __init__(self, path: Path, vectors: int) -> None:
        """Read where the runs begin, of an index with this number of vectors.

        Raises CorpusError if the file is missing or damaged, or is of another index.
        """
        self._path = path
        self._vectors = vectors
        with opened(path) as file:
            if not all(map(is_number, file)):
                raise ValueError("a group is not named by the first id of a part")
            names = sorted(file, key=int)
            if not names:
                raise ValueError("it names nothing")
            parts = [part_of(file, name) for name in names]
            total = sum(len(dataset(part, "doc", np.integer)) for part in parts)
            if total != vectors:  # checked before reading: a small file may claim billions
                raise CorpusError(
                    f"{path} names {total:,} vectors, the index has {vectors:,}: {OTHER}, or "
                    f"{AGAIN}"
                )

            runs = [_runs_of(part) for part in parts]
            self._groups = names

        columns = (np.concatenate(column) for column in zip(*runs, strict=True))
        documents, self._firsts, self._places, self._counts = columns
        self._order = np.argsort(documents, kind="stable")
        self._documents = documents[self._order]
        if (twice := np.flatnonzero(np.diff(self._documents) == 0)).size:
            raise CorpusError(
                f"{path} has document {self._documents[twice[0]]} in two places: {AGAIN}"
            )

        self._group_of = np.repeat(np.arange(len(runs)), [len(run[0]) for run in runs])
        # The first row of each run, counted over all shards.
        self._rows = np.full(len(documents), -1, np.int64)

    def documents(self, documents: Iterator[OfficialDocument]) -> Iterator[OfficialDocument]:
        """Yield the documents with the rows that the index has; `runs` knows them afterwards.

        Raises CorpusError if the index has rows or documents that are not among these.
        """
        row = 0
        with opened(self._path) as file:
            words = _Words(file, self._groups)
            for document in documents:
                place = int(np.searchsorted(self._documents, int(document.number)))
                kept = document.kept[:0]
                if place < len(self._documents) and self._documents[place] == int(document.number):
                    run = int(self._order[place])
                    numbers = words.read(
                        int(self._group_of[run]), int(self._places[run]), int(self._counts[run])
                    )
                    if numbers[-1] >= len(document.kept):
                        named = f"row {numbers[-1]:,} of document {document.number}"
                        held = f"{len(document.kept):,} in {document.source}"
                        raise CorpusError(f"{self._path} names {named}, which has {held}: {OTHER}")

                    kept = document.kept[numbers]
                    self._rows[run] = row

                row += len(kept)
                yield replace(document, kept=kept)

        missing = np.flatnonzero(self._rows[self._order] < 0)
        if len(missing):
            first = self._documents[missing[0]]
            raise CorpusError(
                f"{self._path} names {len(missing):,} documents that the metadata lacks, the "
                f"first is {first}: {OTHER}"
            )

    def runs(self) -> Rows:
        """Return first id and first row of each run, in the order of ids. Shape: (runs, 2)."""
        return np.stack([self._firsts, self._rows], axis=1)


def _runs_of(group: object) -> tuple[Rows, Rows, Rows, Rows]:
    """Return document, first id, place in the group and length of each run. Shapes: (runs,). Raises
    ValueError.
    """
    documents, words = (dataset(group, name, np.integer) for name in ("doc", "word"))
    offset = int(group.attrs.get("offset", 0))  # type: ignore[attr-defined]
    if len(documents) != len(words):
        raise ValueError(f"it names {len(documents):,} documents and {len(words):,} rows")
    begins = [np.empty(0, np.int64)]
    numbers = [np.empty(0, np.int64)]
    last = (-1, -1)
    for first in range(0, len(documents), CHUNK):
        part = documents[first : first + CHUNK].astype(np.int64)
        rows = words[first : first + CHUNK].astype(np.int64)
        before = np.concatenate([[last[0]], part[:-1]])
        falls = (part == before) & (rows <= np.concatenate([[last[1]], rows[:-1]]))
        if falls.any() or rows.min() < 0 or part.min() < 0:
            raise ValueError(f"the rows of document {part[falls.argmax()]} are not in order")
        new = np.flatnonzero(part != before)
        begins.append(new + first)
        numbers.append(part[new])
        last = int(part[-1]), int(rows[-1])

    places = np.concatenate(begins)
    counts = np.diff(places, append=len(documents))
    return np.concatenate(numbers), places + offset, places, counts


class _Words:
    """The rows of ids, read in larger pieces, as runs follow one another."""

    def __init__(self, file: object, groups: list[str]) -> None:
        self._file = file
        self._groups = groups
        self._group = -1
        self._first = 0
        self._piece = np.empty(0, np.int64)

    def read(self, group: int, first: int, count: int) -> Rows:
        """Return `count` rows. Shape: (count,). Raises ValueError."""
        begin = first - self._first
        if group != self._group or begin < 0 or begin + count > len(self._piece):
            words = dataset(part_of(self._file, self._groups[group]), "word", np.integer)
            self._group = group
            self._first = first
            begin = 0
            self._piece = words[first : first + max(count, CHUNK)].astype(np.int64)
        return self._piece[begin : begin + count]


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
    """Make a knowledge base of an index without its phrase dump, with a link to its codes; a killed
    run resumes.

    Args: as `import_dump`, and
        dump: the folder that has `meta_compressed.pkl`.
        name: the folder of the index within `dump`, such as start/1048576_flat_OPQ96.

    Raises: as `import_dump`, and
        KnowledgeBaseError: faiss is not installed.
    """
    source = as_path(dump, "a dump")
    out = as_path(folder, "the folder of a knowledge base")
    load("h5py"), load("numcodecs"), load_faiss()
    refuse_strange_files(source, "a dump", CorpusError, leads_within(source))
    path = source / name / LINK

    with (
        reading_from(path, CorpusError, f"{AGAIN}, or name another index with --name"),
        path.open("rb") as file,
    ):
        index = _Reader(file, path.stat().st_size).index()

    opened = opened_model(model, device)
    if index.layout.dim != opened.dim:
        raise CorpusError(
            f"{path} has vectors of {index.layout.dim} dimensions, the model of {opened.dim}: "
            "give the checkpoint that it was made with"
        )

    rows = IndexedRows(source / name / IDS, index.layout.vectors)
    misfits = Misfits()
    documents = rows.documents(metadata_documents(source / METADATA))
    layout = replace(index.layout, step=float(opened.scale[0]), offset=opened.config.value_offset)

    def with_codes(manifest: Manifest) -> Manifest:
        return _with_codes(
            out, manifest, path, FaissFile(layout, index.lists), rows.runs(), report_stage
        )

    manifest = publish_encoded(
        pages_of(documents, misfits),
        _encoded,
        out,
        opened,
        phrases=LIMIT,
        bm25=bm25,
        report=report,
        report_stage=report_stage,
        index=with_codes,
    )
    warn_unlike(manifest.open_shards(out), opened, note)

    return Imported(out, manifest, misfits)


def _encoded(pages: Sequence[DocumentPage]) -> EncodedParagraphs:
    """Return the paragraphs of pages, with rows but without vectors; their filter's logits are not
    known.
    """
    encoded = []
    for page in pages:
        rows = len(page.document.kept)
        encoded.append(page.encoded(np.empty((rows, 0), np.int8), np.zeros(rows, np.float32)))
    return EncodedParagraphs.joined(encoded)


def _with_codes(
    folder: Path, manifest: Manifest, path: Path, index: FaissFile, runs: Rows, report: Report
) -> Manifest:
    """Link the codes, write where they are, and return the manifest with their index."""
    codes = folder / IMPORTED
    new_folder(codes)
    name_again(path, codes / LINK)
    write_record(codes / LAYOUT, index.layout, FORMAT)
    save_array(codes / LISTS, index.lists)
    save_array(codes / RUNS, runs)
    seal_folder(codes)
    _write_places(
        folder, manifest, path, index, runs, Stage(report, "codes found", index.layout.vectors)
    )
    entry = IndexEntry("official", probes=min(PROBES, index.layout.lists), target=0.0, recall=0.0)
    return replace(manifest, index=entry)


def _write_places(
    folder: Path, manifest: Manifest, path: Path, index: FaissFile, runs: Rows, stage: Stage
) -> None:
    """Write, for each shard, where the code of each row is."""
    begins = np.cumsum([0, *(shard.size.rows for shard in manifest.shards)])
    places: list[Rows] = []
    for shard in manifest.shards:
        if shard.size.rows:
            new_folder(folder / shard.name / IMPORTED)
            places.append(
                new_array(folder / shard.name / IMPORTED / PLACES, np.int64, shard.size.rows)
            )
            places[-1][:] = -1  # unknown yet
        else:
            places.append(np.empty(0, np.int64))

    for ids, begun in _listed(path, index):
        run = np.searchsorted(runs[:, 0], ids, side="right") - 1
        rows = runs[run, 1] + ids - runs[run, 0]
        strange = (ids < 0) | (run < 0) | (rows < 0) | (rows >= begins[-1])
        if strange.any():
            raise CorpusError(
                f"{path} has the id {ids[strange.argmax()]:,}, which {path.with_name(IDS)} lacks: "
                f"{AGAIN}"
            )

        shards = np.searchsorted(begins, rows, side="right") - 1
        for number in np.unique(shards):
            here = shards == number
            places[number][rows[here] - begins[number]] = begun[here]

        stage.add(len(ids))

    for shard, written in zip(manifest.shards, places, strict=True):
        if len(written):
            if int(written.min()) < 0:
                raise CorpusError(
                    f"{path} has an id twice, and lacks others that {path.with_name(IDS)} names: "
                    f"{AGAIN}"
                )
            written.flush()  # type: ignore[attr-defined]
            sync(folder / shard.name / IMPORTED / PLACES)
            seal_folder(folder / shard.name / IMPORTED, of=shard.seal)


def _listed(path: Path, index: FaissFile) -> Iterator[tuple[Rows, Rows]]:
    """Yield the ids in all lists, and where their codes begin, some lists at a time. Shapes:
    (ids,).
    """
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
            ids = []
            places = []
