"""Searching: query vectors become phrases with evidence."""
