"""Reading: a second look at the paragraphs that a search has found."""
