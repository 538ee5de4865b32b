"""Letters: what reads the same becomes the same, however much of a text is looked at together."""

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.text import normal_forms as letters
from kbq.text.normal_forms import folded, plain, tidy

STRANGE = st.sampled_from("aéıßﬁ\u0301\u0338\u3099カ\u00ad²½−×♯٣ʻ’İΣς각\u1100\u1161ё&;`= 10")


@given(st.one_of(st.text(), st.text(STRANGE)))
def test_parts_of_a_text_give_what_the_whole_gives(text: str) -> None:
    unescaped = html.unescape(text) if "&" in text and ";" in text else text
    assert plain(text) == letters._plain_part(unescaped).replace("`", "'")
    assert folded(text) == letters._folded_part(unescaped).replace("`", "'").casefold()
    assert folded(folded(text)) == folded(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Łódź, Œuvre, Straße", "lodz, oeuvre, strasse"),
        ("e\u0301cole, école", "ecole, ecole"),
        ("≠, =\u0338", "=, ="),
        ("カ\u3099 ガ カ", "ガ ガ カ"),
        ("10² m² 1½", "10^2 m2 1 1⁄2"),
        ("AT&amp;T’s `x`", "at&t's 'x'"),
        ("٣१７", "317"),
        ("C♯, 2×4, −5", "c#, 2x4, -5"),
        ("ΣΊΣΥΦΟΣ Σίσυφος", "σισυφοσ σισυφοσ"),
        ("é" * 100_000, "e" * 100_000),
    ],
)
def test_folded(text: str, expected: str) -> None:
    assert folded(text) == expected


def test_what_is_written_into_a_cell_keeps_its_letters() -> None:
    assert tidy("Hei\u00addel\u00adberg,   Pﬁzer, ٣, −5, C♯") == "Heidelberg, Pfizer, ٣, −5, C♯"
