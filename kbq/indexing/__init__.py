"""Indexing: all tokens of a corpus are encoded once and never again, and stored to be searched."""
