"""Storage: files, locks, records, lines and rows of text, the machine, and progress."""
