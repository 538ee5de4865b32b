"""Sentence windows: the sentence is marked, stands in the middle, and is never cut short."""

from collections.abc import Callable
from typing import Any

import pytest

from kbq.encoding.windows import WindowShape
from kbq.sparse.sentences import SentenceWindow, around, sentence_windows

TEXT = "Marie was born in Warsaw. The city of Paris. The river."


def cut(tokenizer: Any, text: str, length: int = 64, title: str = "Curie") -> list[SentenceWindow]:
    ids = tokenizer(title, add_special_tokens=False)["input_ids"]
    return sentence_windows(tokenizer, ids, text, WindowShape(length=length, overlap=0, max_title=2))


def read(tokenizer: Any, window: SentenceWindow) -> tuple[str, str]:
    """The whole window, and what segment 1 marks of it."""
    marked = [piece for piece, segment in zip(window.ids, window.segments, strict=True) if segment]
    context, sentence = (" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in (window.ids, marked))
    return context, sentence


def test_every_sentence_is_marked_in_its_context(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    windows = cut(tokenizer, TEXT)
    marked = [read(tokenizer, window) for window in windows]
    assert [sentence for _, sentence in marked] == [
        "Marie was born in Warsaw .",
        "T ##h ##e city of Paris .",
        "T ##h ##e river .",
    ]
    whole = "[CLS] Curie [SEP] Marie was born in Warsaw . T ##h ##e city of Paris . T ##h ##e river . [SEP]"
    assert {context for context, _ in marked} == {whole}
    assert [TEXT[window.start : window.end] for window in windows] == [
        "Marie was born in Warsaw.",
        "The city of Paris.",
        "The river.",
    ]


def test_a_narrow_window_holds_as_much_on_either_side(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    context, sentence = read(tokenizer, cut(tokenizer, TEXT, length=15)[1])
    assert context == "[CLS] Curie [SEP] Warsaw . T ##h ##e city of Paris . T ##h [SEP]"
    assert sentence == "T ##h ##e city of Paris ."


def test_a_sentence_longer_than_the_window_becomes_several(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    windows = cut(tokenizer, "city river city river born", length=6)
    assert [read(tokenizer, window) for window in windows] == [
        ("[CLS] Curie [SEP] city river [SEP]", "city river"),
        ("[CLS] Curie [SEP] city river [SEP]", "city river"),
        ("[CLS] Curie [SEP] river born [SEP]", "born"),
    ]


@pytest.mark.parametrize("text", ["", "  \n "])
def test_a_text_without_words_has_no_sentence(text: str, make_tokenizer: Callable[..., Any]) -> None:
    assert cut(make_tokenizer(), text) == []


def test_a_text_without_sentence_ends_is_one(make_tokenizer: Callable[..., Any]) -> None:
    (window,) = cut(make_tokenizer(), "city of Paris")
    assert (window.start, window.end) == (0, 13)


@pytest.mark.parametrize(
    ("first", "behind", "tokens", "room", "expected"),
    [(4, 6, 100, 6, (2, 8)), (1, 3, 100, 6, (0, 6)), (4, 6, 7, 6, (1, 7)), (0, 2, 2, 6, (0, 2)), (3, 9, 12, 6, (3, 9))],
)
def test_around(first: int, behind: int, tokens: int, room: int, expected: tuple[int, int]) -> None:
    assert around(first, behind, tokens, room) == expected
