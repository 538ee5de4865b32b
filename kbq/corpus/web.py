"""Web: HTML becomes a title, paragraphs and metadata. Headings, navigation and scripts are not paragraphs."""

from html.parser import HTMLParser

from kbq.corpus.markdown import Parts

_SKIPPED = {"script", "style", "template", "noscript", "svg", "nav", "footer", "select", "button", "iframe"}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_INLINE = {
    "a", "abbr", "b", "bdi", "bdo", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img", "ins",
    "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
    "td", "th",
}  # fmt: skip
_END = """<wbr a="'>-->" b='">'>"""  # of whatever is not closed: Python looks for each end anew, in quadratic time
_BLANKS = {"br", "td", "th"}  # between words


def web_parts(text: str) -> Parts:
    """Return the parts of a page.

    >>> web_parts("<title>Stone Bridge</title><h1>Stone Bridge</h1><p>By <b>Ann</b>&nbsp;Aal.")
    Parts(title='Stone Bridge', paragraphs=['By Ann Aal.'], metadata={})
    """
    parser = _Parser()
    parser.feed(text + _END)
    parser.close()
    parser.end_block()
    title = next(filter(None, (" ".join("".join(found).split()) for found in (parser.heading, parser.title))), "")
    return Parts(title, parser.paragraphs, dict(parser.metadata))


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.heading: list[str] = []  # the first of level 1
        self.paragraphs: list[str] = []
        self.metadata: dict[str, object] = {}
        self._text: list[str] = []
        self._skipped = ""  # the element that is left out
        self._inside = ""  # title or a heading

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        given = dict(attrs)
        if tag == "html" and given.get("lang"):
            self.metadata["language"] = given["lang"]
        if self._skipped:
            return
        if tag in _SKIPPED:
            self._skipped = tag
        elif tag == "title" or tag in _HEADINGS:
            self.end_block()
            self._inside = tag
        elif tag not in _INLINE:
            self.end_block()
        if tag in _BLANKS:
            self._text.append(" ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element without content."""
        if tag not in _SKIPPED:
            super().handle_startendtag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """End an element."""
        if self._skipped:
            self._skipped = "" if tag == self._skipped else self._skipped
        elif tag == self._inside:
            self._inside = ""
        elif tag not in _INLINE:
            self.end_block()

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._skipped:
            return
        if self._inside == "title":
            self.title.append(data)
        elif self._inside == "h1" and not self.paragraphs:
            self.heading.append(data)
        elif not self._inside:
            self._text.append(data)

    def end_block(self) -> None:
        """Make a paragraph of the text so far."""
        text = " ".join("".join(self._text).split())
        self._text.clear()
        if text:
            self.paragraphs.append(text)
