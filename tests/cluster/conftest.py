"""Fixtures: a Ray cluster of three nodes on loopback addresses and a small knowledge base, for all
tests here.
"""

import contextlib
import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from random_queries import WORDS, random_queries

from kbq.corpus.pages import Page, Paragraph
from kbq.dump import resumable_build
from kbq.kb import KnowledgeBase
from kbq.model.model import Model

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

STORE = 100 * 2**20  # bytes of each node's object store
DEATH_SECONDS = 120.0  # until a node that was killed is seen to be dead, on a busy machine
HEAD = 2  # the last number of its loopback address
QUERIES = random_queries(6, seed=6)


class Nodes:
    """The nodes of a cluster, by the last number of their loopback addresses: 127.0.0.2, …"""

    def __init__(self, head: int = HEAD) -> None:
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - else all others on a busy machine go before
        from ray.cluster_utils import Cluster as RayCluster

        options: dict[str, Any] = {
            "num_cpus": 1,
            "object_store_memory": STORE,
            "include_dashboard": False,
        }
        self._cluster: Cluster = RayCluster(
            initialize_head=True, head_node_args=options | {"node_ip_address": f"127.0.0.{head}"}
        )
        self.running: dict[int, Any] = {head: self._cluster.head_node}
        self.address: str = self._cluster.address

    def add(self, number: int, **environment: str) -> None:
        """Start a node, if it does not run, and wait until those that were killed no longer count
        as alive.
        """
        if number not in self.running:
            self.running[number] = self._cluster.add_node(
                num_cpus=1,
                object_store_memory=STORE,
                node_ip_address=f"127.0.0.{number}",
                env_vars=environment,
            )
            self._cluster.wait_for_nodes(DEATH_SECONDS)

    def kill(self, number: int) -> None:
        """Kill the processes of a node, as if its machine were switched off."""
        self._cluster.remove_node(self.running.pop(number), allow_graceful=False)

    def end_one(self, number: int) -> None:
        """End a node in such a way that the others know at once."""
        self._cluster.remove_node(self.running.pop(number), allow_graceful=True)

    def worker_processes(self, *names: str) -> list[int]:
        """The processes of all nodes that Ray shows with one of these names."""
        raylets = {
            info.process.pid
            for node in self.running.values()
            for info in node.all_processes["raylet"]
        }
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in raylets and (folder / "cmdline").read_text().startswith(names):
                    found.append(int(folder.name))
        return found

    def end(self) -> None:
        """End all of them."""
        self._cluster.shutdown()


def process_of(kb: KnowledgeBase, number: int) -> int:
    """The process of an actor."""
    import ray

    pid: int = ray.get(actors_of(kb)[number].handle.__ray_call__.remote(lambda self: os.getpid()))
    return pid


def actors_of(kb: KnowledgeBase) -> list[Any]:
    assert kb.searcher._cluster is not None
    return list(kb.searcher._cluster.actors)


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Nodes]:
    """A cluster of three nodes, to which this process is connected; the nodes cannot be told from
    machines.
    """
    import ray

    import kbq.cluster  # noqa: F401 — settings of Ray

    nodes = Nodes()
    for number in (HEAD + 1, HEAD + 2):
        nodes.add(number)
    yield nodes
    ray.shutdown()
    nodes.end()


@pytest.fixture(scope="package", autouse=True)
def small() -> Iterator[None]:
    """About two pages a block, and small shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumable_build, "BLOCK_CHARACTERS", 300)
        patch.setattr(resumable_build, "SHARD_ROWS", 170)
        yield


@pytest.fixture(scope="package")
def corpus() -> list[Page]:
    """150 pages, in which some paragraphs occur twice, with equal scores."""
    source = random.Random(3)
    texts = [" ".join(source.choices(WORDS, k=6)) + ". Born in Paris." for _ in range(150)]
    return [
        Page(f"P{n}", "Page", (Paragraph(0, texts[n]), Paragraph(2, texts[n // 2])))
        for n in range(150)
    ]


@pytest.fixture(scope="package")
def model_of_all(new_model: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers depend on words and on lengths, too."""
    folder, model = tmp_path_factory.mktemp("cluster") / "model", new_model()
    model.config = dataclasses.replace(model.config, lexical_factor=0.5, length_penalty=0.1)
    model.save(folder)
    return folder


@pytest.fixture(scope="package")
def folder(
    corpus: list[Page],
    model_of_all: Path,
    with_every_index: Callable[[Path, list[Page], Path], Path],
) -> Path:
    """A knowledge base of them."""
    return with_every_index(model_of_all.parent, corpus, model_of_all)


@pytest.fixture(scope="package")
def near(folder: Path) -> KnowledgeBase:
    """The same, searched in this process."""
    return KnowledgeBase.open(folder, device="cpu")
