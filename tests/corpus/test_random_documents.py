"""Random documents: what python-docx, odfpy, python-pptx and reportlab write is what is read, word
for word.
"""

import io
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kbq.corpus.reading import read_document

pytest.importorskip("pypandoc", reason="it reads DOCX")
CASES = int(os.environ.get("KBQ_CASES", "12"))


@dataclass(slots=True)
class Words:
    """Words that are nowhere else, in the order in which they shall be read."""

    draw: random.Random
    written: list[str] = field(default_factory=list)
    count: int = 0

    def some(self, most: int = 6) -> list[str]:
        return [self.one() for _ in range(self.draw.randint(1, most))]

    def one(self, is_read: bool = True) -> str:
        self.count += 1
        digits = f"{self.count:o}".translate(str.maketrans("01234567", "abdefghk"))
        word = f"w{digits}z"  # lines that differ in digits alone are running lines
        if is_read:
            self.written.append(word)
        return word

    def runs(self) -> list[str]:
        """Return a sentence in pieces, which may break within words."""
        text = " ".join(self.some())
        places = sorted(self.draw.randint(0, len(text)) for _ in range(self.draw.randint(0, 3)))
        return [
            text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)
        ]

    def rows(self) -> list[list[str]]:
        """Return the cells of a table without a header; some are empty."""
        width, height = self.draw.randint(2, 4), self.draw.randint(1, 3)
        return [
            [" ".join(self.some(2)) if self.draw.random() < 0.8 else "" for _ in range(width)]
            for _ in range(height)
        ]


def docx(words: Words) -> bytes:
    import docx as library
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    made, draw = library.Document(), words.draw

    def revised(paragraph: Any, tag: str, text: str) -> None:
        """Put a run into an element, as programs do that keep track of changes."""
        run = paragraph.add_run(text)._r
        outer = OxmlElement(f"w:{tag}")
        run.getparent().replace(run, outer)
        outer.append(run)
        if tag == "del":
            for one in run.iter("{*}t"):
                one.tag = one.tag.replace("}t", "}delText")

    def paragraph(style: str | None = None, where: Any = made) -> None:
        one = where.add_paragraph(style=style)
        for text in words.runs():
            run = one.add_run(text)
            run.bold, run.italic = draw.random() < 0.2, draw.random() < 0.2
        kind = draw.random()
        if kind < 0.1:
            one.add_run(" " + words.one(is_read=False)).font.hidden = True
        elif kind < 0.2:
            one.add_run(" " + words.one(is_read=False)).font.strike = True
        elif kind < 0.3:
            one.add_run().add_break()
            one.add_run(words.one())
        elif kind < 0.4:
            one.add_run("\t" + words.one())
        elif kind < 0.6:
            tag = draw.choice(["ins", "del", "smartTag", "bdo"])
            revised(one, tag, f" {words.one(is_read=tag != 'del')} ")
            one.add_run(words.one())

    for _ in range(draw.randint(2, 7)):
        kind = draw.random()
        if kind < 0.2:
            made.add_heading(" ".join(words.some()), draw.randint(1, 3))
        elif kind < 0.4:
            for _ in range(draw.randint(1, 3)):
                paragraph(draw.choice(["List Bullet", "List Number", "List Bullet 2"]))
        elif kind < 0.6:
            rows = words.rows()
            table = made.add_table(len(rows), len(rows[0]))
            table._tbl.tblPr.find(qn("w:tblLook")).set(qn("w:firstRow"), "0")  # no header
            for cells, row in zip(table.rows, rows, strict=True):
                for cell, text in zip(cells.cells, row, strict=True):
                    cell.text = text
        else:
            paragraph()
    return saved(made.save)


def odt(words: Words) -> bytes:
    from odf.draw import CustomShape, Frame, TextBox
    from odf.opendocument import OpenDocumentText
    from odf.table import Table, TableCell, TableColumn, TableRow
    from odf.text import (
        H,
        LineBreak,
        List,
        ListItem,
        Note,
        NoteBody,
        NoteCitation,
        P,
        S,
        Section,
        Span,
        Tab,
    )

    made, draw = OpenDocumentText(), words.draw

    def paragraph() -> Any:
        one, behind = P(), list[Any]()
        for text in words.runs():
            one.addElement(Span(text=text)) if draw.random() < 0.5 else one.addText(text)
        kind = draw.random()
        if kind < 0.15:
            one.addElement(draw.choice([S, Tab, LineBreak])())
            one.addText(words.one())
        elif kind < 0.3:
            box, frame = TextBox(), Frame(anchortype="as-char")
            frame.addElement(box)
            behind.append(box)
            one.addElement(frame)
            one.addText(f" {words.one()}")
        elif kind < 0.4:
            behind.append(CustomShape())
            one.addElement(behind[0])
            one.addText(f" {words.one()}")
        elif kind < 0.5:
            note, body = Note(noteclass="footnote"), NoteBody()
            note.addElement(NoteCitation(text="1"))
            note.addElement(body)
            behind.append(body)
            one.addElement(note)
            one.addText(f" {words.one()}")
        for place in behind:  # what is anchored in a paragraph is read behind it
            for _ in range(draw.randint(1, 2)):
                place.addElement(P(text=" ".join(words.some())))
        return one

    for _ in range(draw.randint(2, 7)):
        kind = draw.random()
        if kind < 0.2:
            made.text.addElement(H(outlinelevel=draw.randint(1, 3), text=" ".join(words.some())))
        elif kind < 0.4:
            several = List()
            for _ in range(draw.randint(1, 3)):
                item = ListItem()
                item.addElement(paragraph())
                several.addElement(item)
            made.text.addElement(several)
        elif kind < 0.6:
            rows, table = words.rows(), Table()
            table.addElement(TableColumn(numbercolumnsrepeated=len(rows[0])))
            for texts in rows:
                row = TableRow()
                for text in texts:
                    cell = TableCell()
                    cell.addElement(P(text=text))
                    row.addElement(cell)
                table.addElement(row)
            made.text.addElement(table)
        elif kind < 0.7:
            section = Section(name=f"s{words.count}")
            section.addElement(paragraph())
            made.text.addElement(section)
        else:
            made.text.addElement(paragraph())
    return saved(made.write)


def pptx(words: Words) -> bytes:
    from pptx import Presentation
    from pptx.util import Inches

    made, draw = Presentation(), words.draw

    def fill(frame: Any) -> None:
        for number in range(draw.randint(1, 3)):
            paragraph = frame.paragraphs[0] if not number else frame.add_paragraph()
            for text in words.runs():
                paragraph.add_run().text = text
            if draw.random() < 0.2:
                paragraph.add_line_break()
                paragraph.add_run().text = words.one()

    for _ in range(draw.randint(1, 3)):
        slide = made.slides.add_slide(made.slide_layouts[draw.choice([1, 5, 6])])
        if slide.shapes.title is not None:
            slide.shapes.title.text = " ".join(words.some())
        for one in slide.placeholders:
            if one.placeholder_format.idx == 1:
                fill(one.text_frame)
        for _ in range(draw.randint(0, 3)):
            kind, size = draw.random(), Inches(1)
            if kind < 0.3:
                rows = words.rows()
                table = slide.shapes.add_table(
                    len(rows), len(rows[0]), size, size, size, size
                ).table
                table.first_row = False
                for number, row in enumerate(rows):
                    for column, text in enumerate(row):
                        table.cell(number, column).text = text
            elif kind < 0.6:
                group = slide.shapes.add_group_shape()
                for _ in range(draw.randint(1, 2)):
                    group = group.shapes.add_group_shape() if draw.random() < 0.3 else group
                    fill(group.shapes.add_textbox(size, size, size, size).text_frame)
            else:
                fill(slide.shapes.add_textbox(size, size, size, size).text_frame)
    return saved(made.save)


def pdf(words: Words) -> bytes:
    from reportlab.lib.pagesizes import A5
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph, Spacer

    draw, buffer, styles = words.draw, io.BytesIO(), getSampleStyleSheet()
    columns, story = draw.choice([1, 1, 2]), list[Any]()
    for number in range(draw.randint(3, 9)):
        if draw.random() < 0.25:
            story.append(Paragraph(" ".join(words.some(4)), styles["Heading2"]))
        text = [f"<b>{word}</b>" if draw.random() < 0.05 else word for word in words.some(120)]
        story.append(Paragraph(f"{' '.join(text)}.", styles["BodyText"]))
        story.append(Spacer(1, 6 * (number % 3)))
    made = BaseDocTemplate(buffer, pagesize=A5)
    width = made.width / columns - 6
    frames = [
        Frame(made.leftMargin + n * (width + 12), made.bottomMargin, width, made.height)
        for n in range(columns)
    ]

    def edges(canvas: Any, template: Any) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawString(made.leftMargin, A5[1] - 30, "Running header of the journal")
        canvas.drawCentredString(A5[0] / 2, 30, str(template.page))

    made.addPageTemplates([PageTemplate("a", frames, onPage=edges)])
    made.build(story)
    return buffer.getvalue()


def saved(save: Callable[[Any], object]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


WRITERS = {"docx": docx, "odt": odt, "pptx": pptx, "pdf": pdf}
LIBRARIES = {"docx": "docx", "odt": "odf", "pptx": "pptx", "pdf": "reportlab"}


def differences(kind: str, seeds: range) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield the seeds whose documents are read otherwise than they were written, with both."""
    for seed in seeds:
        words = Words(random.Random(seed))
        content = WRITERS[kind](words)
        if not words.written:
            continue
        texts = [
            text for _, several in read_document(content, f".{kind}").pages for text in several
        ]
        read = re.findall(r"w[a-k]+z", " ".join(texts))
        if read != words.written:
            yield seed, words.written, read


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_written_is_read(kind: str) -> None:
    """KBQ_CASES sets how many documents of each kind."""
    pytest.importorskip(LIBRARIES[kind], reason=f"it writes {kind.upper()}")
    assert list(differences(kind, range(CASES))) == []
