"""Office: texts of LibreOffice or slides of PowerPoint become HTML; DOCX becomes plain."""

import codecs
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kbq.corpus.html_blocks import joint, row_text, whole_contents
from kbq.corpus.html_tree import drop
from kbq.corpus.pages import Block, Contents
from kbq.errors import CorpusError
from kbq.storage.reading import refuse_large

_ODT = {
    "text": "main", "p": "p", "list": "ul", "list-item": "li", "table": "table", "table-row": "tr",
    "table-cell": "td", "line-break": "br", "note-citation": "rp", "title": "rp", "desc": "rp",
}  # fmt: skip
CODE_PAGES = {
    "128": "cp932", "129": "cp949", "134": "gb18030", "136": "big5", "161": "cp1253",
    "162": "cp1254", "163": "cp1258", "177": "cp1255", "178": "cp1256", "186": "cp1257",
    "204": "cp1251", "222": "cp874", "238": "cp1250",
}  # fmt: skip
PLAIN_STYLES = ("TableNormal", "TableGrid")  # styles of Word that show no header
_HIDDEN = (
    "//*[local-name()='section' or local-name()='hidden-paragraph' or local-name()='hidden-text']"
    "[@*[local-name()='display']='none']"
)
_RTF = re.compile(
    rb"\\([a-z]+)(-?\d+)? ?|((?:\\'[0-9a-fA-F]{2})+)|(\\[^a-z'])|([{}])|([^\\{}]+)|(\\)", re.DOTALL
)


def with_facts(document: Contents, facts: dict[str, str]) -> Contents:
    """Give a document the title and metadata that its file states."""
    document.title = facts.get("title", "")
    document.window_title = ""
    urls = [facts.get(name, "") for name in ("source", "identifier", "subject", "description")]
    document.metadata |= {
        "author": facts.get("creator", ""),
        "date": (facts.get("modified") or facts.get("date", ""))[:10],
        "url": next((url for url in urls if re.fullmatch(r"https?://\S+", url)), ""),
    }
    return document


def prepared(content: bytes, suffix: str) -> tuple[bytes, dict[str, str]]:
    """Return a file of Office with what pandoc does not read made plain, and the facts in its
    metadata.
    """
    from lxml import etree

    parser = _xml_parser()
    written = io.BytesIO()
    facts: dict[str, str] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(written, "w") as changed:
        refuse_large(
            "its content", sum(entry.file_size for entry in archive.infolist()), CorpusError
        )
        names = archive.namelist()
        if suffix == ".docx" and "word/document.xml" not in names:
            raise CorpusError(
                "it is not a .docx file: check what it is, and rename it or save it anew"
            )

        for name in names:
            part = archive.read(name)
            if name in ("docProps/core.xml", "meta.xml") or name.endswith(".opf"):
                root = etree.fromstring(part, parser)
                facts |= {
                    etree.QName(element).localname: " ".join(element.text.split())
                    for element in root.iter("{*}*")
                    if element.text
                }
            elif name in ("word/document.xml", "content.xml"):
                root = etree.fromstring(part, parser)
                _made_plain(root)
                part = etree.tostring(root)

            if not name.lower().endswith(
                (".png", ".jpg", ".jpeg", ".gif", ".emf", ".wmf", ".tif", ".tiff", ".svg")
            ):
                changed.writestr(name, part)

    return written.getvalue(), facts


def odt_contents(content: bytes) -> Contents:
    """Read a text of LibreOffice; pandoc refuses many that other programs wrote."""
    from lxml import etree

    plain, facts = prepared(content, ".odt")
    with zipfile.ZipFile(io.BytesIO(plain)) as archive:
        names = [name for name in ("styles.xml", "content.xml") if name in archive.namelist()]
        roots = [etree.fromstring(archive.read(name), _xml_parser()) for name in names]

    root = roots[-1]
    for hidden in root.xpath(_HIDDEN):
        drop(hidden)
    for note in reversed(list(root.iter("{*}note"))):
        outer = next(note.iterancestors("{*}p", "{*}h"), None)
        if outer is not None:
            for paragraph in reversed(note.findall("{*}note-body/{*}p")):
                outer.addnext(paragraph)
            drop(note)

    _behind(root)
    _as_html(root, [style for each in roots for style in each.iter("{*}style")])
    body = root.find(".//main")
    if body is None:
        raise CorpusError("it is not a .odt file: check what it is, and rename it or save it anew")
    return with_facts(whole_contents(etree.tostring(body, encoding="unicode")), facts)


def _as_html(root: Any, styles: Iterable[Any]) -> None:
    """Give the elements of an ODT the names that HTML has for them, if it has."""
    from lxml import etree

    parents = dict[str, str]()
    bold = set[str]()
    for style in styles:
        name = _given(style).get("name", "")
        parents[name] = _given(style).get("parent-style-name", "")
        if style.xpath("*/@*[local-name()='font-weight']='bold'"):
            bold.add(name)

    for element in root.iter("{*}*"):
        given = _given(element)
        tag = etree.QName(element).localname
        style = given.get("style-name", "")
        element.tag = _ODT.get(tag, "span")
        element.attrib.clear()
        if tag == "h":
            element.tag = f"h{min(6, int(given.get('outline-level') or 1))}"
        elif tag == "p" and "Title" in (style, parents.get(style)):
            element.tag = "h1"
        elif tag in ("p", "span") and style in bold:
            inner = etree.Element("b")
            inner.text = element.text
            element.text = None
            inner.extend(list(element))
            element.append(inner)
        elif tag == "table-cell":
            element.set("rowspan", given.get("number-rows-spanned", "1"))
        elif tag in ("s", "tab"):
            element.text = " "


def _given(element: Any) -> dict[str, str]:
    """Return the attributes of an element, without namespaces."""
    return {name.rpartition("}")[2]: value for name, value in element.attrib.items()}


def _behind(root: Any) -> None:
    """Put the paragraphs of drawn shapes and boxes behind the one that they are anchored in."""
    blocks = "{*}p", "{*}h", "{*}list", "{*}table"
    for block in reversed(list(root.iter(*blocks))):
        outer = list(block.iterancestors("{*}p", "{*}h"))
        # And not in a list of the shape.
        is_inside = outer and next(block.iterancestors(*blocks)) is outer[0]
        if is_inside:
            drop(block)
            block.tail = None
            outer[-1].addnext(block)


def _xml_parser() -> Any:
    from lxml import etree

    return etree.XMLParser(resolve_entities=False, no_network=True)


def _made_plain(root: Any) -> None:
    """Unwrap results of fields and text boxes of a DOCX, and remove hidden text and comments."""
    from lxml import etree

    gone = ("instrText", "fldChar", "Fallback", "tracked-changes", "annotation", "annotation-end")
    for element in list(root.iter(*(f"{{*}}{name}" for name in gone))):
        drop(element)
    for ruby in list(root.iter("{*}ruby")):
        run = ruby.getparent()
        parent = run.getparent()
        place = run.getparent().index(run)
        parent[place : place + 1] = [
            inner for base in ruby.findall("{*}rubyBase") for inner in base
        ]

    rows = (mark.getparent().getparent() for mark in root.iterfind(".//{*}tr/{*}trPr/{*}del"))
    for row in [*rows, *root.iter("{*}moveFrom")]:
        drop(row)
    for hidden in list(root.iter("{*}vanish", "{*}strike", "{*}dstrike")):
        if hidden.get(f"{hidden.tag.partition('}')[0]}}}val") in ("0", "false", "off"):
            continue
        run = hidden.getparent().getparent()
        if etree.QName(run).localname == "r" and run.getparent() is not None:
            drop(run)

    for name in ("fldSimple", "smartTag", "customXml", "bdo", "dir", "ins", "moveTo"):
        for element in list(root.iter(f"{{*}}{name}")):
            parent = element.getparent()
            place = element.getparent().index(element)
            parent[place : place + 1] = list(element)

    for box in list(root.iter("{*}txbxContent")):
        outer = list(box.iterancestors("{*}p"))
        if outer:
            for block in reversed(list(box)):
                outer[-1].addnext(block)

    for table in root.iter("{*}tbl"):
        if _is_form(table):
            for look in table.findall("{*}tblPr/{*}tblLook"):
                drop(look)


def _is_form(table: Any) -> bool:
    """Whether a table of a DOCX has two columns, and nothing shows its first row as their names.

    Word says of any new table that its first row is special; only a style with colours or bold
    letters shows it.
    """
    style = table.find("{*}tblPr/{*}tblStyle")
    shows_nothing = style is None or next(iter(style.attrib.values())) in PLAIN_STYLES
    first = table.find("{*}tr")
    if first is None or not shows_nothing or len(first.findall("{*}tc")) != 2:
        return False
    if first.find("{*}trPr/{*}tblHeader") is not None:
        return False
    runs = [run for run in first.iter("{*}r") if run.find("{*}t") is not None]
    return any(run.find("{*}rPr/{*}b") is None for run in runs)


def plain_rtf(content: bytes) -> bytes:
    r"""Write the letters of RTF as Unicode, whatever code page they are in, without what was
    deleted or is hidden.

    >>> plain_rtf(rb"{\rtf1\ansi\ansicpg1250 \u352?koda, \'d8\'edha}")
    b'{\\rtf1 \\ansi \\ansicpg1250 \\uc0\\u352 koda, \\uc0\\u344 \\uc0\\u237 ha}'
    """
    charsets = dict(
        re.findall(rb"\\f(\d+)[^{};\\]*(?:\\(?!f\d)[a-z]+-?\d* ?)*?\\fcharset(\d+)", content)
    )
    usual = re.search(rb"\\ansicpg(\d+)", content)
    default = re.search(rb"\\deff(\d+)", content)
    state = _Letters(
        default[1] if default else b"", f"cp{usual[1].decode()}" if usual else "cp1252"
    )
    written: list[bytes] = []
    outer: list[_Letters] = []
    left = 0  # letters that stand for the one in Unicode before them

    for word, number, codes, sign, brace, letters, _ in (
        found.groups() for found in _RTF.finditer(content)
    ):
        text = b""
        if brace == b"{":
            outer.append(replace(state))
        elif brace and outer:
            state = outer.pop()
        elif word == b"u" and number:
            text = rb"\uc0\u%d " % int(number)
        elif word:
            state.take(word, number)
            if word == b"uc":
                written.append(b"")
            else:
                written.append(b"\\" + word + (number or b"") + b" ")
        elif codes:
            values = bytes.fromhex(codes.replace(rb"\'", b"").decode())
            text = _unicode(values[left:].decode(state.code_page(charsets), "replace"))
            left = max(0, left - len(values))
        else:
            whole = letters or sign or b""
            text = whole[left:] if letters else whole
            left = max(0, left - len(whole))

        if word == b"u" and number:
            left = state.stand_ins
        elif word or brace:
            left = 0
        if brace:
            written.append(brace)
        elif not state.is_gone:
            written.append(text)

    return re.sub(rb"\\uc0\\u(-1\d+) \\uc0\\u(-\d+) ", _whole, b"".join(written))


@dataclass(slots=True)
class _Letters:
    """How the letters of a group of RTF are to be read."""

    font: bytes
    usual: str  # code page of fonts that name none
    stand_ins: int = 1  # letters behind one in Unicode, for programs that know none
    is_gone: bool = False

    def take(self, word: bytes, number: bytes | None) -> None:
        """Follow a control word that changes how the text after it is read."""
        if word == b"f" and number:
            self.font = number
        elif word == b"uc":
            self.stand_ins = int(number or 1)
        elif word in (b"deleted", b"v"):
            self.is_gone = number != b"0"
        elif word == b"plain":
            self.is_gone = False

    def code_page(self, charsets: dict[bytes, bytes]) -> str:
        page = CODE_PAGES.get(charsets.get(self.font, b"").decode(), self.usual)
        try:
            return codecs.lookup(page).name
        except LookupError:
            return "cp1252"


def _whole(halves: re.Match[bytes]) -> bytes:
    """Join two halves of a character, which pandoc does not."""
    units = b"".join((int(half) & 0xFFFF).to_bytes(2, "little") for half in halves.groups())
    return units.decode("utf-16-le", "replace").encode()


def _unicode(text: str) -> bytes:
    """Return a text in letters that every reader of RTF takes alike."""
    units = text.encode("utf-16-le")
    numbers = (
        int.from_bytes(units[place : place + 2], "little", signed=True)
        for place in range(0, len(units), 2)
    )
    written = b""
    for number in numbers:
        is_plain = 32 <= number < 127 and chr(number) not in "\\{}"
        if is_plain:
            written += bytes([number])
        else:
            written += rb"\uc0\u%d " % number
    return written


def pptx_contents(content: bytes) -> Contents:
    """Read the slides of a presentation: what stands on them, groups and tables too, in the order
    of the file.
    """
    from pptx import Presentation

    presentation = Presentation(io.BytesIO(content))
    left_out = Counter[str]()
    blocks: list[Block] = []
    for number, slide in enumerate(presentation.slides):
        if slide._element.get("show") == "0":
            left_out["hidden slides"] += 1
            continue

        title = slide.shapes.title
        if title is not None and (text := " ".join(_paragraphs_of(title))):
            level = 2
            if not number:
                level = 1
            blocks.append(Block(text, level))
        for shape in slide.shapes:
            if title is None or shape.shape_id != title.shape_id:
                blocks += _shape(shape, left_out)

        left_out["notes of speakers"] += bool(
            slide.has_notes_slide and slide.notes_slide.notes_text_frame
        )

    facts = presentation.core_properties
    metadata: dict[str, object] = {
        "author": facts.author or "",
        "date": str(facts.modified or "")[:10],
    }

    return Contents([(0, blocks)], facts.title or "", metadata, left_out)


def _shape(shape: Any, left_out: Counter[str]) -> Iterator[Block]:
    """Yield the blocks of a shape on a slide; a group has several, and a table has rows."""
    if hasattr(shape, "shapes"):  # a group
        for inner in shape.shapes:
            yield from _shape(inner, left_out)
    elif getattr(shape, "has_table", False):
        rows = []
        for row in shape.table.rows:
            rows.append([" ".join(_paragraphs_of(cell)) for cell in row.cells])
        names = (
            dict(enumerate(rows[0]))
            if shape.table.first_row and len(rows) > 1 and len(rows[0]) > 2
            else {}
        )
        for row in rows[bool(names) :]:
            if any(row):
                yield Block(row_text(dict(enumerate(row)), names))
    elif shape.has_text_frame:
        yield from (Block(text) for text in _paragraphs_of(shape))
    elif getattr(shape, "has_chart", False):
        left_out["charts"] += 1


def _paragraphs_of(shape: Any) -> list[str]:
    """Return the paragraphs of a shape or a cell: runs as they are, digits that are raised apart
    from others.
    """
    texts = []
    for paragraph in shape.text_frame.paragraphs:
        text = ""
        for part in paragraph._p.iter("{*}t", "{*}br"):
            said = part.text or ""
            if part.tag.endswith("}br"):
                said = " "
            facts = part.getprevious()
            shift = 0
            if facts is not None:
                shift = int(facts.get("baseline", "0").rstrip("%") or 0)
            if shift:
                text += joint(text[-12:], said, "", shift > 0)
            text += said
        texts.append(" ".join(text.split()))
    return list(filter(None, texts))
