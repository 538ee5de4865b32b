"""Nodes: what each machine of a cluster does: encode blocks, build indexes, report shards."""

from __future__ import annotations  # Ray's references take no types at run time

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import ray
import torch
from ray import ObjectRef
from ray.exceptions import RayError, RayTaskError

from kbq.answers import IndexKind
from kbq.array_types import Floats
from kbq.cluster.connection import (
    Cluster,
    Software,
    connect,
    differences,
    own_software,
    software_of,
)
from kbq.cluster.searcher import RaySearcher, divided
from kbq.corpus.pages import Page
from kbq.dump.manifest import IndexEntry, read_manifest
from kbq.dump.page_encoder import StartEncoders, encoder, packed
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.shards import Shard
from kbq.errors import ClusterError, KbqError, first_line
from kbq.index.factory import Build, build_missing, is_built
from kbq.model.model import Model
from kbq.storage.reports import Report, Stage
from kbq.storage.writing import RESUMES

DEATHS = 3  # deaths of workers over one task before it is given up
BLOCK_SECONDS = 1800.0  # time to encode a block, once those before it are done


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node, and the problem that keeps it from being used, if any."""

    address: str
    cpus: int
    kbq: str
    torch: str
    cpu: str  # how it multiplies
    problem: str


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Neighbouring shards, the node that opens them, and the problem that keeps it from that, if
    any.
    """

    shards: str
    count: int
    node: str
    problem: str


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """A cluster, and the groups of a knowledge base on it, if one was given."""

    address: str
    nodes: tuple[NodeReport, ...]
    groups: tuple[GroupReport, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        of_nodes = [f"node {node.address} {node.problem}" for node in self.nodes if node.problem]
        of_groups = [
            f"{group.shards} on node {group.node}: {group.problem}"
            for group in self.groups
            if group.problem
        ]
        return (*of_nodes, *of_groups)


def check(address: str, kb: Path | None = None, index: IndexKind | None = None) -> ClusterReport:
    """Describe all nodes of a cluster and, if a knowledge base is given, open it on the nodes that
    compute alike.
    """
    manifest = None if kb is None else read_manifest(kb)
    cluster = connect(address, alike=False)
    try:
        own = own_software()
        reports = []
        for node, said in software_of(cluster.nodes).items():
            facts = Software("", "", "") if isinstance(said, str) else said
            if isinstance(said, str):
                problem = said
            else:
                problem = "; ".join(differences(said, own))
            reports.append(
                NodeReport(node.address, node.cpus, facts.kbq, facts.torch, facts.cpu, problem)
            )

        usable = [
            node for node, report in zip(cluster.nodes, reports, strict=True) if not report.problem
        ]
        groups: list[GroupReport] = []
        cpus = sum(node.cpus for node in usable)
        if kb is not None and manifest is not None and cpus:
            shards = manifest.open_shards(kb)
            searcher = RaySearcher(
                usable, divided(kb, manifest, manifest.entry(kb, index), shards, cpus)
            )
            for actor, problem in zip(searcher.actors, searcher.problems(), strict=True):
                group = actor.group
                count = len(group.manifest.shards)
                groups.append(GroupReport(group.names, count, actor.node.address, problem))

        return ClusterReport(address, tuple(reports), tuple(groups))
    finally:
        cluster.close()


def encoders_on(address: str) -> StartEncoders:
    """Return what starts encoders on the cluster at this address, once there is something to
    encode.
    """
    return lambda model: RayWorkers(connect(address), model)


class RayWorkers:
    """Tasks of one thread on all nodes of a cluster, repeated if their process or node dies; see
    `Workers`.
    """

    def __init__(self, cluster: Cluster, model: Model) -> None:
        self.count = cluster.cpus
        self._cluster = cluster
        self._model = ray.put(packed(model))
        self._encode = ray.remote(_encode).options(num_cpus=1, max_retries=DEATHS)
        self._tasks: dict[Future[EncodedParagraphs], ObjectRef[EncodedParagraphs]] = {}

    def submit(self, task: Sequence[Page]) -> Future[EncodedParagraphs]:
        reference = self._encode.remote([self._model], list(task))
        future: Future[EncodedParagraphs] = reference.future()
        self._tasks[future] = reference
        return future

    def result(self, future: Future[EncodedParagraphs]) -> EncodedParagraphs:
        """Wait for a block. Raises ClusterError if workers died too often, or one has stopped."""
        try:
            encoded = future.result(BLOCK_SECONDS)
        except TimeoutError:
            raise ClusterError(
                f"a block was not encoded in {BLOCK_SECONDS / 60:.0f} minutes: look for a node "
                f"that has stopped with `kbq cluster check {self._cluster.address}`; {RESUMES}"
            ) from None
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise ClusterError(
                f"workers died {DEATHS + 1} times over a block, perhaps for lack of memory "
                f"({first_line(error)}): give the nodes fewer CPUs (`ray start --num-cpus`); "
                f"{RESUMES}"
            ) from None

        del self._tasks[future]
        return encoded

    def dismiss(self) -> None:
        for task in self._tasks.values():
            ray.cancel(task, force=True)
        self._cluster.close()


def _encode(model: Sequence[ObjectRef[bytes]], pages: Sequence[Page]) -> EncodedParagraphs:
    """Encode in a process of a node, which fetches the model once: Ray does not resolve a reference
    in a list.
    """
    return _encoder_of(model[0])(pages)


@lru_cache(1)
def _encoder_of(model: ObjectRef[bytes]) -> Callable[[Sequence[Page]], EncodedParagraphs]:
    """Return what encodes pages with a model that the cluster keeps."""
    return encoder(ray.get(model), "cpu")


def building_on(address: str) -> Build:
    """Return a `build_missing` that uses the cluster at this address, one CPU for each shard."""

    def build(
        shards: Sequence[Shard],
        entry: IndexEntry,
        queries: Floats,
        device: torch.device,
        report: Report,
    ) -> None:
        missing = [shard for shard in shards if not is_built([shard], entry)]
        cluster = connect(address)
        try:
            given = ray.put(queries)
            task = ray.remote(_build).options(num_cpus=1, max_retries=DEATHS)
            waiting = {
                task.remote(shard.folder.resolve(), shard.deleted_list, entry, given): shard
                for shard in missing
            }
            stage = Stage(report, f"{entry.kind} index, shards", len(missing))
            while waiting:
                (done, *_), _ = ray.wait(list(waiting))
                shard = waiting.pop(done)
                try:
                    ray.get(done)
                except RayError as error:
                    reason = f"its process died {DEATHS + 1} times ({first_line(error)}); {RESUMES}"
                    if isinstance(error, RayTaskError) and isinstance(
                        error.cause, KbqError | OSError
                    ):
                        reason = str(error.cause)
                    raise ClusterError(
                        f"the index of {shard.folder} was not built: {reason}"
                    ) from None

                stage.add(1)
        finally:
            cluster.close()

    return build


def _build(folder: Path, deleted: str, entry: IndexEntry, queries: Floats) -> None:
    build_missing([Shard(folder, deleted=deleted)], entry, queries)
