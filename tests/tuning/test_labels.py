"""Labels: which phrases are right, checked by eye and against a search over all legal phrases."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from paragraphs import EncodedParagraph

from kbq.dump.shards import CLOSES, OPENS
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold, GoldOutput
from kbq.text.answer_scores import normalise_answer
from kbq.tuning.labels import MOST_GOLDS, Labeller, phrases_of

Spans = Callable[..., list[tuple[int, int, str]]]


def gold(*answers: str, page: str = "shard-0") -> Gold:
    pages = (page,) if page else ()
    outputs = tuple(GoldOutput(answer, pages, frozenset(pages), ()) for answer in answers)
    return Gold("1", 1, "a [SEP] b", {}, outputs)


def spelled(text: str, number: int = 0) -> EncodedParagraph:
    """A paragraph of which every word and mark was kept."""
    words = list(re.finditer(r"\w+|[^\w\s]", text))
    columns = (range(len(words)), (word.start() for word in words), (word.end() for word in words))
    arrays = [np.array(list(column), np.uint32) for column in columns]
    logits, edges = np.zeros(len(words), np.float32), np.full(len(words), OPENS | CLOSES, np.uint8)
    return EncodedParagraph(
        number, text, len(words), np.zeros((len(words), 2), np.int8), logits, edges, *arrays
    )


def found(labeller: Labeller, wanted: Gold) -> list[tuple[int, int, int]]:
    phrases = labeller.find(wanted)[0]
    return list(
        zip(phrases.shards.tolist(), phrases.starts.tolist(), phrases.ends.tolist(), strict=True)
    )


@pytest.mark.parametrize("page", ["shard-1", "Page 1"])
def test_a_text_is_right_where_it_equals_an_answer_and_a_page_by_id_or_title(
    page: str, make_shard: Callable[..., Any], encoded: Callable[..., Any]
) -> None:
    shard = make_shard([encoded([[1, 1]] * 3)], [encoded([[1, 1]] * 3)])  # twice w0 w1 w2
    wanted = gold("nothing", "The W1.", page=page)
    labels = Labeller([shard], [page]).label(
        phrases_of([(0, 0, 0), (0, 1, 1), (0, 4, 4), (0, 4, 5)]), wanted
    )
    assert labels.has_answer.tolist() == [False, True, True, False]
    assert labels.on_page.tolist() == [False, False, True, True]
    assert labels.positive("phrase").tolist() == [False, True, True, False]
    assert labels.positive("page").tolist() == [False, False, True, True]
    assert labels.positive("kilt").tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("page", "right"), [("shard-1", [False, True]), ("shard-9", [True, False])]
)
def test_without_an_answer_on_a_gold_page_the_page_is_right_and_without_that_the_answer(
    page: str, right: list[bool], make_shard: Callable[..., Any], encoded: Callable[..., Any]
) -> None:
    shard = make_shard([encoded([[1, 1]] * 3)], [encoded([[1, 1]] * 3)])
    labels = Labeller([shard], [page]).label(
        phrases_of([(0, 1, 1), (0, 3, 3)]), gold("w1", page=page)
    )
    assert labels.positive("kilt").tolist() == right


def test_no_phrases_have_no_labels(
    make_shard: Callable[..., Any], encoded: Callable[..., Any]
) -> None:
    labels = Labeller([make_shard([encoded([[1, 1]])])], ["shard-0"]).label(
        phrases_of([]), gold("w0")
    )
    assert labels.positive("kilt").tolist() == labels.positive("page").tolist() == []


def test_phrases_of_several_shards_are_labelled_in_their_order(
    make_shard: Callable[..., Any], encoded: Callable[..., Any]
) -> None:
    shards = [make_shard([encoded([[1, 1]] * 2)], name=name) for name in ("one", "two")]
    wanted = gold("w1", page="two-0")
    labels = Labeller(shards, ["two-0"]).label(
        phrases_of([(1, 1, 1), (0, 1, 1), (1, 0, 0)]), wanted
    )
    assert labels.has_answer.tolist() == [True, True, False]
    assert labels.on_page.tolist() == [True, False, True]


def test_an_id_goes_before_a_title_and_a_title_may_be_that_of_several_pages(
    make_shard: Callable[..., Any], encoded: Callable[..., Any]
) -> None:
    shards = [
        make_shard([encoded([[1, 1]])], [encoded([[1, 1]])], name=name)
        for name in ("Page 1", "two")
    ]
    labeller = Labeller(shards, ["Page 0", "Page 1-0", "nowhere"])
    assert labeller.page_ids("Page 0") == ["two-0"] or labeller.page_ids("Page 0") == [
        "Page 1-0",
        "two-0",
    ]
    assert labeller.page_ids("Page 1-0") == ["Page 1-0"]
    assert labeller.page_ids("nowhere") == []


def test_a_page_may_be_named_by_its_id_and_by_its_title(
    make_shard: Callable[..., Any], encoded: Callable[..., Any]
) -> None:
    labeller = Labeller([make_shard([encoded([[1, 1]])])], ["shard-0", "Page 0"])
    assert (labeller.page_ids("shard-0"), labeller.page_ids("Page 0")) == (["shard-0"], ["shard-0"])


def test_an_answer_that_no_phrase_opens_with_is_not_found(
    make_shard: Callable[..., Any], encoded: Callable[..., Any]
) -> None:
    shard = make_shard([encoded([[1, 1]] * 3, edges=[OPENS, CLOSES, OPENS | CLOSES])])
    labeller = Labeller([shard], ["shard-0"])
    assert found(labeller, gold("w0", "w1", "w0 w1", "w1 w2", "w2")) == [(0, 0, 1), (0, 2, 2)]
    assert labeller.find(gold("w1"))[1] == "dropped"


def test_answers_on_pages_are_those_of_a_search_over_all_phrases(
    any_kb: KnowledgeBase, golds: list[Gold], legal_spans: Spans
) -> None:
    pages = {page for wanted in golds for output in wanted.outputs for page in output.pages}
    labeller = Labeller(any_kb.searcher.shards, pages)
    seen = 0
    for wanted in [*golds, *(gold("the", "Paris", "marie", page=page) for page in sorted(pages))]:
        answers = {normalise_answer(answer) for answer in wanted.answers} - {""}
        truth = [
            (number, first, last)
            for number, shard in enumerate(any_kb.searcher.shards)
            for paragraph in range(len(shard.texts))
            if shard.ids[int(shard.paragraph_pages[paragraph])] in wanted.outputs[0].pages
            for first, last, text in legal_spans(shard, paragraph)
            if normalise_answer(text) in answers
        ]
        assert found(labeller, wanted) == sorted(truth)[:MOST_GOLDS]
        assert labeller.find(wanted)[1] == "on_page" or not truth
        labels = labeller.label(phrases_of(truth), wanted)
        assert labels.has_answer.all()
        assert labels.on_page.all()
        seen += len(truth)
    assert seen > len(golds)


@pytest.mark.parametrize(
    ("wanted", "kind", "places"),
    [
        (gold("W0"), "on_page", [(0, 0, 0)]),
        (gold("w0", "w2"), "on_page", [(0, 0, 0), (0, 1, 1)]),
        (gold("w0 w1 w2"), "on_page", [(0, 0, 1)]),
        (gold("w1"), "dropped", []),
        (gold("elsewhere"), "elsewhere", []),
        (gold("the"), "elsewhere", []),
        (gold("w0", page="nowhere"), "no_page", []),
        (gold("w0", page=""), "unnamed", []),
    ],
)
def test_whether_an_answer_can_be_found(
    wanted: Gold,
    kind: str,
    places: list[tuple[int, int, int]],
    make_shard: Callable[..., Any],
    encoded: Callable[..., Any],
) -> None:
    # w1 is gone.
    labeller = Labeller(
        [make_shard([encoded([[1, 1]] * 2, positions=[0, 2])])], ["shard-0", "nowhere"]
    )
    assert labeller.find(wanted)[1] == kind
    assert found(labeller, wanted) == places


def test_a_piece_of_a_word_is_no_answer_that_was_dropped(make_shard: Callable[..., Any]) -> None:
    labeller = Labeller([make_shard([spelled("The party begins because it must")])], ["shard-0"])
    assert [labeller.find(gold(answer))[1] for answer in ("art", "us", "party")] == [
        "elsewhere"
    ] * 2 + ["on_page"]


@pytest.mark.parametrize(
    ("text", "answer", "places"),
    [
        ("Born in the U.S. army", "US", [(0, 3, 5), (0, 2, 5), (0, 3, 6), (0, 2, 6)]),
        ("born in İzmir", "İzmir", [(0, 2, 2)]),  # in lower case its first letter is two characters
        ("born in the The Hague", "Hague", [(0, 4, 4), (0, 3, 4), (0, 2, 4)]),
    ],
)
def test_articles_and_punctuation_do_not_count(
    text: str, answer: str, places: list[tuple[int, int, int]], make_shard: Callable[..., Any]
) -> None:
    labeller = Labeller([make_shard([spelled(text)])], ["shard-0"])
    assert found(labeller, gold(answer)) == sorted(places)


def test_at_most_twenty_places_are_kept(make_shard: Callable[..., Any]) -> None:
    labeller = Labeller([make_shard([spelled("x " * 30)])], ["shard-0"])
    assert found(labeller, gold("x")) == [(0, row, row) for row in range(20)]
