"""Training: reading comprehension teaches the phrase and the query encoder. Source: arXiv 2012.12624, section 4."""
