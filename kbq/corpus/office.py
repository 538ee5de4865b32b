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

LIBRARIES = {".docx": "docx", ".pdf": "pypdf"}
INSTALL = "pip install '.[documents]' in the checkout of kbq"
COMPOUND = b"\xd0\xcf\x11\xe0"  # how an encrypted DOCX, or one of old versions, begins
LARGEST = 2**28  # bytes of a file, and of a DOCX that is unpacked
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

    if content.startswith(COMPOUND):
        raise CorpusError("it is encrypted, or of an old version: save it as .docx without a password")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = archive.infolist()
        texts_size = sum(one.file_size for one in parts if one.filename.lower().endswith((".xml", ".rels")))
        for size, most in ((sum(one.file_size for one in parts), LARGEST), (texts_size, LONGEST)):
            if size > most:
                raise CorpusError(f"it has {size:,} bytes, {most:,} at most are read: divide it")
        document = docx.Document(io.BytesIO(content))
        title, texts = "", []
        for block in document.iter_inner_content():
            if isinstance(block, docx.table.Table):
                texts += [_line(" ".join(dict.fromkeys(cell.text for cell in row.cells))) for row in block.rows]
            elif _HEADING.match(block.style.name if block.style and block.style.name else ""):
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


def pdf_pages(content: bytes) -> Iterator[tuple[int, Parts]]:
    """Yield the pages of a PDF that have text, with their numbers, from 1; the title is that of the file.

    Raises CorpusError if it cannot be read, is encrypted, or has no text.
    """
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it repairs is no news
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
    found, current = list[str](), ""
    for line in lines:
        if not line:
            found, current = [*found, current], ""
            continue
        is_parted = current.endswith("-") and line[0].islower()
        current = current[:-1] + line if is_parted else f"{current} {line}".strip()
        if _ENDS.search(line) and len(line) < SHORT * longest and line is not lines[-1] and longest > 40:
            found, current = [*found, current], ""
    return [_line(text) for text in (*found, current) if text.strip()]


def _line(text: str) -> str:
    return " ".join(text.split())
