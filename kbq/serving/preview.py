"""Preview: a page becomes some lines of HTML that can be shown within other pages; nothing in them runs."""

from html import escape
from textwrap import shorten

from kbq.corpus.pages import Page
from kbq.system.lines import without_surrogates

DESCRIPTION, PARAGRAPH, PARAGRAPHS = 160, 600, 3  # characters, and how many paragraphs
HEADERS = {  # it may be in a frame of any page, and can do nothing there
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; sandbox"
}
STYLE = """
body { margin: 0; padding: .75rem 1rem; font: 14px/1.5 system-ui, sans-serif; color: #1d2129; background: #fff }
h1 { margin: 0 0 .25rem; font-size: 1.1rem } p { margin: .5rem 0 } small { color: #5b6370 }
"""


def beginning(page: Page, characters: int = DESCRIPTION) -> str:
    """The first words of a page."""
    return shorten(page.paragraphs[0].text if page.paragraphs else "", characters, placeholder=" …")


def fragment(page: Page) -> str:
    """The title, the id and the first paragraphs of a page."""
    texts = (shorten(paragraph.text, PARAGRAPH, placeholder=" …") for paragraph in page.paragraphs[:PARAGRAPHS])
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in texts)
    return f"<h1>{escape(page.title)}</h1><small>{escape(page.id)}</small>{paragraphs}"


def preview(page: Page) -> str:
    """A whole page of HTML."""
    return without_surrogates(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(page.title)}</title>'
        f"<style>{STYLE}</style></head><body>{fragment(page)}</body></html>"
    )
