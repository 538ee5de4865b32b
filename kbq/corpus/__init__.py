"""Corpus: files, folders or standard input become pages."""
