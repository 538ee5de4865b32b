"""Encoding: encode texts as phrase vectors and query vectors."""
