"""Visible text: what controls a terminal is shown as an escape, ordinary text of all scripts stays
as it is.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.text.visible import HARMFUL, visible, visible_json

ESCAPED = [
    ("\x1b[31mred", r"\x1b[31mred"),
    ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
    ("one\ntwo\r\nthree\x0b\x0c", r"one\ntwo\r\nthree\x0b\x0c"),
    ("\x00\x08\x7f", r"\x00\x08\x7f"),
    ("\x9b2J\x85\x90", r"\x9b2J\x85\x90"),
    ("photo_\u202egnp.exe", r"photo_\u202egnp.exe"),
    (
        "\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069",
        r"\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069",
    ),
    ("\u200e\u200f\u061c", r"\u200e\u200f\u061c"),
    ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
    ("pay\u200bpal \u2060\ufeff\u2064", r"pay\u200bpal \u2060\ufeff\u2064"),
    ("pay\u200dpal \u200cx", r"pay\u200dpal \u200cx"),
    ("می\u200c\u200c\u200dشود", "می\u200c\\u200c\\u200dشود"),
    ("😀\ufe0f\ufe01\U000e0101", "😀\ufe0f\\ufe01\\U000e0101"),
    ("\U000e0001\U000e0068\U000e0069\U000e007f", r"\U000e0001\U000e0068\U000e0069\U000e007f"),
    ("\ufff9\ufffa\ufffb", r"\ufff9\ufffa\ufffb"),
    ("\ud83d \udc80", r"\ud83d \udc80"),
    ("\u200d", r"\u200d"),
]
ORDINARY = [
    "",
    "Maria Skłodowska-Curie, née à Varsovie; Zoë O’Neill — №7 …\t½",
    "می‌خواهم کتاب‌ها",  # Persian, with a joiner between letters that must not join
    "क्‍ष र्‍य ശ്രീ‌മതി",  # Devanagari and Malayalam: conjuncts
    "👩‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 👩🏽‍🔬 1️⃣ ❤️",
    "葛󠄀城市 居里夫人",  # an ideograph with its variant
    "מארי קירי العربية עִבְרִית",
    "e\u0301 Z\u0351 ภาษาไทย 한국어 ᠮᠣᠩᠭᠣᠯ᠋",
    "soft\u00adhyphen no\u00a0break \ue000",
    r"C:\new \x1b \u202e",  # written out already
]


@pytest.mark.parametrize(("text", "shown"), ESCAPED)
def test_what_controls_a_terminal_is_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert visible(text) == text
    assert visible_json(text) == json.dumps(text, ensure_ascii=False)


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    written = visible_json({"text": text})
    assert json.loads(written) == {"text": text}
    assert "\n" not in written


@given(st.text(st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Ll")), max_size=20))
def test_no_control_gets_through_in_any_company(text: str) -> None:
    assert HARMFUL.findall(visible(text)) == HARMFUL.findall(visible_json(text)) == []
