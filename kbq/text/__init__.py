"""Text: markers, sentences, forms and visibility of strings. Lowest of all: it knows no files."""
