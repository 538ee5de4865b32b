"""Fixtures: knowledge bases with one or two shards, and one triple for each paragraph that they
answer.
"""

import importlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from kbq.answers import BuiltKind
from kbq.corpus.pages import Page
from kbq.dump.shards import CLOSES, OPENS, Shard
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold, GoldOutput
from kbq.model.model import Model
from kbq.text.answer_scores import normalise_answer

MODULE = importlib.import_module("kbq.tuning.finetune")
LegalSpans = Callable[[Shard, int], list[tuple[int, int, str]]]


@pytest.fixture(autouse=True)
def quick(few_watched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch is one pass."""
    monkeypatch.setattr(MODULE, "ENOUGH", 1)


@pytest.fixture(scope="session")
def legal_spans() -> LegalSpans:
    """First row, last row and text of every legal phrase of a paragraph, one by one."""

    def spans(shard: Shard, paragraph: int) -> list[tuple[int, int, str]]:
        rows = [row for row in range(len(shard)) if int(shard.paragraphs_of(row)) == paragraph]  # type: ignore[arg-type]
        text = shard.texts[paragraph]
        return [
            (first, last, text[int(shard.starts[first]) : int(shard.ends[last])])
            for first in rows
            for last in rows
            if first <= last and int(shard.positions[last]) - int(shard.positions[first]) < 20
            if shard.edges[first] & OPENS and shard.edges[last] & CLOSES
        ]

    return spans


@pytest.fixture(scope="session")
def two_shards(model: Model, pages: list[Page], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, the last five of them appended."""
    folder = tmp_path_factory.mktemp("kbs") / "two"
    KnowledgeBase.build(pages[:7], folder, model, bm25=False)
    KnowledgeBase.build(pages[7:], folder, model, append=True)
    return folder


@pytest.fixture(scope="session")
def built(
    model: Model, pages: list[Page], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """One shard, and two, with every kind of index."""
    pytest.importorskip("faiss")
    one, two = (tmp_path_factory.mktemp("kbs") / name for name in ("one", "two"))
    KnowledgeBase.build(pages, one, model, index="disk")
    KnowledgeBase.build(pages[:7], two, model, index="disk")
    KnowledgeBase.build(pages[7:], two, model, index="disk", append=True)
    for folder in (one, two):
        for kind in ("compact", "tiny"):
            KnowledgeBase.open(folder, device="cpu").index_vectors(kind)
    return one, two


@pytest.fixture(
    scope="session",
    params=[f"{kind}, {shards}" for kind in get_args(BuiltKind) for shards in (1, 2)],
)
def any_kb(request: pytest.FixtureRequest, kb_folder: Path, two_shards: Path) -> KnowledgeBase:
    """One shard or two, with each kind of index; tests read it only."""
    kind, shards = request.param.split(", ")
    if kind == "exact":
        folder = kb_folder if shards == "1" else two_shards
    else:
        folder = request.getfixturevalue("built")[int(shards) - 1]
    return KnowledgeBase.open(folder, device="cpu", index=kind)


@pytest.fixture
def own_kb(two_shards: Path) -> KnowledgeBase:
    """A knowledge base of two shards whose query encoder may be changed."""
    return KnowledgeBase.open(two_shards, device="cpu")


@pytest.fixture(scope="session")
def golds(kb: KnowledgeBase, legal_spans: LegalSpans) -> list[Gold]:
    """For each paragraph with kept tokens a slot whose answer is one of its phrases."""
    source = random.Random(6)
    (shard,) = kb.searcher.shards
    found: list[Gold] = []
    for paragraph in range(len(shard.texts)):
        texts = [
            text
            for _, _, text in legal_spans(shard, paragraph)
            if len(normalise_answer(text)) > 2 and len(text) < 40
        ]
        if texts:
            number = int(shard.paragraph_pages[paragraph])
            page, relation = shard.ids[number], ("birth", "place of birth")[paragraph % 2]
            text = f"{shard.titles[number]} {paragraph} [SEP] {relation}"
            output = GoldOutput(source.choice(texts), (page,), frozenset([page]), ())
            found.append(Gold(str(paragraph), paragraph + 1, text, {}, (output,)))
    return found


@pytest.fixture(scope="session")
def rows(golds: list[Gold]) -> list[dict[str, str]]:
    """The same as a table."""
    return [
        {
            "subject": str(gold.input).partition(" [SEP] ")[0],
            "relation": str(gold.input).partition(" [SEP] ")[2],
            "object": gold.outputs[0].answer,
            "page": gold.outputs[0].pages[0],
        }
        for gold in golds
    ]
