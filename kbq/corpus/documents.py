"""Documents: a file that is one page, or a PDF with several, becomes these, by the reader of its suffix."""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import TypeAlias

from kbq.corpus.markdown import markdown_parts
from kbq.corpus.metadata import clean_metadata
from kbq.corpus.office import lacks_library, pdf_pages, word_parts
from kbq.corpus.pages import Page, Paragraph
from kbq.corpus.web import web_parts
from kbq.errors import CorpusError
from kbq.storage.lines import COMPRESSED, MARK, clean_text, decoded, ended


@dataclass(frozen=True, slots=True)
class Document:
    """A file of a folder or an archive, or one alone."""

    id: str  # its path there, or its name
    content: bytes  # decompressed

    @property
    def lines(self) -> list[str]:
        """Without their ends, whatever these are.

        Raises:
            CorpusError: they are not UTF-8.
        """
        numbered = enumerate(ended(io.BytesIO(self.content)), 1)
        try:
            text = "".join(line for _, line in decoded(numbered, "", CorpusError))
        except CorpusError as problem:
            raise CorpusError(f"line {str(problem).lstrip(':')}") from None
        return re.split(r"\r\n|\r|\n", text.removeprefix(MARK))

    @property
    def title(self) -> str:
        """That of its name, where it says none itself."""
        stem = without_compression(PurePath(self.id)).stem.replace("_", " ").strip()
        return stem if " " in stem else stem.replace("-", " ").strip() or stem


PDF = ".pdf"
Reader: TypeAlias = Callable[[Document], Page]


def plain_page(document: Document) -> Page:
    """A page of paragraphs with blank lines between them."""
    return _page(document, "", blocks("\n".join(document.lines)), {})


def markdown_page(document: Document) -> Page:
    """A page of Markdown; see `markdown`."""
    parts = markdown_parts(document.lines)
    return _page(document, parts.title, parts.paragraphs, parts.metadata)


def web_page(document: Document) -> Page:
    """A page of HTML; see `web`."""
    parts = web_parts("\n".join(document.lines))
    return _page(document, parts.title, parts.paragraphs, parts.metadata)


def word_page(document: Document) -> Page:
    """A page of DOCX; see `office`."""
    parts = word_parts(document.content)
    return _page(document, parts.title, parts.paragraphs, parts.metadata)


READERS: dict[str, Reader] = {
    ".txt": plain_page, ".text": plain_page, ".md": markdown_page, ".markdown": markdown_page, ".html": web_page,
    ".htm": web_page, ".xhtml": web_page, ".docx": word_page,
}  # fmt: skip


def is_document(path: PurePath) -> bool:
    """Whether a file becomes a page, or several, as its name says; not one whose library is not installed."""
    plain = without_compression(path)
    return plain.suffix.lower() in (*READERS, PDF) and not lacks_library(plain)


def sources_of(document: Document) -> Iterator[Callable[[], Page]]:
    """What reads the pages of a document: one or, of a PDF, each with its number.

    What they raise is a CorpusError.
    """
    if without_compression(PurePath(document.id)).suffix.lower() != PDF:
        yield partial(page_of, document)
        return
    try:
        for number, parts in pdf_pages(document.content):
            one = replace(document, id=f"{document.id}#page={number}")
            yield partial(_page, one, parts.title or document.title, parts.paragraphs, parts.metadata)
    except CorpusError as problem:
        yield partial(_refused, problem)


def _refused(problem: CorpusError) -> Page:
    raise problem


def page_of(document: Document) -> Page:
    """The page that a document is, which is no PDF.

    Raises:
        CorpusError: it cannot be read.
    """
    return READERS[without_compression(PurePath(document.id)).suffix.lower()](document)


def without_compression(path: PurePath) -> PurePath:
    """A path without the suffix that says that its file is compressed."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def blocks(text: str) -> list[str]:
    """A text, parted at its blank lines."""
    return [block.strip("\n") for block in re.split(r"\n\s*\n", text) if block.strip()]


def _page(document: Document, title: str, texts: Iterable[str], metadata: dict[str, object]) -> Page:
    paragraphs = [Paragraph(number, clean_text(text), _begin(text)) for number, text in enumerate(texts)]
    return Page(
        document.id,
        clean_text(title or document.title).strip(),
        [one for one in paragraphs if one.text.strip()],
        metadata=clean_metadata(metadata),
    )


def _begin(text: str) -> int:
    """The first character that is no blank: marks of lists became blanks."""
    return len(text) - len(text.lstrip())
