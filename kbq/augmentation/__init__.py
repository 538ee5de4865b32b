"""Augmentation: new training examples from a corpus, as generated questions or as slot queries."""
