"""Words: the words of a query become scores of paragraphs, by BM25 and SPARTA."""
