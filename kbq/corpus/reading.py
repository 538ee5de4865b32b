"""Reading: the bytes of a document become a title with paragraphs.

`read_document` is one pure function, so that it can be called in a process with limits; nothing in
a document is run, fetched or included.
"""

import html
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import default
from importlib.util import find_spec
from typing import Any

from kbq.corpus.html_blocks import whole_contents
from kbq.corpus.office import odt_contents, plain_rtf, pptx_contents, prepared, with_facts
from kbq.corpus.options import TitleFrom
from kbq.corpus.pages import BOLD, Block, Contents, jsonable
from kbq.corpus.pdf import joined, pdf_contents
from kbq.corpus.web_pages import web_contents
from kbq.corpus.wikitext import plain_wikitext
from kbq.errors import CorpusError, KbqError, first_line
from kbq.storage.spreadsheets import COMPOUND
from kbq.text.encodings import decode
from kbq.text.normal_forms import clean_text, normalised

INSTALL = "pip install '.[documents]' in the checkout of kbq"
DEEPEST_MATTER = 64 * 1024  # characters of front matter
# What pandoc calls the formats that only it reads.
PANDOC = {
    ".docx": "docx",
    ".rtf": "rtf",
    ".epub": "epub",
    ".pptx": "pptx",
    ".mediawiki": "mediawiki",
    ".wiki": "mediawiki",
    ".tex": "latex",
    ".latex": "latex",
    ".rst": "rst",
    ".org": "org",
    ".ipynb": "ipynb",
    ".fb2": "fb2",
    ".textile": "textile",
}
ZIPPED = (".docx", ".odt", ".epub", ".pptx")
LIBRARIES = dict.fromkeys(PANDOC, "pypandoc") | {".pdf": "pypdfium2"}
FURTHER = {".pptx": ["pptx"], ".mediawiki": ["mwparserfromhell"], ".wiki": ["mwparserfromhell"]}
HTML = (".html", ".htm", ".xhtml")
PLAIN = (".txt", ".text", ".md", ".markdown", ".odt", ".eml", ".mbox", *HTML)
MAIL = (".eml", ".mbox")
GUTENBERG = (".epub", ".txt", ".html", ".htm", ".xhtml")  # the kinds of its books
LOOKED_AT = 64 * 1024  # characters of a text that tell whether it is one
MOST_CONTROL = 0.02  # share of control characters, such as a few of an old word processor
LONGEST_TITLE = 500  # characters: a longer heading is a text
_NO_TITLE = re.compile(
    r"[\W\d_]*|\W*(anonymous|unspecified|no title|unbenannt|unknown|title|titel|none)\W*"
    r"|(microsoft|ms)? ?(word|powerpoint|excel|publisher) [-–] .*"
    r"|(untitled|unbenannt|document|dokument|presentation|präsentation|layout|slide|folie|page|seite|scan)[-_ ]?\d*"
    r"|(powerpoint|keynote|impress)[- ](presentation|präsentation)"
    r"|.*\.(docx?|dotx?|indd|odt|rtf|pdf|pptx?|xlsx?|qxd|tex|dvi|fm|p65|ai|cdr|pub|wpd|pages|txt|html?|tmp|md)"
    r"|(libre ?office|open ?office|google docs|adobe|indesign|pagemaker|quark|latex|pandoc|word)\b.*",
    re.IGNORECASE,
)
_BOOK = re.compile(
    r"\*\*\* ?(START|END) OF (?:THE|THIS) PROJECT GUTENBERG E(?:BOOK|TEXT)\b", re.IGNORECASE
)
_FIRST_LINE = re.compile(r"\S.{0,98}[^\s.!?:;,]")
_LISTED = re.compile(r"\s*(?:[-*•–]\s|\d{1,2}[.)]\s|[^\s:][^:.]{0,30}:\s)")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_DISPLAYED = re.compile(
    rb"\$\$.*?\$\$|\\\[.*?\\\]|\\begin\{(equation|align|gather|multline|eqnarray|displaymath|math)(\*?)\}.*?\\end\{\1\2\}",
    re.DOTALL,
)
_TITLE_BLOCK = re.compile(
    r'<header id="title-block-header">\s*<h1 class="title">(.*?)</h1>.*?</header>', re.DOTALL
)
_PARTS = re.compile(r" (?:[|\-–—·•»:]|::) ")
_WIKI = r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]"


@dataclass(frozen=True, slots=True)
class TitleParts:
    """The candidates for the title of a document, each empty if there is none."""

    metadata: str = ""
    heading: str = ""  # the first of the highest level
    window: str = ""  # title of a browser's window
    opening: str = ""  # a first line in bold letters, or of a plain text


@dataclass(frozen=True, slots=True)
class Reading:
    """A document."""

    titles: TitleParts
    # The number of a page of a PDF, 0 for others, and its paragraphs.
    pages: Sequence[tuple[int, Sequence[str]]]
    metadata: dict[str, object] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)  # how often for each reason
    encoding: str = ""  # encoding that was guessed


def lacks_library(suffix: str) -> bool:
    """Return whether files of this kind need a library that is not installed."""
    libraries = []
    if suffix in LIBRARIES:
        libraries = [LIBRARIES[suffix], *FURTHER.get(suffix, ())]
    return any(find_spec(library) is None for library in libraries)


def read_document(content: bytes, suffix: str, encoding: str = "") -> Reading:
    """Read a document of a kind in `PLAIN` or `LIBRARIES`.

    Raises CorpusError if it cannot be read, is encrypted, or has no text.
    """
    try:
        document, guess = _document(content, suffix, encoding)
    except KbqError as problem:
        raise CorpusError(problem.typed) from None
    except MemoryError:
        raise  # the process with limits says it
    except RecursionError:
        raise CorpusError(
            "its elements are nested too deep: save it anew with another program"
        ) from None
    except Exception as error:  # libraries raise what their parsers raise
        raise CorpusError(
            f"it cannot be read ({first_line(error)}): check that it is a {suffix} file"
        ) from None

    if suffix in GUTENBERG:
        _without_licence(document)
    blocks = document.pages[0][1] if document.pages else []
    opening = ""
    if blocks and blocks[0].level == BOLD:
        opening = blocks[0].text
    titles = TitleParts(document.title, _heading(blocks, document), document.window_title, opening)
    pages = [(number, _paragraphs(blocks)) for number, blocks in document.pages]
    pages = [(number, texts) for number, texts in pages if texts]
    if not pages:
        raise CorpusError("it has no text")
    metadata = {name: value for name, value in document.metadata.items() if value not in ("", None)}

    return Reading(titles, pages, metadata, dict(+document.left_out), guess)


def _without_licence(document: Contents) -> None:
    """Leave out what Project Gutenberg writes above and below a book, which is the same in each."""
    for place, (number, blocks) in enumerate(document.pages):
        marks = {
            at: mark[1].upper()
            for at, block in enumerate(blocks)
            if (mark := _BOOK.search(block.text))
        }
        begin = max((at + 1 for at, kind in marks.items() if kind == "START"), default=0)
        end = min(
            (at for at, kind in marks.items() if kind == "END" and at >= begin), default=len(blocks)
        )
        if marks and begin < end:
            document.pages[place] = number, blocks[begin:end]
            document.left_out["licences of Project Gutenberg"] += 1


def read_several(documents: Sequence[tuple[bytes, str, str]]) -> list[Reading | str]:
    """Call `read_document` for each; the reason stands in place of one that cannot be read."""
    readings: list[Reading | str] = []
    for document in documents:
        try:
            readings.append(read_document(*document))
        except CorpusError as problem:
            readings.append(problem.typed)
    return readings


def _document(content: bytes, suffix: str, encoding: str) -> tuple[Contents, str]:
    if not content.strip():
        raise CorpusError("it is empty")
    if content.startswith(COMPOUND):
        raise CorpusError(
            "it is encrypted, or of an old version of Word: save it as .docx without a password"
        )

    if suffix == ".pdf":
        return pdf_contents(content), ""
    if suffix == ".pptx":
        return pptx_contents(content), ""
    if suffix == ".rtf":
        return _by_pandoc(plain_rtf(content), suffix), ""
    if suffix == ".odt":
        return odt_contents(content), ""
    if suffix in ZIPPED:
        return _by_pandoc(content, suffix), ""
    if suffix in HTML:
        text, guess = decode(content, _declared(content[:4096]), encoding)
        return web_contents(text), guess
    if suffix in MAIL:
        return _mail_contents(content, suffix), ""
    text, guess = decode(content, "", encoding)
    head = text[:LOOKED_AT]
    if len(_CONTROL.findall(head)) > MOST_CONTROL * len(head):
        raise CorpusError("it is not a text, as it is full of control characters: check what it is")
    text = re.sub("\r\n?", "\n", text)
    if PANDOC.get(suffix) == "mediawiki":
        left_out = Counter[str]()
        plain, bold = plain_wikitext(text, left_out)
        document = _by_pandoc(plain.encode("utf-8", "replace"), suffix)
        document.title, document.left_out = bold, document.left_out + left_out
        return document, guess

    if suffix in PANDOC:
        document = _by_pandoc(text.encode("utf-8", "replace"), suffix)
        if PANDOC[suffix] == "latex":
            document.left_out["files that it includes"] += len(
                re.findall(r"(?m)^[^%\n]*\\(?:input|include)\b", text)
            )
        return document, guess

    return (
        _text_contents(text) if suffix in (".txt", ".text") else _markdown_contents(text)
    ), guess


def _declared(head: bytes) -> str:
    """Return the encoding that a page of HTML or XML declares."""
    found = re.search(
        rb"""(?i)<meta[^>]+charset\s*=\s*["']?\s*([\w-]+)|<\?xml[^>]+encoding\s*=\s*["']([\w-]+)""",
        head,
    )
    if not found:
        return ""
    return (found[1] or found[2]).decode("ascii")


def _text_contents(text: str) -> Contents:
    """Read plain text: blank lines end paragraphs, other ends of lines are blanks, but in lists."""
    blocks: list[Block] = []
    for number, block in enumerate(re.split(r"\n[^\S\n]*\n\s*", text.strip("\n"))):
        lines = [" ".join(line.split()) for line in block.split("\n") if line.strip()]
        if len(lines) > 1 and re.fullmatch(r"[=\-*~#]{3,}", lines[1]):  # underlined
            level = 2
            if not blocks:
                level = 1
            blocks.append(Block(lines[0], level))
            lines = lines[2:]
        elif not number and len(lines) == 1 and _FIRST_LINE.fullmatch(lines[0]):
            blocks.append(Block(lines.pop(), BOLD))

        whole = ""
        for line in lines:
            if whole and _LISTED.match(line) and (_LISTED.match(whole) or len(lines) > 2):
                blocks.append(Block(whole))
                whole = ""
            if whole:
                whole = joined(whole, line, ())
            else:
                whole = line

        if whole:
            blocks.append(Block(whole))

    return Contents([(0, blocks)])


def _markdown_contents(text: str) -> Contents:
    """Read Markdown as it is rendered, with the links between notes and comments that many editors
    know.
    """
    from markdown_it import MarkdownIt

    metadata, text = _front_matter(text)
    parts = re.split(r"(?m)(^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\2[`~]*[ \t]*$)", text, flags=re.DOTALL)
    for place in range(0, len(parts), 3):  # what is not code
        part = re.sub(r"%%.*?%%", "", parts[place], flags=re.DOTALL)
        part = re.sub(r"!\[\[[^\[\]]*\]\]", "", part)
        part = re.sub(_WIKI, lambda found: found[1].split("#")[0] or found[1], part)
        part = re.sub(r"(?m)^\[\^[^\]\s]+\]:[ \t]*", "\n", part)
        part = re.sub(r"(?<!\\)\[\^[^\]\s]{1,100}\]", "", part)
        part = re.sub(r"(?m)^([ \t>]*)\[!\w+\][-+]?[ \t]*(.*)$", r"\1**\2**\n\1", part)
        part = re.sub(r"(?m)[ \t]+\^[\w-]+[ \t]*$", "", part)
        # Attributes of kramdown.
        part = re.sub(
            r"(?m)^[ \t>]*\{:[^{}\n]*\}[ \t]*$|(?<=\S)\{:[ \t]*[.#\w][^{}\n]*\}", "", part
        )
        parts[place] = re.sub(r"(?m)^([ \t]*[-*+][ \t]+)\[[ xX]\][ \t]+", r"\1", part)

    del parts[2::3]
    markdown = MarkdownIt("commonmark", {"html": True, "maxNesting": 500}).enable(
        ["table", "strikethrough"]
    )
    document = whole_contents(f"<body>{_rendered(markdown, ''.join(parts))}")
    title = str(metadata.pop("title", "") or "")
    for name in ("canonical", "permalink", "source", "link"):
        if "url" not in metadata and re.fullmatch(r"https?://\S+", str(metadata.get(name, ""))):
            metadata["url"] = metadata[name]

    return Contents(document.pages, title, metadata, document.left_out)


def _rendered(markdown: Any, text: str) -> str:
    """Write Markdown as HTML, with the numbers that items have in it, as "1931. A great year" may
    be a sentence.
    """
    tokens = markdown.parse(text)
    lists = list[list[Any]]()
    for token in tokens:
        if token.type == "ordered_list_open":
            lists.append([])
        elif token.type == "list_item_open" and token.info and lists:
            lists[-1].append(token)
        elif token.type == "ordered_list_close":
            items = lists.pop()
            if [int(item.info) for item in items] != list(range(1, len(items) + 1)):
                for item in items:
                    item.attrSet("value", item.info)

    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _front_matter(text: str) -> tuple[dict[str, object], str]:
    """Return the fields of front matter (YAML between lines of ---, TOML between +++), and the rest
    of a text.
    """
    parsers: dict[str, Callable[[str], Any]] = {"---": _yaml, "+++": tomllib.loads}
    found = re.match(
        r"(---|\+\+\+)[ \t]*\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", text, re.DOTALL | re.MULTILINE
    )
    if not found or len(found[2]) > DEEPEST_MATTER:
        return {}, text
    rest = text[found.end() :]
    try:
        fields = parsers[found[1]](found[2])
    except (ValueError, RecursionError):
        return {}, rest if all(
            ":" in line or not line.strip() for line in found[2].split("\n")
        ) else text

    if fields is None:
        return {}, rest
    if isinstance(fields, dict):
        return jsonable(fields), rest
    return {}, text


def _yaml(text: str) -> Any:
    """Parse YAML, whose values stay text as written. Raises ValueError, for aliases, too, which may
    mean any length.
    """
    import yaml  # imported on demand; transformers needs it, too

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.BaseLoader)):
            raise ValueError("it has aliases")
        return yaml.load(text, yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _mail_contents(content: bytes, suffix: str) -> Contents:
    """Read a mail, or the mails of a box, each as a page; files that they carry are counted."""
    mails = [content]
    if suffix == ".mbox":
        mails = [mail for mail in re.split(rb"(?m)^From [^\n]*\d{4}\r?\n", content) if mail.strip()]
    left_out = Counter[str]()
    read = [_mail(mail, left_out) for mail in mails]
    pages = [
        (number, [Block(mail.title, 1), *mail.pages[0][1]] if mail.title else mail.pages[0][1])
        for number, mail in enumerate(read, start=1)
    ]
    if len(read) == 1:
        read[0].pages = pages
        return read[0]
    return Contents(pages, left_out=left_out)


def _mail(content: bytes, left_out: Counter[str]) -> Contents:
    """Return a mail as a document: its subject is the title."""
    message = message_from_bytes(content, policy=default)
    body = message.get_body(("plain", "html"))
    left_out["attached files"] += sum(1 for _ in message.iter_attachments())
    text = ""
    if body is not None:
        text = str(body.get_content())
    is_html = body is not None and body.get_content_subtype() == "html"
    if is_html:
        contents = whole_contents(text)
    else:
        contents = _text_contents(re.sub("\r\n?", "\n", text))
    sent = None
    if message["date"]:
        sent = message["date"].datetime
    contents.title = " ".join(str(message["subject"] or "").split())
    contents.metadata = {
        "author": str(message["from"] or ""),
        "date": sent.date().isoformat() if sent else "",
    }
    contents.left_out = left_out
    return contents


def _by_pandoc(content: bytes, suffix: str) -> Contents:
    """Let pandoc write a document as HTML; it is allowed no file but this one, and no network."""
    import pypandoc

    facts: dict[str, str] = {}
    if suffix in ZIPPED:
        if not content.startswith(b"PK"):
            raise CorpusError(
                f"it is not a {suffix} file: check what it is, and rename it or save it anew"
            )
        content, facts = prepared(content, suffix)

    command = [
        pypandoc.get_pandoc_path(),
        "--sandbox",
        "--from",
        PANDOC[suffix],
        "--to",
        "html5",
        "--standalone",
    ]
    done = subprocess.run(
        [*command, "--wrap=none", "--quiet"], input=content, capture_output=True, check=False
    )
    if (
        done.returncode
        and PANDOC[suffix] == "latex"
        and (shorter := _DISPLAYED.sub(b"\n\n", content)) != content
    ):
        document = _by_pandoc(shorter, suffix)  # what it cannot parse is nearly always in a formula
        document.left_out["formulas"] += len(_DISPLAYED.findall(content))
        return document

    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().split("\n")[0][:200]
        raise CorpusError(f"it cannot be read ({reason}): check that it is a {suffix} file")

    written = done.stdout.decode("utf-8", "replace")
    block = None
    if suffix in (".rtf", ".epub"):
        block = _TITLE_BLOCK.search(written)
    if block:  # metadata that the document does not show
        written = written.replace(block[0], "")
        facts.setdefault("title", html.unescape(block[1]))

    document = whole_contents(written)
    return with_facts(document, facts)


def _heading(blocks: Sequence[Block], document: Contents) -> str:
    """Return the heading that is a document's title: of the highest level, or the largest letters."""
    headings = [block for block in blocks if 0 < block.level < BOLD]
    if not headings:
        return ""
    top = min(heading.level for heading in headings)
    tops = [heading for heading in headings if heading.level == top]
    largest = max(heading.size for heading in tops)
    tops = [heading for heading in tops if heading.size >= largest - 0.5]
    window = normalised(document.window_title)
    # The window's title often ends with the name of the site.
    tops = [heading for heading in tops if not window.endswith(f" {normalised(heading.text)}")]
    if not tops:
        return ""
    for title in (document.window_title, document.title):
        for one in tops:
            if (
                title
                and normalised(one.text)
                and normalised(title).startswith(normalised(one.text))
            ):
                return one.text

    if top == 1:
        return tops[0].text
    if len(tops) == 1 and blocks[0] is tops[0]:
        return tops[0].text
    return ""


def _paragraphs(blocks: Sequence[Block]) -> list[str]:
    """Join headings with the text that they head.

    >>> _paragraphs([Block("Ann Roe", 1), Block("Born in 1851?", 2), Block("She was a painter.")])
    ['Ann Roe – Born in 1851? She was a painter.']
    """
    texts = list[str]()
    heads = list[str]()
    for block in blocks:
        if block.level and block.text not in heads:  # the caption of a box may repeat the title
            heads.append(block.text)
        elif not block.level:
            texts.append(_below(heads, block.text))
            heads = []
    if heads:
        texts.append(_below(heads[:-1], heads[-1]))
    return texts


def _below(heads: Sequence[str], text: str) -> str:
    above = ""
    for head in heads:
        if head[-1] in ".!?:;…":
            above += f"{head} "
        else:
            above += f"{head} – "
    return above + text


def chosen_title(
    reading: Reading, name: str, title_from: TitleFrom = "auto", sites: frozenset[str] = frozenset()
) -> str:
    """Return the title of a document.

    Args:
        reading: the document.
        name: that of its file, as words.
        title_from: the order in which titles are tried.
        sites: what the titles of several pages end in; see `shared_ends`.
    """
    titles = reading.titles
    metadata = ""
    if is_title(titles.metadata) and _is_seen(reading):
        metadata = titles.metadata
    window = titles.window if is_title(titles.window) else ""
    for place in [found.start() for found in _PARTS.finditer(window)]:
        if window[place:] in sites or re.fullmatch(
            r" [-–—] (Wiki(pedia|source|quote|voyage|news)|Wiktionary)\b.*", window[place:]
        ):
            window = window[:place]
            break

    opening = titles.opening
    if f"{normalised(opening)} ".startswith(f"{normalised(name)} "):
        opening = _with_capitals(name, opening)
    orders = {
        "auto": (metadata, titles.heading, window, opening),
        "heading": (titles.heading, titles.opening, window, metadata),
        "metadata": (titles.metadata, titles.window, titles.heading),
        "name": (),
    }
    chosen = next(
        one
        for one in (*orders[title_from], name)
        if one and (len(one) <= LONGEST_TITLE or one is name)
    )

    return clean_text(chosen).strip()


def _with_capitals(name: str, opening: str) -> str:
    """Return the name of a file as the first line writes it, which begins with it.

    >>> _with_capitals("greta holm", "Greta Holm, painter"), _with_capitals("Long Pier", "LONG PIER – a walk")
    ('Greta Holm', 'Long Pier')
    """
    written = " ".join(opening.split()[: len(name.split())]).strip(".,:;–- ")
    if name.islower() and normalised(written) == normalised(name):
        return written
    return name


def shared_ends(starts: Iterable[bytes]) -> frozenset[str]:
    """Return what the titles of several pages of HTML end in, such as " | City Museum"; `starts`:
    their first bytes.
    """
    ends = Counter[str]()
    for start in starts:
        found = re.search(rb"(?is)<title[^>]*>([^<]*)", start)
        if found:
            text, _ = decode(found[1], _declared(start))
            title = " ".join(html.unescape(text).split())
            ends.update({title[part.start() :] for part in _PARTS.finditer(title)})
    return frozenset(end for end, count in ends.items() if count > 1)


def is_title(text: str) -> bool:
    """Return whether a title in metadata is one, and not the name of a template, a program or a
    file.

    >>> [is_title(text) for text in ("Long Pier", "untitled", "Microsoft Word - draft3.doc", "i-xx_Far-fm.indd")]
    [True, False, False, False]
    """
    return not _NO_TITLE.fullmatch(text.strip())


def _is_seen(reading: Reading) -> bool:
    """Return whether a document shows most words of the title that its metadata state."""
    titles = reading.titles
    text = " ".join(
        [
            titles.heading,
            titles.opening,
            titles.window,
            *(one for _, texts in reading.pages[:1] for one in texts),
        ]
    )
    words = normalised(titles.metadata).split()
    seen = set(normalised(text[:20_000]).split())
    return 2 * sum(word in seen for word in words) >= len(words)
