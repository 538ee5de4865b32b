"""Company: a query has the same answers, to the last bit, alone, in any batch, and from merged
groups of shards.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest
from random_queries import WORDS, random_queries

from kbq.answers import Answer, BuiltKind
from kbq.corpus.pages import Page, Paragraph
from kbq.dump import resumable_build
from kbq.index import base, cells, factory
from kbq.index.base import CPU, KnowledgeBaseSize
from kbq.index.factory import open_index
from kbq.kb import KnowledgeBase
from kbq.maintain import indexes
from kbq.model.model import Model
from kbq.search.options import Backend, SearchOptions, Unit
from kbq.search.search import LexicalScores, SearchContext, Wanted, merged, search
from kbq.text.queries import Query

K = 3
QUERIES = random_queries(6, seed=6)
BY_KIND: list[tuple[BuiltKind, Backend, Unit]] = [
    *(
        (kind, backend, unit)
        for kind in get_args(BuiltKind)
        for backend in ("dense", "hybrid")
        for unit in get_args(Unit)
    ),
    *(("exact", backend, unit) for backend in ("bm25", "sparta") for unit in ("paragraph", "page")),
]


@pytest.fixture(scope="module")
def roughly() -> Iterator[None]:
    """Few hits are rescored, so that an approximate search differs from an exact one; shards are
    small.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumable_build, "BLOCK_CHARACTERS", 300)
        patch.setattr(resumable_build, "SHARD_ROWS", 170)
        patch.setattr(indexes, "OWN_QUERIES", 30)
        patch.setattr(cells, "LEAST_HITS", 4)
        for kind, codes in factory.CODES.items():
            patch.setitem(
                factory.CODES,
                kind,
                dataclasses.replace(codes, overfetch=1 if codes.together else 2),
            )
        yield


@pytest.fixture(scope="module")
def folder(
    roughly: None,
    new_model: Callable[..., Model],
    with_every_index: Callable[[Path, list[Page], Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A knowledge base of eight or so shards, with every kind of index, in which some paragraphs
    occur twice.
    """
    source = random.Random(3)
    texts = [" ".join(source.choices(WORDS, k=6)) + ". Born in Paris." for _ in range(150)]
    pages = [
        Page(f"P{n}", "Page", (Paragraph(0, texts[n]), Paragraph(2, texts[n // 2])))
        for n in range(150)
    ]
    folder, model = tmp_path_factory.mktemp("company"), new_model()
    model.config = dataclasses.replace(model.config, lexical_factor=0.5, length_penalty=0.1)
    model.save(folder / "model")
    return with_every_index(folder, pages, folder / "model")


@pytest.fixture(scope="module")
def by_kind(folder: Path) -> dict[BuiltKind, KnowledgeBase]:
    """The knowledge base, opened with each of its indexes."""
    return {
        kind: KnowledgeBase.open(folder, index=kind, device="cpu") for kind in get_args(BuiltKind)
    }


def asked(
    kb: KnowledgeBase, texts: Sequence[str], backend: Backend, unit: Unit
) -> list[list[Answer]]:
    return kb.searcher.search(list(map(Query.of, texts)), SearchOptions(K, unit, backend))


def of_part(scores: LexicalScores, part: slice) -> LexicalScores:
    return LexicalScores(
        scores._shards[part], scores._indexes[part], scores._terms, scores._weight, scores._slots
    )


def asked_in_parts(
    kb: KnowledgeBase, backend: Backend, unit: Unit, count: int
) -> list[list[Answer]]:
    """The answers of `count` searches, each of some of the shards and with an index of these only."""
    answers, whole = [], KnowledgeBaseSize.of(kb.searcher.shards)
    for part in whole.parts(count):
        if backend in ("bm25", "sparta"):
            scores = of_part(kb.searcher.words.scores(list(map(Query.of, QUERIES)), backend), part)
            answers.append([scores.best(query, unit, K) for query in range(len(QUERIES))])
            continue
        lexical: Sequence[LexicalScores] = ()
        if backend == "hybrid":
            lexical = [
                of_part(scores, part)
                for scores in kb.searcher.words.all_scores(
                    list(map(Query.of, QUERIES)), *kb.searcher.plan(SearchOptions()).weights
                )
            ]
        index = open_index(kb.searcher.shards[part], kb.index, CPU, whole=whole)
        context = SearchContext(kb.searcher.shards[part], index, kb.model.config.length_penalty)
        vectors = kb.model.in_row_units(*kb.model.encode_queries(QUERIES))
        answers.append(search(context, vectors, K, unit, lexical))
    return [merged(of_query, K) for of_query in zip(*answers, strict=True)]


@pytest.mark.parametrize(("kind", "backend", "unit"), BY_KIND)
def test_answers_do_not_depend_on_the_batch(
    by_kind: dict[BuiltKind, KnowledgeBase], kind: BuiltKind, backend: Backend, unit: Unit
) -> None:
    kb = by_kind[kind]
    together = asked(kb, QUERIES, backend, unit)
    assert [len(answers) for answers in together] == [K] * len(QUERIES)
    source = random.Random(f"{backend} {unit}")
    for size in (1, 2, source.randint(3, 5)):
        picked = source.sample(range(len(QUERIES)), size)
        assert asked(kb, [QUERIES[n] for n in picked], backend, unit) == [
            together[n] for n in picked
        ]


@pytest.mark.parametrize("backend", ["dense", "hybrid"])
def test_several_kinds_of_answers_are_those_of_single_searches(
    by_kind: dict[BuiltKind, KnowledgeBase], backend: Backend
) -> None:
    kb = by_kind["exact"]
    plan = kb.searcher.plan(SearchOptions(backend=backend))
    wanted: list[Wanted] = [(10, "phrase"), (K, "page"), (30, "page"), (1, "sentence")]
    queries = list(map(Query.of, QUERIES))
    together = kb.searcher._found(queries, plan, *wanted)
    assert together == [kb.searcher._found(queries, plan, each)[0] for each in wanted]
    assert [len(answers[0]) for answers in together] == [10, K, 30, 1]


@pytest.mark.parametrize(("kind", "backend", "unit"), BY_KIND)
def test_answers_do_not_depend_on_the_parts_that_are_searched(
    by_kind: dict[BuiltKind, KnowledgeBase], kind: BuiltKind, backend: Backend, unit: Unit
) -> None:
    together = asked_in_parts(by_kind[kind], backend, unit, 1)
    for count in (2, 3, 7):
        assert asked_in_parts(by_kind[kind], backend, unit, count) == together


@pytest.mark.parametrize("backend", ["dense", "hybrid"])
@pytest.mark.parametrize("kind", ["disk", "compact"])
def test_groups_may_be_of_several_shards(
    by_kind: dict[BuiltKind, KnowledgeBase],
    kind: BuiltKind,
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "MOST_GROUPS", 4)
    assert KnowledgeBaseSize.of(by_kind[kind].searcher.shards).together > 1
    assert asked_in_parts(by_kind[kind], backend, "phrase", 3) == asked_in_parts(
        by_kind[kind], backend, "phrase", 1
    )


@pytest.mark.parametrize("unit", ["phrase", "page"])
def test_what_a_reader_says_does_not_depend_on_the_batch(
    by_kind: dict[BuiltKind, KnowledgeBase], qa_checkpoint: Path, unit: Unit
) -> None:
    kb = by_kind["compact"]
    options = SearchOptions(K, unit, reader=str(qa_checkpoint), depth=4)
    together = kb.searcher.search(list(map(Query.of, QUERIES[:6])), options)
    assert [kb.searcher.search([Query.of(text)], options)[0] for text in QUERIES[:6]] == together


def test_one_search_is_that_of_the_only_part(by_kind: dict[BuiltKind, KnowledgeBase]) -> None:
    found = {kind: asked(kb, QUERIES, "dense", "phrase") for kind, kb in by_kind.items()}
    for kind, kb in by_kind.items():
        assert asked_in_parts(kb, "dense", "phrase", 1) == found[kind]
    # Or the tests above would say nothing of them.
    assert found["compact"] != found["exact"] != found["tiny"]


def test_equal_scores_are_merged_in_the_order_of_the_parts() -> None:
    def hits(part: str, *scores: float) -> list[Answer]:
        return [
            Answer("", score, f"{part}{place}", "", 0, 0, 0, "", (0, 0))
            for place, score in enumerate(scores)
        ]

    found = merged([hits("a", 3.0, 2.0, 1.0), [], hits("b", 3.0, 2.0), hits("c", 4.0)], 5)
    assert [hit.page_id for hit in found] == ["c0", "a0", "b0", "a1", "b1"]
    assert merged([], 3) == merged([[], []], 3) == []


@pytest.mark.parametrize(
    ("shards", "count", "parts"),
    [
        (1, 3, [(0, 1)]),
        (5, 2, [(0, 2), (2, 5)]),
        (24, 3, [(0, 8), (8, 16), (16, 24)]),
        (25, 7, [(0, 3), (3, 6), (6, 9), (9, 15), (15, 18), (18, 21), (21, 25)]),
        (0, 2, []),
    ],
)
def test_parts_are_of_whole_groups(shards: int, count: int, parts: list[tuple[int, int]]) -> None:
    assert [
        (part.start, part.stop)
        for part in KnowledgeBaseSize(shards, rows=100, shown=100).parts(count)
    ] == parts
