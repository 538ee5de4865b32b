"""Reporting: numbers become tables, breakdowns, comparisons, and reasons."""
