"""Filling: tables of subjects and relations get their empty cells from a knowledge base, each with its evidence."""
