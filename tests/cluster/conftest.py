"""Fixtures: a Ray cluster of three nodes on loopback addresses, shared by all tests of this folder."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

STORE = 100 * 2**20  # bytes of each node's object store
HEAD = 2  # the last number of its loopback address


class Nodes:
    """The nodes of a cluster, by the last number of their loopback addresses: 127.0.0.2, …"""

    def __init__(self) -> None:
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - else all others on a busy machine go before
        from ray.cluster_utils import Cluster as RayCluster

        options: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
        self._cluster: Cluster = RayCluster(
            initialize_head=True, head_node_args=options | {"node_ip_address": f"127.0.0.{HEAD}"}
        )
        self.running: dict[int, Any] = {HEAD: self._cluster.head_node}
        self.address: str = self._cluster.address

    def add(self, number: int) -> None:
        """Start a node, if it does not run."""
        if number not in self.running:
            self.running[number] = self._cluster.add_node(
                num_cpus=1, object_store_memory=STORE, node_ip_address=f"127.0.0.{number}"
            )

    def kill(self, number: int) -> None:
        """Kill the processes of a node, as if its machine were switched off."""
        self._cluster.remove_node(self.running.pop(number), allow_graceful=False)

    def worker_processes(self, *names: str) -> list[int]:
        """The processes of all nodes that Ray shows with one of these names."""
        raylets = {info.process.pid for node in self.running.values() for info in node.all_processes["raylet"]}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in raylets and (folder / "cmdline").read_text().startswith(names):
                    found.append(int(folder.name))
        return found

    def end(self) -> None:
        """End all of them."""
        self._cluster.shutdown()  # type: ignore[no-untyped-call]


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Nodes]:
    """A cluster of three nodes, to which this process is connected; the nodes cannot be told from machines."""
    import ray

    import kbq.cluster  # noqa: F401 — settings of Ray

    nodes = Nodes()
    for number in (HEAD + 1, HEAD + 2):
        nodes.add(number)
    yield nodes
    ray.shutdown()
    nodes.end()
