"""Maintaining: build a knowledge base, change it, index it, verify it, merge several."""
