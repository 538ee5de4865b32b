"""Answers: what they say as a dictionary, and the window of evidence in it."""

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.answers import CONTEXT, MOST_MARKS, Answer
from kbq.errors import QueryError
from kbq.text.normal_forms import tidy

ANSWER = Answer("Warsaw", 2.0, "1", "Poland", 0, 0, 6, "Warsaw is the capital.", (0, 6))
FLAT = [
    "text", "score", "probability", "page_id", "title", "paragraph", "start", "end", "unit_start", "unit_end",
    "context_start", "context",
]  # fmt: skip


def test_metadata_are_said_where_the_page_has_some() -> None:
    assert ANSWER.metadata == {}
    assert list(ANSWER.to_dict()) == FLAT
    described = replace(ANSWER, metadata={"url": "https://a.org", "tags": ["a"]})
    assert list(described.to_dict()) == [*FLAT, "metadata"]
    assert described.to_dict()["metadata"] == {"url": "https://a.org", "tags": ["a"]}
    assert hash(described) == hash(ANSWER)


def test_an_answer_that_was_sent_is_the_same() -> None:
    sent = replace(ANSWER, metadata={"tags": ["a"]}, probability=0.25)
    for received in (pickle.loads(pickle.dumps(sent)), copy.deepcopy(sent)):
        assert received == sent
        assert received.metadata == {"tags": ["a"]}


def answer(text: str, start: int, end: int) -> Answer:
    return Answer(text[start:end], 1.5, "9", "Title", 0, start, end, text, (start, end))


@pytest.mark.parametrize(
    ("start", "end", "context", "window"),
    [
        (40, 45, 10, (30, 55)),
        (40, 45, 0, (40, 45)),
        (40, 45, 1000, (0, 100)),
        (40, 45, 10**30, (0, 100)),
        (3, 5, 10, (0, 22)),  # what is missing before the answer is added behind it
        (98, 100, 10, (78, 100)),
        (0, 100, 0, (0, 100)),
        (0, 100, 10, (0, 100)),
    ],
)
def test_a_window_that_can_be_checked_by_eye(
    start: int, end: int, context: int, window: tuple[int, int]
) -> None:
    assert answer("x" * 100, start, end).window(context) == window


@given(st.text("ab \u0301\u0308\u200d👩🚀\ufe0f", max_size=80), st.integers(0, 90), st.data())
def test_the_answer_stands_where_it_says(text: str, context: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    printed = answer(text, start, end).to_dict(context)
    shown, first = printed["context"], printed["context_start"]
    assert isinstance(shown, str)
    assert isinstance(first, int)
    assert shown == text[first : first + len(shown)]
    assert tidy(shown[start - first : end - first]) == printed["text"] == tidy(text[start:end])
    assert (
        min(len(text), end - start + 2 * context)
        <= len(shown)
        <= end - start + 2 * (context + MOST_MARKS)
    )


def test_a_letter_keeps_its_marks_and_an_emoji_its_parts() -> None:
    text = "e\u0323\u0302xe\u0323\u0302 👩\u200d🚀x👩\u200d🚀"
    assert answer(text, 3, 4).to_dict(1)["context"] == "e\u0323\u0302xe\u0323\u0302"
    assert answer(text, 11, 12).to_dict(1)["context"] == "👩\u200d🚀x👩\u200d🚀"
    marks = "a" + "\u0301" * 1000 + "b"
    # No letter has so many.
    assert len(str(answer(marks, 1001, 1002).to_dict(10)["context"])) == 1 + 20 + MOST_MARKS


def test_paragraphs_of_a_thousand_characters_are_whole() -> None:
    assert CONTEXT == 500
    for start in (0, 500, 990):
        printed = answer("x" * 1000, start, start + 10).to_dict()
        assert (printed["context"], printed["context_start"]) == ("x" * 1000, 0)
    printed = answer("x" * 5000, 2000, 2010).to_dict()
    assert (printed["context"], printed["context_start"]) == ("x" * 1010, 1500)


@pytest.mark.parametrize("context", [-1, 1.5, None, True])
def test_a_window_without_meaning_is_refused(context: object) -> None:
    with pytest.raises(QueryError, match=f"context is {context}, must be 0 or more"):
        answer("abc", 0, 1).to_dict(context)  # type: ignore[arg-type]
