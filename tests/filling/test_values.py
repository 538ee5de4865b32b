"""Values: two texts of one value have one normal form, and a doubtful text has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.filling.values import normalised


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Marie Curie", "marie curie"),
        ("  marie\u00a0CURIE\n", "marie curie"),
        ("Skłodowska-Curie", "skłodowska curie"),
        ("L’Aquila", "laquila"),
        ("L`Aquila", "laquila"),
        ("Hawaiʻi", "hawaii"),
        ("Straße", "strasse"),
        ("ΣΊΣΥΦΟΣ", "σισυφοσ"),
        ("ﬁn de siècle", "fin de siecle"),
        ("U.S.", "u s"),
        ("¿Qué?", "que"),
        ("10³ km²", "103 km2"),
        ("東京", "東京"),
        ("---", "---"),
        ("", ""),
    ],
)
def test_normalised(text: str, expected: str) -> None:
    assert normalised(text) == expected


@given(st.text())
def test_what_is_normalised_stays(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)
