"""Searcher: find the k best units of all with actors of Ray that search groups of shards.

Neighbouring shards are a group that is open in a process of a node. If the process or node dies,
Ray starts the actor again, elsewhere if need be, and repeats its task. Every group answers, or an
error names its shards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kbq.answers import Answer
from kbq.array_types import Bools, Floats
from kbq.cluster.connection import Node, connect
from kbq.dump.manifest import IndexEntry, Manifest
from kbq.dump.shards import Shard
from kbq.errors import ClusterError, KbqError, first_line
from kbq.index.base import CPU, KnowledgeBaseSize
from kbq.index.factory import open_index
from kbq.search.search import (
    LexicalScores,
    ParagraphIndex,
    SearchContext,
    Wanted,
    WordQueries,
    merged,
    search_several,
)
from kbq.words.bm25 import BM25Index, open_bm25
from kbq.words.impacts import SentenceImpacts

OPEN_SECONDS = 600.0  # time for an actor to start and to open its files
SEARCH_SECONDS = 600.0  # time for a batch; an actor that takes longer must have stopped
RETRIES = 2  # tries of a task whose actor dies
SENT_ALONG = 100 * 1024  # bytes that Ray sends with a call


@dataclass(frozen=True, slots=True)
class ActorGroup:
    """Neighbouring shards, and what their search must know of the others."""

    folder: Path
    manifest: Manifest  # names these shards only
    index: IndexEntry
    whole: KnowledgeBaseSize
    shown: tuple[Bools, ...]  # the pages of each shard that answers may come from; empty for all
    length_penalty: float

    @property
    def names(self) -> str:
        names = [shard.name for shard in self.manifest.shards]
        if len(names) == 1:
            return names[0]
        return f"{names[0]} to {names[-1]}"


def divided(
    folder: Path,
    manifest: Manifest,
    index: IndexEntry,
    shards: Sequence[Shard],
    count: int,
    shown: Sequence[Bools] = (),
    length_penalty: float = 0.0,
) -> list[ActorGroup]:
    """Divide a knowledge base into this number of groups or fewer; see `ActorGroup`."""
    whole = KnowledgeBaseSize.of(shards)
    manifests = [
        (part, replace(manifest, shards=manifest.shards[part])) for part in whole.parts(count)
    ]
    return [
        ActorGroup(folder.resolve(), of_part, index, whole, tuple(shown[part]), length_penalty)
        for part, of_part in manifests
    ]


class GroupSearch:
    """Searches one group in a process of its own.

    Files are opened when they are first needed, so that a process that Ray has started again can
    report problems.
    """

    def __init__(self, group: ActorGroup, threads: int) -> None:
        torch.set_num_threads(threads)
        self._group = group
        self._files = cache(partial(_open_files, group))

    def open(self) -> None:
        """Open the files. Raises KnowledgeBaseError if they are missing, damaged, or of another
        knowledge base.
        """
        self._files()

    def search(
        self, queries: Floats, wanted: Sequence[Wanted], words: Sequence[WordQueries]
    ) -> list[list[list[Answer]]]:
        """Return the k best answers of this group; see `search_several`."""
        group = self._group
        context, bm25, sparta = self._files()
        with group.manifest.damage_explained(group.folder):
            lexical = []
            for word in words:
                indexes = (
                    sparta
                    if word.statistics is None
                    else [index.within(word.statistics) for index in bm25]
                )
                lexical.append(
                    LexicalScores(context.shards, indexes, word.terms, word.weight, word.slots)
                )
            return search_several(context, queries, wanted, lexical)


def _open_files(
    group: ActorGroup,
) -> tuple[SearchContext, Sequence[BM25Index], Sequence[ParagraphIndex]]:
    """Open the shards of a group, and the indexes of words of each shard, if there are any."""
    manifest = group.manifest
    # Words whose folders lie in those of the shards.
    within = [part for part in manifest.parts() if "/" in part]
    shards = manifest.open_shards(group.folder, within)
    for shard, pages in zip(shards, group.shown, strict=bool(group.shown)):
        shard.show_only(pages)
    index = open_index(shards, group.index, CPU, whole=group.whole)
    bm25 = open_bm25(shards) if manifest.bm25 else []
    sparta = []
    if manifest.sparta:
        sparta = [SentenceImpacts(shard, manifest) for shard in shards]
    return SearchContext(shards, index, group.length_penalty), bm25, sparta


@dataclass(frozen=True, slots=True)
class Actor:
    """A process that searches a group of shards."""

    group: ActorGroup
    node: Node  # the node that it was first started on
    handle: Any


class _Outcome(NamedTuple):
    """An answer, or the problem that there is none."""

    answer: Any
    problem: str = ""
    is_lost: bool = False  # its process has died, or cannot be reached
    is_late: bool = False


def open_searcher(
    address: str,
    folder: Path,
    manifest: Manifest,
    index: IndexEntry,
    shards: Sequence[Shard],
    shown: Sequence[Bools],
    length_penalty: float,
) -> "RaySearcher":
    """Open a knowledge base on the cluster at this address, in as many groups as can be searched
    side by side.

    `shown` are the pages of each shard that answers may come from, or empty for all. Shapes:
    (pages,). Raises ClusterError if the cluster cannot be used, or a node cannot open its shards.
    """
    cluster = connect(address)
    groups = divided(folder, manifest, index, shards, cluster.cpus, shown, length_penalty)
    searcher = RaySearcher(cluster.nodes, groups)
    searcher.open()
    return searcher


class RaySearcher:
    """The shards of a knowledge base on a cluster, which stay open as long as this object exists."""

    def __init__(self, nodes: Sequence[Node], groups: Sequence[ActorGroup]) -> None:
        places = spread(nodes, len(groups))
        self.actors = [
            _started(group, node, places.count(node))
            for group, node in zip(groups, places, strict=True)
        ]

    def open(self) -> None:
        """Open the shards. Raises ClusterError if a node cannot."""
        self._answers(_open, OPEN_SECONDS)

    def problems(self) -> list[str]:
        """Return why each actor cannot open its shards, or an empty string."""
        return [outcome.problem for outcome in self._outcomes(_open, OPEN_SECONDS)]

    def search_several(
        self, queries: Floats, wanted: Sequence[Wanted], lexical: Sequence[LexicalScores] = ()
    ) -> list[list[list[Answer]]]:
        """`search_several` on the cluster. Raises ClusterError, which names shards that cannot be
        searched.
        """
        words = [scores.queries for scores in lexical]
        # Else once for each actor.
        given = ray.put(queries) if queries.nbytes > SENT_ALONG else queries
        found = self._answers(
            lambda actor: actor.handle.search.remote(given, wanted, words), SEARCH_SECONDS
        )
        most = max(1, self.actors[0].group.whole.rows)
        answers: list[list[list[Answer]]] = []
        for (k, _), of_groups in zip(wanted, zip(*found, strict=True), strict=True):
            by_query = zip(*of_groups, strict=True)
            answers.append([merged(parts, min(k, most)) for parts in by_query])

        return answers

    def _answers(self, ask: Callable[[Actor], Any], seconds: float) -> list[Any]:
        """Return what every group of shards says. Raises ClusterError if one says nothing."""
        outcomes = self._outcomes(ask, seconds)
        missing: list[str] = []
        for actor, outcome in zip(self.actors, outcomes, strict=True):
            if outcome.problem:
                where = f"{actor.group.names} of {actor.group.folder}, node {actor.node.address}"
                missing.append(f"{where}: {outcome.problem}")

        if missing:
            raise ClusterError(
                f"{len(missing)} of {len(outcomes)} groups of shards were not searched: "
                f"{missing[0]}",
                missing[1:],
            )

        return [outcome.answer for outcome in outcomes]

    def _outcomes(self, ask: Callable[[Actor], Any], seconds: float) -> list[_Outcome]:
        """Ask all actors; ask those that die again, once Ray has started them anew."""
        outcomes = _received([ask(actor) for actor in self.actors], seconds)
        for _ in range(RETRIES):
            lost = [
                actor
                for actor, outcome in zip(self.actors, outcomes, strict=True)
                if outcome.is_lost
            ]
            if not lost:
                break
            # Ray's own retries of a search are used up while a node that died still counts as
            # alive.
            opened = [actor.handle.open.options(max_task_retries=-1).remote() for actor in lost]
            ray.wait(opened, num_returns=len(opened), timeout=seconds)
            again = iter(_received([ask(actor) for actor in lost], seconds))
            outcomes = [next(again) if outcome.is_lost else outcome for outcome in outcomes]

        for actor, outcome in zip(self.actors, outcomes, strict=True):
            if outcome.is_late:
                # It may have stopped: the next search finds a new one.
                ray.kill(actor.handle, no_restart=False)

        return outcomes


def _open(actor: Actor) -> Any:
    return actor.handle.open.remote()


def _received(asked: Sequence[Any], seconds: float) -> list[_Outcome]:
    late = set(ray.wait(list(asked), num_returns=len(asked), timeout=seconds)[1])
    return [
        _Outcome(None, f"no answer in {seconds:.0f} seconds", is_late=True)
        if task in late
        else _outcome(task)
        for task in asked
    ]


def _outcome(asked: Any) -> _Outcome:
    """Wait for what an actor returns, or for the reason why it cannot."""
    try:
        return _Outcome(ray.get(asked))
    except RayTaskError as error:
        if not isinstance(error.cause, KbqError | OSError | MemoryError):
            raise
        return _Outcome(None, str(error.cause) or "not enough memory")
    except RayError as error:
        return _Outcome(
            None, f"its process died {RETRIES + 1} times ({first_line(error)})", is_lost=True
        )


def spread(nodes: Sequence[Node], count: int) -> list[Node]:
    """Choose nodes for this number of actors in proportion to their CPUs, of which there must be
    some.

    >>> two, one = Node("a", "10.0.0.1", 2), Node("b", "10.0.0.2", 1)
    >>> [node.id for node in spread([two, one], 6)]
    ['a', 'a', 'b', 'a', 'a', 'b']
    """
    chosen: list[Node] = []
    working = [node for node in nodes if node.cpus]
    for _ in range(count):
        chosen.append(min(working, key=lambda node: (chosen.count(node) + 1) / node.cpus))
    return chosen


def _started(group: ActorGroup, node: Node, together: int) -> Actor:
    threads = max(1, node.cpus // together)
    options = {
        "num_cpus": 0,  # none, or it would wait for a build to end
        "max_restarts": -1,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=True),
    }
    return Actor(group, node, ray.remote(GroupSearch).options(**options).remote(group, threads))
