"""Countries: their table is sound, and decides what answers mean where a country is asked for."""

from dataclasses import replace

import pytest

from kbq.answers import Answer
from kbq.english.countries import ADJECTIVES, NAMES
from kbq.reading.reranker import meanings
from kbq.text.answer_scores import normalise_answer
from kbq.text.queries import Query


def answers(*texts: str, page: str = "1", paragraph: int = 0) -> list[Answer]:
    return [
        Answer(text, 0.0, page, "", paragraph, 0, len(text), text, (0, len(text))) for text in texts
    ]


def test_an_adjective_is_that_of_one_country_and_the_name_of_none() -> None:
    assert not set(ADJECTIVES) & set(NAMES)
    # Dominican is of two countries, so of none.
    assert set(ADJECTIVES.values()) <= set(NAMES.values())
    assert "dominican" not in ADJECTIVES
    assert len(set(ADJECTIVES.values())) > 180
    for text in (*ADJECTIVES, *NAMES):
        assert text == normalise_answer(text) != ""


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Dutch", "the Netherlands"], ["netherlands", "netherlands"]),
        (
            ["American", "U.S.", "United States"],
            ["us", "us", "united states"],
        ),  # names stay what they are
        (["French", "Germany"], ["french", "germany"]),
        (["Norwegian fjord", "Norway"], ["norwegian fjord", "norway"]),
        ([], []),
    ],
)
def test_an_adjective_means_the_name_that_is_among_the_answers(
    texts: list[str], expected: list[str]
) -> None:
    assert meanings(Query.of("It [SEP] Country of origin"), answers(*texts)) == expected
    for other in (
        "language",
        "country's demonym",
        "official language of the country",
        "country music label",
    ):
        assert meanings(Query.of(f"It [SEP] {other}"), answers(*texts)) == [
            normalise_answer(text) for text in texts
        ]


def test_the_name_must_come_from_the_same_paragraph() -> None:
    for others in (answers("Netherlands", page="2"), answers("Netherlands", paragraph=1)):
        assert meanings(Query.of("It [SEP] country"), [*answers("Dutch"), *others]) == [
            "dutch",
            "netherlands",
        ]


def test_of_two_names_the_first_in_the_text_is_meant() -> None:
    found = [
        replace(one, start=start)
        for one, start in zip(answers("America", "American", "USA"), (9, 5, 2), strict=True)
    ]
    assert meanings(Query.of("It [SEP] basin country"), found) == ["america", "usa", "usa"]
    assert meanings(Query.of("It [SEP] basin country"), found[::-1]) == ["usa", "usa", "america"]
