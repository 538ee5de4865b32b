"""Nodes: a report of the machines of a cluster and of the shards on them, and copies of shards on their disks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from kbq.answers import IndexKind
from kbq.cluster.connection import Software, connect, differences, on_node, own_software, software_of
from kbq.cluster.copies import copy_shards, forget_others, own_folder, remember_copies
from kbq.cluster.searcher import ActorGroup, RaySearcher, divided, spread
from kbq.dump.manifest import Manifest, read_manifest
from kbq.errors import ClusterError, KbqError, first_line
from kbq.storage.progress import Report, Stage, silent
from kbq.storage.writing import RESUMES


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node; `problem` says why it cannot be used, empty: it can."""

    address: str
    cpus: int
    kbq: str
    torch: str
    cpu: str  # how it multiplies
    problem: str


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Neighbouring shards, and the node that opens them; `problem` says why it cannot, empty: it can.

    `copies`: how many of these `count` shards it reads from its own disk.
    """

    shards: str
    count: int
    copies: int
    node: str
    problem: str


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """A cluster, and a knowledge base on it, if one was asked about."""

    address: str
    nodes: tuple[NodeReport, ...]
    groups: tuple[GroupReport, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems of nodes and groups, in sentences."""
        of_nodes = [f"node {node.address} {node.problem}" for node in self.nodes if node.problem]
        of_groups = [f"{group.shards} on node {group.node}: {group.problem}" for group in self.groups if group.problem]
        return (*of_nodes, *of_groups)


def check(address: str, kb: Path | None = None, index: IndexKind | None = None) -> ClusterReport:
    """Look at all nodes of a cluster and, if a knowledge base is given, open it on those that compute alike.

    Raises ClusterError if there is no cluster at this address, KnowledgeBaseError if there is no knowledge base in the
    folder, or none with this index.
    """
    manifest = None if kb is None else read_manifest(kb)
    cluster = connect(address, alike=False)
    try:
        own, reports = own_software(), []
        for node, said in software_of(cluster.nodes).items():
            facts = Software("", "", "") if isinstance(said, str) else said
            problem = said if isinstance(said, str) else "; ".join(differences(said, own))
            reports.append(NodeReport(node.address, node.cpus, facts.kbq, facts.torch, facts.cpu, problem))
        usable = [node for node, report in zip(cluster.nodes, reports, strict=True) if not report.problem]
        groups: list[GroupReport] = []
        cpus = sum(node.cpus for node in usable)
        if kb is not None and manifest is not None and cpus:
            shards = manifest.open_shards(kb)
            searcher = RaySearcher(usable, divided(kb, manifest, manifest.entry(kb, index), shards, cpus))
            groups = [
                GroupReport(actor.group.names, len(actor.group.manifest.shards), copies, actor.node.address, problem)
                for actor, (copies, problem) in zip(searcher.actors, searcher.opened(), strict=True)
            ]
        return ClusterReport(address, tuple(reports), tuple(groups))
    finally:
        cluster.close()


@dataclass(frozen=True, slots=True)
class GroupCopy:
    """Neighbouring shards on the disk of a node; `bytes` were copied, the others were there."""

    shards: str
    node: str
    folder: str
    bytes: int


def place(address: str, kb: Path, to: Path, report: Report = silent) -> list[GroupCopy]:
    """Copy the shards of each group to a folder of the node that searches them on this cluster; searches use it then.

    `to`: the folder, on each node; copies of one knowledge base have a folder in it. Raises ClusterError if shards were
    not copied, KnowledgeBaseError if the knowledge base is missing or damaged, or cannot be written.
    """
    manifest, kb = read_manifest(kb), kb.resolve()
    manifest.refuse_codes(kb)
    shards = manifest.open_shards(kb, manifest.parts(*manifest.entries))
    folder = own_folder(kb, to.absolute())
    cluster = connect(address)
    try:
        groups = divided(kb, manifest, manifest.index, shards, cluster.cpus)
        nodes = spread(cluster.nodes, len(groups))
        asked = {}
        for node in cluster.nodes:
            own = [group for group, place in zip(groups, nodes, strict=True) if place == node]
            asked[on_node(_copy, node).remote(folder, manifest, own)] = node, own
        stage = Stage(report, "copied, shards", len(shards))
        copies, problems = [], []
        while asked:
            (done, *_), _ = ray.wait(list(asked))
            node, own = asked.pop(done)
            for group, (size, problem) in zip(own, _outcomes(done, own), strict=True):
                copies.append(GroupCopy(group.names, node.address, str(folder), size))
                if problem:
                    problems.append(f"{group.names}, node {node.address}: {problem}")
                stage.add(len(group.manifest.shards))
    finally:
        cluster.close()
    if problems:
        raise ClusterError(
            f"{len(problems)} of {len(groups)} groups of shards were not copied: {problems[0]}", problems[1:]
        )
    remember_copies(kb, folder)
    return sorted(copies, key=lambda copy: copy.shards)


def _copy(folder: Path, manifest: Manifest, groups: Sequence[ActorGroup]) -> list[tuple[int, str]]:
    """Copy groups of shards on a node, after removing copies of other shards; return bytes and problem of each."""
    forget_others(folder, manifest)
    outcomes = []
    for group in groups:
        try:
            outcomes.append((copy_shards(group.folder, folder, group.manifest), ""))
        except KbqError as error:
            outcomes.append((0, str(error)))
    return outcomes


def _outcomes(done: Any, groups: Sequence[ActorGroup]) -> list[tuple[int, str]]:
    """Fetch what `_copy` returned on a node."""
    try:
        outcomes: list[tuple[int, str]] = ray.get(done)
        return outcomes
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        return [(0, f"its process died ({first_line(error)}); {RESUMES}") for _ in groups]
