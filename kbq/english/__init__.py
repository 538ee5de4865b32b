"""English: the rules that another language would change, with their tables."""
