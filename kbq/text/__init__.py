"""Text: what is done to strings. The lowest room: it knows no files."""
