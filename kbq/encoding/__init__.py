"""Encoding: text becomes phrase vectors and query vectors."""
