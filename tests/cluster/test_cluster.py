"""Cluster: the bytes of a build and the answers of a search are those of one machine, whatever
dies, or one is told.
"""

import dataclasses
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

import kbq
from kbq.answers import IndexKind
from kbq.asking.searcher import SearchTarget
from kbq.corpus.pages import Page
from kbq.errors import ClusterError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search.options import SearchOptions, Unit
from kbq.serve.knowledge_bases import Folder

from .conftest import HEAD, QUERIES, Nodes, actors_of, process_of, snapshot

if TYPE_CHECKING:
    from kbq.dump.shards import Counts

pytest.importorskip("ray", reason="Ray, which is optional, is not installed")
from kbq.cluster import connection, searcher
from kbq.cluster.nodes import check
from kbq.text.queries import Query


@pytest.fixture(scope="module")
def far(folder: Path, three_nodes: Nodes) -> KnowledgeBase:
    """The knowledge base with its compact index, searched by three actors."""
    return KnowledgeBase.open(folder, device="cpu", ray=three_nodes.address)


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

    KnowledgeBase.build(
        corpus[:40], tmp_path / "killed", model, ray=three_nodes.address, report=strike
    )
    assert snapshot(tmp_path / "killed") == one
    assert len(struck) >= 1


def same_answers(near: KnowledgeBase, far: KnowledgeBase) -> None:
    asked = list(map(Query.of, QUERIES))
    for backend in ("dense", "hybrid"):
        for unit in get_args(Unit):
            for k in (1, 3, 1000):
                options = SearchOptions(k, unit, backend)
                assert far.searcher.search(asked, options) == near.searcher.search(
                    asked, options
                ), (
                    backend,
                    unit,
                    k,
                )


def test_actors_find_what_one_process_finds(near: KnowledgeBase, far: KnowledgeBase) -> None:
    assert len(actors_of(far)) == 3
    same_answers(near, far)
    asked = [Query.of(QUERIES[0])]
    options = SearchOptions(3)
    assert far.searcher.search(asked, options) == near.searcher.search(asked, options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exact", "disk", "tiny"])
def test_every_kind_of_index_is_searched_alike(
    folder: Path, three_nodes: Nodes, kind: IndexKind
) -> None:
    near = KnowledgeBase.open(folder, device="cpu", index=kind)
    same_answers(
        near, KnowledgeBase.open(folder, device="cpu", index=kind, ray=three_nodes.address)
    )


@pytest.mark.parametrize("sent_along", [2**20, 0])
def test_an_actor_that_is_killed_is_started_again(
    near: KnowledgeBase, far: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, sent_along: int
) -> None:
    # 0: actors read all queries in Ray's store.
    monkeypatch.setattr(searcher, "SENT_ALONG", sent_along)
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
    with pytest.raises(
        ClusterError, match="of 3 groups of shards were not searched: shard-"
    ) as raised:
        far.query(QUERIES, 3)
    # On a busy machine, another one may be late, too.
    said = "\n".join([str(raised.value), *raised.value.problems])
    assert (
        f"{group.names} of {group.folder}, node {actors_of(far)[2].node.address}: no answer in 3 "
        "seconds" in said
    )
    monkeypatch.undo()
    assert far.query(QUERIES, 3) == near.query(QUERIES, 3)
    assert process_of(far, 2) != stopped


def test_a_node_that_is_killed_is_replaced_by_another(
    near: KnowledgeBase, far: KnowledgeBase, three_nodes: Nodes, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        three_nodes.kill(HEAD + 1)
        assert far.query(QUERIES, 3) == near.query(QUERIES, 3)
        # Ray's own messages are not between the answers of a command.
        assert capfd.readouterr().out == ""
    finally:
        three_nodes.add(HEAD + 1)


def test_only_chosen_pages_answer(near: KnowledgeBase, far: KnowledgeBase) -> None:
    ids = [f"P{number}" for number in range(0, 150, 7)]
    assert far.with_pages(ids).query(QUERIES, 30) == near.with_pages(ids).query(QUERIES, 30)


def test_a_service_searches_on_the_cluster(
    near: KnowledgeBase, folder: Path, three_nodes: Nodes
) -> None:
    served = Folder(folder, device="cpu", ray=three_nodes.address).opened([])
    assert len(actors_of(served)) == 3
    assert served.query(QUERIES, 3) == near.query(QUERIES, 3)


def test_a_folder_that_a_node_does_not_have_is_said(
    folder: Path, far: KnowledgeBase, three_nodes: Nodes, tmp_path: Path
) -> None:
    groups = [dataclasses.replace(actor.group, folder=tmp_path / "kb") for actor in actors_of(far)]
    with pytest.raises(
        ClusterError,
        match=rf"3 of 3 groups .* {groups[0].names} of {tmp_path}/kb, node 127.0.0.2: ",
    ):
        searcher.RaySearcher(connection.connect(three_nodes.address).nodes, groups).open()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kbq", "9.9", r"has kbq .*, this machine 9.9: install the same on all nodes"),
        ("torch", "9.9", r"has torch .*, this machine 9.9: install the same on all nodes"),
        (
            "cpu",
            "x in float32",
            r"multiplies as .*, this machine as x in float32: their vectors would differ",
        ),
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
    assert [problem.split()[1] for problem in raised.value.problems] == [
        "127.0.0.2",
        "127.0.0.3",
        "127.0.0.4",
    ]
    assert re.search(said, raised.value.problems[0])


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("garbage", "'garbage' is not the address of a Ray cluster: write HOST:PORT of its head"),
        ("ray://127.0.0.2:10001", "is not the address of a Ray cluster"),
        ("127.0.0.2:99999999", "no Ray cluster answers at 127.0.0.2:99999999"),
        (
            "127.0.0.9:1",
            r"no Ray cluster answers at 127.0.0.9:1 \(.*refused\): start its head there with",
        ),
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
            ClusterError,
            match=f"this process is connected to the Ray cluster at {host}:{port}: use that, or",
        ),
    ):
        connection.connect(f"{host}:{other.getsockname()[1]}")
    assert (
        connection.connect(connection.LOCAL).nodes == connection.connect(three_nodes.address).nodes
    )


def test_an_address_that_ray_writes_otherwise_is_the_same_cluster(
    three_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"127.0.0.1:{three_nodes.address.rpartition(':')[2]}"
    monkeypatch.setattr(connection, "_refuse_deaf", lambda address: None)
    with pytest.raises(ClusterError, match="this process is connected to the Ray cluster at"):
        connection.connect(name)
    # As if it had been given at first.
    monkeypatch.setitem(connection._CONNECTED, name, three_nodes.address)
    assert connection.connect(name).nodes == connection.connect(three_nodes.address).nodes


def test_what_was_changed_is_searched_on_the_cluster(
    folder: Path, three_nodes: Nodes, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "kb")
    far = KnowledgeBase.open(tmp_path / "kb", device="cpu", ray=three_nodes.address)
    changed = far.delete("P3")
    assert len(actors_of(changed)) == 3
    near = KnowledgeBase.open(tmp_path / "kb", device="cpu")
    assert changed.query(QUERIES, 3) == near.query(QUERIES, 3)


def test_a_cluster_builds_the_index_of_one_machine(
    folder: Path, three_nodes: Nodes, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "kb", ignore=shutil.ignore_patterns("disk"))
    kb = KnowledgeBase.open(folder, device="cpu", index="exact")
    for path in (tmp_path / "kb").glob("shard-*/compact"):
        shutil.rmtree(path)
    far = KnowledgeBase(tmp_path / "kb", kb.manifest, kb.model, SearchTarget("exact"))
    assert (
        far.index_vectors("compact", recall=0.0, ray=three_nodes.address).index == kb.manifest.index
    )
    for part in kb.manifest.parts(kb.manifest.index):
        assert snapshot(tmp_path / "kb" / part) == snapshot(folder / part)


def test_a_check_names_nodes_and_shards(folder: Path, three_nodes: Nodes) -> None:
    report = check(three_nodes.address, folder)
    assert [(node.address, node.cpus, node.problem) for node in report.nodes] == [
        (f"127.0.0.{number}", 1, "") for number in (2, 3, 4)
    ]
    nodes = [(group.node, group.problem) for group in report.groups]
    assert nodes == [(f"127.0.0.{number}", "") for number in (2, 3, 4)]
    assert report.groups[0].shards.startswith("shard-00000 to shard-")
    assert report.problems == ()


def test_a_check_says_what_is_wrong(
    folder: Path, three_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(connection.own_software(), kbq="9.9")
    monkeypatch.setattr("kbq.cluster.nodes.own_software", lambda: other)
    report = check(three_nodes.address, folder)
    said = (
        f"node 127.0.0.4 has kbq {kbq.__version__}, this machine 9.9: install the same on all nodes"
    )
    assert report.problems[2] == said
    assert report.groups == ()


@pytest.mark.slow
def test_a_command_prints_what_it_prints_on_one_machine(folder: Path, three_nodes: Nodes) -> None:
    def printed(*words: str) -> str:
        command = [
            sys.executable,
            "-m",
            "kbq",
            "query",
            *QUERIES[:2],
            "--kb",
            str(folder),
            "--json",
            *words,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert printed("--ray", three_nodes.address) == printed()
