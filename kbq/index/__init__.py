"""Indexing: query vectors become candidate rows of a phrase dump, by inner product."""
