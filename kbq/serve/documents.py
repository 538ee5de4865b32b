"""Documents: show the page of a PDF that an answer is from, with the quotation marked.

The documents of a knowledge base NAME lie beside its folder, in NAME.documents, where `kbq serve --edit` puts them; a
link to another folder is as good. Strangers' PDFs are drawn in a process of its own.
"""

import asyncio
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from kbq.corpus.pdf_picture import Quotation, draw_page
from kbq.errors import KbqError
from kbq.serve.filling import WithServices
from kbq.serve.problems import LONGEST, RefusedError
from kbq.storage.limited import LimitedProcess

DOCUMENTS = ".documents"  # how the names of their folders end
SECONDS = 20.0  # of computing, for a page
KEPT = 64  # pictures
PAGE = re.compile(r"(?P<path>.+\.pdf)#page=(?P<number>\d{1,6})", re.IGNORECASE | re.DOTALL)
HEADERS = {"Cache-Control": "private, max-age=3600"}
Place = Annotated[int, Query(ge=0, le=2**31)]
router = APIRouter(include_in_schema=False)


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
        found = PAGE.fullmatch(page_id)
        path = (folder / found["path"]).resolve() if found else folder
        if not found or not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise RefusedError(404, f"there is no picture of {page_id!r:.80}: its PDF is not beside the knowledge base")
        try:
            return self._drawn(str(path), path.stat().st_mtime_ns, int(found["number"]), quotation, is_part)
        except (KbqError, OSError) as error:
            reason = str(error).replace(str(path), "it")
            raise RefusedError(422, f"{page_id!r:.80} cannot be shown as a picture: {reason}") from None

    def _draw(self, path: str, changed: int, number: int, quotation: Quotation, is_part: bool) -> bytes:
        return self._child.call(draw_page, path, number, quotation, is_part, seconds=SECONDS)


@router.get("/document")
async def picture(
    request: Request, services: WithServices, page: Annotated[str, Query(max_length=LONGEST)], kb: str = "",
    paragraph: Place = 0, start: Place = 0, end: Place = 0, part: bool = False,
) -> Response:  # fmt: skip
    """Show a page of a PDF, or the part of it around a quotation."""
    served = services.kbs.named(kb)
    found = served.page(page)
    text = next((one.text for one in found.paragraphs if one.number == paragraph), "")
    quotation = Quotation(text, start, min(end, len(text)))
    folder = documents_of(served.kb.folder)
    drawer: Drawer = request.app.state.drawer
    drawn = await asyncio.to_thread(drawer.picture, folder, found.page_id, quotation, part)
    return Response(drawn, media_type="image/png", headers=HEADERS)
