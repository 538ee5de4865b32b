"""Documents: what was found becomes the JSON that the service gives, the same that `kbq query --json` prints."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kbq.answers import is_likely
from kbq.corpus.pages import Page
from kbq.serve.work import Found


def query_document(found: Found, min_probability: float, context: int) -> dict[str, Any]:
    """The answers to a query that are likely enough, or the best guess.

    Args:
        context: characters of the evidence on either side of an answer.
    """
    likely = [answer for answer in found.answers if is_likely(answer, min_probability)]
    document: dict[str, Any] = {"query": found.text, "exact": found.is_exact, "unknown_words": found.unknown_words}
    if found.answers and not likely:
        document["best_guess"] = found.answers[0].to_dict(context)
    return document | {"answers": [answer.to_dict(context) for answer in likely]}


def page_document(page: Page) -> dict[str, Any]:
    """A page with its paragraphs, by the corpus's own numbers."""
    metadata: Mapping[str, object] = page.metadata
    paragraphs = [{"number": one.number, "text": one.text} for one in page.paragraphs]
    return {"id": page.id, "title": page.title, "paragraphs": paragraphs, "metadata": dict(metadata)}


def web_address(metadata: Mapping[str, object]) -> str:
    """Where a page was taken from, if its corpus says it and a browser may go there; else nothing.

    >>> web_address({"url": "https://example.org"}), web_address({"url": " javascript:alert(1)"}), web_address({})
    ('https://example.org', '', '')
    """
    url = metadata.get("url")
    try:
        return url if isinstance(url, str) and urlsplit(url).scheme in ("http", "https", "mailto") else ""
    except ValueError:
        return ""
