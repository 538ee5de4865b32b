"""HTML trees: parse a page as browsers do, without the elements that they do not show.

Source: the rendering section of the HTML standard (html.spec.whatwg.org), and CSS cascading
(w3.org/TR/css-cascade).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from html.entities import name2codepoint
from typing import Any, NamedTuple, TypeAlias

from kbq.errors import CorpusError, first_line

WIDTH = 1280  # pixels of the window for which rules of styles are chosen
NO_TEXT = (
    "annotation", "annotation-xml", "area", "audio", "canvas", "datalist", "embed", "head",
    "iframe", "img", "input", "link", "map", "meta", "noscript", "object", "picture", "rp",
    "script", "select", "style", "svg", "template", "textarea", "title", "video",
)  # fmt: skip
# What usual style sheets, which are files of their own, call what they hide.
HIDDEN = frozenset(
    {
        "d-none", "hidden", "is-hidden", "screen-reader-text", "sr-only", "visually-hidden",
        "visuallyhidden",
    }
)  # fmt: skip
# Values of display and visibility.
HIDING = ("none", "hidden", "collapse")
KEPT = ("inherit", "unset", "revert")
MARKS = frozenset({"doc-noteref", "doc-backlink"})
_SHOWS = re.compile(
    r"(?:.*[-:])?(?:block|contents|flex|grid|inline|inline-\w+|list-item|not-sr-only|show|table(?:-\w+)?)"
)
_DECLARED = re.compile(
    r"(?:^|;)\s*(display|visibility)\s*:\s*([\w-]+)\s*(!\s*important)?", re.IGNORECASE
)
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_AT_RULE = re.compile(r"@([\w-]+)([^{};]*)(?:;|\{((?:[^{}]*\{[^{}]*\})*[^{}]*)\})")
_WIDTHS = re.compile(r"(min|max)-width\s*:\s*([\d.]+)\s*(px|em|rem)")
_NAME = re.compile(r"[.#]?[\w-]+")
_ATTRIBUTE = re.compile(r"\[.*?\]")
_COMBINATOR = re.compile(r"[\s>+~]+")
_SIMPLE = re.compile(r"\w*(?:[.#][\w-]+)*")  # a selector of one part
_MARK = re.compile(
    r"\[?\s*(?:\d{1,3}|[a-z]{1,2}|[ivx]{1,5}|(?:note|nb|n)\.? ?\d+|citation needed|[*†‡§↑^])\s*\]?"
)
_ICON = re.compile(r"[a-z_]*|\W*")
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot);)(\w+);")


def html_tree(text: str) -> Any:
    """Parse a page. Raises CorpusError if it cannot be read, RecursionError if its elements are
    nested too deep.
    """
    from lxml import etree, html

    if text.lstrip().startswith("<?xml"):  # XHTML, whose empty elements HTML does not close
        root = _xhtml_tree(text)
        if root is not None:
            return root
    parser = html.HTMLParser(remove_comments=True, remove_pis=True, encoding="utf-8")
    # Elements of one class need no call of Python each, which forms and fields would.
    parser.set_element_class_lookup(etree.ElementDefaultClassLookup(element=html.HtmlElement))
    try:
        root = etree.fromstring(text.encode("utf-8", "replace").strip() or b"<p>", parser)
    except etree.XMLSyntaxError as error:  # it reads any text, so no memory was left
        raise MemoryError(str(error)) from None
    if any("depth" in error.message for error in parser.error_log):
        raise RecursionError
    if root is None:
        return html.Element("html")
    return root


def _xhtml_tree(text: str) -> Any:
    """Parse a page of XHTML, or return None if it is not one."""
    from lxml import etree, html

    parser = html.XHTMLParser(
        resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
    )
    known = _ENTITY.sub(
        lambda name: chr(code) if (code := name2codepoint.get(name[1])) else name[0], text
    )
    try:
        root = etree.fromstring(known.encode(), parser)
    except etree.XMLSyntaxError as error:
        if "<!ENTITY" in text:  # HTML would show what it declares
            raise CorpusError(
                f"it cannot be read ({first_line(error)}): save it anew, from a browser"
            ) from None
        return None
    etree.strip_tags(root, etree.Entity)  # those of the page's own making may be of any length
    for element in root.iter("{*}*"):
        element.tag = etree.QName(element).localname
    return root


def all_text(element: Any) -> str:
    return "".join(element.itertext())


def drop(element: Any) -> None:
    """Remove an element, but not the text after it."""
    parent = element.getparent()
    before = element.getprevious()
    if element.tail:
        if before is not None:
            before.tail = (before.tail or "") + element.tail
        else:
            parent.text = (parent.text or "") + element.tail
    parent.remove(element)


def drop_unseen(root: Any) -> Counter[str]:
    """Remove what a browser does not show, and the marks of notes; return how many elements with
    text, by reason.
    """
    from lxml import etree

    styles = " ".join(map(all_text, root.iter("style")))
    etree.strip_elements(root, *NO_TEXT, with_tail=False)
    rules = []
    if "none" in styles or "visib" in styles:
        rules = _rules(styles)
    named = _elements_by_name(root, rules) if rules else {}
    hidden = _hidden_by_rules(root, [rule for rule in rules if rule.what == "display"], named)
    invisible = _invisible(root, [rule for rule in rules if rule.what == "visibility"], named)
    left_out = Counter[str]()
    unseen = [
        (element, reason) for element in root.iter("*") if (reason := _reason(element, hidden))
    ]
    for element, reason in unseen:
        if element.getparent() is None:
            continue
        left_out[reason] += bool(all_text(element).strip())
        drop(element)
    for element in (element for element, is_invisible in invisible.items() if is_invisible):
        if element.getparent() is None:
            continue
        left_out["hidden"] += bool(all_text(element).strip())
        if any(invisible.get(inner) is False for inner in element.iterdescendants()):
            _silence(element, invisible)
        else:
            drop(element)
    return left_out


def _silence(element: Any, invisible: dict[Any, bool]) -> None:
    """Remove the text of an element, but not of those in it for which it is said whether they are
    visible.
    """
    element.text = None
    for child in element:
        child.tail = None
        if child not in invisible:
            _silence(child, invisible)


def _reason(element: Any, hidden: dict[Any, bool]) -> str:
    """Return why an element is left out, or "" if it is not."""
    tag = element.tag
    given = element.attrib
    if tag in ("a", "sup", "span") and (_is_mark(element) or given.get("role") in MARKS):
        return "marks of notes"
    if not given:
        if hidden.get(element) or tag == "dialog":
            return "hidden"
        return ""
    if given.get("role") in MARKS:
        return "marks of notes"
    is_hidden = hidden.get(element, "hidden" in given or (tag == "dialog" and "open" not in given))
    if "style" in given:
        is_hidden = bool(_is_hiding(given["style"], is_hidden))
    names = given.get("class", "").split()
    if element not in hidden and not HIDDEN.isdisjoint(names):
        is_hidden = not any(map(_SHOWS.fullmatch, names))
    if not is_hidden and given.get("aria-hidden") == "true":
        is_hidden = _is_seen_elsewhere(element)
    return "hidden" if is_hidden else ""


def _declarations(style: str) -> list[tuple[str, str, str]]:
    """Return what a style says of what is shown; most say nothing, which is quick to see."""
    lower = style.lower()
    if "display" in lower or "visib" in lower:
        return _DECLARED.findall(style)
    return []


def _is_hiding(style: str, before: bool | None, wanted: str = "display") -> bool | None:
    """Return whether a style hides an element by a property, or what was `before` if it does not
    say.
    """
    is_hiding = before
    for what, value, _ in _declarations(style):
        if what.lower() == wanted and value.lower() not in KEPT:
            is_hiding = value.lower() in HIDING
    return is_hiding


def _is_seen_elsewhere(element: Any) -> bool:
    """Return whether an element that only eyes shall meet is the name of an icon, or repeats a
    formula.
    """
    before = element.getprevious()
    text = all_text(element).strip()
    is_repeated = before is not None and re.findall(r"\w", all_text(before)) == re.findall(
        r"\w", text
    )
    return is_repeated or _ICON.fullmatch(text) is not None


Rank: TypeAlias = tuple[bool, tuple[int, ...], int]  # is important, specificity, place


class _Rule(NamedTuple):
    is_important: bool
    place: int
    what: str  # display or visibility
    is_hiding: bool
    selector: str


Named: TypeAlias = dict[str, set[Any]]


def _hidden_by_rules(root: Any, rules: list[_Rule], named: Named) -> dict[Any, bool]:
    """Return whether the page's own rules hide the elements that one of them would hide."""
    hiding: dict[Any, Rank] = {}
    for rule in (rule for rule in rules if rule.is_hiding):
        for element, rank in _selected(root, rule, named):
            hiding[element] = max(hiding.get(element, rank), rank)
    hidden = dict.fromkeys(hiding, True)
    known = {name for element in hiding for name in _names_of(element)}
    for rule in (
        rule
        for rule in rules
        if not rule.is_hiding and not known.isdisjoint(_last_names(rule.selector))
    ):
        for element, rank in _selected(root, rule, named):
            if element in hiding and rank > hiding[element]:
                hidden[element] = False
    return hidden


def _invisible(root: Any, rules: list[_Rule], named: Named) -> dict[Any, bool]:
    """Return whether elements are invisible for which rules or styles say it; what is in them is
    so, too, if not said.

    The elements come in the order of the page.
    """
    best: dict[Any, tuple[Rank, bool]] = {}
    for rule in rules:
        for element, rank in _selected(root, rule, named):
            if element not in best or rank > best[element][0]:
                best[element] = rank, rule.is_hiding
    said = {element: is_hiding for element, (_, is_hiding) in best.items()}
    for element in root.xpath("//*[@style]"):
        style = element.get("style")
        if "visib" not in style.lower():
            continue
        is_hiding = _is_hiding(style, said.get(element), "visibility")
        if is_hiding is not None:
            said[element] = is_hiding
    if said:
        return {element: said[element] for element in root.iter("*") if element in said}
    return {}


def _names_of(element: Any) -> list[str]:
    """Return the names by which rules find an element: its tag, its classes (`.name`) and its id
    (`#name`).
    """
    classes = [f".{name}" for name in element.get("class", "").split()]
    return [element.tag, *classes, f"#{element.get('id', '')}"]


def _elements_by_name(root: Any, rules: list[_Rule]) -> Named:
    """Return the elements that have the names in some rules, by these."""
    wanted = {name for rule in rules for name in _names_in(rule.selector)}
    named = defaultdict[str, set[Any]](set)
    for element in root.iter("*"):
        for name in wanted.intersection(_names_of(element)):
            named[name].add(element)
    return named


def _names_in(selector: str) -> list[str]:
    """Return the names in a selector, or in a part of one."""
    return _NAME.findall(_ATTRIBUTE.sub("", selector))


def _last_names(selector: str) -> list[str]:
    """Return the names in the last part of a selector, which is about the element itself."""
    return _names_in(_COMBINATOR.split(selector)[-1])


def _selected(root: Any, rule: _Rule, named: Named) -> Iterator[tuple[Any, Rank]]:
    """Yield what a rule is about, with its rank; nothing for selectors of states, and those that
    are not CSS 3.
    """
    names = _names_in(rule.selector)
    if ":" in rule.selector:
        return
    if not all(name in named for name in names):
        return
    if _SIMPLE.fullmatch(rule.selector):
        count = (
            rule.selector.count("#"),
            rule.selector.count("."),
            int(rule.selector[0] not in ".#"),
        )
        rarest, *others = sorted((named[name] for name in names), key=len)
        for element in rarest.intersection(*others):
            yield element, (rule.is_important, count, rule.place)
        return
    for path, specificity in _paths(rule.selector):
        rank = rule.is_important, specificity, rule.place
        for element in path(root):
            yield element, rank


@lru_cache(10_000)
def _paths(selector: str) -> list[tuple[Any, tuple[int, ...]]]:
    """Return what finds the elements of a selector, with its specificity; nothing for what is not
    CSS 3.
    """
    from cssselect import GenericTranslator, SelectorError, parse
    from lxml import etree

    try:
        return [
            (etree.XPath(GenericTranslator().selector_to_xpath(parsed)), parsed.specificity())
            for parsed in parse(selector)
        ]
    except SelectorError:
        return []


@lru_cache(100)  # pages of a site have the same styles
def _rules(styles: str) -> list[_Rule]:
    """Return the rules about what is shown, of a window of usual size."""
    rules: list[_Rule] = []
    styles = re.sub(r"/\*.*?\*/", " ", styles, flags=re.DOTALL)
    styles = _AT_RULE.sub(
        lambda found: found[3] or "" if _is_for_screens(found[1], found[2]) else " ", styles
    )
    for place, (selectors, declared) in enumerate(_RULE.findall(styles)):
        for what, value, important in _declarations(declared):
            if value.lower() in KEPT:
                continue
            for selector in selectors.split(","):
                if selector.strip():
                    is_hiding = value.lower() in HIDING
                    name = what.lower()
                    rules.append(_Rule(bool(important), place, name, is_hiding, selector.strip()))
    return rules


def _is_for_screens(name: str, query: str) -> bool:
    """Return whether rules in a block of CSS hold for a wide screen."""
    if name.lower() not in ("media", "layer", "supports") or re.search(
        r"print|not\b|speech|prefers|dark", query
    ):
        return False
    for limit, width, unit in _WIDTHS.findall(query):
        pixels = float(width)
        if unit != "px":
            pixels *= 16
        if (limit == "min") != (pixels <= WIDTH):
            return False
    return True


def _is_mark(element: Any) -> bool:
    """Return whether an element is the mark of a note, such as [1]."""
    if len(element.text or "") > 40 or len(element) > 4:  # too long for a mark, and quick to see
        return False
    text = all_text(element).strip()
    if not text or len(text) > 20:
        return False
    if not _MARK.fullmatch(text):
        return element.tag == "a" and text in ("¶", "#", "↩", "↩︎", "🔗")
    is_inside = any("#" in link.get("href", "") for link in element.iter("a"))
    parent = element.getparent()
    is_raised = element.tag == "sup" or (parent is not None and parent.tag == "sup")
    is_reference = "reference" in element.get("class", "").split()
    return is_reference or (is_inside and (is_raised or text.startswith("[")))
