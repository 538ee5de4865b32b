"""Encoding: texts become vectors, of phrases or of queries."""
