"""Asking: the way of a query, from its text to its answers."""
