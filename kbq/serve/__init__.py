"""Serving: answer people and programs over HTTP, many at once."""
