"""Faults: what is wrong with a cluster, or changes under a search, is said; an answer is right, or
there is none.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kbq.corpus.pages import Page, Paragraph
from kbq.errors import ClusterError
from kbq.kb import KnowledgeBase

from .conftest import QUERIES, Nodes, actors_of, process_of

pytest.importorskip("ray", reason="Ray, which is optional, is not installed")
from kbq.cluster import connection

WITH_A_TOKEN = """
import sys
from ray.cluster_utils import Cluster

options = {"num_cpus": 1, "object_store_memory": 10**8, "node_ip_address": "127.0.0.21", "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=options)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.mark.slow
def test_a_wrong_token_is_said_at_once() -> None:
    def environment(token: str) -> dict[str, str]:
        return os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token * 8}

    with subprocess.Popen(
        [sys.executable, "-c", WITH_A_TOKEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment("right"),
    ) as server:
        assert server.stdout
        address = server.stdout.readline().strip()
        command = [sys.executable, "-m", "kbq", "cluster", "check", address]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment("wrong"), check=False
        )
        server.communicate()
    assert done.returncode == 1
    assert (
        f"error: the Ray cluster at {address} refuses this machine's token: set RAY_AUTH_MODE=token"
        in done.stderr
    )
    assert len(done.stderr.splitlines()) <= 2  # Ray's own complaint is one


def test_a_knowledge_base_that_changes_while_it_is_searched(
    folder: Path, near: KnowledgeBase, three_nodes: Nodes, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "kb")
    far = KnowledgeBase.open(tmp_path / "kb", device="cpu", ray=three_nodes.address)
    changed = KnowledgeBase.open(tmp_path / "kb", device="cpu").update(
        [
            Page(f"P{n}", "Page", (Paragraph(0, "Marie Curie was born in Warsaw."),))
            for n in range(60)
        ]
    )
    assert far.query(QUERIES, 3) == near.query(QUERIES, 3)
    changed.compact()
    assert far.query(QUERIES, 3) == near.query(QUERIES, 3)
    group = actors_of(far)[0].group
    os.kill(process_of(far, 0), signal.SIGKILL)  # who starts again finds other files
    with pytest.raises(
        ClusterError, match=rf"^1 of 3 groups of shards were not searched: {group.names} of "
    ):
        far.query(QUERIES, 3)


def test_a_node_without_kbq_is_refused(three_nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['kbq'] = None\n")
    three_nodes.add(9, PYTHONPATH=str(tmp_path))
    try:
        said = r"^node 127.0.0.9 has no kbq that works \(.*'?kbq.*\): install the same one on all nodes$"
        with pytest.raises(ClusterError, match=said):
            connection.connect(three_nodes.address)
    finally:
        three_nodes.end_one(9)
