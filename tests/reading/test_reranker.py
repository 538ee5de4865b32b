"""Reranker: judged scores decide the order, alone as in company; nothing is lost, nothing overlaps."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kbq.answers import Answer
from kbq.english.statements import is_ruled_out
from kbq.errors import ModelError, QueryError
from kbq.kb import KnowledgeBase
from kbq.reading import phrase_windows
from kbq.reading import reranker as module
from kbq.reading.reader import Reader
from kbq.reading.reranker import (
    ELSEWHERE,
    SUPPORT,
    Candidate,
    in_order,
    judged_first,
)
from kbq.search.options import N_RERANKED, SearchOptions, Unit
from kbq.text.queries import Query

QUERIES = [
    "Marie Curie [SEP] place of birth",
    "Warsaw [SEP] river",
    "the river",
    "who was born in Paris?",
    "place [SEP] city",
    "Curie",
]
TEXT = "Marie Curie was born in Warsaw, in Poland."
ANY = Query.of("who?")


def answer(start: int, end: int, score: float, page: str = "1", paragraph: int = 0) -> Answer:
    return Answer(
        TEXT[start:end], score, page, "Marie Curie", paragraph, start, end, TEXT, (start, end)
    )


def seen(
    start: int, end: int, score: float, judged: float, page: str = "1", is_proposed: bool = False
) -> Candidate:
    return Candidate(answer(start, end, score, page), score, judged, is_proposed)


def places(answers: Sequence[Answer]) -> list[tuple[str, int, int]]:
    return [(one.page_id, one.start, one.end) for one in answers]


# Order


def test_scores_are_what_is_judged_and_a_share_of_the_search() -> None:
    candidates = [seen(0, 5, 20.0, 1.0), seen(24, 30, 18.0, 2.0), seen(35, 41, 10.0, 1.5)]
    found = in_order(candidates, 0.25, ANY)
    assert [(one.answer.text, one.answer.score) for one in found] == [
        ("Warsaw", 1.5),
        ("Marie", 1.0),
        ("Poland", -1.0),
    ]
    assert [one.answer.text for one in in_order(candidates, 0.0, ANY)] == [
        "Warsaw",
        "Poland",
        "Marie",
    ]


def test_an_adjective_supports_the_country_that_a_slot_asks_for() -> None:
    text = "A Norwegian chemist of Norway, and Denmark."

    def said(start: int, end: int, judged: float, page: str = "1") -> Candidate:
        return Candidate(
            Answer(text[start:end], 1.0, page, "", 0, start, end, text, (start, end)),
            1.0,
            judged,
            False,
        )

    candidates = [said(2, 11, 4.0), said(23, 29, 1.0), said(35, 42, 4.1)]
    together = SUPPORT * math.log(math.exp(4.0 / SUPPORT) + math.exp(1.0 / SUPPORT))
    found = in_order(candidates, 0.0, Query.of("Ellen [SEP] country of citizenship"))
    assert [(one.answer.text, one.answer.score) for one in found] == [
        ("Norway", pytest.approx(together)),
        ("Denmark", 4.1),
        ("Norwegian", 4.0),
    ]
    others = [said(2, 11, value, page) for value, page in ((-5.0, "2"), (3.9, "3"), (3.8, "4"))]
    of_others = SUPPORT * math.log(sum(math.exp(value / SUPPORT) for value in (-5.0, 3.9, 3.8)))
    found = in_order(candidates + others, 0.0, Query.of("Ellen [SEP] country of origin"))
    assert [(one.answer.text, one.answer.page_id, one.answer.score) for one in found] == [
        (
            "Norwegian",
            "3",
            pytest.approx(of_others),
        ),  # in paragraphs without the name, adjectives support each other
        ("Norway", "1", pytest.approx(together)),
        ("Denmark", "1", 4.1),
        ("Norwegian", "1", 4.0),
        ("Norwegian", "4", 3.8),
        ("Norwegian", "2", -5.0),
    ]
    apart = [said(2, 11, 4.0), said(23, 29, 1.0, page="2"), said(35, 42, 4.1)]
    for query, others in (
        ("Ellen [SEP] language", candidates),
        ("which country?", candidates),
        ("Ellen [SEP] country of origin", apart),
    ):
        assert [one.answer.score for one in in_order(others, 0.0, Query.of(query))] == [
            4.1,
            4.0,
            1.0,
        ]


def test_of_phrases_that_overlap_the_better_one_is_kept() -> None:
    candidates = [
        seen(0, 11, 20.0, 0.0),
        seen(24, 30, 20.0, 1.0),
        seen(0, 5, 20.0, 2.0),
        seen(0, 11, 20.0, -1.0, page="2"),
    ]
    assert places([one.answer for one in in_order(candidates, 1.0, ANY)]) == [
        ("1", 0, 5),
        ("1", 24, 30),
        ("2", 0, 11),
    ]


def test_phrases_with_one_text_support_the_best_of_them() -> None:
    candidates = [
        seen(24, 30, 20.0, 1.0),
        seen(35, 41, 20.0, 2.0),
        seen(24, 30, 20.0, 0.5, page="2"),
        seen(0, 5, 20.0, 2.5),
    ]
    found = in_order(candidates, 0.0, ANY)
    together = SUPPORT * math.log(math.exp(1.0 / SUPPORT) + math.exp(0.5 / SUPPORT))
    assert [(one.answer.text, one.answer.page_id) for one in found] == [
        ("Warsaw", "1"),
        ("Marie", "1"),
        ("Poland", "1"),
        ("Warsaw", "2"),
    ]
    assert [one.answer.score for one in found] == pytest.approx([together, 2.5, 2.0, 0.5])


def test_what_overlaps_supports_nothing() -> None:
    candidates = [seen(24, 30, 20.0, 1.0), seen(24, 30, 20.0, 1.0), seen(35, 41, 20.0, 1.5)]
    assert [(one.answer.text, one.answer.score) for one in in_order(candidates, 0.0, ANY)] == [
        ("Poland", 1.5),
        ("Warsaw", 1.0),
    ]


def test_what_is_ruled_out_comes_last() -> None:
    candidates = [seen(0, 5, 20.0, 9.0), seen(35, 41, 20.0, 2.0)]
    found = in_order(candidates, 0.25, Query.of("Marie [SEP] employer"))
    assert [(one.answer.text, one.judged, one.answer.score) for one in found] == [
        ("Poland", 2.0, 2.0),
        ("Marie", -30.0, -30.0),
    ]
    assert [
        one.answer.text for one in in_order(candidates, 0.25, Query.of("Marie [SEP] birth name"))
    ] == [
        "Marie",
        "Poland",
    ]


@pytest.mark.parametrize(
    ("query", "before", "text", "nothing"),
    [
        ("Marie Curie [SEP] employer", "", "Marie Curie", True),  # nobody employs herself
        ("marie  CURIE [SEP] spouse", "", "Marie Curie", True),
        ("Anna Marie Curie [SEP] spouse", "", "Marie Curie", True),
        (
            "Anna Marie Curie [SEP] employer",
            "",
            "Marie Curie",
            False,
        ),  # "Walter Chrysler", of Chrysler
        ("Marie Curie [SEP] birth name", "", "Marie Curie", False),
        ("Wright [SEP] notable work", "wrote ", "Native Son", False),
        ("Wright [SEP] occupation", "the ", "only child", True),
        ("Wright [SEP] spouse", "married ", "her", True),
        ("Wright [SEP] spouse", "", "She", True),
        ("King [SEP] notable work", "wrote ", "It", False),
        ("Wright [SEP] country of citizenship", "", "US", False),
        ("Wright [SEP] residence", "in Mödling, south of ", "Vienna", True),
        ("Wright [SEP] residence", "lived south of ", "Vienna", False),
        ("Wright [SEP] residence", "lived in ", "Vienna", False),
        ("Baden [SEP] country", "the home of an ", "Austrian", True),
        ("Baden [SEP] country", "Baden is a small Lower ", "Austrian", False),
        ("Wright [SEP] country of citizenship", "the ", "Austrian", False),
        ("Bo [SEP] father", "Bo is the son of the late King ", "Ann", False),
        ("Bo [SEP] spouse", "Bo is the son of the late King ", "Ann", True),
        ("Bo [SEP] mother", "He is the son -in- law of actress ", "Ann", True),
        ("Bo [SEP] relative", "He is the son-in-law of ", "Ann", False),
        ("Bo [SEP] father", "Bo was the great-grandson of ", "Ann", True),
        ("Bo [SEP] father", "Bo was the father of ", "Ann", True),
        ("Bo [SEP] child", "Bo was the father of ", "Ann", False),
        ("Bo [SEP] sibling", "a half-brother of Sir ", "Ann", False),
        ("Bo [SEP] spouse", "the daughter of Kai and wife of ", "Ann", False),
        ("Bo [SEP] spouse", "In 1930, his cousin married ", "Ann", False),
        ("Bo [SEP] notable work", "a biography of the father of ", "Ann", False),
        ("who is she?", "", "she", False),
    ],
)
def test_some_answers_say_nothing(query: str, before: str, text: str, nothing: bool) -> None:
    context = before + text
    said = Answer(text, 1.0, "1", "", 0, len(before), len(context), context, (0, 1))
    assert is_ruled_out(Query.of(query), said) == nothing


def test_the_page_of_the_subject_comes_before_others() -> None:
    candidates = [seen(24, 30, 20.0, 4.0, "2"), seen(35, 41, 20.0, 2.0)]
    candidates[0] = candidates[0]._replace(answer=replace(candidates[0].answer, title="Ann Curie"))
    for query, texts in (
        ("Marie Curie [SEP] place of birth", ["Poland", "Warsaw"]),
        ("Ann [SEP] place of birth", ["Warsaw", "Poland"]),  # who has no page among these
        ("Where was Marie Curie born?", ["Warsaw", "Poland"]),
    ):
        assert [one.answer.text for one in in_order(candidates, 0.25, Query.of(query))] == texts
    found = in_order(candidates, 0.25, Query.of("Marie Curie [SEP] place of birth"))
    assert [one.answer.score for one in found] == [2.0, 4.0 - ELSEWHERE]


@pytest.mark.parametrize(
    ("behind", "nothing"),
    [(" and Bo.", False), (" (1801 - 1870) and his wife Bo.", False), (", a friend of Bo.", True)],
)
def test_two_parents_may_be_a_couple(behind: str, nothing: bool) -> None:
    context = "Kim is a child of Ann" + behind
    answer = Answer("Ann", 1.0, "1", "", 0, 18, 21, context, (18, 21))
    assert is_ruled_out(Query.of("Bo [SEP] spouse"), answer) == nothing
    assert is_ruled_out(Query.of("Bo [SEP] sibling"), answer)


def test_nothing_gives_nothing() -> None:
    assert in_order([], 1.0, ANY) == []
    assert judged_first([], [answer(0, 5, 3.0)], "phrase") == [answer(0, 5, 3.0)]


def test_what_was_not_judged_follows_with_its_distances() -> None:
    candidates = [seen(0, 5, 2.5, 2.5), seen(24, 30, -1.0, -1.0)]
    found = [
        answer(0, 5, 90.0),
        answer(24, 30, 80.0),
        answer(35, 41, 70.0),
        answer(0, 11, 60.0),
        answer(12, 15, 50.0),
    ]
    answers = judged_first(candidates, found, "phrase")
    assert [(one.text, one.score) for one in answers] == [
        ("Marie", 2.5),
        ("Warsaw", -1.0),
        ("Poland", -1.0),
        ("was", -21.0),
    ]


def test_of_each_page_the_best_phrase_is_given() -> None:
    candidates = [
        seen(0, 5, 3.0, 3.0, "2"),
        seen(24, 30, 2.0, 2.0, "1"),
        seen(35, 41, 1.0, 1.0, "2"),
    ]
    found = [
        answer(35, 41, 90.0, "1"),
        answer(35, 41, 80.0, "3"),
        answer(0, 5, 70.0, "2"),
        answer(0, 5, 60.0, "4"),
    ]
    answers = judged_first(candidates, found, "page")
    assert [(one.page_id, one.start, one.score) for one in answers] == [
        ("2", 0, 3.0),
        ("1", 24, 2.0),
        ("3", 35, 2.0),
        ("4", 0, -18.0),
    ]


def test_of_each_paragraph_the_best_phrase_is_given_as_the_whole_paragraph() -> None:
    candidates = [seen(0, 5, 3.0, 3.0), seen(24, 30, 2.0, 2.0, "2"), seen(35, 41, 1.0, 1.0)]
    elsewhere = replace(answer(0, 5, 90.0), paragraph=8)
    answers = judged_first(candidates, [answer(35, 41, 95.0), elsewhere], "paragraph")
    assert [(one.page_id, one.paragraph, one.start, one.score) for one in answers] == [
        ("1", answers[0].paragraph, 0, 3.0),
        ("2", answers[0].paragraph, 24, 2.0),
        ("1", 8, 0, 2.0),
    ]
    assert answers[0].unit == (0, len(answers[0].context))


# With a network


@pytest.mark.parametrize("unit", ["phrase", "page"])
def test_answers_do_not_depend_on_the_batch(judging_kb: KnowledgeBase, unit: Unit) -> None:
    together = judging_kb.query(QUERIES, 5, unit)
    assert [judging_kb.query(text, 5, unit) for text in QUERIES] == together
    assert judging_kb.query(QUERIES[::-1], 5, unit) == together[::-1]


@pytest.mark.parametrize("k", [1, 3, N_RERANKED, N_RERANKED + 1, 40])
def test_there_are_as_many_answers_as_without_and_none_overlap(
    judging_kb: KnowledgeBase, k: int
) -> None:
    plain, reranked = judging_kb.query(QUERIES, k, rerank=0), judging_kb.query(QUERIES, k)
    assert (
        [len(answers) for answers in reranked]
        == [len(answers) for answers in plain]
        == [k] * len(QUERIES)
    )
    for answers in reranked:
        scores = [one.score for one in answers]
        assert scores == sorted(scores, reverse=True)
        for number, one in enumerate(answers):
            assert one.text == one.context[one.start : one.end]
            assert not any(module._overlap(one, other) for other in answers[:number])


def test_pages_are_those_of_the_search_in_another_order(judging_kb: KnowledgeBase) -> None:
    plain, reranked = (
        judging_kb.query(QUERIES, 9, "page", rerank=0),
        judging_kb.query(QUERIES, 9, "page"),
    )
    for before, after in zip(plain, reranked, strict=True):
        assert {one.page_id for one in after} == {one.page_id for one in before}
    orders = [
        [[one.page_id for one in answers] for answers in found] for found in (plain, reranked)
    ]
    assert orders[0] != orders[1]
    phrases = judging_kb.query(QUERIES, 1)
    assert [answers[0] for answers in reranked] == [answers[0] for answers in phrases]


def test_a_phrase_is_judged_by_itself(judging_kb: KnowledgeBase) -> None:
    """Whatever else of other paragraphs is judged beside it."""
    reader = judging_kb.searcher.reranking.reader
    found = judging_kb.query(QUERIES[0], 6, rerank=0)
    ids = reader.query_tokenizer.ids_of(QUERIES[0])
    (together,) = module.rerank_found(reader, [ids], [found], [reader.phrase_judge])
    assert [one.answer for one in together[:6]] == found
    for paragraph in {(one.page_id, one.paragraph) for one in found}:
        mine = [one for one in found if (one.page_id, one.paragraph) == paragraph]
        (alone,) = module.rerank_found(reader, [ids], [mine], [reader.phrase_judge])
        of_all = [
            one for one in together if (one.answer.page_id, one.answer.paragraph) == paragraph
        ]
        assert [(one.judged, one.answer.place) for one in alone] == [
            (one.judged, one.answer.place) for one in of_all
        ]


def test_the_reader_proposes_what_it_would_have_chosen(judging_kb: KnowledgeBase) -> None:
    """Its logits decide; the judge adds the same to all phrases here."""
    reader = judging_kb.searcher.reranking.reader
    found = judging_kb.query(QUERIES[0], 8, rerank=0)
    (candidates,) = module.rerank_found(
        reader, [reader.query_tokenizer.ids_of(QUERIES[0])], [found], [reader.phrase_judge]
    )
    proposed = [one for one in candidates if one.is_proposed]
    assert proposed
    for one in proposed:
        assert one.answer.text == one.answer.context[one.answer.start : one.answer.end]
        assert one.answer.place not in {other.place for other in found}
        inside = [other for other in found if module._overlap(one.answer, other)]
        assert len(inside) < 2
    with torch.no_grad():
        judge = reader.phrase_judge
        before = {name: value.clone() for name, value in judge.state_dict().items()}
        judge.outer.weight.zero_()
        judge.outer.bias.zero_()
        (plain,) = module.rerank_found(
            reader, [reader.query_tokenizer.ids_of(QUERIES[0])], [found], [reader.phrase_judge]
        )
        judge.load_state_dict(before)
    for one in (one for one in plain if one.is_proposed):
        near = [
            o
            for o in plain
            if (o.answer.page_id, o.answer.paragraph) == (one.answer.page_id, one.answer.paragraph)
        ]
        assert one.judged == max(other.judged for other in near)


def test_a_mention_is_not_looked_up_again(judging_kb: KnowledgeBase) -> None:
    text = "the [START_ENT] river [END_ENT] of Paris"
    for unit in ("phrase", "page"):
        assert judging_kb.query(text, 4, unit) == judging_kb.query(text, 4, unit, rerank=0)


def test_a_query_that_the_reader_cannot_read_keeps_its_order(
    judging_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = judging_kb.query(QUERIES[0], 4, rerank=0)
    reader = judging_kb.searcher.reranking.reader
    monkeypatch.setattr(reader.query_tokenizer, "max_tokens", 3)
    assert judging_kb.query(QUERIES[0], 4) == expected


def test_sentences_are_those_of_the_search(judging_kb: KnowledgeBase) -> None:
    assert judging_kb.query(QUERIES, 3, "sentence") == judging_kb.query(
        QUERIES, 3, "sentence", rerank=0
    )
    with pytest.raises(QueryError, match="rerank=… has no effect where sentences are asked for"):
        judging_kb.query(QUERIES, 3, "sentence", rerank=5)


def test_paragraphs_are_those_of_the_search_in_another_order(judging_kb: KnowledgeBase) -> None:
    everything = 10_000

    def paragraphs(answers: Sequence[Answer]) -> list[tuple[str, int, tuple[int, int]]]:
        return sorted((hit.page_id, hit.paragraph, hit.unit) for hit in answers)

    for text in QUERIES:
        searched = judging_kb.query(text, everything, "paragraph", rerank=0)
        assert paragraphs(judging_kb.query(text, everything, "paragraph")) == paragraphs(searched)


def test_one_reader_judges_and_reads(judging_kb: KnowledgeBase) -> None:
    assert (
        judging_kb.searcher.reader(judging_kb.searcher.reranking.base)
        is judging_kb.searcher.reranking.reader
    )


def test_how_many_are_looked_at(judging_kb: KnowledgeBase) -> None:
    assert judging_kb.searcher.reranking.n_reranked(SearchOptions()) == N_RERANKED == 10
    assert judging_kb.searcher.reranking.n_reranked(SearchOptions(rerank=3)) == 3
    assert judging_kb.searcher.reranking.n_reranked(SearchOptions(rerank=0)) == 0
    assert judging_kb.searcher.reranking.n_reranked(SearchOptions(backend="bm25")) == 0
    (one,) = judging_kb.query(QUERIES[0], 1, rerank=1)
    first = judging_kb.query(QUERIES[0], 1, rerank=0)[0]
    # Or what the reader proposes there.
    assert (one.page_id, one.paragraph) == (
        first.page_id,
        first.paragraph,
    )
    with pytest.raises(QueryError, match="rerank is -1, must be at least 0"):
        judging_kb.query(QUERIES[0], rerank=-1)
    with pytest.raises(QueryError, match="no effect where bm25 finds no phrases"):
        judging_kb.query(QUERIES[0], 1, "page", "bm25", rerank=3)


def test_a_model_without_a_judge_does_without(kb: KnowledgeBase, qa_checkpoint: Path) -> None:
    assert kb.query(QUERIES[0], 3) == kb.query(QUERIES[0], 3, rerank=0)
    with pytest.raises(QueryError, match="has no reader that judges phrases: leave it out"):
        kb.query(QUERIES[0], 3, rerank=10)
    with pytest.raises(ModelError, match="does not judge phrases"):
        module.rerank(
            Reader.open(str(qa_checkpoint), "cpu"), [Query.of("the river")], [[answer(0, 5, 1.0)]]
        )


def test_the_judge_is_stored_with_the_reader(judging_model: Path) -> None:
    first, second = (Reader.open(str(judging_model), "cpu").phrase_judge for _ in range(2))
    assert {name: tuple(value.shape) for name, value in first.state_dict().items()} == {
        "none": (1,),
        "retrieval": (1,),
        "inner.weight": (16, 32),
        "inner.bias": (16,),
        "outer.weight": (1, 16),
        "outer.bias": (1,),
    }
    assert all(
        torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items()
    )


def test_a_heavier_search_wins(judging_kb: KnowledgeBase) -> None:
    plain = judging_kb.query(QUERIES[1], 10, rerank=0)
    reader = judging_kb.searcher.reranking.reader
    (candidates,) = module.rerank(reader, [Query.of(QUERIES[1])], [plain], 1e6)
    found = [replace(one.answer, score=0.0) for one in candidates if not one.is_proposed]
    assert found == [replace(one, score=0.0) for one in plain if replace(one, score=0.0) in found]


def test_a_gpu_judges_all_queries_together_and_each_as_if_it_were_alone(
    judging_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches have one shape, whoever asks; here a CPU computes them."""
    reader = judging_kb.searcher.reranking.reader
    judge = copy.deepcopy(reader.phrase_judge)
    ids = [reader.query_tokenizer.ids_of(text) for text in QUERIES]
    found, judges = (
        judging_kb.query(QUERIES, 9, rerank=0),
        [reader.phrase_judge, *[judge] * (len(ids) - 1)],
    )
    expected = module.rerank_found(reader, ids, found, judges)
    monkeypatch.setattr(phrase_windows, "is_batch_invariant", lambda network, device: False)
    monkeypatch.setattr(phrase_windows, "PHRASES", 16)
    calls: list[int] = []
    monkeypatch.setattr(type(judge), "forward", counting(type(judge).forward, calls))
    together = module.rerank_found(reader, ids, found, judges)
    assert set(calls) == {16}
    for number, candidates in enumerate(together):
        part = slice(number, number + 1)
        (alone,) = module.rerank_found(reader, ids[part], found[part], judges[part])
        assert alone == candidates
        assert [one.answer for one in candidates] == [one.answer for one in expected[number]]
        assert [one.judged for one in candidates] == pytest.approx(
            [one.judged for one in expected[number]], abs=0.05
        )


def counting(forward: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def counted(self: Any, edges: Any) -> Any:
        calls.append(len(edges))
        return forward(self, edges)

    return counted
