"""Reading: a network reads the paragraphs that a search has found, and reranks their phrases."""
