"""Indexing: tasks of Ray build the indexes of shards, in place of this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import ray
from ray.exceptions import RayError, RayTaskError

from kbq.cluster.connection import connect
from kbq.dump.shards import Shard
from kbq.dump.worker_pool import DEATHS
from kbq.errors import ClusterError, KbqError, first_line
from kbq.index.factory import Build, build_missing, is_built
from kbq.storage.progress import Stage
from kbq.storage.writing import RESUMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from kbq.array_types import Floats
    from kbq.dump.manifest import IndexEntry
    from kbq.storage.progress import Report


def building_on(address: str) -> Build:
    """What builds indexes on the cluster at this address, a shard at a time on each CPU; see `build_missing`."""

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
    """In a process of a node: build the index of one shard."""
    build_missing([Shard(folder, deleted=deleted)], entry, queries)


def _reason(error: RayError) -> str:
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, KbqError | OSError):
        return str(cause)
    return f"its process died {DEATHS + 1} times ({first_line(error)}); {RESUMES}"
