"""Normal forms: those of Python, also of what Python takes hours for."""

import unicodedata
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbq.text import normal_forms as letters
from kbq.text.normal_forms import Form, is_normal, normal_form

FORMS = get_args(Form)
# Marks of several classes, some that decompose, three letters that decompose into marks alone,
# Hangul, and a letter.
TEXTS = st.text(
    "ae\u0301\u0327\u0323\u0344\u0345\u3099\uff9e\u0f73\u0f75\u0f81\u1100\u1161é\u1e09 ",
    max_size=30,
)


@pytest.mark.parametrize("form", FORMS)
@given(TEXTS)
@settings(max_examples=300)
def test_runs_of_marks_are_as_python_orders_them(form: Form, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letters, "SHORT_TEXT", 0)
        patch.setattr(letters, "MARKS", 2)
        assert normal_form(form, text) == unicodedata.normalize(form, text)
        assert is_normal(form, text) == unicodedata.is_normalized(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_no_letter_decomposes_into_a_mark_and_a_letter(form: Form) -> None:
    for code in range(0x11_0000):
        letters = unicodedata.normalize(form, chr(code))
        assert not unicodedata.combining(letters[0]) or all(map(unicodedata.combining, letters))


def test_python_is_given_long_runs_in_order() -> None:
    text = "a" + "\u0301\u0327" * 500_000 + "b"
    assert letters._in_order("NFC", text) == "a" + "\u0327" * 500_000 + "\u0301" * 500_000 + "b"
    assert normal_form("NFC", text) == "á" + "\u0327" * 500_000 + "\u0301" * 499_999 + "b"
    few = ("a" + "\u0301\u0327" * 15) * 100
    assert letters._in_order("NFC", few) is few
