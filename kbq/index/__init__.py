"""Indexing: find candidate rows of a phrase dump for query vectors, by inner product."""
