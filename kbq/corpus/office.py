"""Office: DOCX becomes the parts of a page, and every page of a PDF paragraphs. Headings of DOCX are not paragraphs."""

import io
import logging
import re
import warnings
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any

from kbq.corpus.markdown import Parts
from kbq.errors import CorpusError, first_line
from kbq.storage.lines import LONGEST
from kbq.storage.spreadsheet import COMPOUND, unpacked_sizes

LIBRARIES = {".docx": "docx", ".pdf": "pypdf"}
INSTALL = "pip install '.[documents]' in the checkout of kbq"
LARGEST = 2**28  # bytes of a file, and of a DOCX that is unpacked
MOST_PARTS = 250_000  # paragraphs and cells of a DOCX: each takes some ten microseconds, also without any text
SHORT = 0.75  # of the longest line of a page, below which a line that ends a sentence ends a paragraph, too
_ENDS = re.compile(r"[.!?:»”\"')\]]\s*$")
_HEADING = re.compile(r"(heading|title|überschrift|titre)\b", re.IGNORECASE)


def lacks_library(path: PurePath) -> bool:
    """Whether a file is of a kind whose library is not installed."""
    library = LIBRARIES.get(path.suffix.lower())
    return library is not None and find_spec(library) is None


def word_parts(content: bytes) -> Parts:
    """Return the parts of a DOCX: its paragraphs and the rows of its tables, in order.

    Raises CorpusError if it cannot be read, or is encrypted.
    """
    import docx
    from docx.oxml.ns import qn

    if content.startswith(COMPOUND):
        raise CorpusError("it is encrypted, or of an old version: save it as .docx without a password")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            sizes = unpacked_sizes(archive)
        for size, most in zip(sizes, (LARGEST, LONGEST), strict=True):
            if size > most:
                raise CorpusError(f"it has {size:,} bytes, {most:,} at most are read: divide it")
        document = docx.Document(io.BytesIO(content))
        size = sum(1 for _ in document.element.iter(qn("w:p"), qn("w:tc")))
        if size > MOST_PARTS:
            raise CorpusError(f"it has {size:,} paragraphs and cells, {MOST_PARTS:,} at most are read: divide it")
        title, texts, are_headings = "", list[str](), dict[str | None, bool]()
        for block in document.iter_inner_content():
            if isinstance(block, docx.table.Table):
                texts += _rows(block)
                continue
            style = block._p.style  # to look one up takes longer than all else
            if style not in are_headings:
                are_headings[style] = _HEADING.match((block.style and block.style.name) or "") is not None
            if are_headings[style]:
                title = title or _line(block.text)
            else:
                texts.append(_line(block.text))
        facts = document.core_properties
    except CorpusError:
        raise
    except Exception as error:  # python-docx raises what its parsers raise
        raise CorpusError(f"it cannot be read ({first_line(error)}): check that it is a DOCX file") from None
    found: dict[str, object] = {"author": facts.author, "date": facts.modified and facts.modified.date().isoformat()}
    return Parts(title or facts.title or "", [text for text in texts if text], {k: v for k, v in found.items() if v})


def _rows(table: Any) -> Iterator[str]:
    """Yield the text of each row of a table; a cell that spans several rows is in all of them.

    python-docx gives a cell for each column that a cell says it spans, and looks in all rows above for what spans them.
    """
    from docx.table import _Cell

    above: dict[int, str] = {}  # the text of a cell by the column where it begins
    for row in table.rows:
        column, found = row.grid_cols_before, list[str]()
        for cell in row._tr.tc_lst:
            if cell.vMerge != "continue":
                above[column] = _Cell(cell, table).text
            found.append(above.get(column, ""))
            column += cell.grid_span
        yield _line(" ".join(dict.fromkeys(found)))


def pdf_pages(content: bytes) -> Iterator[tuple[int, Parts]]:
    """Yield the pages of a PDF that have text, with their numbers, from 1; the title is that of the file.

    Raises CorpusError if it cannot be read, is encrypted, or has no text.
    """
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its repairs are no news
    try:
        with warnings.catch_warnings(action="ignore"):
            reader = pypdf.PdfReader(io.BytesIO(content))
            if reader.is_encrypted and not reader.decrypt(""):
                raise CorpusError("it is encrypted: save it without a password")
            facts: Any = reader.metadata or {}
            title = _line(str(facts.get("/Title") or ""))
            author = _line(str(facts.get("/Author") or ""))
            count = 0
            for number, page in enumerate(reader.pages, start=1):
                texts = _paragraphs(page.extract_text())
                if texts:
                    count += 1
                    yield number, Parts(title, texts, {"page": number} | ({"author": author} if author else {}))
    except (CorpusError, GeneratorExit):
        raise
    except Exception as error:  # pypdf raises whatever its parsers raise
        raise CorpusError(f"it cannot be read ({first_line(error)}): check that it is a PDF") from None
    if not count:
        raise CorpusError("it has no text: it may be scanned, so have its text recognised first (OCR)")


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a page, whose lines are broken where they end on paper.

    >>> _paragraphs("Ann was born in Stone-\\nbridge in 1851.\\nShe died.\\n\\nThe end is here now.\\nAll of it.")
    ['Ann was born in Stonebridge in 1851. She died.', 'The end is here now. All of it.']
    """
    lines = [line.strip() for line in text.splitlines()]
    longest = max(map(len, lines), default=0)
    found: list[list[str]] = [[]]  # the lines of each paragraph, a blank behind each
    for number, line in enumerate(lines):
        if not line:
            found.append([])
            continue
        if found[-1] and found[-1][-1].endswith("- ") and line[0].islower():
            found[-1][-1] = found[-1][-1][:-2]
        found[-1].append(f"{line} ")
        if _ENDS.search(line) and len(line) < SHORT * longest and number < len(lines) - 1 and longest > 40:
            found.append([])
    return [_line("".join(paragraph)) for paragraph in found if paragraph]


def _line(text: str) -> str:
    return " ".join(text.split())
