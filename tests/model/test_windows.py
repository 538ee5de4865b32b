"""Windows: every token is encoded exactly once, and no phrase begins or ends inside a word."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.model.model import Model
from kbq.model.model_folder import DEFAULT_MODEL
from kbq.model.tokenizer import FastTokenizer, WindowShape, stretches, tokenize, windows


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    room = draw(st.integers(1, 50))
    return draw(st.integers(0, 300)), room, draw(st.integers(0, room - 1))


@given(shapes())
def test_stretches_own_every_token_exactly_once(shape: tuple[int, int, int]) -> None:
    tokens, room, overlap = shape
    cut = stretches(tokens, room, overlap)
    assert [token for _, first, stop in cut for token in range(first, stop)] == list(range(tokens))
    for begin, first, stop in cut:
        assert begin <= first < stop <= begin + room


@given(shapes())
def test_a_token_near_a_cut_sees_half_the_overlap_on_both_sides(
    shape: tuple[int, int, int],
) -> None:
    tokens, room, overlap = shape
    for (begin, _, seam), (following, _, _) in pairwise(stretches(tokens, room, overlap)):
        assert begin + room - following >= overlap
        assert begin + room - seam >= overlap // 2
        assert seam - following >= overlap // 2


@pytest.mark.parametrize(
    ("tokens", "room", "overlap", "expected"),
    [
        (0, 6, 2, []),
        (1, 6, 2, [(0, 0, 1)]),
        (6, 6, 2, [(0, 0, 6)]),
        (7, 6, 2, [(0, 0, 3), (1, 3, 7)]),
        (10, 6, 2, [(0, 0, 5), (4, 5, 10)]),
        (12, 6, 0, [(0, 0, 6), (6, 6, 12)]),
    ],
)
def test_stretches(
    tokens: int, room: int, overlap: int, expected: list[tuple[int, int, int]]
) -> None:
    assert stretches(tokens, room, overlap) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Warsaw", ["Warsaw"]),
        ("Zagreb", ["Zagreb"] * 6),
        ("in Zug.", ["in", "Zug", "Zug", "Zug", "."]),
        ("it's", ["it", "it", "'", "s"]),
        ("X-ray", ["X", "-", "ray", "ray", "ray"]),
        ("éł 42", ["éł", "éł", "42", "42"]),
        ("居里", ["居", "里"]),
        ("שלום", ["שלום"] * 4),
        ("q" * 200, ["q" * 200]),
        ("", []),
        (" \n", []),
    ],
)
def test_pieces_are_grown_to_whole_words(model: Model, text: str, words: list[str]) -> None:
    (tokens,) = tokenize(model.tokenizer, [text])
    assert [text[start:end] for start, end in zip(tokens.starts, tokens.ends, strict=True)] == words


def test_no_text_has_no_tokens(model: Model) -> None:
    assert tokenize(model.tokenizer, []) == []


@pytest.mark.parametrize("words", [0, 1, 11, 12, 40])
def test_windows_hold_title_and_all_tokens(model: Model, words: int) -> None:
    title, paragraph = tokenize(
        model.tokenizer, ["the city of Paris", " ".join(["river", "born", "Warsaw"] * words)]
    )
    cut = windows(model.tokenizer, title.ids, paragraph, WindowShape(24, 6, 10))
    owned = [
        token for window in cut for token in window.ids[window.first : window.first + window.count]
    ]
    assert owned == paragraph.ids
    for window in cut:
        assert len(window.ids) == len(window.segments) <= 24
        assert window.ids[:6] == [
            model.tokenizer.cls_token_id,
            *title.ids,
            model.tokenizer.sep_token_id,
        ]
        assert window.segments[:7] == [0] * 6 + [1]
        assert window.ids[-1] == model.tokenizer.sep_token_id
        assert owned[window.position] == window.ids[window.first]


def test_a_title_is_cut_to_ten_pieces(model: Model) -> None:
    title, paragraph = tokenize(model.tokenizer, ["abcdefghijklmnop", "river"])
    (window,) = windows(model.tokenizer, title.ids, paragraph, WindowShape(24, 6, 10))
    assert window.ids[1:11] == title.ids[:10]
    assert (window.segments, window.first, window.count) == ([0] * 12 + [1, 1], 12, 1)


def test_special_tokens_written_in_a_text_are_ordinary_text(model: Model) -> None:
    (tokens,) = tokenize(model.tokenizer, ["the [SEP] river [CLS]"])
    assert not {model.tokenizer.sep_token_id, model.tokenizer.cls_token_id} & set(tokens.ids)


@pytest.mark.parametrize("shape", [(10, 6, 10), (19, 6, 10), (3, 0, 0), (24, -1, 10)])
def test_a_shape_in_which_windows_cannot_move_on_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=f"{shape[0]}"):
        WindowShape(*shape)


@pytest.mark.parametrize("text", ["x\u0304", "Ọ\u0300yọ\u0301", "हिन्दी", "गाँव", "שָׁלוֹם", "مُحَمَّدٌ"])
def test_marks_belong_to_the_letter_before_them_whatever_the_tokenizer_strips(text: str) -> None:
    tokenizer = FastTokenizer.read(DEFAULT_MODEL)
    (tokens,) = tokenize(tokenizer, [f"in {text}, {text}"])
    words = [
        f"in {text}, {text}"[start:end]
        for start, end in zip(tokens.starts, tokens.ends, strict=True)
    ]
    assert list(dict.fromkeys(words)) == ["in", text, ","]
