"""Corpus: read files, folders or standard input as pages."""
