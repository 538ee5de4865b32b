"""Reopening: a knowledge base that is changed while it is asked loses no request; a damaged one is
not taken.
"""

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.search.options import SearchOptions
from kbq.search.search import BATCH
from kbq.serve import knowledge_bases
from kbq.serve.batcher import Batcher
from kbq.serve.knowledge_bases import KnowledgeBases, OpenedKb
from kbq.serve.metrics import Metrics
from kbq.serve.tools import Tools
from kbq.text.queries import Query

from .conftest import Running, Serve

NEW = Page("N1", "Warsaw river", ["Marie Curie was born in the city of Warsaw."])


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge_bases, "EVERY", 0.02)
    monkeypatch.setattr(knowledge_bases, "AGAIN", 0.0)


@pytest.fixture
def folder(kb_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kb_folder, tmp_path / "kb"))


def until(claim: Callable[[], bool]) -> None:
    """Ask again and again, until something holds."""
    for _ in range(10_000):
        if claim():
            return
    pytest.fail("it never held")


def ready(service: Running) -> dict[str, Any]:
    found: dict[str, Any] = service.client.get("/readyz").json()["kbs"][0]
    return found


def pages(service: Running) -> int:
    return int(service.client.get("/v1/kbs").json()["kbs"][0]["pages"])


def test_new_pages_are_found_and_no_request_is_lost(serve: Serve, folder: Path) -> None:
    service = serve({"kb": folder})
    stop, statuses = threading.Event(), list[int]()

    def ask() -> None:
        while not stop.is_set():
            answer = service.client.post("/v1/query", json={"queries": ["the river"], "k": 1})
            statuses.append(answer.status_code)

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for thread in asking:
        thread.start()
    before = service.services.kbs.named().kb
    try:
        KnowledgeBase.open(folder, device="cpu").update([NEW])
        until(lambda: pages(service) == 13)
    finally:
        stop.set()
        for thread in asking:
            thread.join()
    assert set(statuses) == {200}
    assert service.client.get("/v1/pages/N1").json()["title"] == "Warsaw river"
    assert service.services.kbs.named().titles.listed("warsaw r", 0, 9)[0][0].page_id == "N1"
    kb = service.services.kbs.named().kb
    assert kb is not before
    assert kb.model is before.model  # the encoders stay
    assert service.query("Warsaw", k=3) == [
        {"query": "Warsaw", "exact": True, "unknown_words": []}
        | {
            "answers": [
                answer.to_dict()
                for answer in KnowledgeBase.open(folder, device="cpu").query("Warsaw", 3)
            ]
        }
    ]


@pytest.mark.parametrize("route", ["tools", "reconciliation"])
def test_all_cells_of_a_request_are_of_one_state(
    route: str, serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve({"kb": folder})
    (served,) = service.services.kbs
    before, asked = served.now, list[int]()
    search = before.kb.searcher.search

    def changed_meanwhile(queries: Sequence[Query], options: SearchOptions) -> Any:
        if not asked:
            changed = KnowledgeBase.open(folder, device="cpu").update([NEW])
            # As the watcher does, which waits for this thread.
            served._opened = OpenedKb("kb", changed)
        asked.append(len(queries))
        return search(queries, options)

    monkeypatch.setattr(before.kb.searcher, "search", changed_meanwhile)
    pages = before.titles.listed("", 0, 50)[0]
    names = [f"relation {number}" for number in range(BATCH // len(pages) + 1)]
    if route == "tools":
        filling = Tools(served, service.services.batcher).fill_table(
            [one.title for one in pages], names
        )
        asyncio.run_coroutine_threadsafe(filling, service.loop).result(60)
    else:
        ids = [one.page_id for one in pages]
        extend = {"ids": ids, "properties": [{"id": name} for name in names]}
        answer = service.client.post("/reconcile", data={"extend": json.dumps(extend)})
        assert answer.status_code == 200
        assert list(answer.json()["rows"]) == ids
    assert served.now is not before
    assert len(asked) > 1
    assert sum(asked) == len(pages) * len(names) > BATCH  # all of them from the one that was open


def test_a_replaced_folder_is_taken(serve: Serve, folder: Path, model: Any, tmp_path: Path) -> None:
    service = serve({"kb": folder})
    KnowledgeBase.build([NEW], tmp_path / "new", model, bm25=False)
    folder.rename(tmp_path / "old")
    (tmp_path / "new").rename(folder)
    until(lambda: pages(service) == 1)
    assert ready(service)["problem"] == ""


def test_another_model_is_opened(
    serve: Serve, folder: Path, other_folder: Path, tmp_path: Path
) -> None:
    service = serve({"kb": folder})
    KnowledgeBase.build([NEW], tmp_path / "new", other_folder, bm25=False)
    shutil.rmtree(folder)
    (tmp_path / "new").rename(folder)
    until(lambda: pages(service) == 1)
    assert service.services.kbs.named().kb.model.source == str(other_folder)
    assert service.query("Warsaw", k=1)[0]["answers"]


@pytest.mark.parametrize(
    "damage", ["a byte of the vectors", "the manifest", "a missing folder", "a missing shard"]
)
def test_a_damaged_one_is_refused_and_the_old_one_goes_on(
    serve: Serve, folder: Path, tmp_path: Path, damage: str
) -> None:
    service = serve({"kb": folder})
    answers = service.query("the river", k=2)
    new = Path(shutil.copytree(folder, tmp_path / "new"))
    KnowledgeBase.open(new, device="cpu").update([NEW])
    if damage == "a byte of the vectors":
        path = new / "shard-00000" / "vectors.npy"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    elif damage == "the manifest":
        (new / "manifest.json").write_text("{")
    elif damage == "a missing shard":
        shutil.rmtree(new / "shard-00001")
    folder.rename(tmp_path / "old")
    if damage != "a missing folder":
        new.rename(folder)
    until(lambda: ready(service)["problem"] != "")
    assert str(tmp_path) not in ready(service)["problem"]
    assert service.query("the river", k=2) == answers
    assert pages(service) == 12
    assert "cannot be used" in service.client.get("/").text
    assert (
        b'kbq_reopened_total{kb="kb",outcome="refused"}' in service.client.get("/metrics").content
    )
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(tmp_path / "old", folder)  # it is restored
    until(lambda: ready(service)["problem"] == "")
    assert service.query("the river", k=2) == answers


def test_freed_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given = threading.Event()
    monkeypatch.setattr(knowledge_bases, "give_memory_back", given.set)

    async def watch() -> bool:
        async with Batcher() as batcher:
            watching = asyncio.create_task(KnowledgeBases([]).watch(batcher.call, Metrics()))
            is_given = await asyncio.to_thread(given.wait, 30)
            watching.cancel()
            return is_given

    assert asyncio.run(watch())
