"""Answers: what they say as a dictionary."""

from dataclasses import replace

from kbq.answers import Answer

ANSWER = Answer("Warsaw", 2.0, "1", "Poland", 0, 0, 6, "Warsaw is the capital.", (0, 6))
FLAT = ["text", "score", "page_id", "title", "paragraph", "start", "end", "unit_start", "unit_end", "context"]


def test_metadata_are_said_where_the_page_has_some() -> None:
    assert ANSWER.metadata == {}
    assert list(ANSWER.to_dict()) == FLAT
    described = replace(ANSWER, metadata={"url": "https://a.org", "tags": ["a"]})
    assert list(described.to_dict()) == [*FLAT, "metadata"]
    assert described.to_dict()["metadata"] == {"url": "https://a.org", "tags": ["a"]}
    assert hash(described) == hash(ANSWER)
