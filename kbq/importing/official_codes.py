"""Official: the codes of an index of DensePhrases are searched where they lie, over all shards of a knowledge base.

faiss finds the best codes in the lists that are probed, for the start and for the end of a phrase. Each is paired with
the best end, or the best start, within reach in its paragraph, scored from the same codes.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kbq.array_types import Bools, Floats, Rows
from kbq.dump.manifest import IndexEntry
from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.importing.codes import AGAIN, CodedShard, Codes
from kbq.index.base import KnowledgeBaseSize, ShardGroup, ranges
from kbq.index.cell_index import CellIndex, Hits
from kbq.index.cells import Cells, load_faiss
from kbq.index.inner_products import in_steps
from kbq.storage.machine import available_memory, stays_in_memory

PROBES = 256  # lists that the official search probes, whatever it is asked for


def open_official(shards: Sequence[Shard], entry: IndexEntry) -> CellIndex:
    """Open the codes of all shards of a knowledge base.

    Raises:
        KnowledgeBaseError: faiss is not installed, or the means of the lists do not fit in memory.
    """
    codes = next(shard.codes for shard in shards if isinstance(shard, CodedShard))
    need, free = codes.means.nbytes, available_memory()
    if need > free:
        raise KnowledgeBaseError(
            f"the official index needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free: end other "
            "programs, or use a machine with more"
        )
    shown = None
    if any(shard.shown is not None for shard in shards):
        shown = _shown_ids(codes, np.concatenate([shard.shown_rows() for shard in shards]))
    stay = stays_in_memory(codes.layout.bytes)
    return OfficialIndex(shards, codes, Cells(_faiss_index(codes), entry.probes, codes.rotation.T, stay, shown))


class OfficialIndex(CellIndex):
    """One inverted file of the rows of all shards, which are therefore searched as one group."""

    def __init__(self, shards: Sequence[Shard], codes: Codes, cells: Cells) -> None:
        super().__init__(shards, (), overfetch=1, whole=KnowledgeBaseSize.of(shards))
        self._codes, self._all_cells = codes, cells
        self._begins = np.cumsum([0, *(len(shard) for shard in shards)])  # the first row of each shard

    @cached_property
    def groups(self) -> list[ShardGroup]:
        """See `Index`."""
        return [ShardGroup(0, self._shards, self)]

    def _best_rows(self, queries: Floats, k: int) -> list[Hits]:
        """Find the k best rows for each query vector; fewer if the probed lists hold fewer. Shape: (vectors, dim)."""
        _, ids = self._all_cells.search(queries, k)
        hits = []
        for query, found in zip(in_steps(queries), ids, strict=True):
            rows = self._codes.rows_of(found[found >= 0])
            if len(rows) and not 0 <= rows.min() <= rows.max() < self._begins[-1]:
                raise KnowledgeBaseError(f"{self._codes.path} names rows that the knowledge base lacks: {AGAIN}")
            shards: Rows = np.searchsorted(self._begins, rows, side="right") - 1
            hits.append(self._rescored(query, shards, rows - self._begins[shards], k))
        return hits

    def _rows_near(self, number: int, sides: Sequence[Hits]) -> Rows:
        """Return the rows that are hits for a start, and those from which a phrase may end at a hit for an end.

        Other rows of the paragraphs would each be a read from another place of a file that memory may not hold.
        """
        first, last = (side.rows[side.shards == number] for side in sides)
        ending = np.sort(last)
        before = ranges(np.maximum(ending - self._shards[number].limit.rows + 1, 0), ending + 1)
        return np.unique(np.concatenate([first, before]))


def _shown_ids(codes: Codes, shown: Bools) -> Bools:
    """Return whether the vector of each id may be found. Shapes: (rows of all shards,), (ids,)."""
    ids = codes.ids_of(np.flatnonzero(shown))
    bits = np.zeros(int(ids.max(initial=-1)) + 1, bool)
    bits[ids] = True
    return bits


def _faiss_index(codes: Codes) -> Any:
    """Return an index of faiss over the lists in the official file, which stays on the disk."""
    faiss, layout = load_faiss(), codes.layout
    means = faiss.IndexFlatIP(layout.dim)
    means.add(np.ascontiguousarray(codes.means))
    index = faiss.IndexIVFPQ(means, layout.dim, layout.lists, layout.code_bytes, 8, faiss.METRIC_INNER_PRODUCT)
    index.by_residual, index.is_trained, index.ntotal = True, True, layout.vectors
    faiss.copy_array_to_vector(codes.centroids.ravel(), index.pq.centroids)
    lists = faiss.OnDiskInvertedLists()
    lists.nlist, lists.code_size, lists.read_only = layout.lists, layout.code_bytes, True
    lists.filename, lists.totsize = str(codes.path), layout.bytes
    places = np.stack([codes.lists[:, 1], codes.lists[:, 1], codes.lists[:, 0]], axis=1).astype(np.uint64)
    lists.lists.resize(layout.lists)  # of size, capacity and first byte
    faiss.memcpy(lists.lists.data(), faiss.swig_ptr(places), places.nbytes)
    lists.do_mmap()
    index.replace_invlists(lists, True)
    lists.this.disown()  # the index owns them now
    index.own_fields = True
    means.this.disown()
    return index
