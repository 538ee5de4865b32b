"""Encoding: tasks of Ray encode the pages of blocks, in place of processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import TYPE_CHECKING

import ray
from ray.exceptions import RayError, RayTaskError

from kbq.cluster.connection import Cluster, connect
from kbq.dump.worker_pool import DEATHS
from kbq.dump.workers import encoder, packed
from kbq.errors import ClusterError, first_line
from kbq.storage.writing import RESUMES

if TYPE_CHECKING:
    from ray import ObjectRef

    from kbq.corpus.pages import Page
    from kbq.dump.page_encoder import Encoded
    from kbq.dump.workers import StartEncoders, Workers
    from kbq.model.model import Model

BLOCK_SECONDS = 1800.0  # in which a block is encoded, after those before it


def encoders_on(address: str) -> StartEncoders:
    """What encodes on the cluster at this address; it is connected to when there is something to encode."""

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
        self._tasks: dict[Future[Encoded], ObjectRef[Encoded]] = {}

    def submit(self, task: Sequence[Page]) -> Future[Encoded]:
        """Have the pages of a block encoded."""
        reference = self._encode.remote([self._model], list(task))
        future: Future[Encoded] = reference.future()
        self._tasks[future] = reference
        return future

    def result(self, future: Future[Encoded]) -> Encoded:
        """Wait for the pages of a block.

        Raises:
            ClusterError: workers died, again and again, or one has stopped.
        """
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


def _encode(model: Sequence[ObjectRef[bytes]], pages: Sequence[Page]) -> Encoded:
    """In a process of a node. A reference in a list stands for itself: the model is fetched by whom it is new to."""
    return _encoder_of(model[0])(pages)


@lru_cache(1)
def _encoder_of(model: ObjectRef[bytes]) -> Callable[[Sequence[Page]], Encoded]:
    return encoder(ray.get(model), "cpu")
