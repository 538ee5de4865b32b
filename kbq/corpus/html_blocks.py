"""HTML blocks: the elements of a page become paragraphs, headings or rows."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kbq.corpus.html_tree import all_text, drop_unseen, html_tree
from kbq.corpus.pages import BOLD, Block, Contents

MOST_SPAN = 1000  # rows, or columns, that a cell spans
ROW = 600  # characters of a row of a table; one that has more holds the page together
SHORT = 100  # characters of a line in bold letters that may be a heading
# Characters of the name of a column, or of the first of two cells that may say what is in the
# second.
LABEL = 40
HEADINGS = {f"h{level}": level for level in range(1, 7)}
BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details",
        "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form",
        "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "html", "legend", "li",
        "main", "menu", "nav", "ol", "option", "p", "pre", "search", "section", "summary", "table",
        "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
    }
)  # fmt: skip
_RAISED = re.compile(r"[+\-−–]?\d[\d.,]*")


@dataclass(slots=True)
class Piece:
    """A paragraph, a heading or a row of a table."""

    text: str
    level: int  # level of a heading, like a `Block`'s
    source: Any  # the element that it is the text of, or the row
    linked: int = 0  # characters of links
    links: int = 0
    is_item: bool = False  # true: an item of a list
    is_row: bool = False
    words: str = ""  # its text without what the walk has added, such as names of columns

    @property
    def share(self) -> float:
        """The share of its characters that links have."""
        return self.linked / max(1, len(self.words.replace(" ", "")))


def whole_contents(text: str) -> Contents:
    """Read HTML that another reader has written: nothing but hidden elements and marks of notes is
    left out.

    Raises RecursionError if its elements are nested too deep.
    """
    root = html_tree(text)
    left_out = drop_unseen(root)
    blocks = [Block(piece.text, piece.level) for piece in pieces_of(root)]
    return Contents([(0, blocks)], left_out=left_out)


def pieces_of(root: Any) -> list[Piece]:
    """Return the text of a page, or a part of one, from which `drop_unseen` has removed what is not
    shown.
    """
    text = _Text(root)
    text.walk(root)
    text.end(root)
    return text.pieces


class _Text:
    """The pieces of a part of a page."""

    def __init__(self, root: Any) -> None:
        self._source = root
        self.pieces: list[Piece] = []
        self._parts: list[str] = []
        self._words: list[str] = []  # the same, without what is added
        self._number = ""  # number of the item of a list that begins
        self._linked = self._links = 0
        self.term = ""  # term of a list of definitions

    def walk(self, element: Any, is_linked: bool = False) -> None:
        self._say(element.text, is_linked)
        for child in element:
            self._take(child, is_linked)
            self._say(child.tail, is_linked)

    def _say(self, text: str | None, is_linked: bool) -> None:
        if text:
            self._parts.append(text.replace("\n", " "))
            self._words.append(text)
            if is_linked:
                self._linked += len("".join(text.split()))

    def _take(self, element: Any, is_linked: bool) -> None:
        """Say an element in the way that its tag asks for."""
        tag = element.tag
        if tag == "br":
            self._parts.append("\n")
        elif tag == "q":
            self._parts.append("“")
            self.walk(element, is_linked)
            self._parts.append("”")
        elif tag in ("sup", "sub", "mfrac", "msup", "msub"):
            self._shifted(element, is_linked)
        elif tag == "table":
            self._table(element)
        elif tag == "tr":  # a row without its table
            self._row(list(element))
        elif tag not in BLOCKS:
            leads = tag == "a" and bool(element.get("href"))
            self._links += leads
            self.walk(element, is_linked or leads)
        else:
            outer = self._source
            self.end(outer)
            self._source = element
            self._number = _number_of(element) or self._number
            self.walk(element, is_linked)
            self.end(element, _level(element), tag in ("li", "dd"), is_term=tag == "dt")
            self._source = outer

    def _shifted(self, element: Any, is_linked: bool) -> None:
        """Say what is raised or lowered, so that its digits stay apart from those before it."""
        if element.tag in ("msup", "msub", "mfrac") and len(element) == 2:
            self._take(element[0], is_linked)
            if element.tag == "mfrac":
                sign = "/"
            elif element.tag == "msup":
                sign = "^"
            else:
                sign = ""
            text = " ".join(all_text(element[1]).split())
            is_power = element.tag == "mfrac" or _RAISED.fullmatch(text)
            if not is_power:
                sign = ""
            self._parts.append(sign)
            self._say(text, is_linked)
            return

        before = "".join(self._parts[-3:])[-12:]
        text = " ".join(all_text(element).split())
        self._parts.append(joint(before, text, element.tail or "", element.tag == "sup"))
        self.walk(element, is_linked)

    def end(
        self, source: Any, level: int = 0, is_item: bool = False, is_term: bool = False
    ) -> None:
        """Make a piece of the text so far; two line breaks end one, too."""
        if not self._parts:
            return
        texts = [" ".join(text.split()) for text in re.split(r"\n\s*\n", "".join(self._parts))]
        for text in filter(None, texts):
            if is_term:
                self.term = f"{self.term} {text}".strip()
                continue

            if level or not self.term:
                whole = text
            else:
                whole = labelled(self.term, text)
            self.term = self.term if level else ""
            if texts[1:]:
                words = text
            else:
                words = " ".join("".join(self._words).split())
            linked = min(self._linked, len(text))
            self.pieces.append(
                Piece(
                    f"{self._number}{whole}",
                    level,
                    source,
                    linked,
                    self._links,
                    is_item,
                    False,
                    words,
                )
            )
            self._number = ""

        self._parts = []
        self._words = []
        self._linked = self._links = 0

    def _table(self, table: Any) -> None:
        """Say the rows of a table, or what its cells hold if it is only a layout."""
        self.end(self._source)
        rows = _rows(table)
        for loose in _outside_rows(table):  # browsers show it before the table
            if isinstance(loose, str):
                self._say(loose, False)
            else:
                self._take(loose, False)
        self.end(self._source)
        is_layout = table.get("role") in ("presentation", "none") or any(
            True for _ in table.iterdescendants("table", "h1", "h2", "h3")
        )
        if is_layout or any(len("".join(map(all_text, row))) > ROW for row in rows):
            for cell in (cell for row in rows for cell in row):
                self._alone(cell)
        else:
            said = []
            for row in rows:
                said.append([_Cell.of(cell) for cell in row])
            self._say_rows(said)

    def _alone(self, element: Any) -> None:
        """Say what a cell of a layout holds."""
        outer = self._source
        self._source = element
        self.end(outer)
        self.walk(element)
        self.end(element)
        self._source = outer

    def _row(self, cells: list[Any]) -> None:
        """Say a row, or cells, without a table."""
        self.end(self._source)
        self._say_rows([[_Cell.of(cell) for cell in cells]])

    def _say_rows(self, rows: list[list["_Cell"]]) -> None:
        """Say each row below the headings with the names of its columns."""
        # Rows without cells count for those that reach into them, and say nothing.
        filled = [pair for pair in zip(rows, _spanned(rows), strict=True) if pair[0]]
        rows = [cells for cells, _ in filled]
        grid = [row for _, row in filled]
        names, count = _column_names(grid)

        for number, row in enumerate(grid[count:], start=count):
            texts = {column: cell.text for column, cell in row.items()}
            cells = rows[number]
            if not any(cell.text for cell in cells):
                continue
            are_heads = all(cell.is_head for cell in cells)
            level = 0
            if are_heads and len(cells) == 1:
                level = BOLD
            linked = sum(cell.linked for cell in cells)
            links = sum(cell.links for cell in cells)
            words = " ".join(filter(None, texts.values()))
            said = (
                words
                if level
                else row_text(texts, names, is_labelled=not all(cell.is_marked for cell in cells))
            )
            source = cells[0].source.getparent()
            self.pieces.append(Piece(said, level, source, linked, links, is_row=True, words=words))


@dataclass(slots=True)
class _Cell:
    """A cell of a table."""

    source: Any
    text: str
    linked: int
    links: int

    @classmethod
    def of(cls, element: Any) -> "_Cell":
        inner = _Text(element)
        inner.walk(element)
        inner.end(element)
        text = " ".join(filter(None, [*(piece.text for piece in inner.pieces), inner.term]))
        linked = sum(piece.linked for piece in inner.pieces)
        return cls(element, text, linked, sum(piece.links for piece in inner.pieces))

    @property
    def is_marked(self) -> bool:
        """Whether it is marked as the name of a column or a row."""
        return bool(self.source.tag == "th" or self.source.getparent().getparent().tag == "thead")

    @property
    def is_head(self) -> bool:
        """Whether it is marked as a name, or looks like one."""
        if self.is_marked:
            return True
        bold = "".join(map(all_text, self.source.iter("b", "strong")))
        return bool(self.text) and len(bold.split()) == len(self.text.split())


def _rows(table: Any) -> list[list[Any]]:
    """Return the cells of each row, wherever in the table it stands; cells without a row make one."""
    rows: list[list[Any]] = []
    for element in table.iterdescendants("tr", "td", "th"):
        if next(element.iterancestors("table")) is not table:
            continue
        if element.tag == "tr":
            rows.append([])
            continue
        before = element.getprevious()
        is_loose = next(element.iterancestors("tr", "table")) is table
        if not rows or (is_loose and (before is None or before.tag not in ("td", "th"))):
            rows.append([])
        rows[-1].append(element)

    return rows


def _outside_rows(table: Any) -> Iterator[Any]:
    """Yield the texts and elements in a table that are in no cell of it, such as its caption."""
    yield table.text or ""
    for child in table:
        if child.tag in ("tr", "td", "th"):
            pass
        elif (
            child.tag in ("thead", "tbody", "tfoot", "form", "center", "font")
            or child.find(".//tr") is not None
        ):
            yield from _outside_rows(child)
        else:
            yield child
        yield child.tail or ""


def _spanned(rows: list[list[_Cell]]) -> list[dict[int, _Cell]]:
    """Return the cells of each row by their columns, with those of rows above that reach into it."""
    grid: list[dict[int, _Cell]] = []
    above: dict[int, tuple[int, _Cell]] = {}  # key: column; how many rows are left
    for cells in rows:
        row = {column: cell for column, (_, cell) in above.items()}
        left = {column: (count - 1, cell) for column, (count, cell) in above.items() if count > 1}
        column = 0
        for cell in cells:
            while column in row:
                column += 1
            width = _span(cell, "colspan")
            height = _span(cell, "rowspan")
            row[column] = cell
            if height > 1:
                left[column] = (height - 1, cell)
            column += width

        grid.append(dict(sorted(row.items())))
        above = left

    return grid


def _column_names(grid: list[dict[int, _Cell]]) -> tuple[dict[int, str], int]:
    """Return the names of columns, and the number of rows that say them."""
    count = 0
    for row in grid:
        if len(row) < 2 or not all(cell.is_head or not cell.text for cell in row.values()):
            break
        count += 1

    if count and max(map(len, grid)) == 2 and not all(cell.is_marked for cell in grid[0].values()):
        return {}, 0  # bold letters in both of two columns may be those of any label
    if not any(len(row) > 1 for row in grid[count:]):
        return {}, 0  # a table of names alone
    names: dict[int, str] = {}
    for row in grid[:count]:
        for column, cell in row.items():
            for place in range(column, column + min(100, _span(cell, "colspan"))):
                if cell.text and cell.text not in names.get(place, ""):
                    names[place] = f"{names.get(place, '')} {cell.text}".strip()

    return names, count


def row_text(texts: dict[int, str], names: dict[int, str], is_labelled: bool = True) -> str:
    """Write the cells of a row, each with the name of its column, if it has one; empty ones keep
    their places.

    >>> row_text({0: "1901", 1: "", 2: "Ann Orr"}, {0: "Year", 1: "President", 2: "Secretary"})
    'Year: 1901 · President: – · Secretary: Ann Orr'
    >>> row_text({0: "Born", 1: "3 May 1851"}, {})
    'Born: 3 May 1851'
    """
    if not names:
        said = [text for text in texts.values() if text]
        is_pair = is_labelled and len(said) == len(texts) == 2 and len(said[0]) <= LABEL
        if is_pair:
            return labelled(*said)
        return " ".join(said)
    parts = []
    for column, text in texts.items():
        name = names.get(column, "")
        if name and len(name) <= LABEL:
            parts.append(labelled(name, text or "–"))
        else:
            parts.append(text)
    return " · ".join(filter(None, parts))


def labelled(label: str, text: str) -> str:
    """Join what two cells, or a term and its definition, say.

    >>> labelled("Born", "3 May 1851"), labelled("Died:", "1919")
    ('Born: 3 May 1851', 'Died: 1919')
    """
    return f"{label.removesuffix(':')}: {text}"


def joint(before: str, text: str, after: str, is_raised: bool) -> str:
    """Return what keeps raised or lowered digits apart from the text before them.

    >>> joint("10", "24", "", True), joint("km", "2", "", True), joint("5", "1", "/", True)
    ('^', '', ' ')
    """
    if not before[-1:].isdigit():
        return ""
    if not re.match(r"[+\-−–]?[\d¼½¾]", text):
        return ""
    if re.search(r"\d\s*[/⁄]\s*\d", text) or (text.isdigit() and re.match(r"\s*[/⁄]", after)):
        return " "  # a blank keeps a fraction apart from the whole number before it
    if is_raised and len(text) == 2 and re.search(r"[$€£¥]\s?[\d.,]*\d$", before):
        return "."
    return "^" if is_raised else "_"


def _number_of(item: Any) -> str:
    """Return the number of an item of a list that may be its sentence's first word, as "7. November
    1867" is.
    """
    parent = item.getparent()
    if item.tag != "li" or parent is None or parent.tag != "ol":
        return ""
    if parent.get("type", "1") != "1":
        return ""
    if item.get("value"):
        return f"{item.get('value')}. "
    items = [child for child in parent if child.tag == "li"]
    start = parent.get("start", "1")
    is_note = item.get("role") == "doc-endnote" or item.get("id", "").startswith(("fn", "cite"))
    if is_note:
        return ""
    if not re.fullmatch(r"\d{1,9}", start):
        return ""
    if len(items) > 1 and start == "1":
        return ""
    return f"{int(start) + items.index(item)}. "


def _level(element: Any) -> int:
    """Return the level of a heading, or 0 for other text."""
    if element.tag in HEADINGS:
        return HEADINGS[element.tag]
    if element.get("role") == "heading":
        level = element.get("aria-level", "2")
        if level in tuple("123456"):
            return int(level)
        return 2
    if element.tag in ("caption", "legend"):
        return BOLD
    if (
        element.tag not in ("p", "div")
        or len(element) != 1
        or element[0].tag not in ("b", "strong")
    ):
        return 0

    bold = all_text(element[0]).strip()
    return (
        BOLD
        if bold == all_text(element).strip() and 0 < len(bold) <= SHORT and bold[-1] not in ".!?;,"
        else 0
    )


def _span(cell: _Cell, name: str) -> int:
    written = cell.source.get(name, "").strip()
    if re.fullmatch("[1-9][0-9]{0,8}", written):
        return min(MOST_SPAN, int(written))
    return 1
