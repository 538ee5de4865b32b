"""Serving: one process answers many people and programs."""
