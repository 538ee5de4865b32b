"""System: files, locks, lines of text, the machine, and progress callbacks."""
