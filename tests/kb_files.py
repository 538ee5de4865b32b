"""Files of knowledge bases: small blocks and shards, snapshots, and records that are changed on
purpose.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbq.dump import resumable_build
from kbq.dump.manifest import MANIFEST
from kbq.storage.records import DIGEST, FORMAT, _digest
from kbq.storage.seals import seal_folder


def make_small(patch: pytest.MonkeyPatch) -> None:
    """About two pages a block, about three blocks a shard."""
    patch.setattr(resumable_build, "BLOCK_CHARACTERS", 300)
    patch.setattr(resumable_build, "SHARD_ROWS", 60)


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the fields of a record, whose digest is right again."""
    fields = json.loads(path.read_text("utf-8"))
    change(fields)
    said = {name: value for name, value in fields.items() if name not in (FORMAT, DIGEST)}
    path.write_text(json.dumps(fields | {DIGEST: _digest(said)}), "utf-8")


def reseal(kb: Path) -> None:
    """Seal the shards as they are, damaged perhaps: what is left to tell it are the files
    themselves.
    """

    def with_seals(fields: dict[str, Any]) -> None:
        for shard in fields["shards"]:
            shard["seal"] = seal_folder(kb / shard["name"]).digest

    rewrite(kb / MANIFEST, with_seals)
