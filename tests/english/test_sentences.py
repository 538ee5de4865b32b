"""Sentences: every text has some, whatever white space it contains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.english.sentences import sentence_bounds

BLANKS = "\u00a0\u1680\u2009\u202f\u3000\u2028\x85"


@pytest.mark.parametrize("blank", BLANKS)
def test_a_full_stop_may_stand_behind_any_blank(blank: str) -> None:
    assert sentence_bounds(f"They took plan B{blank}. Then he left.") == [(0, 19), (19, 32)]


@given(st.text(st.sampled_from(f"{BLANKS}AbÉ.!?。 \n\"'")))
def test_sentences_lie_in_the_text_in_order(text: str) -> None:
    bounds = [place for sentence in sentence_bounds(text) for place in sentence]
    assert bounds == sorted(bounds)
    assert all(0 <= place <= len(text) for place in bounds)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Panic! at the Disco formed in Las Vegas in 2004.", 1),
        ("See Vol. 2 of it. Then go.", 2),
        ("Henry VIII. was king. He died.", 2),
        ("It is by Acme Inc. of old.", 1),
        ("One line.\nanother line.", 2),
        ("He died. She lived.", 2),
        ("他去了。她来了。", 2),
    ],
)
def test_no_sentence_begins_with_a_small_letter_or_a_number(text: str, sentences: int) -> None:
    bounds = sentence_bounds(text)
    assert (len(bounds), "".join(text[start:end] for start, end in bounds)) == (sentences, text)
