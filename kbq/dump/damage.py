"""Damage: what is wrong with the files of a knowledge base, as far as their seals tell, and what to do about it."""

from collections.abc import Mapping
from pathlib import Path

from kbq.errors import KnowledgeBaseError
from kbq.storage.files import reading_problem
from kbq.storage.seals import SEAL, Damage, FileSeal, read_seal

IMPORTED = "official"  # the kind of an index that another program built, and the folder of its parts
LINK = "index.faiss"  # in that folder: the only link that a knowledge base may have


def files_as_sealed(kb: Path, seals: Mapping[str, str]) -> tuple[dict[Path, FileSeal], list[Damage]]:
    """Return the files of some parts as their seals list them, and what is wrong with these seals.

    Args:
        seals: the digest of each part's seal, by the path of its folder below the knowledge base.
    """
    files: dict[Path, FileSeal] = {}
    damages = []
    for part, digest in seals.items():
        try:
            seal = read_seal(kb / part)
            if seal.digest != digest:
                raise ValueError("it is of another knowledge base or build")
            files |= {kb / part / name: file for name, file in seal.files.items()}
        except (OSError, ValueError) as error:
            damages.append(Damage(kb / part / SEAL, error))
    return files, damages


def sentence(kb: Path, damage: Damage) -> str:
    """Say what is wrong with a file, and what to do."""
    return reading_problem(damage.path, damage.problem, advice(kb, damage.path))


def reason(error: KnowledgeBaseError) -> str:
    """Say what is wrong, without the advice."""
    return str(error).partition(": ")[0]


def advice(kb: Path, path: Path) -> str:
    """Say what to do about a damaged file of a knowledge base: an index can be built again from the shards."""
    parts = path.relative_to(kb).parts
    if IMPORTED in parts:
        return f"put back the official file, or delete {kb} and import the index again"
    if len(parts) > 2 and not parts[1].startswith("sparta"):
        return f"`kbq verify {kb} --repair` builds it again"
    if any(part.startswith("sparta") for part in parts):
        return f"`kbq index sparta {kb} MODEL` builds it again"
    if parts[0].startswith("queries"):
        return "delete it, to use slot queries about the knowledge base instead"
    return "restore it from a copy, or build the knowledge base again"
