"""HTML: extract the blocks of text that a reader of a page sees, without hidden text and navigation.

Source: the rendering section of the HTML standard (html.spec.whatwg.org), and ARIA's roles.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from html.entities import name2codepoint
from typing import Any

from kbq.corpus.pages import BOLD, Block, Contents
from kbq.errors import CorpusError, first_line

MAIN = 0.3  # share of a page's text that its main element has at least, to be taken at its word
KEPT = 0.1  # share below which our rules do not fit the page
MOST_SPAN = 1000  # rows that a cell spans
ROW = 600  # characters of a row of a table; one that has more holds the page together
SHORT = 100  # characters of a line in bold letters that may be a heading
LABEL = 40  # characters of the first of two cells that may say what is in the second
HEADINGS = {f"h{level}": level for level in range(1, 7)}
BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dir", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr",
    "html", "legend", "li", "main", "menu", "nav", "ol", "option", "p", "pre", "search", "section", "summary", "tbody",
    "td", "tfoot", "th", "thead", "ul",
})  # fmt: skip
NO_TEXT = frozenset({
    "area", "audio", "button", "canvas", "datalist", "dialog", "embed", "head", "iframe", "img", "input", "link", "map",
    "math", "meta", "noscript", "object", "picture", "rp", "script", "select", "style", "svg", "template", "textarea",
    "video",
})  # fmt: skip
ROLES = frozenset(
    {"alertdialog", "banner", "contentinfo", "dialog", "menu", "menubar", "navigation", "search", "toolbar"}
)
MARKS = frozenset({"doc-noteref", "doc-backlink"})
# How authors call, in classes and ids, what is hidden and what is not their text: whole names, and words of names.
HIDDEN = frozenset({
    "d-none", "hidden", "invisible", "is-hidden", "screen-reader-text", "shortdescription", "sortkey", "sr-only",
    "visually-hidden", "visuallyhidden", "Z3988",
})  # fmt: skip
ELSEWHERE = frozenset({
    "ad", "ads", "advert", "advertisement", "ambox", "authoritycontrol", "breadcrumb", "breadcrumbs", "catlinks",
    "comments", "consent", "contentsub", "cookie", "cookies", "editsection", "footer", "gdpr", "headerlink", "jump",
    "login", "masthead", "menu", "menubar", "modal", "nav", "navbar", "navbox", "navigation", "newsletter", "noprint",
    "overlay", "pager", "pagination", "popup", "portalbox", "printfooter", "promo", "promotion", "recommendations",
    "recommended", "references", "reflist", "related", "share", "sharing", "sidebar", "signup", "sitefooter",
    "siteheader", "sitenotice", "sitesub", "skip", "skiplink", "social", "sponsored", "subnav", "subscribe",
    "subscription", "teaser", "teasers", "toc", "toolbar", "topbar", "topnav",
})  # fmt: skip
SECTIONS = frozenset({
    "also in this section", "citations", "comments", "contents", "external links", "footnotes", "further reading",
    "leave a reply", "more stories", "navigation menu", "notes", "on this page", "read more", "references", "related",
    "related articles", "related pages", "related posts", "see also", "share this", "sources", "table of contents",
    "you may also like", "you might also like",
})  # fmt: skip
_HIDING = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_MARK = re.compile(r"\[?\s*(?:\d{1,3}|[a-z]{1,2}|[ivx]{1,5}|(?:note|nb|n)\.? ?\d+|citation needed|[*†‡§↑^])\s*\]?")
_SAVED = re.compile(r"<!-- saved from url=\(\d+\)(\S+) -->")
_TOKEN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot);)(\w+);")


@dataclass(slots=True)
class _Piece:
    text: str
    level: int
    linked: int = 0  # characters of links
    links: int = 0
    is_item: bool = False  # of a list

    @property
    def share(self) -> float:
        return self.linked / max(1, len(self.text.replace(" ", "")))


def html_contents(text: str, is_whole: bool = False) -> Contents:
    """Read a page. If it `is_whole`, nothing but hidden elements and marks of notes is left out.

    Raises CorpusError if it cannot be read, RecursionError if its elements are nested too deep.
    """
    root = _tree(text)
    page = _Page(root, is_whole)
    pieces = page.pieces()
    facts = _facts(root)
    title = next((facts[name] for name in ("citation_title", "dc.title", "dcterms.title") if facts.get(name)), "")
    blocks = [Block(one.text, one.level) for one in pieces]
    return Contents([(0, blocks)], title, _metadata(root, facts, text), page.left_out, _window_title(root, facts))


def _tree(text: str) -> Any:
    from lxml import etree

    if text.lstrip().startswith("<?xml"):  # XHTML, whose empty elements HTML does not close
        try:
            xml = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
            known = _ENTITY.sub(lambda name: chr(code) if (code := name2codepoint.get(name[1])) else name[0], text)
            root = etree.fromstring(known.encode(), xml)
            etree.strip_tags(root, etree.Entity)  # those of the page's own making may be of any length
            for element in root.iter("{*}*"):
                element.tag = etree.QName(element).localname
            return root
        except etree.XMLSyntaxError as error:
            if "<!ENTITY" in text:  # HTML would show what it declares
                raise CorpusError(f"it cannot be read ({first_line(error)}): save it anew, from a browser") from None
    parser = etree.HTMLParser(remove_comments=True, remove_pis=True, encoding="utf-8")
    try:
        root = etree.fromstring(text.encode("utf-8", "replace").strip() or b"<p>", parser)
    except etree.XMLSyntaxError as error:  # it reads any text, so no memory was left
        raise MemoryError(str(error)) from None
    if any("depth" in error.message for error in parser.error_log):
        raise RecursionError
    return etree.Element("html") if root is None else root


def _all_text(element: Any) -> str:
    return "".join(element.itertext())


class _Page:
    """The text of a page, and the parts of the page that are left out."""

    def __init__(self, root: Any, is_whole: bool) -> None:
        body = root.find("body")
        self._body = root if body is None else body
        self._length = len(_all_text(self._body))
        self._hiding = _hiding_selectors(root)
        self._teasers = set(_teasers(self._body))
        self._is_whole = is_whole
        self.left_out = Counter[str]()

    def pieces(self) -> list[_Piece]:
        """Return the pieces of the main element or, if there is none, of the whole page."""
        main = self._body if self._is_whole else self._main()
        found = self._read(main)
        if sum(len(one.text) for one in found) < KEPT * self._length and len(found) < 3:
            self._is_whole, self.left_out = True, Counter()
            found = self._read(main)
        if main is not self._body and not any(one.level == 1 for one in found):
            tops = (" ".join(_all_text(one).split()) for one in self._body.iter("h1"))
            found = [_Piece(text, 1) for text in filter(None, tops)][:1] + found
        return found

    def _read(self, main: Any) -> list[_Piece]:
        text = _Text(self)
        text.walk(main)
        text.end()
        if self._is_whole:
            return text.pieces
        kept = list(self._without_sections(text.pieces))
        return kept if main is not self._body else self._without_links(kept)

    def _main(self) -> Any:
        for path in (".//main | .//*[@role='main']", ".//article[not(ancestor::article)]"):
            several = self._body.xpath(path)
            if len(several) == 1 and len(_all_text(several[0])) >= MAIN * self._length:
                return several[0]
        return self._body

    def is_left_out(self, element: Any) -> bool:
        """Return whether readers do not see an element, or do not come for it; count it if it has text."""
        if element.tag in NO_TEXT:
            return True
        reason = self._reason(element)
        if reason and _all_text(element).strip():
            self.left_out[reason] += 1
        return bool(reason)

    def _reason(self, element: Any) -> str:
        given, tag = element.attrib, element.tag
        names, role = given.get("class", "").split(), given.get("role", "")
        if given and (
            "hidden" in given
            or given.get("aria-hidden") == "true"
            or _HIDING.search(given.get("style", ""))
            or not HIDDEN.isdisjoint(names)
            or not self._hiding.isdisjoint([*(f".{name}" for name in names), f"#{given.get('id')}"])
        ):
            return "hidden"
        if role in MARKS or (tag in ("a", "sup", "span") and _is_mark(element)):
            return "marks of notes"
        if self._is_whole:
            return ""
        if element in self._teasers:
            return "teasers"
        is_elsewhere = tag in ("nav", "menu", "footer", "header") or role in ROLES
        if not is_elsewhere and given:
            words = {word for name in (*names, given.get("id", "")) for word in (name, *_TOKEN.findall(name))}
            is_elsewhere = not ELSEWHERE.isdisjoint(map(str.lower, words))
        return "navigation" if is_elsewhere and not self._is_needed(element) else ""

    def _is_needed(self, element: Any) -> bool:
        """Return whether an element has too much of the page to be only navigation."""
        if element.tag in ("body", "main", "article") or any(True for _ in element.iter("h1", "main")):
            return True
        return len(_all_text(element)) > 0.5 * self._length

    def _without_sections(self, pieces: list[_Piece]) -> Iterator[_Piece]:
        """Leave out lists under a heading such as "See also"."""
        inside = 0
        for piece in pieces:
            if piece.level and piece.text.casefold().strip(" :") in SECTIONS:
                inside = piece.level
            elif 0 < piece.level <= inside or not (piece.level or piece.is_item or piece.share > 0.3):
                inside = 0
            if inside:
                self.left_out["navigation"] += 1
            else:
                yield piece

    def _without_links(self, pieces: list[_Piece]) -> list[_Piece]:
        """Leave out lines that are nothing but links."""
        is_link = [not one.level and one.share > 0.9 for one in pieces]
        kept = []
        for place, one in enumerate(pieces):
            is_run = is_link[place] and sum(is_link[max(0, place - 2) : place + 3]) > 2
            if not one.level and (is_run or (one.links > 1 and one.share > 0.6)):
                self.left_out["navigation"] += 1
            else:
                kept.append(one)
        return kept


def _is_mark(element: Any) -> bool:
    """Return whether an element is the mark of a note, such as [1]."""
    text = _all_text(element).strip()
    if not text or len(text) > 20 or not _MARK.fullmatch(text):
        return element.tag == "a" and text in ("¶", "↩", "↩︎", "🔗")
    is_inside = any("#" in link.get("href", "") for link in element.iter("a"))
    parent = element.getparent()
    is_raised = element.tag == "sup" or (parent is not None and parent.tag == "sup")
    is_reference = "reference" in element.get("class", "").split()
    return is_reference or (is_inside and (is_raised or text.startswith("[")))


class _Text:
    """The pieces of a part of a page."""

    def __init__(self, page: _Page) -> None:
        self._page = page
        self.pieces: list[_Piece] = []
        self._parts: list[str] = []
        self._linked = self._links = 0
        self.term = ""  # of a list of definitions

    def walk(self, element: Any, is_linked: bool = False) -> None:
        self._say(element.text, is_linked)
        for child in element:
            self._take(child, is_linked)
            self._say(child.tail, is_linked)

    def _say(self, text: str | None, is_linked: bool) -> None:
        if text:
            self._parts.append(text.replace("\n", " "))
            self._linked += len("".join(text.split())) if is_linked else 0

    def _take(self, element: Any, is_linked: bool) -> None:
        tag = element.tag
        if self._page.is_left_out(element):
            if tag in BLOCKS:
                self.end()
        elif tag == "br":
            self._parts.append("\n")
        elif tag == "q":
            self._parts.append("“")
            self.walk(element, is_linked)
            self._parts.append("”")
        elif tag == "table":
            self._table(element)
        elif tag == "tr":  # without its table
            self._row(list(element), {})
        elif tag not in BLOCKS:
            leads = tag == "a" and bool(element.get("href"))
            self._links += leads
            self.walk(element, is_linked or leads)
        else:
            self.end()
            self.walk(element, is_linked)
            self.end(_level(element), tag in ("li", "dd"), is_term=tag == "dt")

    def end(self, level: int = 0, is_item: bool = False, is_term: bool = False) -> None:
        """Make a piece of the text so far; two line breaks end one, too."""
        if not self._parts:
            return
        texts = [" ".join(text.split()) for text in re.split(r"\n\s*\n", "".join(self._parts))]
        for text in filter(None, texts):
            if is_term:
                self.term = f"{self.term} {text}".strip()
                continue
            whole = text if level or not self.term else labelled(self.term, text)
            self.term = self.term if level else ""
            self.pieces.append(_Piece(whole, level, min(self._linked, len(text)), self._links, is_item))
        self._parts, self._linked, self._links = [], 0, 0

    def _table(self, table: Any) -> None:
        self.end()
        rows = table.xpath("./tr | ./thead/tr | ./tbody/tr | ./tfoot/tr")
        is_layout = any(True for _ in table.iterdescendants("table", "h1", "h2", "h3")) or any(
            len(_all_text(row)) > ROW for row in rows
        )
        for caption in table.findall("caption"):
            self._take(caption, False)
        above: dict[int, tuple[int, str]] = {}
        for row in rows:
            if self._page.is_left_out(row):
                continue
            cells = [cell for cell in row if cell.tag in ("td", "th") and not self._page.is_left_out(cell)]
            if not is_layout:
                self._row(cells, above)
                continue
            for cell in cells:
                self.end()
                self.walk(cell)
                self.end()

    def _row(self, cells: list[Any], above: dict[int, tuple[int, str]]) -> None:
        """Make a piece of a row; `above` has, by column, the text of a cell that spans rows, and how many are left."""
        self.end()
        column, texts, linked, links = 0, list[str](), 0, 0
        for cell in cells:
            while column in above:
                texts.append(_from_above(above, column))
                column += 1
            inner = _Text(self._page)
            inner.walk(cell)
            inner.end()
            text = " ".join(filter(None, [*(one.text for one in inner.pieces), inner.term]))
            linked += sum(one.linked for one in inner.pieces)
            links += sum(one.links for one in inner.pieces)
            if (span := _number(cell.get("rowspan"))) > 1:
                above[column] = (span - 1, text)
            texts.append(text)
            column += _number(cell.get("colspan"))
        texts += [_from_above(above, place) for place in sorted(above) if place >= column]
        texts = list(filter(None, texts))
        if not texts:
            return
        are_heads = all(cell.tag == "th" for cell in cells)
        has_label = len(texts) == len(cells) == 2 and len(texts[0]) <= LABEL and not are_heads
        level = BOLD if are_heads and len(cells) == 1 else 0
        self.pieces.append(_Piece(labelled(*texts) if has_label else " ".join(texts), level, linked, links))


def labelled(label: str, text: str) -> str:
    """Join what two cells, or a term and its definition, say.

    >>> labelled("Born", "3 May 1851"), labelled("Died:", "1919")
    ('Born: 3 May 1851', 'Died: 1919')
    """
    return f"{label.removesuffix(':')}: {text}"


def _level(element: Any) -> int:
    """Return the level of a heading, or 0 for other text."""
    if element.tag in HEADINGS:
        return HEADINGS[element.tag]
    if element.get("role") == "heading":
        level = element.get("aria-level", "2")
        return int(level) if level in tuple("123456") else 2
    if element.tag in ("caption", "legend"):
        return BOLD
    if element.tag not in ("p", "div") or len(element) != 1 or element[0].tag not in ("b", "strong"):
        return 0
    bold = _all_text(element[0]).strip()
    return BOLD if bold == _all_text(element).strip() and 0 < len(bold) <= SHORT and bold[-1] not in ".!?;," else 0


def _from_above(above: dict[int, tuple[int, str]], column: int) -> str:
    left, text = above.pop(column)
    if left > 1:
        above[column] = (left - 1, text)
    return text


def _number(written: str | None) -> int:
    return min(MOST_SPAN, int(written)) if written and re.fullmatch("[1-9][0-9]{0,8}", written.strip()) else 1


def _teasers(body: Any) -> Iterator[Any]:
    """Yield elements beside one another whose headings are links to other pages."""
    seen: defaultdict[Any, set[Any]] = defaultdict(set)
    for heading in body.iter("h2", "h3", "h4", "h5", "h6"):
        links = (*heading.iterancestors("a"), *heading.iter("a"))
        link = next((one for one in links if one.get("href")), None)
        if (
            link is None
            or "#" in link.get("href")
            or not _all_text(link).strip().startswith(_all_text(heading).strip())
        ):
            continue
        node = heading.getparent()
        while node is not body and node is not None:
            seen[node.getparent(), node.tag, node.get("class")].add(node)
            node = node.getparent()
    for several in seen.values():
        if len(several) > 1:
            yield from several


def _hiding_selectors(root: Any) -> set[str]:
    """Return the classes (`.name`) and ids (`#name`) that a rule of the page's own styles hides, if no other shows."""
    css = " ".join(map(_all_text, root.iter("style")))
    css = re.sub(r"/\*.*?\*/", " ", css, flags=re.DOTALL)
    css = re.sub(r"@[^{};]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", " ", css)  # for paper, narrow screens, …
    hiding, showing = set[str](), ""
    for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        if _HIDING.search(rule):
            hiding |= {one.strip() for one in selectors.split(",") if re.fullmatch(r"\s*[.#][\w-]+\s*", one)}
        elif "display" in rule:
            showing += selectors
    return {one for one in hiding if one not in showing}


def _facts(root: Any) -> dict[str, str]:
    """Return what the `meta` elements of a page state, by their names; the first of a name counts."""
    facts: dict[str, str] = {}
    for meta in root.iter("meta"):
        facts.setdefault(
            (meta.get("name") or meta.get("property") or "").lower(), " ".join(meta.get("content", "").split())
        )
    return facts


def _window_title(root: Any, facts: dict[str, str]) -> str:
    """Return the title of a browser's window, without the name of the site."""
    window = next((" ".join(_all_text(one).split()) for one in root.iter("title")), "")
    site = facts.get("og:site_name") or facts.get("application-name")
    found = re.fullmatch(rf"(.+?)\s+[|\-–—·:»]\s+{re.escape(site)}", window) if site else None
    return found[1] if found else window


def _metadata(root: Any, facts: dict[str, str], text: str) -> dict[str, object]:
    links = [one.get("href", "") for one in root.iter("link") if "canonical" in one.get("rel", "").lower().split()]
    saved = _SAVED.search(text, 0, 10_000)
    urls = (*links, facts.get("og:url", ""), facts.get("dc.identifier", ""), saved[1] if saved else "")
    names = {
        "author": ("author", "dc.creator", "article:author"),
        "date": ("date", "dc.date", "dcterms.date", "article:published_time"),
    }
    return {
        "language": root.get("lang") or root.get("{http://www.w3.org/XML/1998/namespace}lang") or "",
        **{field: next((facts[name] for name in several if facts.get(name)), "") for field, several in names.items()},
        "url": next((url.strip() for url in urls if re.fullmatch(r"\s*https?://\S+\s*", url)), ""),
    }
