"""Cluster: the bytes of a build and the answers of a search are those of one machine, whatever dies, or one is told."""

import dataclasses
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

import kbq
from kbq.answers import IndexKind, SearchOptions, Unit
from kbq.corpus.pages import Page, Paragraph
from kbq.dump import building
from kbq.dump.manifest import read_manifest
from kbq.encoding.model import Model
from kbq.errors import ClusterError
from kbq.kb import KnowledgeBase
from kbq.searching import indexes
from kbq.serving.knowledge_bases import Folder
from kbq.words.sparta import index_sparta
from kbq.words.sparta_model import SpartaConfig, SpartaModel

from .conftest import HEAD, Nodes, snapshot

if TYPE_CHECKING:
    from kbq.dump.shards import Counts

pytest.importorskip("ray", reason="Ray, which is optional, is not installed")
from kbq.cluster import connection, searcher
from kbq.cluster.checking import check

pytestmark = pytest.mark.xdist_group("ray")  # one process has the cluster

WORDS = ["the", "city", "river", "was", "born", "in", "of", "Paris", "Warsaw", "Marie", "Curie", "place", "birth"]
SOURCE = random.Random(6)
QUERIES = [
    f"{' '.join(SOURCE.choices(WORDS, k=SOURCE.randint(1, 6)))} [SEP] {' '.join(SOURCE.choices(WORDS, k=2))}"
    for _ in range(6)
]


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """About two pages a block, and small shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "BLOCK_CHARACTERS", 300)
        patch.setattr(building, "SHARD_ROWS", 170)
        patch.setattr(indexes, "OWN_QUERIES", 30)
        yield


@pytest.fixture(scope="module")
def corpus() -> list[Page]:
    """150 pages, in which some paragraphs occur twice, with equal scores."""
    source = random.Random(3)
    texts = [" ".join(source.choices(WORDS, k=6)) + ". Born in Paris." for _ in range(150)]
    return [Page(f"P{n}", "Page", (Paragraph(0, texts[n]), Paragraph(2, texts[n // 2]))) for n in range(150)]


@pytest.fixture(scope="module")
def model_of_all(new_model: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers depend on words and on lengths, too."""
    folder, model = tmp_path_factory.mktemp("cluster") / "model", new_model()
    model.config = dataclasses.replace(model.config, lexical_factor=0.5, length_penalty=0.1)
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(corpus: list[Page], model_of_all: Path, checkpoint: Path) -> Path:
    """A knowledge base of eight or so shards, with every kind of index."""
    pytest.importorskip("faiss")
    folder = model_of_all.parent
    SpartaModel.new(str(checkpoint), SpartaConfig()).save(folder / "sparta")
    kb = KnowledgeBase.build(corpus, folder / "kb", model_of_all, device="cpu")
    for kind in ("disk", "tiny", "compact"):
        kb = kb.index_vectors(kind, recall=0.0)
    index_sparta(folder / "kb", folder / "sparta", device="cpu")
    assert 7 <= len(read_manifest(folder / "kb").shards) <= 12
    return folder / "kb"


@pytest.fixture(scope="module")
def far(folder: Path, three_nodes: Nodes) -> KnowledgeBase:
    """The knowledge base with its compact index, searched by three actors."""
    return KnowledgeBase.open(folder, device="cpu", ray=three_nodes.address)


@pytest.fixture(scope="module")
def near(folder: Path) -> KnowledgeBase:
    """The same, searched in this process."""
    return KnowledgeBase.open(folder, device="cpu")


def process_of(kb: KnowledgeBase, number: int) -> int:
    """The process of an actor."""
    import ray

    pid: int = ray.get(actors_of(kb)[number].handle.__ray_call__.remote(lambda self: os.getpid()))
    return pid


def actors_of(kb: KnowledgeBase) -> list[Any]:
    assert kb._cluster is not None
    return list(kb._cluster.actors)


def test_a_cluster_writes_the_bytes_of_one_machine(
    three_nodes: Nodes, corpus: list[Page], model: Model, tmp_path: Path
) -> None:
    KnowledgeBase.build(corpus[:40], tmp_path / "one", model)
    KnowledgeBase.build(corpus[:30], tmp_path / "ray", model, ray=three_nodes.address)
    one = snapshot(tmp_path / "one")
    struck: list[int] = []

    def strike(counts: "Counts") -> None:
        if counts.pages >= 5 and not struck:
            struck.extend(three_nodes.worker_processes("ray::_encode", "ray::IDLE"))
            for process in struck:
                os.kill(process, signal.SIGKILL)

    KnowledgeBase.build(corpus[:40], tmp_path / "killed", model, ray=three_nodes.address, report=strike)
    assert snapshot(tmp_path / "killed") == one
    assert len(struck) >= 1


def same_answers(near: KnowledgeBase, far: KnowledgeBase) -> None:
    for backend in ("dense", "hybrid"):
        for unit in get_args(Unit):
            for k in (1, 3, 1000):
                options = SearchOptions(k, unit, backend)
                assert far.search(QUERIES, options) == near.search(QUERIES, options), (backend, unit, k)


def test_actors_find_what_one_process_finds(near: KnowledgeBase, far: KnowledgeBase) -> None:
    assert len(actors_of(far)) == 3
    same_answers(near, far)
    assert far.search(QUERIES[:1], SearchOptions(3)) == near.search(QUERIES[:1], SearchOptions(3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exact", "disk", "tiny"])
def test_every_kind_of_index_is_searched_alike(folder: Path, three_nodes: Nodes, kind: IndexKind) -> None:
    near = KnowledgeBase.open(folder, device="cpu", index=kind)
    same_answers(near, KnowledgeBase.open(folder, device="cpu", index=kind, ray=three_nodes.address))


def test_an_actor_that_is_killed_is_started_again(near: KnowledgeBase, far: KnowledgeBase) -> None:
    before = process_of(far, 1)
    os.kill(before, signal.SIGKILL)
    assert far.query(QUERIES, 3) == near.query(QUERIES, 3)
    assert process_of(far, 1) != before


def test_an_actor_that_is_stopped_is_said_and_replaced(
    near: KnowledgeBase, far: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, group = process_of(far, 2), actors_of(far)[2].group
    monkeypatch.setattr(searcher, "SEARCH_SECONDS", 3.0)
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(ClusterError, match="of 3 groups of shards were not searched: shard-") as raised:
        far.query(QUERIES, 3)
    said = "\n".join([str(raised.value), *raised.value.problems])  # on a busy machine, another one may be late, too
    assert f"{group.names} of {group.folder}, node {actors_of(far)[2].node.address}: no answer in 3 seconds" in said
    monkeypatch.undo()
    assert far.query(QUERIES, 3) == near.query(QUERIES, 3)
    assert process_of(far, 2) != stopped


def test_a_node_that_is_killed_is_replaced_by_another(
    near: KnowledgeBase, far: KnowledgeBase, three_nodes: Nodes, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        three_nodes.kill(HEAD + 1)
        assert far.query(QUERIES, 3) == near.query(QUERIES, 3)
        assert capfd.readouterr().out == ""  # Ray's own messages are not between the answers of a command
    finally:
        three_nodes.add(HEAD + 1)


def test_only_chosen_pages_answer(near: KnowledgeBase, far: KnowledgeBase) -> None:
    ids = [f"P{number}" for number in range(0, 150, 7)]
    assert far.with_pages(ids).query(QUERIES, 30) == near.with_pages(ids).query(QUERIES, 30)


def test_a_service_searches_on_the_cluster(near: KnowledgeBase, folder: Path, three_nodes: Nodes) -> None:
    served = Folder(folder, device="cpu", ray=three_nodes.address).opened([])
    assert actors_of(served)  # a node that was just killed may still count as alive
    assert served.query(QUERIES, 3) == near.query(QUERIES, 3)


def test_a_folder_that_a_node_does_not_have_is_said(
    folder: Path, far: KnowledgeBase, three_nodes: Nodes, tmp_path: Path
) -> None:
    groups = [dataclasses.replace(actor.group, folder=tmp_path / "kb") for actor in actors_of(far)]
    with pytest.raises(ClusterError, match=rf"3 of 3 groups .* {groups[0].names} of {tmp_path}/kb, node 127.0.0.2: "):
        searcher.RaySearcher(connection.connect(three_nodes.address).nodes, groups).open()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kbq", "9.9", r"has kbq .*, this machine 9.9: install the same on all nodes"),
        ("torch", "9.9", r"has torch .*, this machine 9.9: install the same on all nodes"),
        ("cpu", "x in float32", r"multiplies as .*, this machine as x in float32: their vectors would differ"),
    ],
)
def test_nodes_that_compute_otherwise_are_refused(
    three_nodes: Nodes, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    other = dataclasses.replace(connection.own_software(), **{name: value})
    monkeypatch.setattr(connection, "_ALIKE", set())
    monkeypatch.setattr(connection, "own_software", lambda: other)
    with pytest.raises(ClusterError, match="3 nodes of the cluster cannot be used") as raised:
        connection.connect(three_nodes.address)
    assert [problem.split()[1] for problem in raised.value.problems] == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    assert re.search(said, raised.value.problems[0])


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("garbage", "'garbage' is not the address of a Ray cluster: write HOST:PORT of its head"),
        ("ray://127.0.0.2:10001", "is not the address of a Ray cluster"),
        ("127.0.0.2:99999999", "no Ray cluster answers at 127.0.0.2:99999999"),
        ("127.0.0.9:1", r"no Ray cluster answers at 127.0.0.9:1 \(.*refused\): start its head there with"),
        ("nowhere.invalid:6379", "no Ray cluster answers at nowhere.invalid:6379"),
    ],
)
def test_wrong_addresses_are_refused_at_once(address: str, said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        connection.connect(address)


def test_a_process_has_one_cluster(far: KnowledgeBase, three_nodes: Nodes) -> None:
    host, port = three_nodes.address.split(":")
    with (
        socket.create_server((host, 0)) as other,
        pytest.raises(
            ClusterError, match=f"this process is connected to the Ray cluster at {host}:{port}: use that, or"
        ),
    ):
        connection.connect(f"{host}:{other.getsockname()[1]}")
    assert connection.connect(connection.LOCAL).nodes == connection.connect(three_nodes.address).nodes


def test_a_cluster_builds_the_index_of_one_machine(folder: Path, three_nodes: Nodes, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "kb", ignore=shutil.ignore_patterns("disk"))
    kb = KnowledgeBase.open(folder, device="cpu", index="exact")
    for path in (tmp_path / "kb").glob("shard-*/compact"):
        shutil.rmtree(path)
    far = KnowledgeBase(tmp_path / "kb", kb.manifest, kb.model, "exact")
    assert far.index_vectors("compact", recall=0.0, ray=three_nodes.address).index == kb.manifest.index
    for part in kb.manifest.parts(kb.manifest.index):
        assert snapshot(tmp_path / "kb" / part) == snapshot(folder / part)


def test_a_check_names_nodes_and_shards(folder: Path, three_nodes: Nodes) -> None:
    report = check(three_nodes.address, folder)
    assert [(node.address, node.cpus, node.problem) for node in report.nodes] == [
        (f"127.0.0.{number}", 1, "") for number in (2, 3, 4)
    ]
    assert [(group.node, group.problem) for group in report.groups] == [(f"127.0.0.{n}", "") for n in (2, 3, 4)]
    assert report.groups[0].shards.startswith("shard-00000 to shard-")
    assert report.problems == ()


def test_a_check_says_what_is_wrong(folder: Path, three_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(connection.own_software(), kbq="9.9")
    monkeypatch.setattr("kbq.cluster.checking.own_software", lambda: other)
    report = check(three_nodes.address, folder)
    said = f"node 127.0.0.4 has kbq {kbq.__version__}, this machine 9.9: install the same on all nodes"
    assert report.problems[2] == said
    assert report.groups == ()


@pytest.mark.slow
def test_a_command_prints_what_it_prints_on_one_machine(folder: Path, three_nodes: Nodes) -> None:
    def printed(*words: str) -> str:
        command = [sys.executable, "-m", "kbq", "query", *QUERIES[:2], "--kb", str(folder), "--json", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert printed("--ray", three_nodes.address) == printed()
