"""Confidence: how likely an answer is right, by what search and second look know of it."""
