"""The sample knowledge base: built once, in one step, in the cache folder."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kbq import sample_kb
from kbq.dump.page_directory import Pages
from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model


@pytest.fixture(autouse=True)
def small_sample(tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two articles, and the tiny model in the place of the default one."""
    articles = tmp_path / "articles.jsonl"
    articles.write_text(
        '{"id": "S1", "title": "T", "text": "Paris"}\n{"id": "S2", "title": "U", "text": "river"}\n'
    )
    monkeypatch.setattr(sample_kb, "ARTICLES", articles)
    for module in ("kbq.model.model_folder", "kbq.sample_kb"):
        monkeypatch.setattr(f"{module}.DEFAULT_MODEL", model_folder)
    monkeypatch.setenv("KBQ_CACHE", str(tmp_path / "cache"))


def test_it_is_built_once(tmp_path: Path) -> None:
    told: list[str] = []
    for _ in range(2):
        kb = KnowledgeBase.sample(note=told.append)
        assert list(Pages.open(kb.folder).ids()) == ["S1", "S2"]
        assert [hit.text for hit in kb.query(["the city"], k=5)[0]] in (
            ["Paris", "river"],
            ["river", "Paris"],
        )
    assert list((tmp_path / "cache").iterdir()) == [kb.folder]
    assert told == [f"building the sample knowledge base, once, in {kb.folder}"]


def test_another_model_builds_another(
    new_model: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for threshold in (0.0, 0.1):
        model = tmp_path / f"model{threshold}"
        new_model(edge_threshold=threshold).save(model)
        for module in ("kbq.model.model_folder", "kbq.sample_kb"):
            monkeypatch.setattr(f"{module}.DEFAULT_MODEL", model)
        folders.append(KnowledgeBase.sample().folder)
    assert len(set(folders)) == 2


def test_another_format_builds_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before = KnowledgeBase.sample().folder
    monkeypatch.setattr(sample_kb, "FORMAT", 99)
    assert KnowledgeBase.sample().folder != before


def test_another_process_may_be_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = KnowledgeBase.build

    def slow(*arguments: object, **named: object) -> object:
        monkeypatch.setattr(KnowledgeBase, "build", built)
        KnowledgeBase.sample()  # the other process
        return built(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(KnowledgeBase, "build", slow)
    assert list(Pages.open(KnowledgeBase.sample().folder).ids()) == ["S1", "S2"]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_what_a_killed_first_use_left_long_ago_is_removed(tmp_path: Path) -> None:
    names = ("sample-aaaaaaaa", "sample-bbbbbbbb", "sample-notebook")
    for name, part in zip(names, ("kb", "kb", "texts"), strict=True):  # the last is somebody else's
        (tmp_path / "cache" / name / part).mkdir(parents=True)
    for name in (names[0], names[2]):
        os.utime(tmp_path / "cache" / name, (0, 0))
    folder = KnowledgeBase.sample().folder
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {folder.name, *names[1:]}


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KnowledgeBaseError("full")

    monkeypatch.setattr(KnowledgeBase, "build", fail)
    with pytest.raises(KnowledgeBaseError, match="full"):
        KnowledgeBase.sample()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(
        KnowledgeBaseError, match=r"cannot be written .*: set KBQ_CACHE to a folder of yours"
    ):
        KnowledgeBase.sample()
