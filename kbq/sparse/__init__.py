"""Sparse: an inverted index beside the phrases, where the words of a query find the page."""
