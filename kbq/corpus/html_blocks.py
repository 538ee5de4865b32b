"""HTML: extract the blocks of text that a reader of a page sees, without hidden text and navigation.

Source: the rendering section of the HTML standard (html.spec.whatwg.org), and ARIA's roles.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kbq.corpus.pages import BOLD, Block, Contents
from kbq.errors import CorpusError

MAIN = 0.3  # share of a page's text that its main element has at least, to be taken at its word
KEPT = 0.1  # share below which our rules do not fit the page
MOST_SPAN = 1000  # rows that a cell spans
ROW = 600  # characters of a row of a table; one that has more holds the page together
SHORT = 100  # characters of a line in bold letters that may be a heading
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
    """Read a page; `is_whole`: all that is shown is its text.

    Raises CorpusError if its elements are nested too deep.
    """
    try:
        root = _tree(text)
        page = _Page(root, is_whole)
        pieces = page.pieces()
    except RecursionError:
        raise CorpusError("its elements are nested too deep: save it anew, from a browser") from None
    blocks = [Block(one.text, one.level) for one in pieces]
    title, window_title = _titles(root)
    return Contents([(0, blocks)], title, _metadata(root, text[:10_000]), page.left_out, window_title)


def _tree(text: str) -> Any:
    from lxml import etree, html

    if text.lstrip().startswith("<?xml"):  # XHTML, whose empty elements HTML does not close
        try:
            xml = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
            root = etree.fromstring(text.encode(), xml)
            for element in root.iter():
                element.tag = etree.QName(element).localname if isinstance(element.tag, str) else element.tag
            return root
        except etree.XMLSyntaxError:
            pass
    parser = html.HTMLParser(remove_comments=True, remove_pis=True, encoding="utf-8")
    root = html.document_fromstring(text.encode("utf-8", "replace") or b"<p>", parser=parser, ensure_head_body=True)
    if any("depth" in error.message for error in parser.error_log):
        raise RecursionError
    return root


class _Page:
    """What of a page is left out, and why."""

    def __init__(self, root: Any, is_whole: bool) -> None:
        self._body = root.find("body") if root.find("body") is not None else root
        self._length = len("".join(self._body.itertext()))
        self._hidden = set(_hidden_by_style(root))
        self._teasers = set(_teasers(self._body))
        self._is_whole = is_whole
        self.left_out = Counter[str]()

    def pieces(self) -> list[_Piece]:
        """Return the pieces of the main element or, where there is none, of all of the page."""
        main = self._body if self._is_whole else self._main()
        found = self._read(main)
        if sum(len(one.text) for one in found) < KEPT * self._length and len(found) < 3:
            self._is_whole, self.left_out = True, Counter()
            found = self._read(main)
        if main is not self._body and not any(one.level == 1 for one in found):
            tops = (" ".join("".join(one.itertext()).split()) for one in self._body.iter("h1"))
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
        for several in (
            self._body.xpath(".//main | .//*[@role='main']"),
            self._body.xpath(".//article[not(ancestor::article)]"),
        ):
            if len(several) == 1 and len("".join(several[0].itertext())) >= MAIN * self._length:
                return several[0]
        return self._body

    def is_left_out(self, element: Any) -> bool:
        """Whether a reader does not see an element, or does not come for it; count it, if it has text."""
        if element.tag in NO_TEXT:
            return True
        reason = self._reason(element)
        if reason and any(map(str.strip, element.itertext())):
            self.left_out[reason] += 1
        return bool(reason)

    def _reason(self, element: Any) -> str:
        given, tag = element.attrib, element.tag
        names = (given.get("class") or "").split()
        is_hidden = "hidden" in given or given.get("aria-hidden") == "true" or _HIDING.search(given.get("style") or "")
        if is_hidden or element in self._hidden or not HIDDEN.isdisjoint(names):
            return "hidden"
        role = given.get("role") or ""
        if role in MARKS or (tag in ("a", "sup", "span") and _is_mark(element)):
            return "marks of notes"
        if self._is_whole:
            return ""
        if element in self._teasers:
            return "teasers"
        is_elsewhere = (
            tag in ("nav", "menu", "footer")
            or role in ROLES
            or tag == "header"
            or any(
                _TOKEN.search(name) and not ELSEWHERE.isdisjoint(_words(name))
                for name in (*names, given.get("id") or "")
            )
        )
        return "navigation" if is_elsewhere and not self._is_needed(element) else ""

    def _is_needed(self, element: Any) -> bool:
        """Whether an element has too much of the page to be only navigation."""
        if element.tag in ("body", "main", "article") or any(True for _ in element.iter("h1", "main")):
            return True
        return len("".join(element.itertext())) > 0.5 * self._length

    def _without_sections(self, pieces: list[_Piece]) -> Iterator[_Piece]:
        """Leave out lists under a heading such as "See also"."""
        inside = 0
        for piece in pieces:
            if piece.level:
                inside = (
                    piece.level
                    if piece.text.casefold().strip(" :") in SECTIONS
                    else 0
                    if piece.level <= inside
                    else inside
                )
            elif inside and not (piece.is_item or piece.share > 0.3):
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
            run = is_link[max(0, place - 2) : place + 3]
            is_menu = (one.links > 1 and one.share > 0.6) or (is_link[place] and sum(run) > 2)
            if is_menu and not one.level:
                self.left_out["navigation"] += 1
            else:
                kept.append(one)
        return kept


def _words(name: str) -> Iterable[str]:
    return (name.lower(), *(word.lower() for word in _TOKEN.findall(name)))


def _is_mark(element: Any) -> bool:
    """Whether an element is the mark of a note, such as [1]."""
    text = "".join(element.itertext()).strip()
    if not text or len(text) > 20 or not _MARK.fullmatch(text):
        return element.tag == "a" and text in ("¶", "↩", "↩︎", "🔗")
    links = [element] if element.tag == "a" else element.findall(".//a")
    is_inside = any("#" in (link.get("href") or "") for link in links)
    parent = element.getparent()
    is_raised = element.tag == "sup" or (parent is not None and parent.tag == "sup")
    is_reference = "reference" in (element.get("class") or "").split()
    return is_reference or (is_inside and (is_raised or text.startswith("[")))


class _Text:
    """The pieces of a part of a page."""

    def __init__(self, page: _Page) -> None:
        self._page = page
        self.pieces: list[_Piece] = []
        self._parts: list[str] = []
        self._linked = self._links = 0
        self._term = ""  # of a list of definitions

    def walk(self, element: Any, is_linked: bool = False) -> None:
        """Take the text of an element."""
        self._say(element.text, is_linked)
        for child in element:
            if isinstance(child.tag, str):
                self._take(child, is_linked)
            self._say(child.tail, is_linked)

    def _say(self, text: str | None, is_linked: bool) -> None:
        if text:
            self._parts.append(re.sub(r"\s+", " ", text))
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
            self._row([cell for cell in element if isinstance(cell.tag, str)], {})
        elif tag not in BLOCKS:
            leads = tag == "a" and bool(element.get("href"))
            self._links += leads
            self.walk(element, is_linked or leads)
        else:
            self.end()
            self.walk(element, is_linked)
            self.end(self._level(element), tag in ("li", "dd"), is_term=tag == "dt")

    def _level(self, element: Any) -> int:
        if element.tag in HEADINGS:
            return HEADINGS[element.tag]
        if element.get("role") == "heading":
            return int(element.get("aria-level") or 2) if (element.get("aria-level") or "2") in "123456" else 2
        if element.tag in ("caption", "legend"):
            return BOLD
        if element.tag not in ("p", "div") or len(element) != 1 or element[0].tag not in ("b", "strong"):
            return 0
        bold = "".join(element[0].itertext()).strip()
        is_all = bold == "".join(element.itertext()).strip()
        return BOLD if is_all and 0 < len(bold) <= SHORT and bold[-1] not in ".!?;," else 0

    def end(self, level: int = 0, is_item: bool = False, is_term: bool = False) -> None:
        """Make a piece of the text so far; two breaks of a line end one, too."""
        texts = [" ".join(text.split()) for text in re.split(r"\n *\n", "".join(self._parts))]
        texts = [text for text in texts if text]
        if is_term:
            self._term = " ".join([self._term, *texts]).strip()
        else:
            for text in texts:
                whole = text if level or not self._term else f"{self._term} {text}"
                self._term = self._term if level else ""
                self.pieces.append(_Piece(whole, level, min(self._linked, len(text)), self._links, is_item))
        self._parts, self._linked, self._links = [], 0, 0

    def _table(self, table: Any) -> None:
        """Make a piece of each row."""
        self.end()
        rows = table.xpath("./tr | ./thead/tr | ./tbody/tr | ./tfoot/tr")
        is_layout = table.xpath("boolean(.//table or .//h1 or .//h2 or .//h3)") or any(
            len("".join(row.itertext())) > ROW for row in rows
        )
        for caption in table.findall("caption"):
            self._take(caption, False)
        above: dict[int, tuple[int, str]] = {}
        for row in rows:
            if self._page.is_left_out(row):
                continue
            cells = [cell for cell in row if cell.tag in ("td", "th") and not self._page.is_left_out(cell)]
            if is_layout:
                for cell in cells:
                    self.end()
                    self.walk(cell)
                    self.end()
            else:
                self._row(cells, above)

    def _row(self, cells: list[Any], above: dict[int, tuple[int, str]]) -> None:
        """Make a piece of a row; `above`: by column, the text of a cell that spans rows, and how many are left."""
        self.end()
        column, texts, whole = 0, list[str](), _Text(self._page)
        for cell in cells:
            while column in above:
                texts.append(_from_above(above, column))
                column += 1
            inner = _Text(self._page)
            inner.walk(cell)
            inner.end()
            text = " ".join(filter(None, [*(one.text for one in inner.pieces), inner._term]))
            whole._linked += sum(one.linked for one in inner.pieces)
            whole._links += sum(one.links for one in inner.pieces)
            span = _number(cell.get("rowspan"))
            if span > 1:
                above[column] = (span - 1, text)
            texts.append(text)
            column += _number(cell.get("colspan"))
        texts += [_from_above(above, place) for place in sorted(above) if place >= column]
        if text := " ".join(filter(None, texts)):
            is_head = all(cell.tag == "th" for cell in cells) and len(cells) == 1
            self.pieces.append(_Piece(text, BOLD if is_head else 0, whole._linked, whole._links))


def _from_above(above: dict[int, tuple[int, str]], column: int) -> str:
    left, text = above.pop(column)
    if left > 1:
        above[column] = (left - 1, text)
    return text


def _number(written: str | None) -> int:
    return min(MOST_SPAN, int(written)) if written and re.fullmatch("[1-9][0-9]{0,8}", written.strip()) else 1


def _teasers(body: Any) -> Iterator[Any]:
    """Yield elements beside one another whose headings are links to other pages."""
    leading = []
    for heading in body.iter("h2", "h3", "h4", "h5", "h6"):
        link = next(iter(heading.xpath("ancestor::a[@href] | .//a[@href]")), None)
        if link is None or (link.get("href") or "").startswith("#") or "#" in (link.get("href") or ""):
            continue
        if "".join(link.itertext()).strip().startswith("".join(heading.itertext()).strip()):
            leading.append(heading)
    seen: dict[Any, list[Any]] = {}
    for heading in leading:
        node, parent = heading, heading.getparent()
        while parent is not None and parent is not body.getparent():
            if node is not heading:
                seen.setdefault((parent, node.tag, node.get("class")), []).append(node)
            node, parent = parent, parent.getparent()
    for several in seen.values():
        if len(set(several)) > 1:
            yield from several


def _hidden_by_style(root: Any) -> Iterator[Any]:
    """Yield the elements that a rule for one class or id hides, if no other rule shows them."""
    css = " ".join("".join(style.itertext()) for style in root.iter("style"))
    css = re.sub(r"/\*.*?\*/", " ", css, flags=re.DOTALL)
    css = re.sub(r"@[^{};]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", " ", css)  # for paper, narrow screens, …
    hiding, showing = set[str](), ""
    for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        if _HIDING.search(rule):
            hiding |= {one.strip() for one in selectors.split(",") if re.fullmatch(r"\s*[.#][\w-]+\s*", one)}
        elif "display" in rule:
            showing += selectors
    hiding = {one for one in hiding if one not in showing}
    if hiding:
        for element in root.iter():
            names = {f".{name}" for name in (element.get("class") or "").split()} | {f"#{element.get('id')}"}
            if not hiding.isdisjoint(names):
                yield element


def _said(root: Any, *names: str) -> str:
    """Return the first of some facts that the head of a page states."""
    found = {
        (meta.get("name") or meta.get("property") or "").lower(): (meta.get("content") or "").strip()
        for meta in reversed(list(root.iter("meta")))
    }
    return next((" ".join(found[name].split()) for name in names if found.get(name)), "")


def _titles(root: Any) -> tuple[str, str]:
    """Return the title that metadata state, and that of the window, without the name of the site."""
    window = next((" ".join("".join(one.itertext()).split()) for one in root.iter("title")), "")
    site = _said(root, "og:site_name", "application-name")
    if site and (found := re.fullmatch(rf"(.+?)\s+[|\-–—·:»]\s+{re.escape(site)}", window)):
        window = found[1]
    return _said(root, "citation_title", "dc.title", "dcterms.title"), window


def _metadata(root: Any, text: str) -> dict[str, object]:
    canonical = [
        one.get("href") or "" for one in root.iter("link") if "canonical" in (one.get("rel") or "").lower().split()
    ]
    saved = _SAVED.search(text)
    urls = (*canonical, _said(root, "og:url", "dc.identifier"), saved[1] if saved else "")
    language = root.get("lang") or root.get("{http://www.w3.org/XML/1998/namespace}lang") or ""
    return {
        "language": language,
        "author": _said(root, "author", "dc.creator", "article:author"),
        "date": _said(root, "date", "dc.date", "dcterms.date", "article:published_time"),
        "url": next((url.strip() for url in urls if re.fullmatch(r"\s*https?://\S+\s*", url)), ""),
    }
