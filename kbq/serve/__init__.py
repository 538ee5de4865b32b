"""Serving: answer many people or programs at once over HTTP."""
