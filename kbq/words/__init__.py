"""Words: inverted indexes find the page."""
