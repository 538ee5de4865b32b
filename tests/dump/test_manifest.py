"""Manifest and shards: an incomplete or damaged knowledge base is refused, in one sentence."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kb_files import reseal, rewrite

from kbq.corpus.pages import Page
from kbq.dump.manifest import read_manifest
from kbq.errors import KbqError, KnowledgeBaseError, ModelError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.words.bm25 import index_bm25

Damage = Callable[[Path], object]
SHARD = Path("shard-00000")
FILES = (
    "vectors.npy", "positions.npy", "starts.npy", "ends.npy", "edges.npy", "paragraph_rows.npy",
    "paragraph_numbers.npy", "paragraph_pages.npy", "paragraph_tokens.npy", "page_digests.npy", "metadata.npy",
    "logits.npy", "texts.bin", "texts.npy", "ids.bin", "ids.npy", "titles.bin", "titles.npy",
)  # fmt: skip


def manifest(**fields: object) -> Damage:
    """Writes other values into the manifest; None takes one out."""

    def change(written: dict[str, Any]) -> None:
        for name, value in fields.items():
            written[name] = value
            if value is None:
                del written[name]

    return lambda folder: rewrite(folder / "manifest.json", change)


def one_row_more(folder: Path) -> None:
    rewrite(folder / "manifest.json", lambda written: written["shards"][0]["size"].update(rows=1))


def sealed_again(damage: Damage) -> Damage:
    """Damage that the seal does not tell."""

    def both(folder: Path) -> None:
        damage(folder)
        reseal(folder)

    return both


def saved(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    """Damage to an array of the shard that the seal does not tell."""

    def save(folder: Path) -> None:
        values = np.load(folder / SHARD / name)
        with (folder / SHARD / name).open("wb") as file:
            np.save(file, np.ascontiguousarray(change(values)))

    return sealed_again(save)


def one_less(name: str) -> Damage:
    return saved(name, lambda values: values[:-1])


def another_page(folder: Path) -> None:
    """A page more than were counted, without a paragraph."""
    for name in ("ids", "titles", "metadata"):
        ends = np.load(folder / SHARD / f"{name}.npy")
        np.save(folder / SHARD / f"{name}.npy", np.append(ends, ends[-1]))
    digests = np.load(folder / SHARD / "page_digests.npy")
    np.save(folder / SHARD / "page_digests.npy", np.concatenate([digests, digests[-1:]]))


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (
            shutil.rmtree,
            KnowledgeBaseError,
            "does not exist: make a knowledge base with `kbq build CORPUS",
        ),
        (
            lambda folder: (folder / "manifest.json").unlink(),
            KnowledgeBaseError,
            r"not a knowledge base \(has no man",
        ),
        (
            lambda folder: (folder / "manifest.json").rename(folder / "building.json"),
            KnowledgeBaseError,
            "is not a complete knowledge base, its build is running or was stopped: to resume it, "
            "run the",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text('{"format": 1,'),
            KnowledgeBaseError,
            "is damaged",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text(""),
            KnowledgeBaseError,
            "is damaged .*: restore it from a copy",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text("[]"),
            KnowledgeBaseError,
            "is damaged",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text("7"),
            KnowledgeBaseError,
            "is damaged",
        ),
        (
            lambda folder: (folder / "manifest.json").write_bytes(b"\xff"),
            KnowledgeBaseError,
            "is damaged",
        ),
        (
            manifest(format=99),
            KnowledgeBaseError,
            "has format version 99, this kbq reads 4: build the know",
        ),
        (manifest(format=None), KnowledgeBaseError, "is damaged"),
        (manifest(model=None), KnowledgeBaseError, "is damaged"),
        (
            manifest(dim="16"),
            KnowledgeBaseError,
            r"is damaged \(Expected `int`, got `str` - at `\$.dim`\)",
        ),
        (
            manifest(bm25=7),
            KnowledgeBaseError,
            r"is damaged \(Expected `bool`, got `int` - at `\$.bm25`\)",
        ),
        (
            one_row_more,
            KnowledgeBaseError,
            r"holds \d+ rows of 16 dimensions and 12 pages, the manifest says 1 of 16 and 12: restore",
        ),
        (
            saved("vectors.npy", lambda rows: rows[:, :8]),
            KnowledgeBaseError,
            r"holds (\d+) rows of 8 dimensions and 12 pages, the manifest says \1 of 16 and 12: restore it",
        ),
        (
            saved("vectors.npy", lambda rows: rows[:, 0]),
            KnowledgeBaseError,
            r"vectors\.npy holds int8 \(\d+,\), not int8 in 2 dim",
        ),
        (one_less("positions.npy"), KnowledgeBaseError, "its files differ in length"),
        (one_less("edges.npy"), KnowledgeBaseError, "its files differ in length"),
        (one_less("texts.bin"), KnowledgeBaseError, "its files differ in length"),
        (one_less("titles.bin"), KnowledgeBaseError, "its files differ in length"),
        (one_less("ids.bin"), KnowledgeBaseError, "its files differ in length"),
        (one_less("ids.npy"), KnowledgeBaseError, "its files differ in length"),
        (one_less("texts.npy"), KnowledgeBaseError, "its files differ in length"),
        (one_less("paragraph_numbers.npy"), KnowledgeBaseError, "its files differ in length"),
        (
            sealed_again(another_page),
            KnowledgeBaseError,
            "and 13 pages, the manifest says .* and 12: restore",
        ),
        (
            saved("positions.npy", lambda rows: rows.astype(np.int64)),
            KnowledgeBaseError,
            r"positions.npy holds int64 \(\d+,\), not uint32",
        ),
        (
            lambda folder: shutil.rmtree(folder / SHARD),
            KnowledgeBaseError,
            "shard-00000/seal.json is missing: restore it",
        ),
        (manifest(model="nowhere"), ModelError, "model folder nowhere does not exist"),
        (
            manifest(model_fingerprint="0123"),
            ModelError,
            r"the model .* has changed since .* was built with it \(0123, now \w+\): build the know",
        ),
    ],
)
def test_what_is_not_whole_is_refused(
    damage: Damage, kind: type[KbqError], message: str, kb_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kb"
    shutil.copytree(kb_folder, folder)
    damage(folder)
    with pytest.raises(kind, match=message) as refusal:
        KnowledgeBase.open(folder)
    assert "\n" not in str(refusal.value)


def test_a_folder_that_may_not_be_read_is_said(
    kb_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(
        KnowledgeBaseError, match=r"manifest\.json cannot be read \(Permission denied\): ask for"
    ):
        read_manifest(kb_folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: path.write_bytes(b"\0" * len(path.read_bytes())),
        lambda path: path.write_bytes(path.read_bytes()[:-2] + b"7" + path.read_bytes()[-1:]),
    ],
    ids=["missing", "empty", "a byte less", "no data", "zeros", "another byte"],
)
def test_every_file_of_a_shard_is_checked(
    name: str, damage: Damage, kb_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kb"
    shutil.copytree(kb_folder, folder)
    damage(folder / SHARD / name)
    with pytest.raises(
        KnowledgeBaseError, match=rf"shard-00000/{name} is (damaged .*|missing): restore it"
    ):
        KnowledgeBase.open(folder)


def test_another_model_is_refused(kb_folder: Path, other_folder: Path) -> None:
    with pytest.raises(ModelError, match=r"was built with the model .*: use model="):
        KnowledgeBase.open(kb_folder, str(other_folder))


def test_the_model_may_be_given(kb_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(model_folder, tmp_path / "moved")
    assert KnowledgeBase.open(kb_folder, str(tmp_path / "moved")).model.dim == 16


def test_words_that_are_missing_can_be_made_again(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    folder = KnowledgeBase.build(pages, tmp_path / "kb", model).folder
    shutil.rmtree(folder / SHARD / "bm25")
    with pytest.raises(
        KnowledgeBaseError, match=r"bm25/seal.json is missing: `kbq verify .*kb --repair`"
    ):
        KnowledgeBase.open(folder)
    index_bm25(folder)
    assert KnowledgeBase.open(folder).query(["the river"], backend="bm25", unit="paragraph")[0]
