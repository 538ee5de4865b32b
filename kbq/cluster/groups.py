"""Groups: neighbouring shards of a knowledge base are opened and searched in a process of a node."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from kbq.answers import Answer
from kbq.array_types import Bools, Floats
from kbq.cluster.copies import copied, folder_of_copies, parts_within
from kbq.dump.manifest import IndexEntry, Manifest
from kbq.dump.shards import Shard, ShardEntry
from kbq.errors import KnowledgeBaseError
from kbq.index.base import Whole
from kbq.index.factory import open_index
from kbq.index.inner_products import CPU
from kbq.search.hybrid import LexicalScores, ParagraphIndex, WordQueries
from kbq.search.search import SearchContext, Wanted, search_several
from kbq.words.bm25 import BM25Index, open_bm25
from kbq.words.sparta import SentenceImpacts


@dataclass(frozen=True, slots=True)
class ActorGroup:
    """Neighbouring shards, and what a search of them must know of the others."""

    folder: Path
    copies: Path | None  # of shards, on each node; see `copies.py`
    manifest: Manifest  # which names these shards only
    index: IndexEntry
    whole: Whole
    shown: tuple[Bools, ...]  # of each shard, the pages that may be answered with; none: all
    length_penalty: float

    @property
    def names(self) -> str:
        """The shards, as errors name them."""
        names = [shard.name for shard in self.manifest.shards]
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def divided(
    folder: Path,
    manifest: Manifest,
    index: IndexEntry,
    shards: Sequence[Shard],
    count: int,
    shown: Sequence[Bools] = (),
    length_penalty: float = 0.0,
) -> list[ActorGroup]:
    """Divide a knowledge base into this number of groups, or fewer; see `ActorGroup`."""
    whole, folder, copies = Whole.of(shards), folder.resolve(), folder_of_copies(folder)
    manifests = [(part, replace(manifest, shards=manifest.shards[part])) for part in whole.parts(count)]
    return [
        ActorGroup(folder, copies, of_part, index, whole, tuple(shown[part]), length_penalty)
        for part, of_part in manifests
    ]


class _Opened(NamedTuple):
    """The open files of a group; the indexes of words have an item for each shard, or none."""

    context: SearchContext
    bm25: Sequence[BM25Index]
    sparta: Sequence[ParagraphIndex]


class GroupSearch:
    """The search of one group, in a process of its own. Its files are opened when first needed, and stay open.

    So a process that Ray has started again says what is wrong when it is asked.
    """

    def __init__(self, group: ActorGroup, threads: int) -> None:
        torch.set_num_threads(threads)
        self._group = group

    def open(self) -> int:
        """Open the files; return how many shards are read from the node's own disk.

        Raises KnowledgeBaseError if they are missing here, damaged, or of another knowledge base.
        """
        return sum(shard.folder.parent == self._group.copies for shard in self._opened.context.shards)

    def search(
        self, queries: Floats, wanted: Sequence[Wanted], words: Sequence[WordQueries]
    ) -> list[list[list[Answer]]]:
        """Return the k best answers of this group; see `search_several`."""
        group, (context, bm25, sparta) = self._group, self._opened
        with group.manifest.damage_explained(group.folder):
            lexical = []
            for one in words:
                indexes = sparta if one.statistics is None else [index.within(one.statistics) for index in bm25]
                lexical.append(LexicalScores(context.shards, indexes, one.terms, one.weight))
            return search_several(context, queries, wanted, lexical)

    @cached_property
    def _opened(self) -> _Opened:
        local = self._copied()
        if local:
            with suppress(KnowledgeBaseError):  # a copy is damaged, or was replaced meanwhile: it does not count
                opened = self._open(local)
                if self._copied() == local:
                    return opened
        return self._open(())

    def _copied(self) -> tuple[ShardEntry, ...]:
        group = self._group
        return () if group.copies is None else copied(group.copies, group.manifest, group.index)

    def _open(self, local: Sequence[ShardEntry]) -> _Opened:
        """Open the files. `local`: the shards that are read from the node's own disk."""
        group, manifest = self._group, self._group.manifest
        shards = []
        for folder, is_local in ((group.copies, True), (group.folder, False)):
            entries = tuple(entry for entry in manifest.shards if (entry in local) == is_local)
            if folder is not None and entries:
                part = replace(manifest, shards=entries)
                shards += part.open_shards(folder, parts_within(part))
        names = [entry.name for entry in manifest.shards]
        shards.sort(key=lambda shard: names.index(shard.folder.name))
        for shard, pages in zip(shards, group.shown, strict=bool(group.shown)):
            shard.show_only(pages)
        index = open_index(shards, group.index, CPU, whole=group.whole)
        return _Opened(
            SearchContext(shards, index, group.length_penalty),
            open_bm25(shards) if manifest.bm25 else [],
            [SentenceImpacts(shard, manifest) for shard in shards] if manifest.sparta else [],
        )
