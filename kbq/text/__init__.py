"""Text: markers, sentences, normal forms and escaping of strings. The lowest room: it knows no files."""
