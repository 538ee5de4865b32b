"""Reading: judge the phrases of a search again by reading their paragraphs."""
