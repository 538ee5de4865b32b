"""System: files, locks, the machine, and what long work says of itself."""
