"""Words: score paragraphs by the words of a query, with BM25 or SPARTA."""
