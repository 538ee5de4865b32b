"""PDF: order the characters that PDFium finds into blocks of text, without headers that every page
repeats.

Source: PDFium's fpdf_text.h.
"""

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from kbq.corpus.pages import BOLD, Block, Contents
from kbq.errors import CorpusError, first_line

GAP = 1.2  # sizes of a letter between words of a row that may be of two columns
CELL = 2.5  # and from which on they are cells of a table, where there are no columns
# Share of a page's height in which running lines are looked for, and where one page has any.
MARGIN = 0.15
EDGE = 0.08
REPEATED = 0.3  # share of the pages that have a running line
LARGER = 1.12  # size, compared with most letters, that makes a heading
SHORT = 0.8  # share of a column: a shorter line that ends a sentence ends a paragraph, too
VOCABULARY = Path(__file__).parents[1] / "models" / "default" / "tokenizer.json"
HYPHENS = "\x02\ufffe"  # PDFium's signs for a hyphen at the end of a line
_NUMBER = re.compile(
    r"\W*(?:(?:page|seite|p\.|s\.)\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:/|of|von)\s*\d{1,4})?\W*",
    re.IGNORECASE,
)
_ENDS = re.compile(r"[.!?:;»”\"')\]]\s*$")
# Behind an initial or an abbreviation the sentence goes on, and so does the paragraph.
_GOES_ON = re.compile(
    r"(?:^|[\s(.])(?:[A-Z]|Mrs?|Ms|Drs?|St|Prof|Rev|Hon|Gen|Col|Capt|Lt|Sgt|Nos?|vols?|pp?|ca?|vs)\.$"
)
# Follows the first half of "pre- and postwar".
_HANGING = re.compile(r"(?:and|or|nor|to|und|oder|bis)\b")
_BULLET = re.compile(r"\s*(?:[•▪‣◦–*]|\d{1,2}[.)])\s")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


@dataclass(slots=True)
class Line:
    """Words beside one another; places are in points, from the lower left corner of the page."""

    text: str
    left: float
    right: float
    base: float  # size of most letters
    size: float
    is_bold: bool
    is_row: bool = False  # its words stand in cells


@dataclass(slots=True)
class Sheet:
    """A page."""

    number: int
    height: float
    lines: list[Line]


def pdf_contents(content: bytes) -> Contents:
    """Read a PDF. Raises CorpusError if it cannot be read, is encrypted, or has no text."""
    import pypdfium2
    from pypdfium2.raw import FORMTYPE_NONE, FPDF_ERR_PASSWORD

    try:
        pdf = pypdfium2.PdfDocument(content)
        facts = pdf.get_metadata_dict(skip_empty=True)
        if pdf.get_formtype() != FORMTYPE_NONE:
            # PDFium warns of forms in XFA, whose values are in the usual fields, too.
            logging.getLogger("pypdfium2").setLevel(logging.ERROR)
            pdf.init_forms()
        sheets = _sheets(pdf)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == FPDF_ERR_PASSWORD:
            raise CorpusError("it is encrypted: save it without a password") from None
        raise CorpusError(
            f"it cannot be read ({first_line(error)}): check that it is a PDF"
        ) from None

    full = [sheet for sheet in sheets if sheet.lines]
    if not full:
        count = len(sheets)
        which = f"its {count:,} pages have"
        if count == 1:
            which = "its 1 page has"
        raise CorpusError(
            f"{which} no text: they may be scanned, so have their text recognised first (OCR)"
        )

    left_out = Counter({"pages without text": len(sheets) - len(full)})
    usual = Counter[float]()
    for sheet in full:
        for line in sheet.lines:
            usual[round(line.size, 1)] += len(line.text)
    body = usual.most_common(1)[0][0]
    left_out["numbers of lines"] = sum(map(_without_line_numbers, full))
    left_out["running headers, footers and page numbers"] = _without_running_lines(full, body)
    known = _words_inside(full)
    pages = []
    for sheet in full:
        blocks = list(_blocks(_in_order(sheet.lines), body, known))
        pages.append((sheet.number, blocks))

    return Contents(pages, facts.get("Title", ""), _metadata(facts), left_out)


def _sheets(pdf: Any) -> list[Sheet]:
    """Return every page of a PDF with its lines."""
    sheets = []
    for number in range(len(pdf)):
        page = _with_fields(pdf, number)
        lines = _lines(page.get_textpage())
        # What is filled in comes last, and belongs beside its label.
        if pdf.formenv is not None:
            lines = list(_beside(lines))
        sheets.append(Sheet(number + 1, page.get_height(), lines))
        page.close()
    return sheets


def _words_inside(sheets: Iterable[Sheet]) -> set[str]:
    """Return words that are whole: the first and the last of a line may be parts of one."""
    words = set()
    for sheet in sheets:
        for line in sheet.lines:
            for word in _WORD.findall(line.text)[1:-1]:
                words.add(word.casefold())
    return words


def _metadata(facts: Mapping[str, str]) -> dict[str, object]:
    """Return the author, the day and the address that a file gives."""
    date = ""
    created = re.match(r"D:(\d{4})(\d\d)(\d\d)", facts.get("CreationDate", ""))
    if created:
        date = "-".join(created.groups())
    addresses = (value for value in facts.values() if re.fullmatch(r"https?://\S+", value))
    return {"author": facts.get("Author", ""), "date": date, "url": next(addresses, "")}


def _with_fields(pdf: Any, number: int) -> Any:
    """Return a page on which what a person has filled into a form is text."""
    from pypdfium2 import raw

    page = pdf[number]
    if (
        pdf.formenv is None
        or raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY) != raw.FLATTEN_SUCCESS
    ):
        return page
    page.close()
    return pdf[number]


def _beside(lines: list[Line]) -> Iterator[Line]:
    """Yield lines from the top, and those beside one another from the left."""
    row: list[Line] = []
    for line in sorted(lines, key=lambda line: -line.base):
        if row and row[0].base - line.base > 0.6 * line.size:
            yield from sorted(row, key=lambda one: one.left)
            row = []
        row.append(line)
    yield from sorted(row, key=lambda one: one.left)


def _without_line_numbers(sheet: Sheet) -> int:
    """Remove the numbers beside a text that count its lines, as courts want them; return how many
    there were.
    """
    numbers = [line for line in sheet.lines if re.fullmatch(r"\d{1,4}", line.text)]
    if not numbers:
        return 0
    middle = median(line.left for line in numbers)
    # Drops the page's number.
    numbers = [line for line in numbers if abs(line.left - middle) < 2 * line.size]
    numbers.sort(key=lambda line: -line.base)
    others = [line for line in sheet.lines if line not in numbers]
    texts = [line for line in others if not line.text.isdigit()]
    if len(numbers) < 5 or not texts:
        return 0
    begin = min(line.left for line in numbers)
    end = max(line.right for line in numbers)
    is_left = end < min(line.left for line in texts)
    is_right = begin > max(line.right for line in texts)
    steps = Counter(int(after.text) - int(before.text) for before, after in pairwise(numbers))
    if not (is_left or is_right):
        return 0
    if max(steps[1], steps[5]) < 0.8 * (len(numbers) - 1):
        return 0
    sheet.lines = others

    return len(numbers)


def _is_upright(textpage: Any, place: int) -> bool:
    """Return whether a letter stands as those of a text do, and not sideways as a stamp in the
    margin.
    """
    from pypdfium2 import raw

    return math.cos(raw.FPDFText_GetCharAngle(textpage, place)) > 0.5


def _lines(textpage: Any) -> list[Line]:
    """Return the lines of a page in the order of the file; words that stand far apart are two
    lines.
    """
    from pypdfium2 import raw

    text = textpage.get_text_range()
    count = textpage.count_chars()
    if len(text) != count:  # it has letters of two code units
        codes = (raw.FPDFText_GetUnicode(textpage, place) for place in range(count))
        text = "".join(map(chr, codes))

    found = list[Line]()
    sideways = list[Line]()
    for run in re.finditer(rf"[^\r\n{HYPHENS}]+[{HYPHENS}]?", text):
        line: Line | None = None
        for word in re.finditer(r"\S+", run[0]):
            first = run.start() + word.start()
            last = run.start() + word.end() - 1
            left, base, _, _ = textpage.get_charbox(first, loose=True)
            has_hyphen = word[0][-1] in HYPHENS and last > first
            right = textpage.get_charbox(last - has_hyphen, loose=True)[2]
            if line and -line.size < left - line.right <= GAP * line.size:
                line.text = f"{line.text} {word[0]}"
                line.right = right
                continue

            line = Line(word[0], left, right, base, *_letters(textpage, first))
            if _is_upright(textpage, first):
                found.append(line)
            else:
                sideways.append(line)

    upright_letters = sum(len(line.text) for line in found)
    sideways_letters = sum(len(line.text) for line in sideways)
    if sideways_letters > upright_letters:
        found, sideways = sideways, found  # the page lies on its side
    for line in sideways:  # larger letters would be taken for a heading
        line.size = min(line.size, median(other.size for other in found))
        line.is_bold = False

    return [line for line in found + sideways if line.text.strip(HYPHENS + " ")]


def _letters(textpage: Any, place: int) -> tuple[float, bool]:
    """Return the size of a letter, in points, and whether it is bold."""
    import ctypes

    from pypdfium2 import raw

    size = raw.FPDFText_GetFontSize(textpage, place)
    scale = raw.FS_MATRIX()
    # Some programs write letters of size 1, and scale them.
    if raw.FPDFText_GetMatrix(textpage, place, scale):
        size *= abs(scale.d) or abs(scale.b) or 1
    name = ctypes.create_string_buffer(128)
    raw.FPDFText_GetFontInfo(textpage, place, name, 128, ctypes.c_int())
    is_bold = raw.FPDFText_GetFontWeight(textpage, place) >= 600
    return size, is_bold or re.search(rb"bold|black|heavy", name.value.lower()) is not None


def _rows(lines: Iterable[Line]) -> list[list[Line]]:
    """Group lines that follow one another and stand beside one another."""
    rows: list[list[Line]] = []
    for line in lines:
        if (
            rows
            and abs(rows[-1][-1].base - line.base) < 0.4 * line.size
            and line.left > rows[-1][-1].left
        ):
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def _without_running_lines(sheets: Sequence[Sheet], body: float) -> int:
    """Remove the lines at the upper and lower edge that come again, or are page numbers; return how
    many there were.
    """
    candidates = []
    seen = Counter[tuple[int, str]]()
    for sheet in sheets:
        at_edge = [line for line in sheet.lines if _edge(sheet, line) < MARGIN]
        candidates += [(sheet, line) for line in at_edge]
        seen.update({_place(sheet, line) for line in at_edge})
    least = 3.0
    if len(sheets) < 10:
        least = max(2, REPEATED * len(sheets))
    count = 0

    for sheet, line in candidates:
        is_number = _NUMBER.fullmatch(line.text) and _is_outermost(sheet, line)
        is_small = (
            line.size < 0.93 * body and _edge(sheet, line) < EDGE and _is_outermost(sheet, line)
        )
        if seen[_place(sheet, line)] >= least or is_number or is_small:
            sheet.lines = [other for other in sheet.lines if other is not line]
            count += 1

    return count


def _place(sheet: Sheet, line: Line) -> tuple[int, str]:
    """Return where a line stands, in twentieths of the page, and its text without numbers."""
    twentieth = round(20 * line.base / sheet.height)
    text = re.sub(r"\d+|\b[ivxlc]+\b", "#", line.text.strip(HYPHENS))
    return twentieth, text


def _edge(sheet: Sheet, line: Line) -> float:
    """Return how far a line is from the nearer edge, as a share of the page's height."""
    return min(line.base, sheet.height - line.base) / sheet.height


def _is_outermost(sheet: Sheet, line: Line) -> bool:
    """Return whether no other line is further out, except beside it, and the next one is far away."""
    distances = (other.base - line.base for other in sheet.lines)
    others = [distance for distance in distances if abs(distance) > 0.5 * line.size]
    below = [-distance for distance in others if distance < 0]
    above = [distance for distance in others if distance > 0]
    if below and above:
        return False
    return min(below + above, default=99) > 1.6 * line.size


def _in_order(lines: list[Line]) -> list[Line]:
    """Return lines in reading order: the left column first, even if the file has columns row by
    row.
    """
    rows = _rows(lines)
    gutter = _gutter([row for row in rows if len(row) == 2])
    if gutter is None:
        return [_joined_row(row) for row in rows]
    ordered = []
    right = list[Line]()
    for row in rows:
        if any(line.left < gutter < line.right for line in row):  # it is as wide as both columns
            ordered += [*right, *row]
            right = []
            continue
        ordered += [line for line in row if line.right <= gutter]
        right += [line for line in row if line.left >= gutter]

    return ordered + right


def _gutter(pairs: list[list[Line]]) -> float | None:
    """Return a place between two columns of text, or None if the rows are those of a table, or few."""
    if len(pairs) < 4:
        return None
    begin = median(second.left for _, second in pairs)
    width = begin - median(first.left for first, _ in pairs)
    fitting = [
        first.right
        for first, second in pairs
        if first.right < begin and abs(second.left - begin) < 0.1 * width
    ]
    if len(fitting) < 0.7 * len(pairs):
        return None
    words = [len(block.text.split()) for pair in pairs for block in pair]
    is_filled = begin - max(fitting) < 0.2 * width and begin - median(fitting) < 0.4 * width
    if median(words) >= 3.5 and is_filled:
        return begin - 1
    return None


def _joined_row(row: list[Line]) -> Line:
    """Return the lines of a row as one; if they stand far apart, they are cells."""
    first = row[0]
    last = row[-1]
    is_row = any(after.left - before.right > CELL * before.size for before, after in pairwise(row))
    text = " ".join(line.text for line in row)
    return Line(
        text,
        first.left,
        last.right,
        first.base,
        first.size,
        all(line.is_bold for line in row),
        is_row,
    )


def _blocks(lines: Sequence[Line], body: float, known: set[str]) -> Iterator[Block]:
    """Yield the headings and paragraphs that lines in reading order make."""
    distances = [above.base - below.base for above, below in pairwise(lines)]
    leading = median([distance for distance in distances if 0 < distance < 40] or [body])
    block: list[Line] = []
    for line in lines:
        if block and _begins(block, line, lines, leading, body):
            yield _block(block, body, known)
            block = []
        block.append(line)

    if block:
        yield _block(block, body, known)


def _level(line: Line, body: float) -> int:
    """Return the level of a line by its letters: a heading, bold, or text."""
    if line.size > LARGER * body:
        return 1
    if line.is_bold:
        return BOLD
    return 0


def _begins(
    block: list[Line], line: Line, lines: Sequence[Line], leading: float, body: float
) -> bool:
    """Return whether a line begins another paragraph than the one before it."""
    before = block[-1]
    down = block[-1].base - line.base
    if before.text[-1:] in HYPHENS and not line.is_row:
        return False
    if (
        _level(before, body) != _level(line, body)
        or before.is_row
        or line.is_row
        or _BULLET.match(line.text)
    ):
        return True

    goes_on = not _ENDS.search(before.text) or _GOES_ON.search(before.text) is not None
    if down < -leading or down > 8 * leading:  # another column
        return not goes_on
    if _level(line, body) == 1:
        return abs(before.size - line.size) > 1 or down > 1.7 * line.size
    allowed = 1.35 * leading + 0.2 * (line.size - body)
    if abs(before.size - line.size) > 0.1 * body:
        return True
    if down > allowed:
        return True

    column = [one for one in lines if abs(one.left - before.left) < 3 * body]
    begin = min(cell.left for cell in column)
    width = max(cell.right for cell in column) - begin
    is_indented = line.left - before.left > 0.7 * body and len(block) > 1
    return not goes_on and (is_indented or before.right < before.left + SHORT * width)


def _block(lines: list[Line], body: float, known: set[str]) -> Block:
    """Return the lines of a heading or paragraph as a block."""
    text = lines[0].text
    for line in lines[1:]:
        text = joined(text, line.text, known)
    text = " ".join(re.sub(f"[{HYPHENS}]", "-", text).split())
    level = _level(lines[0], body)
    if level and (len(text) > 200 or (level == BOLD and _ENDS.search(text))):
        level = 0
    return Block(text, level, size=lines[0].size)


def joined(before: str, after: str, known: Iterable[str]) -> str:
    """Join two lines. A hyphen between them stays where it is part of a word.

    >>> joined("was an Aus-", "trian writer", ()), joined("a well-", "known book", ()), joined("in Baden-", "Baden", ())
    ('was an Austrian writer', 'a well-known book', 'in Baden-Baden')
    >>> joined("her mother-in-", "law", ()), joined("a 12-", "month stay", ()), joined("pre-", "and postwar", ())
    ('her mother-in-law', 'a 12-month stay', 'pre- and postwar')
    """
    hyphen = re.search(rf"(?<=\w)[-‐\u00ad{HYPHENS}]$", before)
    first = re.match(r"[^\W_]+", after)
    if not hyphen or not first:
        return f"{before} {after}"
    stem = before[:-1]
    last = re.search(r"([^\W_]+-)*([^\W_]+)$", stem)
    half = last[2] if last else ""
    if not first[0][0].islower() or half.isdigit():
        return f"{stem}-{after}"
    words = _vocabulary()
    whole = f"{half}{first[0]}".casefold()
    if whole in known or whole in words:
        return stem + after
    if before[-1] == "\u00ad":
        return stem + after
    if _HANGING.match(after):
        return f"{stem}- {after}"
    halves = [half.casefold(), first[0].casefold()]
    are_words = all(len(one) > 2 and (one in known or one in words) for one in halves)
    # Such as mother-in-law.
    is_compound = bool(last and last[1]) or re.match(r"\w+-\w", after) is not None

    if are_words or is_compound:
        return f"{stem}-{after}"
    return stem + after


@cache
def _vocabulary() -> frozenset[str]:
    """Return the words that the default model knows."""
    return frozenset(json.loads(VOCABULARY.read_text("utf-8"))["model"]["vocab"])
