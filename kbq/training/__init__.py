"""Training: train encoders on reading comprehension. Source: arXiv 2012.12624, section 4."""
