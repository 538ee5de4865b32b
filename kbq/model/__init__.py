"""Encoding: texts become phrase vectors and query vectors."""
