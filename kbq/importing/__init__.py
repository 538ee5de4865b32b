"""Checkpoints, phrase dumps and indexes of DensePhrases become models and knowledge bases."""
