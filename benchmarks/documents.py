"""Documents: write forty documents of twenty kinds, and count how many of the words that a person
sees are read.

    python benchmarks/documents.py FOLDER

The documents stay in FOLDER. Words are counted as bags: `read` is the share of the words that a
person sees, `right` the share of the words read that a person sees. A document that cannot be read
counts as 0 in both. If they are installed, trafilatura reads HTML, too, and Chromium shows it,
navigation and all.
"""

import re
import shutil
import tempfile
import textwrap
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import reporting
from measuring import arguments

from kbq.corpus.documents import name_of
from kbq.corpus.reading import chosen_title, read_document
from kbq.errors import KbqError

# Level and text of a heading; 0 and a paragraph; -1 and the cells of a row.
Text = list[tuple[int, Any]]


class Person(NamedTuple):
    """The facts that each document states."""

    name: str
    born: str
    died: str
    place: str
    spouse: str
    works: tuple[tuple[str, str, str], ...]

    @property
    def text(self) -> Text:
        """Return what a person sees."""
        return [
            (1, self.name),
            (2, f"{self.born}, {self.place} – {self.died}"),
            (
                0,
                f"{self.name} was an architect, born in {self.place} and known for well-known "
                "buildings of the time.",
            ),
            (2, "Life"),
            (
                0,
                f"In 1925 the architect married {self.spouse}, with whom there were 3 children; "
                "they had 40 m2.",
            ),
            (
                0,
                "They moved to the capital, where they kept an office, and afterwards to the "
                "coast, to stay for good.",
            ),
            (2, "Works"),
            *[(-1, row) for row in (("Building", "Begun", "Finished"), *self.works)],
            (
                0,
                f"The architect died on {self.died} after a long illness, and was buried in "
                f"{self.place}, at last.",
            ),
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
    """Return a text as HTML, with a mark at the end of each paragraph."""
    body = []
    for level, what in text:
        cells = [cell.replace("&", "&amp;") for cell in ([what] if isinstance(what, str) else what)]
        if level < 0:
            body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        else:
            body.append(f"<h{level}>{cells[0]}</h{level}>" if level else f"<p>{cells[0]}{mark}</p>")
    whole = "\n".join(body).replace("m2", "m<sup>2</sup>")
    return re.sub(r"((?:<tr>.*?</tr>\n?)+)", r"<table>\1</table>", whole, flags=re.DOTALL)


# NAME and TEXT stand for those of the person; each paragraph of the first ends with MARK.
SITES = {
    "wiki.html": """<!DOCTYPE html><html lang=en><head><title>NAME - Wikipedia</title>
<style>.mw-x {display: none}</style></head><body><a class=mw-jump-link href=#c>Jump to content</a><header><nav><ul><li>
<a href=/m>Main page</a></ul></nav></header><div id=vector-toc><h2>Contents</h2><ul><li><a href=#1>1 Life</a></ul></div>
<main>TEXT<span class=mw-x>secret</span><h2>References</h2><ol class=references><li>Roe, <i>Lives</i>.</ol>
<div class=navbox><a href=#>Architects</a></div></main><footer>Last edited on 2 May 2024.</footer>
<div class=cookie-banner>We use cookies.</div>""",
    "museum.html": """<title>NAME | Lives | City Museum</title><div class=topbar><a href=/>Home</a> |
<a href=/v>Visit us</a></div>TEXT<div class=teasers><div class=teaser><h3><a href=x>Otto Lang</a></h3><p>Painter of
hills.</p></div><div
class=teaser><h3><a href=y>Ida Berg</a></h3><p>Poet of the sea.</p></div></div><div class=footer>Open 10 to 6.</div>""",
    "blog.html": """<title>My old houses » NAME</title><div id=masthead><h1 class=site>My old houses</h1><ul class=menu>
<li><a href=/>Home</a><li><a href=/about>About me</a></ul></div><article>TEXT<div class="sharing-box">Share:
<a href=t>Mail</a></div></article><aside class=sidebar><h3>Archives</h3>
<ul><li><a href=1>May</a><li><a href=2>June</a></ul></aside>
<section id=comments><h3>2 comments</h3><p>Very nice, thanks.</p></section>""",
    "unnamed.htm": """<title>NAME</title><ul><li><a href=/>Start</a></li><li><a href=/b>Books</a></li><li><a href=/c>
Contact</a></li></ul><div hidden>not yet</div>TEXT<p aria-hidden=true>***</p><div>
<div class=c7><h4><a href=1>Xy</a></h4><p>More</p></div><div class=c7><h4><a href=2>Zw</a></h4><p>And
more.</p></div></div>""",
    "utf16.html": "<title>NAME</title>TEXT",
    "word.htm": "<meta charset=windows-1252><title>draft 3.htm</title>TEXT",
}
MARK = (
    '<sup class="reference"><a href="#cite_note-1">[1]</a></sup><span '
    'style="display:none">70031300</span>'
)


def site(one: Person, name: str) -> bytes:
    text = tagged(one.text, MARK if name == "wiki.html" else "")
    encoding = {"utf16.html": "utf-16", "word.htm": "cp1252"}.get(name, "utf-8")
    return SITES[name].replace("NAME", one.name).replace("TEXT", text).encode(encoding)


def markdown(one: Person, is_plain: bool) -> str:
    blocks = [] if is_plain else [f"---\ntitle: {one.name}\nsource: https://m.org/x\n---"]
    for level, what in one.text:
        text = line(what).replace("C#", "C\\#").replace("an office", "an **office**[^1]")
        if level < 0:
            blocks.append(f"| {' | '.join(what)} |" + "\n|---|---|---|" * (what[0] == "Building"))
        else:
            blocks.append(
                f"{text}\n======" if level == 1 and is_plain else f"{'#' * level} {text}".strip()
            )
    whole = "\n\n".join([*blocks, "%% ask Olaf %%"])
    return whole.replace("|\n\n|", "|\n|").replace("architect, ", "[[a|architect]], ")


def plain(one: Person) -> str:
    return "\n\n".join(textwrap.fill(line(what), 60) for _, what in one.text)


def converted(one: Person, format: str, *changes: tuple[str, str]) -> bytes:
    """Return a document that pandoc writes, after changes (pattern, replacement) of the XML files
    of an archive.
    """
    import pypandoc

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made"
        pypandoc.convert_text(
            tagged(one.text),
            format,
            "html",
            outputfile=str(path),
            extra_args=["--standalone", "--quiet"],
        )
        if not changes:
            return path.read_bytes()
        buffer = BytesIO()
        with zipfile.ZipFile(path) as before, zipfile.ZipFile(buffer, "w") as after:
            for name in before.namelist():
                part = before.read(name)
                for pattern, replacement in changes if name.endswith(".xml") else ():
                    part = re.sub(pattern, replacement, part.decode(), flags=re.DOTALL).encode()
                after.writestr(name, part)
        return buffer.getvalue()


BY = 'w:id="1" w:author="x" w:date="2024-01-01T00:00:00Z"'
DRAFT = ("<dc:title>.*?</dc:title>", "<dc:title>Microsoft Word - draft.docx</dc:title>")
TRACKED = (
    r"(<w:r>(?:(?!</w:r>).)*architect.*?</w:r>)",
    rf"<w:ins {BY}>\1</w:ins><w:del {BY}><w:r><w:delText>not </w:delText></w:r></w:del>",
)
FIELD = (r"(<w:r>(?:(?!</w:r>).)*coast.*?</w:r>)", r'<w:fldSimple w:instr="TITLE">\1</w:fldSimple>')
BOLD = (
    r'(<w:p>)<w:pPr><w:pStyle w:val="Heading\d" ?/></w:pPr>((?:<w:bookmarkStart[^>]*>)?)<w:r>',
    r"\1\2<w:r><w:rPr><w:b/></w:rPr>",
)


def drawn(size: int, x: int, y: int, text: str) -> str:
    return f"BT /F1 {size} Tf 1 0 0 1 {x} {y} Tm ({text}) Tj ET\n"


def pdf(one: Person, columns: int, title: str, hyphens: bool = False, per_page: int = 40) -> bytes:
    rows: list[tuple[int, str]] = []  # size and text
    for level, what in one.text:
        wrapped = textwrap.wrap(line(what), 44, break_long_words=False)
        if hyphens:
            broken = (
                line(what)
                .replace("architect", "archi-\ntect")
                .replace("Baden-Baden", "Baden-\nBaden")
            )
            wrapped = broken.split("\n")
        rows += [(20 if level == 1 else 13 if level > 1 else 10, text) for text in wrapped] + [
            (0, "")
        ]
    half, streams = -(-len(rows) // columns), list[str]()
    for first in range(0, half, per_page):
        stream = "".join(
            drawn(size, 50 + 240 * column, 720 - 15 * (row - first), text)
            for row in range(first, min(first + per_page, half))
            for column in range(columns)
            for size, text in rows[row + column * half :][:1]
            if text
        )
        stream += drawn(8, 50, 780, f"Yearbook 2019, {len(streams) + 1}") + drawn(
            8, 250, 20, "Museum Society 2019"
        )
        streams.append(stream)
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", f"<< /Title ({title}) >>",
               "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"]  # fmt: skip
    for stream in streams:
        page = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 4 0 "
            "R >> >> /Contents"
        )
        objects.append(f"{page} {len(objects) + 2} 0 R >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(streams)))
    objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(streams)} >>"
    body = "".join(f"{number} 0 obj\n{text}\nendobj\n" for number, text in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer << /Root 1 0 R /Info 3 0 R >>\nstartxref\n0\n%%EOF".encode(
        "cp1252"
    )


MAKERS: dict[str, Callable[[Person], str | bytes]] = {
    "matter.md": lambda one: markdown(one, False), "underlined.md": lambda one: markdown(one, True),
    "wrapped.txt": plain, "windows.txt": lambda one: plain(one).encode("cp1252"),
    "styles.docx": lambda one: converted(one, "docx", DRAFT),
    "tracked.docx": lambda one: converted(one, "docx", TRACKED, FIELD),
    "bold.docx": lambda one: converted(one, "docx", BOLD),
    "columns.pdf": lambda one: pdf(one, 2, "untitled"), "pages.pdf": lambda one: pdf(one, 1, one.name, per_page=12),
    "hyphens.pdf": lambda one: pdf(one, 1, "x-fm.indd", hyphens=True),
    "text.odt": lambda one: converted(one, "odt"), "text.rtf": lambda one: converted(one, "rtf"),
    "book.epub": lambda one: converted(one, "epub"), "text.mediawiki": lambda one: converted(one, "mediawiki"),
}  # fmt: skip
MAKERS |= {name: partial(site, name=name) for name in SITES}


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+(?:['#-]+\w+)*", text.casefold().replace("²", "2")))


def share(part: Counter[str], whole: Counter[str]) -> float:
    return sum((part & whole).values()) / max(1, part.total())


def kbq(path: Path) -> tuple[str, str]:
    reading = read_document(path.read_bytes(), path.suffix)
    return chosen_title(reading, name_of(path.name)), "\n".join(
        text for _, texts in reading.pages for text in texts
    )


def trafilatura(path: Path) -> tuple[str, str]:
    import trafilatura

    found = trafilatura.bare_extraction(path.read_bytes(), favor_recall=True, with_metadata=True)
    return (found.title or "", found.text or "") if found else ("", "")


def chromium(path: Path) -> tuple[str, str]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        page = started.chromium.launch(executable_path=shutil.which("chromium")).new_page()
        page.goto(path.resolve().as_uri())
        return page.title(), page.inner_text("body")


def measured(
    read: Callable[[Path], tuple[str, str]], folder: Path, suffixes: Sequence[str]
) -> dict[str, object]:
    """Read the documents whose names end like this, and compare titles and words with those that a
    person sees.
    """
    rows = []
    for number, one in enumerate(PEOPLE):
        seen = words("\n".join(line(what) for _, what in one.text))
        for path in (
            path for path in sorted(folder.glob(f"{number}-*")) if path.suffix in suffixes
        ):
            begin = time.perf_counter()
            try:
                title, text = read(path)
            except (KbqError, ValueError):
                title, text = "", ""
            seconds, found = time.perf_counter() - begin, words(text)
            rows.append(
                (
                    share(seen, found),
                    share(found, seen),
                    title.casefold() == one.name.casefold(),
                    seconds,
                )
            )
    means = dict(
        zip(
            ("read", "right", "titles", "seconds each"), np.mean(rows, axis=0).tolist(), strict=True
        )
    )
    return {"documents": len(rows), **means}


def main() -> None:
    folder = arguments(__doc__, folder=Path).folder
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(PEOPLE):
        for name, make in MAKERS.items():
            made = make(one)
            (folder / f"{number}-{name}").write_bytes(
                made if isinstance(made, bytes) else made.encode()
            )
    suffixes = sorted({Path(name).suffix for name in MAKERS})
    figures = {f"kbq, {suffix}": measured(kbq, folder, [suffix]) for suffix in suffixes}
    figures["kbq, all"] = measured(kbq, folder, suffixes)
    for read, package in ((trafilatura, "trafilatura"), (chromium, "playwright")):
        if find_spec(package):
            figures[read.__name__] = measured(read, folder, [".html", ".htm"])
    print(reporting.table(figures))


if __name__ == "__main__":
    main()
