"""Dump: the kept tokens of a corpus are encoded once and never again, and stored as they will be searched."""
