"""kbq: a text corpus becomes a dense knowledge base of phrases; slot queries are answered from it."""

__version__ = "0.1.0"
