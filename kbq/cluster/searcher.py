"""Searcher: query vectors become the k best units of all shards, which actors of Ray search group by group.

Every group answers, or there is an error that names its shards: an actor whose process or node dies is started again,
elsewhere if need be, and asked again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kbq.answers import Answer
from kbq.array_types import Bools, Floats
from kbq.cluster.connection import Node, connect
from kbq.cluster.groups import ActorGroup, GroupSearch, divided
from kbq.dump.manifest import IndexEntry, Manifest
from kbq.dump.shards import Shard
from kbq.errors import ClusterError, KbqError, first_line
from kbq.search.hybrid import LexicalScores
from kbq.search.search import Wanted, merged

OPEN_SECONDS = 600.0  # for an actor to start and to open its files
SEARCH_SECONDS = 600.0  # for a batch: more must have stopped
ASKED_AGAIN = 2  # times, where an actor dies
SENT_ALONG = 100 * 1024  # bytes: what is larger, Ray does not send with a call


@dataclass(frozen=True, slots=True)
class Actor:
    """A process that searches a group of shards."""

    group: ActorGroup
    node: Node  # where it was started first
    handle: Any


class _Outcome(NamedTuple):
    """An answer or, if there is none, why."""

    answer: Any
    problem: str = ""
    state: Literal["", "wrong", "late", "lost"] = ""  # lost: its process has died, or cannot be reached


def open_searcher(
    address: str,
    folder: Path,
    manifest: Manifest,
    index: IndexEntry,
    shards: Sequence[Shard],
    shown: Sequence[Bools],
    length_penalty: float,
) -> "RaySearcher":
    """Open a knowledge base on the cluster at this address, in as many groups as can be searched side by side.

    Args:
        shown: of each shard, the pages that may be answered with; none: all. Shapes: (pages,).

    Raises:
        ClusterError: the cluster cannot be used, or a node cannot open its shards.
    """
    cluster = connect(address)
    groups = divided(folder, manifest, index, shards, cluster.cpus, shown, length_penalty)
    searcher = RaySearcher(cluster.nodes, groups)
    searcher.open()
    return searcher


class RaySearcher:
    """The shards of a knowledge base on the nodes of a cluster, open as long as this object exists."""

    def __init__(self, nodes: Sequence[Node], groups: Sequence[ActorGroup]) -> None:
        places = spread(nodes, len(groups))
        self.actors = [_started(group, node, places.count(node)) for group, node in zip(groups, places, strict=True)]

    def open(self) -> None:
        """Open the shards. Raises ClusterError if a node cannot."""
        self._answers(_open, OPEN_SECONDS)

    def opened(self) -> list[tuple[int, str]]:
        """Return how many shards each actor reads from its node's own disk, and what keeps it from opening them."""
        return [(outcome.answer or 0, outcome.problem) for outcome in self._outcomes(_open, OPEN_SECONDS)]

    def search_several(
        self, queries: Floats, wanted: Sequence[Wanted], lexical: Sequence[LexicalScores] = ()
    ) -> list[list[list[Answer]]]:
        """See `kbq.search.search.search_several`. Raises ClusterError, naming shards that cannot be searched."""
        words = [scores.queries for scores in lexical]
        given = ray.put(queries) if queries.nbytes > SENT_ALONG else queries  # else it is stored for each actor
        found = self._answers(lambda actor: actor.handle.search.remote(given, wanted, words), SEARCH_SECONDS)
        most = max(1, self.actors[0].group.whole.rows)
        return [
            [merged(parts, min(k, most)) for parts in zip(*of_groups, strict=True)]
            for (k, _), of_groups in zip(wanted, zip(*found, strict=True), strict=True)
        ]

    def _answers(self, ask: Callable[[Actor], Any], seconds: float) -> list[Any]:
        """Return the answers of all actors, in order."""
        outcomes = self._outcomes(ask, seconds)
        missing = [
            f"{actor.group.names} of {actor.group.folder}, node {actor.node.address}: {outcome.problem}"
            for actor, outcome in zip(self.actors, outcomes, strict=True)
            if outcome.problem
        ]
        if missing:
            raise ClusterError(
                f"{len(missing)} of {len(outcomes)} groups of shards were not searched: {missing[0]}", missing[1:]
            )
        return [outcome.answer for outcome in outcomes]

    def _outcomes(self, ask: Callable[[Actor], Any], seconds: float) -> list[_Outcome]:
        """Ask all actors, and those that die again."""
        outcomes = _received([ask(actor) for actor in self.actors], seconds)
        for _ in range(ASKED_AGAIN):
            lost = [actor for actor, outcome in zip(self.actors, outcomes, strict=True) if outcome.state == "lost"]
            if not lost:
                break
            opened = [actor.handle.open.options(max_task_retries=-1).remote() for actor in lost]  # until Ray has
            ray.wait(opened, num_returns=len(opened), timeout=seconds)  # started them again
            again = iter(_received([ask(actor) for actor in lost], seconds))
            outcomes = [next(again) if outcome.state == "lost" else outcome for outcome in outcomes]
        for actor, outcome in zip(self.actors, outcomes, strict=True):
            if outcome.state == "late":  # it is stopped, perhaps: who asks again finds another in its place
                ray.kill(actor.handle, no_restart=False)
        return outcomes


def _open(actor: Actor) -> Any:
    return actor.handle.open.remote()


def _received(asked: Sequence[Any], seconds: float) -> list[_Outcome]:
    """Return the outcomes of what has been asked, after so many seconds at most."""
    late = set(ray.wait(list(asked), num_returns=len(asked), timeout=seconds)[1])
    return [
        _Outcome(None, f"no answer in {seconds:.0f} seconds", "late") if one in late else _outcome(one) for one in asked
    ]


def _outcome(asked: Any) -> _Outcome:
    try:
        return _Outcome(ray.get(asked))
    except RayTaskError as error:
        if not isinstance(error.cause, KbqError | OSError | MemoryError):
            raise
        return _Outcome(None, str(error.cause) or "not enough memory", "wrong")
    except RayError as error:
        return _Outcome(None, f"its process died {ASKED_AGAIN + 1} times ({first_line(error)})", "lost")


def spread(nodes: Sequence[Node], count: int) -> list[Node]:
    """Return the nodes for this number of actors, each in proportion to its CPUs; one node at least must have some.

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
    """Start one of `together` actors that share the CPUs of a node; Ray may restart it elsewhere if the node dies."""
    threads = max(1, node.cpus // together)
    options = {
        "num_cpus": 0,  # so that it never waits for a build to end
        "max_restarts": -1,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=True),
    }
    return Actor(group, node, ray.remote(GroupSearch).options(**options).remote(group, threads))
