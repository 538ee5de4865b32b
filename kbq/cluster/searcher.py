"""Searcher: query vectors become the k best units of all shards, which actors of Ray search group by group.

Every group answers, or there is an error that names its shards: an actor whose process or node dies is started again,
elsewhere if need be, and asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kbq.cluster.connection import Cluster, Node, connect
from kbq.cluster.groups import Group, GroupSearch
from kbq.errors import ClusterError, KbqError, first_line
from kbq.indexing.base import Whole
from kbq.searching.search import merged

if TYPE_CHECKING:
    from kbq.answers import Answer
    from kbq.array_types import Bools, Floats
    from kbq.dump.manifest import IndexEntry, Manifest
    from kbq.dump.shards import Shard
    from kbq.searching.hybrid import LexicalScores
    from kbq.searching.search import Wanted

OPEN_SECONDS = 600.0  # for an actor to start and to open its files
SEARCH_SECONDS = 600.0  # for a batch: more must have stopped
ASKED_AGAIN = 2  # times, where an actor dies


@dataclass(frozen=True, slots=True)
class _Actor:
    group: Group
    node: Node  # where it was started first
    handle: Any


def open_searcher(
    address: str,
    folder: Path,
    manifest: Manifest,
    index: IndexEntry,
    shards: Sequence[Shard],
    shown: Sequence[Bools],
    length_penalty: float,
) -> RaySearcher:
    """Open a knowledge base on the cluster at this address, in as many groups as can be searched side by side.

    Args:
        shown: of each shard, the pages that may be answered with; none: all. Shapes: (pages,).

    Raises:
        ClusterError: the cluster cannot be used, or a node cannot open its shards.
    """
    cluster = connect(address)
    whole, resolved = Whole.of(shards), folder.resolve()
    return RaySearcher(
        cluster,
        [
            Group(
                resolved, replace(manifest, shards=manifest.shards[part]), index, whole, tuple(shown[part]),
                length_penalty,
            )
            for part in whole.parts(max(1, cluster.cpus))
        ],
    )  # fmt: skip


class RaySearcher:
    """The shards of a knowledge base, open on the nodes of a cluster as long as this object exists."""

    def __init__(self, cluster: Cluster, groups: Sequence[Group]) -> None:
        """Raises ClusterError if a node cannot open its shards."""
        self._cluster = cluster
        nodes = spread(cluster.nodes, len(groups))
        self._actors = [_started(group, node, nodes.count(node)) for group, node in zip(groups, nodes, strict=True)]
        self._gathered(lambda actor: actor.handle.open.remote(), OPEN_SECONDS)

    @property
    def places(self) -> list[tuple[str, str]]:
        """The shards of each group, and the address of the node where they were opened first."""
        return [(actor.group.names, actor.node.address) for actor in self._actors]

    def search_several(
        self, queries: Floats, wanted: Sequence[Wanted], lexical: Sequence[LexicalScores] = ()
    ) -> list[list[list[Answer]]]:
        """See `kbq.searching.search.search_several`.

        Raises:
            ClusterError: shards cannot be searched; they are named.
        """
        words = [scores.queries for scores in lexical]
        found = self._gathered(lambda actor: actor.handle.search.remote(queries, wanted, words), SEARCH_SECONDS)
        most = max(1, self._actors[0].group.whole.rows)
        return [
            [merged(parts, min(k, most)) for parts in zip(*of_groups, strict=True)]
            for (k, _), of_groups in zip(wanted, zip(*found, strict=True), strict=True)
        ]

    def _gathered(self, ask: Callable[[_Actor], Any], seconds: float) -> list[Any]:
        """What all actors answer, in order."""
        asked = [ask(actor) for actor in self._actors]
        done, _ = ray.wait(asked, num_returns=len(asked), timeout=seconds)
        if len(done) == len(asked):
            with suppress(RayError):
                answers: list[Any] = ray.get(asked)
                return answers
        missing = []
        for actor, answer in zip(self._actors, asked, strict=True):
            if problem := _problem(answer) if answer in done else f"no answer in {seconds:.0f} seconds":
                missing.append(f"{actor.group.names} of {actor.group.folder}, node {actor.node.address}: {problem}")
            if answer not in done:  # it is stopped, perhaps: who asks again finds another in its place
                ray.kill(actor.handle, no_restart=False)
        raise ClusterError(
            f"{len(missing)} of {len(asked)} groups of shards were not searched: {missing[0]}", missing[1:]
        )


def spread(nodes: Sequence[Node], count: int) -> list[Node]:
    """The nodes for this number of actors, each node as often as it has CPUs, in proportion.

    >>> two, one = Node("a", "10.0.0.1", 2), Node("b", "10.0.0.2", 1)
    >>> [node.id for node in spread([two, one], 6)]
    ['a', 'a', 'b', 'a', 'a', 'b']
    """
    chosen: list[Node] = []
    for _ in range(count):
        chosen.append(min(nodes, key=lambda node: (chosen.count(node) + 1) / max(0.5, node.cpus)))
    return chosen


def _started(group: Group, node: Node, together: int) -> _Actor:
    """An actor on a node, where this number of them share the CPUs; Ray may start it elsewhere if the node dies."""
    threads = max(1, node.cpus // together)
    options = {
        "num_cpus": 0,  # so that it never waits for a build to end
        "max_restarts": -1,
        "max_task_retries": ASKED_AGAIN,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=True),
    }
    return _Actor(group, node, ray.remote(GroupSearch).options(**options).remote(group, threads))


def _problem(answer: Any) -> str:
    """Why there is no answer; empty: there is one."""
    try:
        ray.get(answer)
    except RayTaskError as error:
        if not isinstance(error.cause, KbqError):
            raise
        return str(error.cause)
    except RayError as error:
        return f"its process died {ASKED_AGAIN + 1} times ({first_line(error)})"
    return ""
