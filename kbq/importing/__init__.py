"""Import checkpoints, phrase dumps and indexes of DensePhrases as models and knowledge bases."""
