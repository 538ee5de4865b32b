"""How well documents are read: forty of twenty kinds, each with the text that a person sees beside it.

    python benchmarks/documents.py            # kbq, and those of trafilatura, mammoth, docx2python that are installed
    python benchmarks/documents.py FOLDER     # only write them: FOLDER/texts/NAME, FOLDER/shown/NAME.txt, titles.tsv

Words are counted as bags: `read` is the share of the words that a person sees, `right` the share of what is read that
is one of these. A document that is not read counts as 0 in both.
"""

import re
import sys
import tempfile
import textwrap
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from kbq.corpus.documents import name_of
from kbq.corpus.reading import PANDOC, chosen_title, read_document
from kbq.errors import KbqError

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:"
KIND = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{}</Relationships>'
Text = list[tuple[int, Any]]  # the level of a heading and its text; 0 and a paragraph; -1 and the cells of a row


class Person(NamedTuple):
    """The facts of which every kind of document tells."""

    name: str
    born: str
    died: str
    place: str
    spouse: str
    works: tuple[tuple[str, str, str], ...]

    @property
    def text(self) -> Text:
        """What a person sees."""
        return [
            (1, self.name),
            (2, f"{self.born}, {self.place} – {self.died}"),
            (0, f"{self.name} was an architect, born in {self.place} and known for well-known buildings of the time."),
            (2, "Life"),
            (
                0,
                f"In 1925 the architect married {self.spouse}, with whom there were 3 children; they had 40 m2 to live.",
            ),
            (0, "They moved to the capital, where they kept an office, and afterwards to the coast, to stay for good."),
            (2, "Works"),
            *[(-1, row) for row in (("Building", "Begun", "Finished"), *self.works)],
            (0, f"The architect died on {self.died} after a long illness, and was buried in {self.place}, at last."),
        ]


PEOPLE = (
    Person("Ann Ødegård", "3 May 1851", "7 June 1919", "Baden-Baden", "Jean-Paul O'Neill",
           (("Stone Bridge", "1875", "1875"), ("Café Müller", "1880", "1881"))),
    Person("Émile Roe-Smith", "12 January 1902", "30 March 1977", "Zürich", "Vera Holt & Sons",
           (("C# Tower", "1931", "1931"), ("Long Pier", "1937", "1940"))),
)  # fmt: skip


def line(what: Any) -> str:
    return what if isinstance(what, str) else " ".join(what)


def tagged(text: Text, mark: str = "") -> str:
    """HTML of a text; `mark`: at the end of each paragraph."""
    body = []
    for level, what in text:
        cells = [cell.replace("&", "&amp;") for cell in ([what] if isinstance(what, str) else what)]
        if level < 0:
            body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        else:
            body.append(f"<h{level}>{cells[0]}</h{level}>" if level else f"<p>{cells[0]}{mark}</p>")
    whole = "\n".join(body).replace("m2", "m<sup>2</sup>")
    return re.sub(r"((?:<tr>.*?</tr>\n?)+)", r"<table>\1</table>", whole, flags=re.DOTALL)


def wiki(one: Person) -> str:
    mark = '<sup class="reference"><a href="#cite_note-1">[1]</a></sup><span style="display:none">70031300</span>'
    return f"""<!DOCTYPE html><html lang=en><head><title>{one.name} - Wikipedia</title><link rel=canonical href=https://w.org/a>
<style>.mw-x{{display:none}}</style></head><body><a class=mw-jump-link href=#c>Jump to content</a><header><nav><ul><li><a href=/m>Main
page</a></ul></nav></header><div id=vector-toc><h2>Contents</h2><ul><li><a href=#1>1 Life</a></ul></div><main>{tagged(one.text, mark)}
<span class=mw-x>secret</span><h2>References</h2><ol class=references><li>Roe, <i>Lives</i>.</ol><div class=navbox><a
href=#>Architects</a></div></main><footer>Last edited on 2 May 2024.</footer><div class=cookie-banner>We use cookies.</div>"""


def museum(one: Person) -> str:
    return f"""<html><head><title>{one.name} | Lives | City Museum</title></head><body><div class=topbar><a href=/>Home</a> | <a
href=/v>Visit us</a></div>{tagged(one.text)}<div class=teasers><div class=teaser><h3><a href=x>Otto Lang</a></h3><p>Painter of hills.
</p></div><div class=teaser><h3><a href=y>Ida Berg</a></h3><p>Poet of the sea.</p></div></div><div class=footer>Open 10 to 6.</div>"""


def blog(one: Person) -> str:
    return f"""<html><head><title>My old houses » {one.name}</title></head><body><div id=masthead><h1 class=site>My old houses</h1><ul
class=menu><li><a href=/>Home</a><li><a href=/about>About me</a></ul></div><article>{tagged(one.text)}<div class="sharing-box">Share
this: <a href=t>Mail</a></div></article><aside class=sidebar><h3>Archives</h3><ul><li><a href=1>May</a><li><a href=2>June</a></ul></aside>
<section id=comments><h3>2 comments</h3><p>Very nice, thanks.</p></section>"""


def unnamed(one: Person) -> str:
    teasers = "".join(
        f"<div class=c7><h4><a href={name}>{name}</a></h4><p>More of it.</p></div>" for name in ("Xy", "Zw")
    )
    return f"""<html><head><title>{one.name}</title></head><body><ul><li><a href=/>Start</a></li><li><a href=/b>Books</a></li><li><a
href=/c>Contact</a></li></ul><div hidden>not yet</div>{tagged(one.text)}<p aria-hidden=true>***</p><div>{teasers}</div>"""


def from_word(one: Person) -> bytes:
    page = f"<html><head><meta charset=windows-1252><title>draft 3.htm</title></head><body>{tagged(one.text)}"
    return page.replace("</p>", "<a href='#_ftn1'><span>[1]</span></a></p>").encode("cp1252")


def markdown(one: Person, is_plain: bool) -> str:
    blocks = []
    for level, what in one.text:
        text = line(what).replace("C#", "C\\#").replace("an office", "an **office**[^1]")
        if level < 0:
            rule = "\n|---|---|---|" if what[0] == "Building" else ""
            blocks[-1:] = [
                "\n".join([*([blocks[-1]] if not rule else [blocks[-1], ""]), f"| {' | '.join(what)} |{rule}"])
            ]
        else:
            blocks.append(f"{text}\n======" if level == 1 and is_plain else f"{'#' * level} {text}".strip())
    matter = f"---\ntitle: {one.name}\nsource: https://m.org/x\n---\n"
    return (
        ("" if is_plain else matter)
        + "\n\n".join(blocks).replace("architect, ", "[[a|architect]], ")
        + "\n\n%% ask Olaf %%"
    )


def plain(one: Person) -> str:
    return "\n\n".join(textwrap.fill(line(what), 60) for _, what in one.text)


def packed(parts: dict[str, str]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def docx(one: Person, run: Callable[[str], str], has_styles: bool = True, title: str = "") -> bytes:
    body = ""
    for level, what in one.text:
        cells = [cell.replace("&", "&amp;") for cell in ([what] if isinstance(what, str) else what)]
        bold = "<w:rPr><w:b/></w:rPr>" if level > 0 and not has_styles else ""
        runs = [f"<w:r>{bold}{'' if bold else ''}<w:t>{cell}</w:t></w:r>" if level else run(cell) for cell in cells]
        style = f'<w:pPr><w:pStyle w:val="H{level}"/></w:pPr>' if level > 0 and has_styles else ""
        rows = "".join(f"<w:tc><w:p>{one_run}</w:p></w:tc>" for one_run in runs)
        body += f"<w:tbl><w:tr>{rows}</w:tr></w:tbl>" if level < 0 else f"<w:p>{style}{runs[0]}</w:p>"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="H{level}"><w:name w:val="heading {level}"/></w:style>'
        for level in (1, 2)
    )
    core = (
        '<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{}</dc:title><dc:creator>Eve</dc:creator></c>'.format(
            title
        )
    )
    return packed({
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default '
        'Extension="xml" ContentType="application/xml"/><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" ContentType='
        '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
        "_rels/.rels": RELATIONS.format(f'<Relationship Id="a" Target="word/document.xml" Type="{KIND}/officeDocument"/>'),
        "word/_rels/document.xml.rels": RELATIONS.format(f'<Relationship Id="a" Target="styles.xml" Type="{KIND}/styles"/>'),
        "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>', "docProps/core.xml": core,
        "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
    })  # fmt: skip


def usual(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def tracked(text: str) -> str:
    by, (first, second, rest) = 'w:id="1" w:author="x" w:date="2024-01-01T00:00:00Z"', text.split(" ", 2)
    return (
        f"<w:ins {by}>{usual(first + ' ')}</w:ins><w:del {by}><w:r><w:delText>not </w:delText></w:r></w:del><w:sdt><w:sdtContent>"
        f'{usual(second)}</w:sdtContent></w:sdt><w:fldSimple w:instr=" TITLE ">{usual(" " + rest)}</w:fldSimple>'
    )


def odt(one: Person) -> bytes:
    body = ""
    for level, what in one.text:
        cells = [cell.replace("&", "&amp;") for cell in ([what] if isinstance(what, str) else what)]
        rows = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in cells)
        body += (
            f"<table:table><table:table-row>{rows}</table:table-row></table:table>" if level < 0
            else f'<text:h text:outline-level="{level}">{cells[0]}</text:h>' if level else f"<text:p>{cells[0]}</text:p>"
        )  # fmt: skip
    spaces = " ".join(f'xmlns:{name}="{OFFICE}{name}:1.0"' for name in ("office", "text", "table"))
    content = f"<office:document-content {spaces}><office:body><office:text>{body}</office:text></office:body>"
    return packed({
        "mimetype": "application/vnd.oasis.opendocument.text", "content.xml": f"{content}</office:document-content>",
        "styles.xml": f"<office:document-styles {spaces}><office:styles/></office:document-styles>",
    })  # fmt: skip


def epub(one: Person) -> bytes:
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body>{tagged(one.text)}</body></html>'
    return packed({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
        'full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "a.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{one.name}</dc:title></metadata><manifest><item id='a' href='a.xhtml' media-type='application/xhtml+xml'/>"
        "</manifest><spine><itemref idref='a'/></spine></package>",
        "a.xhtml": page,
    })  # fmt: skip


def rtf(one: Person) -> str:
    escaped = [
        re.sub("[^\x00-\x7f]", lambda found: rf"\'{found[0].encode('cp1252').hex()}", line(what))
        for _, what in one.text
    ]
    return (
        r"{\rtf1\ansi\ansicpg1252{\info{\title untitled}}{\b "
        + escaped[0]
        + r"}\par "
        + r"\par ".join(escaped[1:])
        + r"\par}"
    )


def wikitext(one: Person) -> str:
    marks = {-1: ("", ""), 0: ("", "<ref>Roe</ref>"), 1: ("= ", " ="), 2: ("== ", " ==")}
    text = "\n\n".join(line(what).join(marks[level]) for level, what in one.text)
    return text.replace("an office", "an '''[[Office (room)|office]]'''")


def pdf(one: Person, columns: int, title: str, hyphens: bool = False, per_page: int = 40) -> bytes:
    rows = []  # size and text of each line; row by row, where there are columns
    for level, what in one.text:
        wrapped = textwrap.wrap(line(what), 44, break_long_words=False)
        if hyphens:
            wrapped = (
                line(what).replace("architect", "archi-\ntect").replace("Baden-Baden", "Baden-\nBaden").split("\n")
            )
        rows += [(20 if level == 1 else 13 if level > 1 else 10, text) for text in wrapped] + [(0, "")]
    half = -(-len(rows) // columns)
    order = [(number // columns, number % columns) for number in range(half * columns)]
    streams = [""]
    for row, column in order:
        if row and row % per_page == 0 and column == 0:
            streams.append("")
        size, text = rows[row + column * half] if row + column * half < len(rows) else (0, "")
        escaped = text.replace("(", "\\(").replace(")", "\\)")
        place = f"{50 + 240 * column} {720 - 15 * (row % per_page)}"
        streams[-1] += f"BT /F1 {size} Tf 1 0 0 1 {place} Tm ({escaped}) Tj ET\n" if text else ""
    for number in range(len(streams)):
        running = ((50, 780, f"Yearbook 2019, {number + 1}"), (250, 20, "Museum Society 2019"))
        streams[number] += "".join(f"BT /F1 8 Tf 1 0 0 1 {x} {y} Tm ({text}) Tj ET\n" for x, y, text in running)
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", f"<< /Title ({title}) >>",
               "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"]  # fmt: skip
    for stream in streams:
        objects += ["<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 4 0 R >> >> "
                    f"/Contents {len(objects) + 2} 0 R >>", f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream"]  # fmt: skip
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(streams)))
    objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(streams)} >>"
    body = "".join(f"{number} 0 obj\n{text}\nendobj\n" for number, text in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer << /Root 1 0 R /Info 3 0 R >>\n%%EOF".encode("cp1252")


MAKERS: dict[str, Callable[[Person], str | bytes]] = {
    "wiki.html": wiki, "museum.html": museum, "blog.html": blog, "unnamed.htm": unnamed, "word.htm": from_word,
    "utf16.html": lambda one: f"<title>{one.name}</title>{tagged(one.text)}".encode("utf-16"),
    "matter.md": lambda one: markdown(one, False), "underlined.md": lambda one: markdown(one, True),
    "wrapped.txt": plain, "windows.txt": lambda one: plain(one).encode("cp1252"),
    "styles.docx": lambda one: docx(one, usual, title="Microsoft Word - draft.docx"),
    "tracked.docx": lambda one: docx(one, tracked), "bold.docx": lambda one: docx(one, usual, has_styles=False),
    "columns.pdf": lambda one: pdf(one, 2, "untitled"), "pages.pdf": lambda one: pdf(one, 1, one.name, per_page=12),
    "hyphens.pdf": lambda one: pdf(one, 1, "x-fm.indd", hyphens=True),
    "text.odt": odt, "text.rtf": rtf, "book.epub": epub, "text.mediawiki": wikitext,
}  # fmt: skip


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+(?:['#-]+\w+)*", text.casefold().replace("²", "2")))


def share(part: Counter[str], whole: Counter[str]) -> float:
    return sum((part & whole).values()) / max(1, part.total())


def kbq(path: Path) -> tuple[str, str]:
    reading = read_document(path.read_bytes(), path.suffix)
    return chosen_title(reading, name_of(path.name)), "\n".join(text for _, texts in reading.pages for text in texts)


def trafilatura(path: Path) -> tuple[str, str]:
    import trafilatura

    found = trafilatura.bare_extraction(path.read_bytes(), favor_recall=True, with_metadata=True)
    return (found.title or "", found.text or "") if found else ("", "")


def mammoth(path: Path) -> tuple[str, str]:
    import mammoth

    return "", mammoth.extract_raw_text(BytesIO(path.read_bytes())).value


def docx2python(path: Path) -> tuple[str, str]:
    from docx2python import docx2python

    return "", docx2python(path).text


def pandoc(path: Path) -> tuple[str, str]:
    import pypandoc

    return "", pypandoc.convert_file(path, "plain", PANDOC[path.suffix], extra_args=["--wrap=none"])


def pdfium(path: Path) -> tuple[str, str]:
    import pypdfium2

    file = pypdfium2.PdfDocument(path)
    return file.get_metadata_value("Title"), "\n".join(page.get_textpage().get_text_range() for page in file)


READERS: tuple[tuple[Callable[[Path], tuple[str, str]], tuple[str, ...], str], ...] = (
    (kbq, ("",), "kbq"), (trafilatura, (".html", ".htm"), "trafilatura"), (mammoth, (".docx",), "mammoth"),
    (docx2python, (".docx",), "docx2python"), (pandoc, tuple(PANDOC), "pypandoc"), (pdfium, (".pdf",), "pypdfium2"),
)  # fmt: skip


def measure(folder: Path) -> None:
    print("| reader | kinds | documents | read | right | titles | seconds each |\n|---|---|---|---|---|---|---|")
    for read, kinds, package in READERS:
        chosen = [path for path in sorted((folder / "texts").iterdir()) if path.name.endswith(kinds)]
        if not find_spec(package):
            continue
        for suffixes in sorted({path.suffix for path in chosen}) + [""]:
            rows = []
            for path in (one for one in chosen if one.name.endswith(suffixes)):
                seen, begin = words((folder / "shown" / f"{path.name}.txt").read_text("utf-8")), time.perf_counter()
                try:
                    title, text = read(path)
                except (KbqError, RuntimeError, ValueError, KeyError, AttributeError):
                    title, text = "", ""
                found = words(text)
                name = next(
                    one.name for one in PEOPLE if one.name in (folder / "shown" / f"{path.name}.txt").read_text()
                )
                rows.append(
                    (
                        share(seen, found),
                        share(found, seen),
                        title.casefold() == name.casefold(),
                        time.perf_counter() - begin,
                    )
                )
            read_, right, titles, seconds = (sum(column) for column in zip(*rows, strict=True))
            count = len(rows)
            print(
                f"| {read.__name__} | {suffixes or 'all'} | {count} | {read_ / count:.1%} | {right / count:.1%} | {titles} | {seconds / count:.3f} |"
            )


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if sys.argv[1:] else temporary)
        for part in ("texts", "shown"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(PEOPLE):
            for name, make in MAKERS.items():
                made, whole = make(one), f"{number}-{name}"
                (folder / "texts" / whole).write_bytes(made if isinstance(made, bytes) else made.encode())
                (folder / "shown" / f"{whole}.txt").write_text("\n".join(line(what) for _, what in one.text), "utf-8")
        if not sys.argv[1:]:
            measure(folder)


if __name__ == "__main__":
    main()
