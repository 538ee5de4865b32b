"""Documents: show the page of a PDF that an answer is from, with the quotation marked.

The documents of a knowledge base NAME lie beside its folder, in NAME.documents, where
`kbq serve --edit` puts them; a link to another folder is as good. Strangers' PDFs are drawn in a
process of its own.

Sources: PDFium's fpdfview.h and fpdf_text.h; the PNG specification (ISO/IEC 15948).
"""

import asyncio
import ctypes
import math
import re
import struct
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from kbq.errors import CorpusError, KbqError, first_line
from kbq.serve.filling import WithServices
from kbq.serve.limits import LONGEST
from kbq.serve.problems import RefusedError
from kbq.storage.limited import LimitedProcess

DOCUMENTS = ".documents"  # suffix of their folders
SECONDS = 20.0  # time of computing, for a page
KEPT = 64  # pictures
PAGE = re.compile(r"(?P<path>.+\.pdf)#page=(?P<number>\d{1,6})", re.IGNORECASE | re.DOTALL)
HEADERS = {"Cache-Control": "private, max-age=3600"}
SCALE = 2.0  # pixels of a point
MOST_PIXELS = 6_000_000
PART = (330.0, 180.0)  # points of width and height around a quotation
MARK = np.array([255, 226, 122])  # red, green and blue of the marker
CONTEXT = (60, 30, 12, 0)  # letters on either side by which a quotation is found again

Box = tuple[float, float, float, float]  # left, top, right and bottom, in pixels of the picture
Place = Annotated[int, Query(ge=0, le=2**31)]
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Quotation:
    """A place in a paragraph as it was read: text[start:end]."""

    text: str
    start: int
    end: int


def documents_of(folder: Path) -> Path:
    """Return where the documents of a knowledge base lie, if they are there."""
    return folder.absolute().with_name(f"{folder.absolute().name}{DOCUMENTS}")


class Drawer:
    """Draws pages of PDFs, one at a time; the last ones are kept."""

    def __init__(self) -> None:
        self._child = LimitedProcess()
        self._drawn = lru_cache(KEPT)(self._draw)

    def __enter__(self) -> "Drawer":
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def picture(self, folder: Path, page_id: str, quotation: Quotation, is_part: bool) -> bytes:
        """Return the picture of a page. Raises RefusedError if there is none."""
        named = PAGE.fullmatch(page_id)
        path = folder
        if named:
            path = (folder / named["path"]).resolve()
        if not named or not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise RefusedError(
                404,
                f"there is no picture of {page_id!r:.80}: its PDF is not beside the knowledge base",
            )

        try:
            return self._drawn(
                str(path), path.stat().st_mtime_ns, int(named["number"]), quotation, is_part
            )
        except (KbqError, OSError) as error:
            reason = str(error).replace(str(path), "it")
            raise RefusedError(
                422, f"{page_id!r:.80} cannot be shown as a picture: {reason}"
            ) from None

    def _draw(
        self, path: str, changed: int, number: int, quotation: Quotation, is_part: bool
    ) -> bytes:
        return self._child.call(draw_page, path, number, quotation, is_part, seconds=SECONDS)


@router.get("/document")
async def picture(
    request: Request,
    services: WithServices,
    page: Annotated[str, Query(max_length=LONGEST)],
    kb: str = "",
    paragraph: Place = 0,
    start: Place = 0,
    end: Place = 0,
    part: bool = False,
) -> Response:
    """Show a page of a PDF, or the part of it around a quotation."""
    served = services.kbs.named(kb)
    source = served.page(page)
    text = next((own.text for own in source.paragraphs if own.number == paragraph), "")
    quotation = Quotation(text, start, min(end, len(text)))
    folder = documents_of(served.kb.folder)
    drawer: Drawer = request.app.state.drawer
    drawn = await asyncio.to_thread(drawer.picture, folder, source.page_id, quotation, part)
    return Response(drawn, media_type="image/png", headers=HEADERS)


def draw_page(path: str, number: int, quotation: Quotation, is_part: bool) -> bytes:
    """Return page `number` of a PDF, from 1, as PNG. Raises CorpusError if it cannot be drawn.

    A quotation that is not found again is not marked; the whole page is shown then.
    """
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(path)
        if not 1 <= number <= len(pdf):
            raise CorpusError(f"it has no page {number:,} but {len(pdf):,} pages: build it again")
        page = pdf[number - 1]
        width, height = page.get_size()
        scale = min(SCALE, math.sqrt(MOST_PIXELS / max(1.0, width * height)))
        pixels = page.render(scale=scale, rev_byteorder=True).to_numpy()[..., :3].copy()
        boxes = _boxes(page, quotation, pixels.shape[1], pixels.shape[0])
    except (pypdfium2.PdfiumError, OSError) as error:
        raise CorpusError(
            f"it cannot be drawn ({first_line(error)}): check that it is a PDF"
        ) from None

    for left, top, right, bottom in boxes:
        rows = slice(max(0, math.floor(top)), math.ceil(bottom))
        marked = pixels[rows, max(0, math.floor(left)) : math.ceil(right)]
        marked[:] = marked * MARK // 255

    if is_part and boxes:
        pixels = _part(pixels, boxes, scale)
    return _png(pixels)


def _boxes(page: Any, quotation: Quotation, width: int, height: int) -> list[Box]:
    """Return the places of a quotation in a picture of the page, one a line."""
    textpage = page.get_textpage()
    text = textpage.get_text_range()
    if len(text) != textpage.count_chars():  # it has letters of two code units
        from pypdfium2 import raw

        text = "".join(
            chr(raw.FPDFText_GetUnicode(textpage, letter))
            for letter in range(textpage.count_chars())
        )

    span = find_again(quotation, text)
    if span is None:
        return []
    first, last = span
    boxes = []
    for number in range(textpage.count_rects(first, last - first + 1)):
        left, bottom, right, top = textpage.get_rect(number)
        corners = [
            _pixel(page, *corner, width, height) for corner in ((left, bottom), (right, top))
        ]
        across, down = zip(*corners, strict=True)
        boxes.append((min(across) - 2, min(down) - 3, max(across) + 2, max(down) + 3))

    return boxes


def _pixel(page: Any, across: float, up: float, width: int, height: int) -> tuple[int, int]:
    """Return where a point of a page, which may be turned, is in its picture."""
    from pypdfium2 import raw

    column = ctypes.c_int()
    row = ctypes.c_int()
    raw.FPDF_PageToDevice(page, 0, 0, width, height, 0, across, up, column, row)
    return column.value, row.value


def find_again(quotation: Quotation, text: str) -> tuple[int, int] | None:
    """Return the first and the last place of a quotation in another text, whose blanks and signs
    may differ.

    >>> find_again(Quotation("in Paris or Paris", 12, 17), "In Par-\\nis or Paris!")
    (14, 18)
    """
    own, places = _letters(quotation.text)
    others, found_at = _letters(text)
    first = next(
        (number for number, place in enumerate(places) if place >= quotation.start), len(places)
    )
    end = next(
        (number for number, place in enumerate(places) if place >= quotation.end), len(places)
    )
    if first >= end:
        return None
    for around in CONTEXT:
        begin = max(0, first - around)
        first_found = others.find(own[begin : end + around])
        if first_found >= 0:
            return found_at[first_found + first - begin], found_at[first_found + end - 1 - begin]

    return None


def _letters(text: str) -> tuple[str, Sequence[int]]:
    """Return the letters and digits of a text without case and accents, and the place of each."""
    letters: list[str] = []
    places: list[int] = []
    for number, sign in enumerate(text):
        for letter in unicodedata.normalize("NFKD", sign).casefold():
            if letter.isalnum():
                letters.append(letter)
                places.append(number)
    return "".join(letters), places


def _part(pixels: Any, boxes: Sequence[Box], scale: float) -> Any:
    """Return the part of a picture around the first line of a quotation."""
    height, width = pixels.shape[:2]
    part_width = min(width, round(PART[0] * scale))
    part_height = min(height, round(PART[1] * scale))
    left, top, right, bottom = boxes[0]
    first_column = round(min(max(0.0, (left + right - part_width) / 2), width - part_width))
    first_row = round(min(max(0.0, (top + bottom - part_height) / 2), height - part_height))
    rows = pixels[first_row : first_row + part_height]
    return rows[:, first_column : first_column + part_width]


def _png(pixels: Any) -> bytes:
    """Return red, green and blue as PNG. Shape: (height, width, 3)."""
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with its filter, which is none
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    file = [b"\x89PNG\r\n\x1a\n"]
    for name, content in chunks:
        length = struct.pack(">I", len(content))
        checksum = struct.pack(">I", zlib.crc32(name + content))
        file += [length, name, content, checksum]
    return b"".join(file)
