"""Sentence windows: sentences are marked, stand in the middle, share a window where they may, and are never cut."""

from collections.abc import Callable
from typing import Any

import pytest

from kbq.encoding.windows import WindowShape
from kbq.words.sparta_model import SentenceWindow, around, sentence_windows

TEXT = "Marie was born in Warsaw. The city of Paris. The river."
WHOLE = "[CLS] Curie [SEP] Marie was born in Warsaw . T ##h ##e city of Paris . T ##h ##e river . [SEP]"
SENTENCES = ["Marie was born in Warsaw .", "T ##h ##e city of Paris .", "T ##h ##e river ."]


def cut(tokenizer: Any, text: str, length: int = 64, title: str = "Curie", marked: bool = True) -> list[SentenceWindow]:
    ids = tokenizer(title, add_special_tokens=False)["input_ids"]
    return sentence_windows(tokenizer, ids, text, WindowShape(length=length, overlap=0, max_title=2), marked)


def read(tokenizer: Any, window: SentenceWindow) -> tuple[str, str]:
    """The whole window, and what segment 1 marks of it."""
    marked = [piece for piece, segment in zip(window.ids, window.segments, strict=True) if segment]
    context, sentence = (" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in (window.ids, marked))
    return context, sentence


def read_sentences(tokenizer: Any, window: SentenceWindow) -> list[str]:
    """The tokens of each of its sentences."""
    parts = (window.ids[sentence.first : sentence.stop] for sentence in window.sentences)
    return [" ".join(tokenizer.convert_ids_to_tokens(part)) for part in parts]


def test_every_sentence_is_marked_in_its_context(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    windows = cut(tokenizer, TEXT)
    assert [read(tokenizer, window) for window in windows] == [(WHOLE, sentence) for sentence in SENTENCES]
    assert [read_sentences(tokenizer, window) for window in windows] == [[sentence] for sentence in SENTENCES]
    assert [TEXT[window.sentences[0].start : window.sentences[0].end] for window in windows] == [
        "Marie was born in Warsaw.",
        "The city of Paris.",
        "The river.",
    ]


def test_sentences_share_a_window(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    (window,) = cut(tokenizer, TEXT, marked=False)
    assert read(tokenizer, window) == (WHOLE, " ".join(SENTENCES))
    assert read_sentences(tokenizer, window) == SENTENCES
    assert [(sentence.start, sentence.end) for sentence in window.sentences] == [(0, 25), (26, 44), (45, 55)]


def test_what_does_not_fit_goes_into_another_window_with_what_stands_before_it(
    make_tokenizer: Callable[..., Any],
) -> None:
    tokenizer = make_tokenizer()
    first, second = cut(tokenizer, TEXT, length=18, marked=False)  # 14 tokens of text
    assert read_sentences(tokenizer, first) == SENTENCES[:2]
    assert read_sentences(tokenizer, second) == SENTENCES[2:]
    assert read(tokenizer, second)[0] == f"[CLS] Curie [SEP] Warsaw . {' '.join(SENTENCES[1:])} [SEP]"


def test_a_narrow_window_holds_as_much_on_either_side(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    context, sentence = read(tokenizer, cut(tokenizer, TEXT, length=15)[1])
    assert context == "[CLS] Curie [SEP] Warsaw . T ##h ##e city of Paris . T ##h [SEP]"
    assert sentence == "T ##h ##e city of Paris ."


@pytest.mark.parametrize("marked", [True, False])
def test_a_sentence_longer_than_the_window_becomes_several(marked: bool, make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    windows = cut(tokenizer, "city river city river born", length=6, marked=marked)
    assert [read(tokenizer, window) for window in windows] == [
        ("[CLS] Curie [SEP] city river [SEP]", "city river"),
        ("[CLS] Curie [SEP] city river [SEP]", "city river"),
        ("[CLS] Curie [SEP] river born [SEP]", "born"),
    ]


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("text", ["", "  \n "])
def test_a_text_without_words_has_no_sentence(text: str, marked: bool, make_tokenizer: Callable[..., Any]) -> None:
    assert cut(make_tokenizer(), text, marked=marked) == []


def test_a_text_without_sentence_ends_is_one(make_tokenizer: Callable[..., Any]) -> None:
    (window,) = cut(make_tokenizer(), "city of Paris", marked=False)
    assert [(sentence.start, sentence.end) for sentence in window.sentences] == [(0, 13)]


def test_chinese_sentences_end_too(make_tokenizer: Callable[..., Any]) -> None:
    text = "居里夫人出生在华沙。居里夫人是一位科学家。"
    (window,) = cut(make_tokenizer(), text, marked=False)
    assert [text[sentence.start : sentence.end] for sentence in window.sentences] == [
        "居里夫人出生在华沙。",
        "居里夫人是一位科学家。",
    ]


@pytest.mark.parametrize(
    ("first", "stop", "tokens", "room", "expected"),
    [(4, 6, 100, 6, (2, 8)), (1, 3, 100, 6, (0, 6)), (4, 6, 7, 6, (1, 7)), (0, 2, 2, 6, (0, 2)), (3, 9, 12, 6, (3, 9))],
)
def test_around(first: int, stop: int, tokens: int, room: int, expected: tuple[int, int]) -> None:
    assert around(first, stop, tokens, room) == expected
