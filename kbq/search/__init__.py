"""Searching: find phrases with their evidence for query vectors."""
