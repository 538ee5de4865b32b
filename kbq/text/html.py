"""HTML: elements of notebooks, in which texts from anywhere are escaped."""

from collections.abc import Iterable

QUIET = "color:#767676;font-size:90%"  # readable on white and on black
BAR = "#3b82c4"


def element(name: str, *content: str, style: str = "", title: str = "") -> str:
    """Return an element whose content is HTML already; texts go through `text` before.

    >>> element("b", text("<x> & y"), style="color:red")
    '<b style="color:red">&lt;x&gt; &amp; y</b>'
    """
    given = "".join(
        f' {key}="{text(value)}"' for key, value in (("style", style), ("title", title)) if value
    )
    return f"<{name}{given}>{''.join(content)}</{name}>"


def text(words: object) -> str:
    from html import escape  # imported on demand: the help does not need it

    return escape(str(words).encode("utf-8", "replace").decode())


def bar(share: float, words: str) -> str:
    """Return a share from 0 to 1 as a bar, with words for it."""
    full = element(
        "span", style=f"display:inline-block;height:.4em;width:{4 * share:.2f}em;background:{BAR}"
    )
    track = element(
        "span", full, style="display:inline-block;width:4em;background:#8884;line-height:.4em"
    )
    return element(
        "span", track, " ", element("span", text(words), style=QUIET), style="white-space:nowrap"
    )


def marked(before: str, words: str, after: str) -> str:
    """Return a sentence in which some words are marked."""
    return text(before) + element("mark", text(words)) + text(after)


def table(header: Iterable[str], rows: Iterable[Iterable[str]], caption: str = "") -> str:
    """Return a table; the cells of rows are `td` elements already."""
    head = element(
        "thead",
        element("tr", *(element("th", text(name), style="text-align:left") for name in header)),
    )
    body = element("tbody", *(element("tr", *row) for row in rows))
    heading = ""
    if caption:
        heading = element("caption", text(caption))
    return element("table", heading, head, body)
