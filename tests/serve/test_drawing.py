"""Drawing: the page of a PDF is drawn, and a quotation is marked where it stands."""

import io
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from pdfs import column, pdf

pytest.importorskip("pypdfium2", reason="PDF needs it")

from kbq.errors import CorpusError
from kbq.serve.documents import Quotation, draw_page, find_again

TEXT = "Ada was born in London and lived in London, at the house of her mo-ther."
LINES = ["Ada was born in London", "and lived in London, at", "the house of her mo-", "ther."]


def pixels(png: bytes) -> np.ndarray:
    """Red, green and blue of a picture, whose rows have no filters. Shape: (height, width, 3)."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    length = struct.unpack(">I", png[33:37])[0]
    rows = np.frombuffer(zlib.decompress(png[41 : 41 + length]), np.uint8).reshape(
        height, 1 + 3 * width
    )
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def marked(png: bytes) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """First and last row and column that are marked, in points from the upper left corner, or None."""
    picture = pixels(png)
    is_mark = (picture == (255, 226, 122)).all(axis=2)
    if not is_mark.any():
        return None
    rows, columns = np.nonzero(is_mark)
    return (rows.min() / 2, rows.max() / 2), (columns.min() / 2, columns.max() / 2)


def quoted(words: str, place: int = 0) -> Quotation:
    start = TEXT.index(words, place)
    return Quotation(TEXT, start, start + len(words))


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "ada.pdf").write_bytes(pdf(column(["Nothing is said here."]), column(LINES)))
    return str(tmp_path / "ada.pdf")


@pytest.mark.parametrize(
    ("quotation", "rows"),
    [
        (
            quoted("London"),
            (89, 103),
        ),  # on the first line: its base is 800 - 700 = 100 points below the top
        (quoted("London", 30), (103, 117)),  # the other one, on the second
        (quoted("mo-ther"), (117, 145)),  # on two lines
    ],
)
def test_a_quotation_is_marked_where_it_stands(
    file: str, quotation: Quotation, rows: tuple[int, int]
) -> None:
    found = marked(draw_page(file, 2, quotation, is_part=False))
    assert found is not None
    (top, bottom), (left, right) = found
    assert rows[0] <= top < bottom <= rows[1]
    assert 45 < left < right < 200


def test_a_part_has_the_quotation_in_its_middle(file: str) -> None:
    picture = draw_page(file, 2, quoted("London"), is_part=True)
    assert pixels(picture).shape == (360, 660, 3)
    assert marked(picture) is not None
    assert pixels(draw_page(file, 2, quoted("London"), is_part=False)).shape == (1600, 1200, 3)


def test_what_is_not_found_again_is_not_marked(file: str) -> None:
    picture = draw_page(file, 1, quoted("London"), is_part=True)
    assert marked(picture) is None
    assert pixels(picture).shape == (1600, 1200, 3)  # the whole page


def test_a_page_that_cannot_be_drawn_is_said(file: str, tmp_path: Path) -> None:
    for path, number, reason in (
        (file, 3, "it has no page 3 but 2 pages: build it again"),
        (str(tmp_path / "none.pdf"), 1, "it cannot be drawn"),
        (str(tmp_path / "torn.pdf"), 1, "it cannot be drawn"),
    ):
        (tmp_path / "torn.pdf").write_bytes(b"%PDF-1.4\n1 0 obj\n<<")
        with pytest.raises(CorpusError, match=reason):
            draw_page(path, number, quoted("London"), is_part=False)


def test_an_encrypted_pdf_is_said(tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf", reason="it encrypts a PDF")
    pytest.importorskip("cryptography", reason="pypdf encrypts with it")
    writer = pypdf.PdfWriter()
    writer.append(io.BytesIO(pdf(column(["Nobody knows."]))))
    writer.encrypt("secret", algorithm="AES-256")
    writer.write(tmp_path / "secret.pdf")
    with pytest.raises(CorpusError, match="it cannot be drawn"):
        draw_page(str(tmp_path / "secret.pdf"), 1, quoted("London"), is_part=False)


def test_a_quotation_is_found_again_however_a_page_breaks_it() -> None:
    source = random.Random(3)
    words = ["Łódź", "café", "ﬁne", "Ångström", "a", "1867", "Zoë", "naïve"]
    for _ in range(300):
        chosen = [source.choice(words) for _ in range(source.randint(3, 30))]
        chosen[source.randrange(len(chosen))] = "Unique7"
        text, place = " ".join(chosen), " ".join(chosen).index("Unique7")
        printed = "".join(
            sign + source.choice(("", "", "-\n"))
            if sign.isalnum()
            else source.choice(("\n", "  ", " · "))
            for sign in text
        )
        found = find_again(Quotation(text, place, place + 7), f"Header\n{printed}\n12")
        assert found is not None
        first, last = found
        shown = f"Header\n{printed}\n12"[first : last + 1]
        assert "".join(sign for sign in shown if sign.isalnum()) == "Unique7"
    assert find_again(Quotation("…", 0, 1), "…") is None
    assert find_again(Quotation("Ada", 3, 3), "Ada") is None
