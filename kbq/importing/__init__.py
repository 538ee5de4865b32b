"""What DensePhrases published, checkpoints, phrase dumps and indexes, becomes models and knowledge bases."""
