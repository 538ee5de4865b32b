"""Nodes: a report of the machines of a cluster, and of the shards that they open."""

from dataclasses import dataclass
from pathlib import Path

from kbq.answers import IndexKind
from kbq.cluster.connection import Software, connect, differences, own_software, software_of
from kbq.cluster.searcher import RaySearcher, divided
from kbq.dump.manifest import read_manifest


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node; `problem` says why it cannot be used, or is empty."""

    address: str
    cpus: int
    kbq: str
    torch: str
    cpu: str  # how it multiplies
    problem: str


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Neighbouring shards, and the node that opens them; `problem` says why it cannot, or is empty."""

    shards: str
    count: int
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
                GroupReport(actor.group.names, len(actor.group.manifest.shards), actor.node.address, problem)
                for actor, problem in zip(searcher.actors, searcher.problems(), strict=True)
            ]
        return ClusterReport(address, tuple(reports), tuple(groups))
    finally:
        cluster.close()
