"""Closing: an open knowledge base holds no file open, a closed one refuses to be asked, in one
sentence.
"""

import asyncio
import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.search.options import SearchOptions
from kbq.text.queries import Query

OPEN = Path("/proc/self/fd")
MAPS = Path("/proc/self/maps")
ASKED = "the knowledge base .* has been closed: open it again"


def open_files(folder: Path) -> list[str]:
    """The files of a folder that this process holds open."""
    links = [str(link.readlink()) for link in OPEN.iterdir() if link.is_symlink()]
    return [link for link in links if link.startswith(str(folder.resolve()))]


@pytest.mark.skipif(not OPEN.is_dir(), reason="this system does not list open files")
@pytest.mark.parametrize("kind", ["exact", "disk"])
def test_an_open_knowledge_base_holds_no_descriptor_and_a_closed_one_no_map(
    kind: Literal["exact", "disk"], kb: KnowledgeBase, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kb.folder, folder)
    if kind != "exact":
        kb.open(folder, kb.model).index_vectors(kind).close()
    with KnowledgeBase.open(folder, kb.model, index=kind) as opened:
        opened.query("Marie Curie [SEP] place of birth")
        assert open_files(folder) == []
        assert str(folder.resolve()) in MAPS.read_text()
    gc.collect()
    assert str(folder.resolve()) not in MAPS.read_text()


QUESTIONS: dict[str, Callable[[KnowledgeBase], object]] = {
    "query": lambda kb: kb.query("Curie"),
    "aquery": lambda kb: asyncio.run(kb.aquery("Curie")),
    "search": lambda kb: kb.searcher.search([Query.of("Curie")], SearchOptions()),
    "explain": lambda kb: kb.explain("Curie"),
    "unknown_words": lambda kb: kb.searcher.unknown_words(Query.of("Curie")),
    "predict": lambda kb: kb.predict([{"id": "1", "input": "Curie"}], "slot_filling"),
    "fill": lambda kb: kb.fill([{"subject": "Curie"}], ["place of birth"]),
    "titles": lambda kb: kb.searcher.titles,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_closed_knowledge_base_refuses_to_be_asked(question: str) -> None:
    with KnowledgeBase.sample(device="cpu") as closed:
        pass
    closed.close()  # once more: nothing happens
    with pytest.raises(KnowledgeBaseError, match=ASKED):
        QUESTIONS[question](closed)
    assert closed.counts.pages > 0
    assert not hasattr(closed, "no_such_name")


def test_queries_that_are_awaited_have_the_same_answers_while_the_loop_goes_on(
    kb_folder: Path,
) -> None:
    turns = 0

    async def asked(kb: KnowledgeBase) -> list[object]:
        nonlocal turns
        several = asyncio.gather(
            kb.aquery("the river", 2), kb.aquery(["Warsaw", "Paris"], 1), kb.aquery("born", k=1)
        )
        while not several.done():
            turns += 1
            await asyncio.sleep(0)
        return list(several.result())

    with KnowledgeBase.open(kb_folder, device="cpu") as kb:
        found = asyncio.run(asked(kb))
        assert found == [
            kb.query("the river", 2),
            kb.query(["Warsaw", "Paris"], 1),
            kb.query("born", k=1),
        ]
        thread = kb._thread
    assert turns > 1
    assert thread._shutdown
