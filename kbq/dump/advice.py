"""Advice: what to do about a damaged file of a knowledge base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbq.dump.codes import OFFICIAL
from kbq.errors import KnowledgeBaseError
from kbq.storage.files import reading_problem
from kbq.storage.seals import Damage

if TYPE_CHECKING:
    from pathlib import Path


def reason(error: KnowledgeBaseError) -> str:
    """What is wrong, without the advice."""
    return str(error).partition(": ")[0]


def advice(kb: Path, path: Path) -> str:
    """What to do about a damaged file of a knowledge base: an index can be built again from the shards."""
    parts = path.relative_to(kb).parts
    if OFFICIAL in parts:
        return f"put back the official file, or delete {kb} and import the index again"
    if len(parts) > 2 and not parts[1].startswith("sparta"):
        return f"`kbq verify {kb} --repair` builds it again"
    if any(part.startswith("sparta") for part in parts):
        return f"`kbq index sparta {kb} MODEL` builds it again"
    if parts[0].startswith("queries"):
        return "delete it, to use slot queries about the knowledge base instead"
    return "restore it from a copy, or build the knowledge base again"


def sentence(kb: Path, damage: Damage) -> str:
    """What is wrong with a file, and what to do."""
    return reading_problem(damage.path, damage.problem, advice(kb, damage.path))
