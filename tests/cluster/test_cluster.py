"""Cluster: the bytes of a build and the answers of a search are those of one machine, whatever dies, or one is told."""

from pathlib import Path

import pytest

from kbq.corpus.pages import Page
from kbq.dump import building
from kbq.encoding.model import Model
from kbq.kb import KnowledgeBase

from .conftest import Nodes, snapshot

pytestmark = pytest.mark.xdist_group("ray")  # one process has the cluster


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """About two pages a block, about three blocks a shard."""
    monkeypatch.setattr(building, "BLOCK_CHARACTERS", 300)
    monkeypatch.setattr(building, "SHARD_ROWS", 60)


def test_a_cluster_writes_the_bytes_of_one_machine(
    three_nodes: Nodes, small_blocks: None, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    KnowledgeBase.build(pages, tmp_path / "one", model)
    KnowledgeBase.build(pages, tmp_path / "ray", model, ray=three_nodes.address)
    assert snapshot(tmp_path / "ray") == snapshot(tmp_path / "one")
