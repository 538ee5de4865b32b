"""Reading: read the paragraphs that a search has found, and rerank their phrases."""
