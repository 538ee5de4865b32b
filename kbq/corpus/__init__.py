"""Corpus: files become pages."""
