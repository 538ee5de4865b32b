"""Excerpts: every phrase is in one window, at its place, with its surroundings, the query and the
title.
"""

from typing import Any

import pytest

from kbq.answers import Answer
from kbq.model.tokenizer import tokenize
from kbq.reading import phrase_windows as module
from kbq.reading.phrase_windows import Excerpt, excerpts

LENGTH = 256
FILLER = "the city was in the river of the city " * 20
TEXT = f"Marie Curie was born in Warsaw. {FILLER}in Paris. {FILLER}"


@pytest.fixture(scope="module")
def tokenizer(make_tokenizer: Any) -> Any:
    return make_tokenizer()


def phrase(
    text: str, context: str = TEXT, page: str = "1", paragraph: int = 0, title: str = "Marie Curie"
) -> Answer:
    start = context.index(text)
    return Answer(
        text,
        1.0,
        page,
        title,
        paragraph,
        start,
        start + len(text),
        context,
        (start, start + len(text)),
    )


def query(tokenizer: Any) -> list[int]:
    return [2, *tokenizer.convert_tokens_to_ids(["place", "birth"]), 3]


def shown(excerpt: Excerpt, phrases: list[Answer]) -> list[str]:
    """The text of each phrase, as the window places it."""
    return [
        phrases[number].context[excerpt.text.starts[first] : excerpt.text.ends[last]]
        for number, (first, last) in zip(excerpt.numbers, excerpt.spans, strict=True)
    ]


def test_a_window_has_query_title_and_what_is_around_the_phrase(tokenizer: Any) -> None:
    phrases = [phrase("Paris")]
    ((excerpt,),) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH)
    window = excerpt.window
    words = tokenizer.convert_ids_to_tokens(window.ids)
    assert words[:7] == ["[CLS]", "place", "birth", "[SEP]", "Marie", "Curie", "[SEP]"]
    assert window.segments[:5] == [0, 0, 0, 0, 1]
    assert (window.first, words[-1], len(window.ids)) == (7, "[SEP]", 7 + window.count + 1)
    assert excerpt.text.ids == window.ids[7:-1]
    begin, stop = int(excerpt.text.starts[0]), int(excerpt.text.ends[-1])
    assert phrases[0].start - begin == pytest.approx(module.AROUND, abs=8)  # cut between words
    assert stop - phrases[0].end == pytest.approx(module.AROUND, abs=8)
    assert TEXT[begin - 1] == TEXT[stop] == " "
    assert shown(excerpt, phrases) == ["Paris"]


def test_a_window_that_does_not_name_the_subject_has_its_last_mention_before_the_text(
    tokenizer: Any,
) -> None:
    phrases = [phrase("Paris", title="Warsaw")]
    ((plain,),) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH)
    ((excerpt,),) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH, ["Marie Curie"])
    words = tokenizer.convert_ids_to_tokens(excerpt.window.ids)
    named = ["Marie", "Curie", "was", "born", "in", "Warsaw", ".", "[SEP]"]
    assert words[6:14] == named
    assert excerpt.window.first == plain.window.first + len(named)
    assert excerpt.text.ids == plain.text.ids
    assert shown(excerpt, phrases) == ["Paris"]


def test_a_mention_is_not_repeated_where_window_or_title_name_the_subject(tokenizer: Any) -> None:
    for phrases, subject in (
        ([phrase("Paris")], "marie curie"),  # the title
        ([phrase("Warsaw", title="Paris")], "Marie Curie"),  # the window
        ([phrase("Paris", title="Paris")], "Ada Lovelace"),  # nobody
        ([phrase("Paris", title="Paris")], ""),  # a question
    ):
        ((plain,),) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH)
        ((excerpt,),) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH, [subject])
        assert excerpt.window == plain.window


def test_phrases_share_a_window_only_where_they_are_close(tokenizer: Any) -> None:
    other = "Marie Curie was born in Warsaw."
    phrases = [
        phrase("Paris"),
        phrase("Warsaw"),
        phrase("Marie Curie"),
        phrase("Warsaw", other, paragraph=2),
        phrase("Warsaw", other, page="2"),
    ]
    (found,) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH)
    assert sorted(excerpt.numbers for excerpt in found) == [(0,), (2, 1), (3,), (4,)]
    assert [shown(excerpt, phrases) for excerpt in found] == [
        ["Marie Curie", "Warsaw"],
        ["Paris"],
        ["Warsaw"],
        ["Warsaw"],
    ]


def test_a_chain_of_close_phrases_is_parted(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AROUND", 10)
    monkeypatch.setattr(module, "LONGEST", 60)
    words = "the city of Paris and " * 9
    phrases = [
        Answer("Paris", 1.0, "1", "", 0, place, place + 5, words, (place, place + 5))
        for place in range(words.index("Paris"), len(words), len("the city of Paris and "))
    ]
    (found,) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH)
    assert [number for excerpt in found for number in excerpt.numbers] == list(range(9))
    assert max(int(excerpt.text.ends[-1] - excerpt.text.starts[0]) for excerpt in found) <= 60
    assert [text for excerpt in found for text in shown(excerpt, phrases)] == ["Paris"] * 9


def test_of_a_paragraph_of_millions_of_letters_only_what_is_around_is_read(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenized: list[int] = []

    def counted(own: Any, texts: list[str]) -> Any:
        tokenized.extend(map(len, texts))
        return tokenize(own, texts)

    monkeypatch.setattr(module, "tokenize", counted)
    text = f"Ada Byron wrote. {FILLER * 3000}She was born in Paris. {FILLER * 3000}"
    phrases = [phrase("Paris", text, title="Letters")]
    ((excerpt,),) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH, ["Ada Byron"])
    assert len(text) > 4_000_000
    assert sum(tokenized) < 3 * module.AROUND
    assert shown(excerpt, phrases) == ["Paris"]


@pytest.mark.parametrize("place", [0, 1, 150, 299])
def test_what_is_too_long_is_read_around_each_phrase(tokenizer: Any, place: int) -> None:
    text = "居里夫人出生在华沙是一位科学家" * 20  # a token for each letter
    phrases = [Answer(text[place], 1.0, "1", "", 0, place, place + 1, text, (place, place + 1))] * 2
    (found,) = excerpts(tokenizer, [query(tokenizer)], [phrases], 40)
    assert [excerpt.numbers for excerpt in found] == [(0,), (1,)]
    for excerpt in found:
        assert len(excerpt.window.ids) == 40
        assert shown(excerpt, phrases) == [text[place]]
        assert int(excerpt.text.starts[excerpt.spans[0][0]]) == place


def test_a_phrase_longer_than_the_window_is_cut(tokenizer: Any) -> None:
    text = "居里夫人出生在华沙是一位科学家" * 20
    phrases = [Answer(text[5:99], 1.0, "1", "", 0, 5, 99, text, (5, 99))]
    ((excerpt,),) = excerpts(tokenizer, [query(tokenizer)], [phrases], 40)
    assert (len(excerpt.window.ids), excerpt.spans) == (40, ((0, excerpt.window.count - 1),))


def test_a_list_marker_is_not_read(tokenizer: Any) -> None:
    text = "BULLET::::- Marie Curie was born in Warsaw."
    phrases = [phrase("Warsaw", text)]
    ((excerpt,),) = excerpts(tokenizer, [query(tokenizer)], [phrases], LENGTH)
    assert text[excerpt.text.starts[0] :].startswith("Marie")
    assert shown(excerpt, phrases) == ["Warsaw"]
