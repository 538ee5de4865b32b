"""Dump: the pages of a corpus become vectors on disk, encoded once, in the form in which they are searched."""
