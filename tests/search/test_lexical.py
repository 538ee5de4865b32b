"""Lexical scores: a hybrid score is the phrase's own plus the weighted words of its paragraph, for
every unit.
"""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from kbq.answers import Answer
from kbq.corpus.pages import Page, Paragraph
from kbq.errors import QueryError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search.options import Backend, Unit
from kbq.search.search import LexicalScores, SummedBonus
from kbq.text.queries import Query
from kbq.words.bm25 import RELATION, query_words

TEXTS = ["Marie Curie [SEP] place of birth", "the river of Paris"]


@pytest.fixture(scope="module", params=[1, 3], ids=["one shard", "three shards"])
def kb(
    request: pytest.FixtureRequest,
    pages: list[Page],
    model: Model,
    tmp_path_factory: pytest.TempPathFactory,
) -> KnowledgeBase:
    folder, size = tmp_path_factory.mktemp("evidence") / "kb", 12 // request.param
    for first in range(0, 12, size):
        kb = KnowledgeBase.build(pages[first : first + size], folder, model, append=first > 0)
    return kb


def word_scores(kb: KnowledgeBase, text: str) -> dict[tuple[str, int], float]:
    """Of (page, paragraph): the BM25 of its words, a quarter for those of a relation, and the
    points of a name.
    """
    words, scores = kb.searcher.words, dict[tuple[str, int], float]()
    terms = query_words(Query.of(text), words.bm25)
    shares = [RELATION if term in ("place", "birth") else 1.0 for term in terms]
    for shard, index in zip(kb.searcher.shards, words.bm25, strict=True):
        of_shard = index.scores(terms, shares)
        named = words.naming(Query.of(text)).of_shards.get(shard.folder.name)
        if named is not None:
            of_shard[named.paragraphs] += named.points
        for number, page in enumerate(shard.paragraph_pages.tolist()):
            scores[shard.ids[page], int(shard.paragraph_numbers[number])] = float(of_shard[number])
    return scores


def test_words_are_searched_where_they_are_indexed(kb: KnowledgeBase) -> None:
    found = kb.query(TEXTS, 5)
    assert found == kb.query(TEXTS, 5, backend="hybrid")
    assert found != kb.query(TEXTS, 5, backend="dense")


def place(hit: Answer) -> tuple[tuple[str, int, int, int], tuple[int, int]]:
    return (hit.place, hit.unit)


@pytest.mark.parametrize("k", [1, 3, 1000])
@pytest.mark.parametrize("unit", get_args(Unit))
def test_hybrid_scores_are_sums(unit: Unit, k: int, kb: KnowledgeBase) -> None:
    inside: Unit = "paragraph" if unit == "page" else unit
    found = kb.query(TEXTS, k, unit, "hybrid", bm25_weight=2.0)
    for text, dense, hybrid in zip(
        TEXTS, kb.query(TEXTS, 1000, inside, "dense"), found, strict=True
    ):
        bonus = word_scores(kb, text)
        expected = {
            place(hit): hit.score + 2 * bonus.get((hit.page_id, hit.paragraph), 0) for hit in dense
        }
        best = sorted(expected, key=lambda one: -expected[one])
        if unit == "page":
            best = list({phrase[0]: (phrase, whole) for phrase, whole in reversed(best)}.values())
            best.sort(key=lambda one: -expected[one])
        assert [place(hit) for hit in hybrid] == best[:k]
        assert [hit.score for hit in hybrid] == pytest.approx(
            [expected[one] for one in best[:k]], abs=1e-3
        )


def test_without_weight_it_is_the_dense_search(kb: KnowledgeBase) -> None:
    assert kb.query(TEXTS, 5, "phrase", "hybrid", bm25_weight=0) == kb.query(
        TEXTS, 5, backend="dense"
    )


@pytest.fixture(scope="module")
def dogs_kb(model: Model, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    """Three pages; the words of the query `red dogs` stand in b0 and, less often, in a4; `dogs`
    alone in b1.
    """
    pages = [
        Page(
            "a",
            "Cats",
            (Paragraph(2, "Cats sleep."), Paragraph(4, "A red cat met dogs in a large garden.")),
        ),
        Page("b", "Dogs", (Paragraph(0, "Red dogs, red dogs."), Paragraph(1, "They bark."))),
        Page("c", "Birds", (Paragraph(0, "Birds sing."),)),
    ]
    return KnowledgeBase.build(pages, tmp_path_factory.mktemp("pages") / "kb", model)


@pytest.mark.parametrize(
    ("unit", "k", "expected"),
    [
        ("paragraph", 9, [("b", 0), ("a", 4), ("b", 1)]),
        ("paragraph", 2, [("b", 0), ("a", 4)]),
        ("page", 9, [("b", 0), ("a", 4)]),
        ("page", 1, [("b", 0)]),
    ],
)
def test_bm25_alone_ranks_paragraphs_and_pages(
    unit: Unit, k: int, expected: list[tuple[str, int]], dogs_kb: KnowledgeBase
) -> None:
    (hits,) = dogs_kb.query(["red [SEP] dogs"], k, unit, "bm25")
    assert [(hit.page_id, hit.paragraph) for hit in hits] == expected
    assert (hits[0].text, hits[0].unit, hits[0].title) == ("Red dogs, red dogs.", (0, 19), "Dogs")
    assert hits[0].score > hits[-1].score or k == 1


def test_words_alone_rank_the_paragraphs_of_all_shards(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    for first in range(0, 12, 4):
        kb = KnowledgeBase.build(pages[first : first + 4], tmp_path / "kb", model, append=first > 0)
    (hits,) = kb.query(["the city river"], 99, "paragraph", "bm25")
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    everywhere = np.concatenate(
        [index.scores(["citi", "river"]) for index in kb.searcher.words.bm25]
    )
    assert scores == pytest.approx(np.sort(everywhere[everywhere > 0])[::-1])


def test_what_shares_no_word_is_not_found(dogs_kb: KnowledgeBase) -> None:
    assert dogs_kb.query(["whale", "sing"], 5, "page", "bm25")[0] == []
    assert [hit.page_id for hit in dogs_kb.query(["whale", "sing"], 5, "page", "bm25")[1]] == ["c"]


def test_the_bonus_of_all_sources_is_their_sum(dogs_kb: KnowledgeBase) -> None:
    one, other = (
        LexicalScores(
            dogs_kb.searcher.shards, dogs_kb.searcher.words.bm25, [["sing"], terms], weight
        )
        for terms, weight in ((["dog"], 10.0), (["sing"], 1.0))
    )
    expected = one.bonus(0, [1, 0]) + other.bonus(0, [1, 0])
    for _ in range(2):  # nothing is added to what a source keeps
        assert SummedBonus([one, other], [1, 0])[0].tolist() == expected.tolist()


def test_evidence_weighs_every_paragraph(dogs_kb: KnowledgeBase) -> None:
    bonus = LexicalScores(
        dogs_kb.searcher.shards,
        dogs_kb.searcher.words.bm25,
        [["sing"], ["bark", "dog"]],
        weight=10.0,
    ).bonus(0, [1, 0])
    scores = dogs_kb.searcher.words.bm25[0].scores(["bark", "dog"])
    assert bonus[0] == pytest.approx(10 * scores)
    assert np.flatnonzero(bonus[1]).tolist() == [4]


@pytest.mark.parametrize("unit", ["phrase", "sentence"])
def test_bm25_finds_no_phrase(unit: Unit, dogs_kb: KnowledgeBase) -> None:
    with pytest.raises(
        QueryError, match=f"BM25 finds no {unit}: ask for paragraphs or pages, or .* hybrid"
    ):
        dogs_kb.query(["dogs"], 1, unit, "bm25")
    with pytest.raises(
        QueryError, match="SPARTA finds no phrase: ask for sentences, paragraphs or pages, or"
    ):
        dogs_kb.query(["dogs"], 1, "phrase", "sparta")


@pytest.mark.parametrize("backend", ["bm25", "hybrid"])
def test_a_knowledge_base_without_the_index_says_how_to_add_one(
    backend: Backend, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, bm25=False)
    with pytest.raises(
        QueryError, match=r"kb has no BM25 index: add one with `kbq index bm25 .*kb`"
    ):
        kb.query(["dogs"], 1, "page", backend)


@pytest.mark.parametrize("backend", ["bm25", "hybrid"])
def test_k_below_one_is_refused(backend: Backend, dogs_kb: KnowledgeBase) -> None:
    with pytest.raises(QueryError, match="k is 0, must be at least 1"):
        dogs_kb.query(["dogs"], 0, "page", backend)


def test_pages_of_several_shards_are_told_apart(kb: KnowledgeBase) -> None:
    pages = {page for (page, _), score in word_scores(kb, "the city river").items() if score > 0}
    hits = kb.query(["the city river"], 1000, "page", "bm25")[0]
    assert len(pages) > 5
    assert sorted(hit.page_id for hit in hits) == sorted(pages)
