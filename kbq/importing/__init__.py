"""Importing: files of DensePhrases become models or knowledge bases."""
