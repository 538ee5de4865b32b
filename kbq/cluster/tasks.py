"""Tasks: Ray encodes the blocks of a build, and builds the indexes of shards, in place of processes of this machine."""

from __future__ import annotations  # Ray's references take no types at run time

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path

import ray
import torch
from ray import ObjectRef
from ray.exceptions import RayError, RayTaskError

from kbq.array_types import Floats
from kbq.cluster.connection import Cluster, connect
from kbq.corpus.pages import Page
from kbq.dump.manifest import IndexEntry
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.dump.shards import Shard
from kbq.dump.workers import StartEncoders, Workers, encoder, packed
from kbq.errors import ClusterError, KbqError, first_line
from kbq.index.factory import Build, build_missing, is_built
from kbq.model.model import Model
from kbq.storage.progress import Report, Stage
from kbq.storage.writing import RESUMES

DEATHS = 3  # of workers, over one task, after which it is not tried again
BLOCK_SECONDS = 1800.0  # in which a block is encoded, after those before it


def encoders_on(address: str) -> StartEncoders:
    """Return what encodes on the cluster at this address; it connects when there is something to encode."""

    def start_encoders(model: Model) -> Workers:
        return RayWorkers(connect(address), model)

    return start_encoders


class RayWorkers:
    """Tasks of one thread on all nodes of a cluster; see `Workers`. A task whose process or node dies is done again."""

    def __init__(self, cluster: Cluster, model: Model) -> None:
        self.count = cluster.cpus
        self._cluster = cluster
        self._model = ray.put(packed(model))
        self._encode = ray.remote(_encode).options(num_cpus=1, max_retries=DEATHS)
        self._tasks: dict[Future[EncodedParagraphs], ObjectRef[EncodedParagraphs]] = {}

    def submit(self, task: Sequence[Page]) -> Future[EncodedParagraphs]:
        """Have the pages of a block encoded."""
        reference = self._encode.remote([self._model], list(task))
        future: Future[EncodedParagraphs] = reference.future()
        self._tasks[future] = reference
        return future

    def result(self, future: Future[EncodedParagraphs]) -> EncodedParagraphs:
        """Wait for the pages of a block. Raises ClusterError if workers died again and again, or one has stopped."""
        try:
            encoded = future.result(BLOCK_SECONDS)
        except TimeoutError:
            raise ClusterError(
                f"a block was not encoded in {BLOCK_SECONDS / 60:.0f} minutes: look for a node that has stopped with "
                f"`kbq cluster check {self._cluster.address}`; {RESUMES}"
            ) from None
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise ClusterError(
                f"workers died {DEATHS + 1} times over a block, perhaps for lack of memory ({first_line(error)}): "
                f"give the nodes fewer CPUs (`ray start --num-cpus`); {RESUMES}"
            ) from None
        del self._tasks[future]
        return encoded

    def dismiss(self) -> None:
        """End all tasks, and the connection."""
        for task in self._tasks.values():
            ray.cancel(task, force=True)
        self._cluster.close()


def _encode(model: Sequence[ObjectRef[bytes]], pages: Sequence[Page]) -> EncodedParagraphs:
    """Encode in a process of a node. A reference in a list stands for itself: only who lacks the model fetches it."""
    return _encoder_of(model[0])(pages)


@lru_cache(1)
def _encoder_of(model: ObjectRef[bytes]) -> Callable[[Sequence[Page]], EncodedParagraphs]:
    return encoder(ray.get(model), "cpu")


def building_on(address: str) -> Build:
    """Return what builds indexes on the cluster at this address, a shard at a time on each CPU; see `build_missing`."""

    def build(
        shards: Sequence[Shard], entry: IndexEntry, queries: Floats, device: torch.device, report: Report
    ) -> None:
        missing = [shard for shard in shards if not is_built([shard], entry)]
        cluster = connect(address)
        try:
            given, task = ray.put(queries), ray.remote(_build).options(num_cpus=1, max_retries=DEATHS)
            waiting = {
                task.remote(shard.folder.resolve(), shard.deleted_list, entry, given): shard for shard in missing
            }
            stage = Stage(report, f"{entry.kind} index, shards", len(missing))
            while waiting:
                (done, *_), _ = ray.wait(list(waiting))
                shard = waiting.pop(done)
                try:
                    ray.get(done)
                except RayError as error:
                    raise ClusterError(f"the index of {shard.folder} was not built: {_reason(error)}") from None
                stage.add(1)
        finally:
            cluster.close()

    return build


def _build(folder: Path, deleted: str, entry: IndexEntry, queries: Floats) -> None:
    """Build the index of one shard, in a process of a node."""
    build_missing([Shard(folder, deleted=deleted)], entry, queries)


def _reason(error: RayError) -> str:
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, KbqError | OSError):
        return str(cause)
    return f"its process died {DEATHS + 1} times ({first_line(error)}); {RESUMES}"
