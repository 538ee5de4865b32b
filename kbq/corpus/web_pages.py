"""Web pages: choose the paragraphs that are a page's own text."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kbq.corpus.html_blocks import Piece, pieces_of
from kbq.corpus.html_tree import all_text, drop_unseen, html_tree
from kbq.corpus.pages import Block, Contents

BETWEEN = 6  # pieces that may stand between two chosen ones
LEAST = (
    # Share of a page's sentences that a library chooses at least, to be taken at its word; others
    # may be comments.
    0.2
)
# Share of the triples of words of a paragraph that are in the library's text, if it has chosen it.
ALIKE = 0.5
CAPTION = 300  # characters around a table, blanks included, that may be its caption
APART = frozenset({"article", "aside", "body", "footer", "header", "main", "nav", "td"})
READ_WHOLE = "pages read whole"
NAVIGATION = "navigation"
_LISTS = re.compile(
    r"see also|references|notes|footnotes|citations|sources|external links|further reading|(?:table of )?contents"
    r"|navigation menu|on this page|also in this section|read more|share this|you (?:may|might) also like"
    r"|related(?: articles| pages| posts)?|more stories",
    re.IGNORECASE,
)
# Headings of what readers wrote; "Reactions" alone may head a part of any article.
_READERS = re.compile(
    r"(?:all |reader |readers' )?comments(?: \(\d+\))?|leave a (?:reply|comment)"
    r"|(?:\d+|all|readers?'?) (?:comments?|responses?|replies|reply|reactions?|answers?)(?: (?:to|on) .+)?"
    r"|(?:responses|replies|reactions|answers) \(\d+\)",
    re.IGNORECASE,
)
_SAVED = re.compile(r"<!-- saved from url=\(\d+\)(\S+) -->")
_WORD = re.compile(r"\w+")


def web_contents(text: str) -> Contents:
    """Read a page. Raises CorpusError if it cannot be read, RecursionError if its elements are
    nested too deep.
    """
    root = html_tree(text)
    facts = _facts(root)
    window = _window_title(root, facts)
    contents = Contents([], _title(root, facts), _metadata(root, facts, text), window_title=window)
    contents.left_out = drop_unseen(root)
    blocks = [Block(piece.text, piece.level) for piece in own_pieces(root, contents.left_out)]
    contents.pages.append((0, blocks))
    return contents


def own_pieces(root: Any, left_out: Counter[str]) -> list[Piece]:
    """Return the pieces of a page that are its own text, and count the others.

    A library chooses paragraphs; headings, the rows of tables and what stands between paragraphs
    follow them.
    """
    body = root.find("body")
    if body is None:
        body = root
    pieces = pieces_of(body)
    is_own = _Chosen(root).which(pieces)
    if not _is_enough(pieces, is_own):
        left_out[READ_WHOLE] += 1
        return pieces

    _add_lede(pieces, is_own)
    _add_lists(pieces, is_own)
    _add_between(pieces, is_own)
    _add_headings(pieces, is_own)
    _leave_sections(pieces, is_own)
    left_out[NAVIGATION] += is_own.count(False)
    return [piece for piece, is_kept in zip(pieces, is_own, strict=True) if is_kept]


class _Chosen:
    """The text that a library chooses of a page."""

    def __init__(self, root: Any) -> None:
        from trafilatura import bare_extraction

        found = bare_extraction(root, fast=True, favor_recall=True, include_comments=False)
        lines: list[str] = []
        if found is not None:
            for element in found.body.iter("*"):
                is_inside = element.tag in ("del", "hi", "ref")  # a line of text
                if is_inside:
                    element.tail = element.tail or ""
                else:
                    element.tail = f" {element.tail or ''}"
            lines = [" ".join(all_text(line).split()) for line in found.body.iter("*")]

        self._lines = {line.casefold() for line in lines}
        words = _WORD.findall(" ".join(lines[:1]).casefold())  # the first is the whole body
        self._text = f" {' '.join(words)} "
        self._triples = set(zip(words, words[1:], words[2:], strict=False))

    def which(self, pieces: Sequence[Piece]) -> list[bool]:
        """Return which pieces it has chosen.

        Of those that say the same, as teasers do, as many count as its text has: those of fewest
        links, and next to others.
        """
        words: list[list[str]] = []
        for piece in pieces:
            if piece.level:
                words.append([])
            else:
                words.append(_words_of(piece))
        is_own = [
            bool(several) and self._has(piece, several)
            for piece, several in zip(pieces, words, strict=True)
        ]
        same = defaultdict[str, list[int]](list)
        for place, several in enumerate(words):
            if is_own[place]:
                same[f" {' '.join(several)} "].append(place)

        single = [places[0] for places in same.values() if len(places) == 1]
        for text, places in same.items():
            count = self._text.count(text)
            if len(places) > count > 0:
                places.sort(key=lambda place: (pieces[place].share, _distance(place, single)))
                for place in places[count:]:
                    is_own[place] = False

        return is_own

    def _has(self, piece: Piece, words: list[str]) -> bool:
        """Return whether it has chosen a piece of these words."""
        if len(words) < 2:
            return piece.words.casefold() in self._lines
        if len(words) < 5:
            return f" {' '.join(words)} " in self._text
        triples = list(zip(words, words[1:], words[2:], strict=False))
        return sum(triple in self._triples for triple in triples) >= ALIKE * len(triples)


def _distance(place: int, others: Sequence[int]) -> int:
    """Return how far the nearest of other places is away."""
    return min((abs(place - other) for other in others), default=0)


def _words_of(piece: Piece) -> list[str]:
    return _WORD.findall(piece.words.casefold())


def _is_enough(pieces: Sequence[Piece], is_own: Sequence[bool]) -> bool:
    """Return whether the pieces chosen are most of the sentences of a page."""
    whole = 0
    kept = 0
    for piece, is_kept in zip(pieces, is_own, strict=True):
        if is_prose(piece):
            whole += len(piece.text)
            if is_kept:
                kept += len(piece.text)
    return any(is_own) and kept >= LEAST * whole


def is_prose(piece: Piece) -> bool:
    """Return whether a piece is a sentence or more, and mostly no link."""
    return (
        not piece.level and not piece.is_row and piece.share < 0.5 and len(piece.text.split()) > 9
    )


def _add_lede(pieces: Sequence[Piece], is_own: list[bool]) -> None:
    """Take the sentences below the headline, in the header of an article that is taken."""
    articles = {
        article
        for piece, is_kept in zip(pieces, is_own, strict=True)
        if is_kept
        for article in piece.source.iterancestors("article", "main")
    }
    for place, piece in enumerate(pieces):
        header = next(piece.source.iterancestors("header"), None)
        if header is None or is_own[place] or not is_prose(piece):
            continue
        is_inside = next(header.iterancestors("article", "main"), None) in articles
        is_own[place] = is_inside and header.find(".//h1") is not None


def _add_lists(pieces: Sequence[Piece], is_own: list[bool]) -> None:
    """Take tables and lists whole if most of them is chosen, and tables of few links that stand
    beside chosen text.
    """
    chosen = [piece for piece, is_kept in zip(pieces, is_own, strict=True) if is_kept]
    sentences = [piece.source for piece in chosen if is_prose(piece)]
    around = {outer for sentence in sentences for outer in sentence.iterancestors()}
    right_around = {sentence.getparent() for sentence in sentences}

    for outer, group in groupby(range(len(pieces)), lambda place: _list_of(pieces[place])):
        parts = [place for place in group if not pieces[place].level]
        if outer is None or not parts:
            continue
        linked = sum(pieces[place].share for place in parts) / len(parts)
        is_text = outer.tag == "table" and linked < 0.5
        is_beside = is_text and (
            outer.getparent() in around or _frame(outer).getparent() in right_around
        )
        if is_beside or 2 * sum(is_own[place] for place in parts) >= len(parts):
            for place in parts:
                is_own[place] = True


def _frame(table: Any) -> Any:
    """Return the outermost element that holds a table and no more beside it than a caption."""
    most = len(all_text(table)) + CAPTION
    frame = table
    for outer in table.iterancestors():
        if outer.tag in APART or len(all_text(outer)) > most:
            break
        frame = outer
    return frame


def _list_of(piece: Piece) -> Any:
    return next(piece.source.iterancestors("table", "ul", "ol", "dl"), None)


def _add_between(pieces: Sequence[Piece], is_own: list[bool]) -> None:
    """Take a few pieces between two chosen ones that stand beside one another, unless they are
    links.
    """
    for is_kept, group in groupby(list(range(len(pieces))), lambda place: is_own[place]):
        places = list(group)
        first = places[0] - 1
        last = places[-1] + 1
        if is_kept or first < 0:
            continue
        if last == len(pieces):
            continue
        if len(places) > BETWEEN:
            continue
        parent = pieces[first].source.getparent()
        if parent is None or parent is not pieces[last].source.getparent():
            continue
        for place in places:
            piece = pieces[place]
            is_inside = any(element is parent for element in piece.source.iterancestors())
            is_own[place] = is_inside and not piece.level and piece.share <= 0.5


def _add_headings(pieces: Sequence[Piece], is_own: list[bool]) -> None:
    """Take the headings right above the pieces that are taken."""
    heads: list[int] = []
    for place, piece in enumerate(pieces):
        if piece.level:
            heads = [head for head in heads if pieces[head].level < piece.level]
            heads.append(place)
        else:
            for head in heads:
                is_own[head] = is_own[place]
            heads = []


def _leave_sections(pieces: Sequence[Piece], is_own: list[bool]) -> None:
    """Leave out lists under a heading such as "See also", and all that is under one such as "8
    comments".
    """
    level = 0
    is_of_readers = False
    for place, piece in enumerate(pieces):
        text = piece.text.strip(" :")
        if piece.level and (_LISTS.fullmatch(text) or _READERS.fullmatch(text)):
            level = piece.level
            is_of_readers = _READERS.fullmatch(text) is not None
        elif 0 < piece.level <= level or not (
            piece.level or is_of_readers or piece.is_item or piece.share > 0.3
        ):
            level = 0
        if level:
            is_own[place] = False


def _facts(root: Any) -> dict[str, str]:
    """Return what the `meta` elements of a page state, by their names; the first of a name counts."""
    facts: dict[str, str] = {}
    for meta in root.iter("meta"):
        name = (meta.get("name") or meta.get("property") or "").lower()
        facts.setdefault(name, " ".join(meta.get("content", "").split()))
    return facts


def _title(root: Any, facts: dict[str, str]) -> str:
    """Return the title that a page states for programs, without the name of the site."""
    stated = [
        facts.get(name, "") for name in ("citation_title", "dc.title", "dcterms.title", "og:title")
    ]
    titles = (_without_site(title, facts) for title in (*stated, *_headlines(root)))
    return next((title for title in titles if title and title != facts.get("og:site_name")), "")


def _headlines(root: Any) -> Iterator[str]:
    """Yield the headlines that a page states in JSON-LD (schema.org)."""
    for script in root.iter("script"):
        if script.get("type", "").strip().lower() != "application/ld+json":
            continue
        try:
            stated = json.loads(script.text or "")
        except (ValueError, RecursionError):
            continue

        several = stated if isinstance(stated, list) else [stated]
        for thing in several:
            graph = []
            if isinstance(thing, dict):
                graph = thing.get("@graph", [thing])
            if not isinstance(graph, list):
                continue
            for part in graph:
                if isinstance(part, dict) and isinstance(part.get("headline"), str):
                    yield " ".join(part["headline"].split())


def _window_title(root: Any, facts: dict[str, str]) -> str:
    """Return the title of a browser's window, without the name of the site."""
    window = next((" ".join(all_text(element).split()) for element in root.iter("title")), "")
    return _without_site(window, facts)


def _without_site(title: str, facts: dict[str, str]) -> str:
    site = facts.get("og:site_name") or facts.get("application-name")
    found = None
    if site:
        found = re.fullmatch(rf"(.+?)\s+[|\-–—·:»]\s+{re.escape(site)}", title)
    return found[1] if found else title


def _metadata(root: Any, facts: dict[str, str], text: str) -> dict[str, object]:
    language = root.get("lang") or root.get("{http://www.w3.org/XML/1998/namespace}lang") or ""
    author = _first_of(facts, "author", "dc.creator", "article:author")
    date = _first_of(facts, "date", "dc.date", "dcterms.date", "article:published_time")
    links = [
        link.get("href", "")
        for link in root.iter("link")
        if "canonical" in link.get("rel", "").lower().split()
    ]
    saved = _SAVED.search(text, 0, 10_000)
    urls = (
        *links,
        facts.get("og:url", ""),
        facts.get("dc.identifier", ""),
        saved[1] if saved else "",
    )
    addresses = (url.strip() for url in urls if re.fullmatch(r"\s*https?://\S+\s*", url))

    return {"language": language, "author": author, "date": date, "url": next(addresses, "")}


def _first_of(facts: Mapping[str, str], *names: str) -> str:
    """Return the first of these facts that is stated."""
    return next((facts[name] for name in names if facts.get(name)), "")
