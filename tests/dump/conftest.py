"""Fixtures: a build of several blocks and shards, and its files."""

from pathlib import Path

import pytest

from kbq.dump import building


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """About two pages a block, about three blocks a shard."""
    monkeypatch.setattr(building, "BLOCK_CHARACTERS", 300)
    monkeypatch.setattr(building, "SHARD_ROWS", 60)


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
