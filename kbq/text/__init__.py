"""Text: the markers inside a query, and where sentences and words begin and end."""
