"""Indexing: the rows of a phrase dump, found by inner product."""
